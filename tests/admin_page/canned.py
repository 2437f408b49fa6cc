"""An admin port with the answers that a test has set, next to the real page."""

from __future__ import annotations

import asyncio
import copy
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from proxy.admin.page import add_page

TOKEN = "open-sesame"
HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
LONG = "a-name-without-any-place-to-break-" * 7


def samples(number: int = 300) -> list[dict[str, Any]]:
    """Return ten minutes of samples, one every two seconds; the last value of each is the mean."""
    now = int(time.time() * 1000)

    def wave(mean: float, index: int, period: int) -> float:
        return mean * (1 + 0.25 * math.sin(2 * math.pi * (index - number + 1) / period))

    return [
        {
            "time_ms": now - (number - 1 - index) * 2000,
            "produce_bytes_per_second": wave(2_400_000, index, 40),
            "fetch_bytes_per_second": wave(4_700_000, index, 55),
            "requests_per_second": wave(640, index, 33),
            "produce_p50_ms": wave(260, index, 80),
            "produce_p99_ms": wave(410, index, 25),
            "fetch_p50_ms": wave(3.2, index, 60),
            "fetch_p99_ms": wave(24, index, 35),
            "upload_p99_ms": wave(45, index, 30),
            "commit_p99_ms": wave(4.1, index, 20),
            "uploads_per_second": wave(2.9, index, 35),
            "upload_budget_per_second": 4.0,
            "loop_lag_p99_ms": wave(2.2, index, 15),
            "cross_rack_bytes_per_second": wave(1_500_000, index, 45),
            "cross_rack_usd_per_hour": wave(0.108, index, 45),
            "saved_usd_per_hour": wave(0.9, index, 45),
            "storage_usd_per_hour": wave(0.1, index, 45),
            "connections": 24 if index > number // 2 else None,
            "cache_hit_ratio": 0.97,
            "errors_per_second": 0.0,
        }
        for index in range(number)
    ]


def flow(
    kind: str, direction: str, client: str, serving: str, rate: float, usd_per_hour: float = 0.0, borders: int = 1
) -> dict[str, Any]:
    crossed_rate = rate * borders * (usd_per_hour > 0)
    return {
        "kind": kind,
        "direction": direction,
        "client_rack": client,
        "serving_rack": serving,
        "bytes": int(rate * 600),
        "bytes_per_second": rate,
        "crosses": usd_per_hour > 0,
        "crossed_bytes": int(crossed_rate * 600),
        "crossed_bytes_per_second": crossed_rate,
        "cost_usd": usd_per_hour / 6,
        "usd_per_hour": usd_per_hour,
    }


def connection(client_id: str | None, rack: str, crossed: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "client": "10.0.2.7:51234",
        "client_id": client_id,
        "software": "librdkafka 2.11.1",
        "rack": rack,
        "rack_from": "client ID",
        "listener": "default broker 2",
        "principal": None,
        "opened_ms": int(time.time() * 1000) - 754_000,
        "requests": 5123,
        "received_bytes": 1_200_000,
        "sent_bytes": 88_000_000,
        "crossed_bytes": crossed,
        "worker": None,
    } | more


def sums(times: int) -> dict[str, Any]:
    """Return what some proxies move and cost together."""
    return {
        "produce_bytes_per_second": 2_400_000 * times,
        "fetch_bytes_per_second": 4_700_000 * times,
        "cross_rack_bytes_per_second": 1_500_000 * times,
        "cross_rack_usd_per_hour": 0.108 * times,
        "saved_usd_per_hour": 0.9 * times,
        "storage_usd_per_hour": 0.05 * times,
        "connections": 24 * times,
    }


