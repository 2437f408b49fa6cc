"""A network that can be made slow and broken: a toxiproxy server, and links through it."""

from __future__ import annotations

import os
import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import toxiproxy

from proxy.demo import servers
from proxy.demo.ports import HOST
from proxy.demo.process import Process
from proxy.demo.waiting import wait_until

PORTS = (12_000, 20_000)
"""Ports below those of stacks and of outgoing connections."""
WORKERS = 8
"""Number of parallel workers that have ports of their own."""
_given: set[int] = set()


def free_port() -> int:
    """Return a port that nobody uses now, and that the system does not give to outgoing connections.

    A server may bind it much later: this process gives no port out twice, and parallel workers share none.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS
    while True:
        port = random.randrange(PORTS[0] + worker, PORTS[1], WORKERS)
        with socket.socket() as probe, suppress(OSError):
            if port not in _given:
                probe.bind((HOST, port))
                _given.add(port)
                return port


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
