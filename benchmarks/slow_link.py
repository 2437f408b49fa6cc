"""A link to a server whose answers come later, by toxiproxy."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import toxiproxy

from proxy.demo import servers
from proxy.demo.ports import HOST
from proxy.demo.process import Process
from proxy.demo.waiting import wait_until

_PORT, _LINK_PORT = 12_001, 12_002
_START_S = 30


@contextmanager
def slow_link(upstream: str, latency_ms: int, directory: Path) -> Iterator[str]:
    """Run a link to `upstream` (`host:port`) during the context, and return its address."""
    process = Process(
        "toxiproxy", [servers.toxiproxy(), "-host", HOST, "-port", str(_PORT)], directory / "toxiproxy.log"
    )
    process.start()
    try:
        server = toxiproxy.Toxiproxy()
        server.update_api_consumer(HOST, _PORT)
        wait_until(lambda: "" if server.running() else "it does not answer", _START_S, threading.Event(), str)
        link = server.create(upstream=upstream, name="slow", listen=f"{HOST}:{_LINK_PORT}")
        link.add_toxic(type="latency", stream="downstream", attributes={"latency": latency_ms})
        yield str(link.listen)
    finally:
        process.terminate()
        process.wait_ended()