def documents() -> dict[str, Any]:
    """Return the documents of a proxy of rack-a, with one client that names another rack."""
    now = int(time.time() * 1000)
    crosser = connection("billing,diskless_rack_id=rack-b", "rack-b", 900_000_000)
    return {
        "overview": {
            "version": "0.1.0",
            "proxy": "proxy-a",
            "rack": "rack-a",
            "now_ms": now,
            "started_ms": now - 3_723_000,
            "workers": 1,
            "state": "ready",
            "reason": None,
            "remark": None,
            "log_level": "info",
            "actions": True,
            "buffers": [
                {"name": "wal", "used": 3_100_000, "limit": 67_108_864, "unit": "bytes", "setting": "wal.max"},
                {"name": "held_requests", "used": 260_000_000, "limit": 268_435_456, "unit": "bytes", "setting": "l"},
                {"name": "connections", "used": 24, "limit": 10_000, "unit": "connections", "setting": "limits.x"},
            ],
            "flows": [
                flow("diskless", "produce", "rack-a", "rack-a", 2_000_000),
                flow("diskless", "fetch", "rack-a", "rack-a", 3_100_000),
                flow("classic", "fetch", "rack-a", "rack-a", 800_000),
                flow("classic", "produce", "rack-a", "rack-c", 300_000, 0.0216),
                flow("diskless", "fetch", "rack-b", "rack-a", 1_200_000, 0.0864),
            ],
            "savings": {"near_read": 0.31, "diskless_produce": 1.2, "diskless_replication": 2.4, "diskless_fetch": 1.9},
            "storage_cost_usd": {"put": 0.021, "get": 0.0042},
            "currency_note": "prices.*",
        },
        "history": {"interval_ms": 2000, "samples": samples()},
        "fleet": {
            "sums": {"proxies": 3, "serving": 3, "racks": 3, "processes": 3, "reporting": 3, **sums(6)},
            "proxies": [
                {"proxy": f"proxy-{rack}", "rack": f"rack-{rack}", "address": f"10.0.{index}.5:9092", "serving": True,
                 "this": rack == "a", "version": "0.1.0", "age_ms": 400, "sums": sums(index + 1)}
                for index, rack in enumerate("abc")
            ],
            "brokers": [
                {"node_id": index, "rack": f"rack-{rack}", "address": f"10.0.{index}.9:9092"}
                for index, rack in enumerate("abc", 1)
            ],
        },
        "topics": {
            "total": 2,
            "topics": [
                {"name": "diskless.orders", "topic_id": "Vn0-aUqBRyC8G3nyGX8yMw", "partitions": 12, "diskless": True,
                 "produced_bytes": 1_200_000_000, "fetched_bytes": 2_600_000_000, "crossed_bytes": 720_000_000},
                {"name": "payments", "topic_id": None, "partitions": None, "diskless": False,
                 "produced_bytes": 180_000_000, "fetched_bytes": 480_000_000, "crossed_bytes": 180_000_000},
            ],
        },
        "segments": {
            "segments": [
                {"object": f"wal/0199-{index:04}", "bytes": 4_100_000 - index, "batches": 212, "partitions": 12,
                 "uploaded_ms": now - index * 250, "upload_ms": 38.2, "commit_ms": None if index == 1 else 2.1}
                for index in range(20)
            ]
        },
        "connections": {
            "total": 2,
            "connections": [crosser, connection("web", "rack-a", listener="default bootstrap")],
        },
        "errors": {
            "errors": [
                {"time_ms": now - 60_000, "level": "warning", "event": "storage slow", "count": 3,
                 "text": "PUT took 2.1 s", "remedy": "see whether the bucket is in this region"},
            ]
        },
    }  # fmt: skip


class Canned:
    """Answers of the port; tests change them while the page is open."""

    def __init__(self) -> None:
        self.documents = documents()
        self.questions: list[tuple[str, dict[str, str]]] = []
        self.changes: list[tuple[str, Any]] = []
        self.silent = False
        self.go_on = asyncio.Event()
        """Event that lets all answers wait while it is not set."""
        self.go_on.set()
        self.held = asyncio.Event()
        """Event that is set once an answer has had to wait."""
        self.forbidden = False
        self.underway = 0
        self.most_underway = 0
        self.url = ""

    async def answer_request(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        self.underway += 1
        self.most_underway = max(self.most_underway, self.underway)
        try:
            self.questions.append((name, dict(request.query)))
            if not self.go_on.is_set():
                self.held.set()
                await self.go_on.wait()
            if self.silent:
                return web.json_response({"error": "the workers do not answer; see the log"}, status=503)
            document = copy.deepcopy(self.documents[name])
            wanted = request.query.get("contains", "")
            if wanted and name in document:
                rows = [row for row in document[name] if wanted in str(row)]
                document |= {name: rows, "total": len(rows)}
            if name in document and name != "segments":
                document[name] = document[name][: int(request.query.get("limit", "100"))]
            return web.json_response(document)
        finally:
            self.underway -= 1

    async def changed(self, request: web.Request) -> web.StreamResponse:
        name = request.path.removeprefix("/api/")
        if self.forbidden:
            return web.json_response({"error": "no token is set; set admin.token_file"}, status=403)
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return web.json_response({"error": "the token is wrong; read it from admin.token_file"}, status=401)
        self.changes.append((name, await request.json() if request.can_read_body else None))
        return web.json_response({})


@asynccontextmanager
async def serving(canned: Canned) -> AsyncIterator[Canned]:
    """Serve the page and the answers on a free port of 127.0.0.1."""
    app = web.Application()
    add_page(app)
    app.router.add_get("/api/{name}", canned.answer_request)
    app.router.add_put("/api/log-level", canned.changed)
    app.router.add_post("/api/drain", canned.changed)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        canned.url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
        yield canned
    finally:
        await runner.cleanup()
