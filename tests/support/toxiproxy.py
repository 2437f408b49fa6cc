"""A network that can be made slow and broken: a toxiproxy server, and links through it."""

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
from tests.support.ports import free_port


@contextmanager
def toxiproxy_server(directory: Path) -> Iterator[toxiproxy.Toxiproxy]:
    """Run a server during the context."""
    port = free_port()
    command = [servers.toxiproxy(), "-host", HOST, "-port", str(port)]
    process = Process("toxiproxy", command, directory / "toxiproxy.log")
    process.start()
    try:
        server = toxiproxy.Toxiproxy()
        server.update_api_consumer(HOST, port)
        wait_until(lambda: "" if server.running() else "it does not answer", 30, threading.Event(), str)
        yield server
    finally:
        process.terminate()
        process.wait_ended()


def closed_link(server: toxiproxy.Toxiproxy, name: str, upstream: str) -> toxiproxy.Proxy:
    """Create a link to `upstream` (`host:port`) from `link.listen`, where nothing listens until `link.enable()`."""
    return server.create(upstream=upstream, name=name, listen=f"{HOST}:{free_port()}", enabled=False)
