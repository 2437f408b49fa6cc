"""An admin port with a test's answers, over real HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

FLOW = {
    **{"kind": "classic", "direction": "produce", "client_rack": "rack-b", "serving_rack": "rack-a"},
    **{
        "bytes": 2_500_000_000,
        "bytes_per_second": 1_250_000.0,
        "crosses": True,
        "crossed_bytes": 2_500_000_000,
        "crossed_bytes_per_second": 1_250_000.0,
        "cost_usd": 0.05,
        "usd_per_hour": 0.09,
    },
}
CONNECTION = {
    **{
        "client": "10.0.0.7:50000",
        "client_id": "[red]shop[/red]\\x1b",
        "software": "librdkafka 2.12.0",
        "rack": "rack-b",
    },
    **{"rack_from": "client ID", "listener": "default broker 1", "principal": "ANONYMOUS", "opened_ms": 0},
    **{"requests": 1234, "received_bytes": 5_000_000, "sent_bytes": 900, "crossed_bytes": 4_500_000, "worker": None},
}
ERROR = {
    **{"time_ms": 0, "level": "warning", "event": "connection_refused", "text": "limits.max_connections is reached"},
    **{"remedy": "raise limits.max_connections", "count": 12},
}
SAMPLE = {
    **{"time_ms": 1, "produce_bytes_per_second": 1_250_000.0, "fetch_bytes_per_second": 0.0},
    **{"requests_per_second": 40.0, "produce_p50_ms": 2.0, "produce_p99_ms": 12.5, "fetch_p50_ms": None},
    **{"fetch_p99_ms": None, "upload_p99_ms": None, "commit_p99_ms": None, "loop_lag_p99_ms": 0.4},
    **{"cross_rack_bytes_per_second": 1_250_000.0, "cross_rack_usd_per_hour": 0.09, "saved_usd_per_hour": 0.0},
    **{
        "uploads_per_second": 2.0,
        "upload_budget_per_second": 4.0,
        "connections": 1,
        "cache_hit_ratio": None,
        "errors_per_second": 0.0,
    },
}
NODE = {
    **{"node": "10.0.0.8:6379", "slots": 5461, "shards": [0, 1, 2, 7], "runs_per_second": 1234.5, "cpu_share": 0.42},
    **{"memory_bytes": 5_000_000, "memory_limit_bytes": 2_000_000_000, "replicas": 1, "lag_bytes": 1_500},
    "problem": None,
}
NOT_SEEN = dict.fromkeys(NODE) | {"node": "10.0.0.9:6379", "slots": 5461, "shards": [3], "problem": "it is down"}
DOCUMENTS: dict[str, Any] = {
    "/api/nodes": {"nodes": [NODE, NOT_SEEN], "problem": None},
    "/api/overview": {
        **{"version": "0.1.0", "proxy": "rack-a/proxy:19092", "rack": "rack-a", "now_ms": 90_000, "started_ms": 0},
        **{"workers": 1, "state": "ready", "reason": None, "remark": "a shard is fenced", "log_level": "info"},
        **{"actions": False, "buffers": [], "flows": [FLOW], "savings": {"near_read": 1.5}},
        **{"storage_cost_usd": {"put": 0.25, "get": 0.0}, "currency_note": ""},
    },
    "/api/history": {"interval_ms": 2000, "samples": [SAMPLE | {"produce_bytes_per_second": 0.0}, SAMPLE]},
    "/api/connections": {"total": 5, "connections": [CONNECTION, CONNECTION | {"crossed_bytes": 0, "client": "near"}]},
    "/api/errors": {"errors": [ERROR]},
}


class _Server(ThreadingHTTPServer):
    documents: dict[str, Any]
    asked: list[tuple[str, dict[str, list[str]]]]


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        self.server.asked.append((url.path, parse_qs(url.query)))
        status, answer = 200, self.server.documents.get(url.path)
        if answer is None:
            status, answer = 404, "404: Not Found"
        elif isinstance(answer, tuple):
            status, answer = answer
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Log nothing."""


@contextmanager
def admin_port(documents: dict[str, Any] = DOCUMENTS) -> Iterator[tuple[str, _Server]]:
    """Serve the documents; yields the URL, and the server with the requests that it got."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.documents, server.asked = dict(documents), []
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    serving.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", server
    finally:
        server.shutdown()
        serving.join()
        server.server_close()
