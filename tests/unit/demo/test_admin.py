"""Requests to the admin ports are direct, whatever web proxy the environment names."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from proxy.demo.admin import get
from proxy.demo.traffic import Traffic

RECORD_BYTES = """\
# TYPE diskless_proxy_record_bytes_total counter
diskless_proxy_record_bytes_total{kind="classic"} %d
"""


class Port(ThreadingHTTPServer):
    daemon_threads = True
    record_bytes = 5
    status = 200


class Answering(BaseHTTPRequestHandler):
    server: Port

    def do_GET(self) -> None:
        text = RECORD_BYTES % self.server.record_bytes if self.path == "/metrics" else "no such page"
        body = text.encode()
        self.send_response(self.server.status if self.path == "/metrics" else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def port() -> Iterator[Port]:
    with Port(("127.0.0.1", 0), Answering) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def nobody() -> Iterator[str]:
    """A port that nothing listens at."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


@pytest.fixture
def web_proxy(nobody: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that knows no loopback address."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, nobody)


def url_of(port: Port) -> str:
    return f"http://127.0.0.1:{port.server_address[1]}"


def test_status_and_text(port: Port) -> None:
    status, text = get(url_of(port), "/metrics")
    assert (status, text) == (200, (RECORD_BYTES % 5).strip())
    assert get(url_of(port), "/nothing") == (404, "no such page")


def test_a_missing_answer_has_a_reason(nobody: str) -> None:
    status, text = get(nobody, "/metrics")
    assert status == 0
    assert text.startswith("# ")
    assert "refused" in text
    assert get("http://nowhere:port", "/metrics")[0] == 0


@pytest.mark.usefixtures("web_proxy")
def test_traffic_is_read_although_the_environment_names_a_web_proxy(port: Port) -> None:
    traffic = Traffic({"rack-a": url_of(port)})
    port.record_bytes += 100
    traffic.look()
    assert traffic.record_bytes("classic") == 100


def test_a_proxy_that_refuses_is_left_as_it_was(port: Port) -> None:
    traffic = Traffic({"rack-a": url_of(port)})
    port.record_bytes, port.status = 1_000, 503
    traffic.look()
    port.record_bytes, port.status = 7, 200
    traffic.look()
    assert traffic.record_bytes("classic") == 2
