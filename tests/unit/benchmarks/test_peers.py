"""The load program and the relay in C, in front of a server that answers, and one that answers wrongly."""

from __future__ import annotations

import json
import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.peers import plot, servers
from benchmarks.peers.table import TITLES, markdown

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
REQUEST = struct.pack(">ihhi", 8, 0, 7, 0)
SECONDS = "0.05"


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return servers.compile_c("load", tmp_path_factory.mktemp("load"))


@pytest.fixture
def requests(tmp_path: Path) -> Path:
    path = tmp_path / "requests"
    path.write_bytes(REQUEST)
    return path


@contextmanager
def answering(answer: Callable[[int, int], bytes]) -> Iterator[int]:
    """Serve on a port; `answer` gets the correlation ID and the number of the request."""

    def serve(client: socket.socket) -> None:
        with suppress(ConnectionError), client, client.makefile("rb") as stream:
            number = 0
            while frame := stream.read(len(REQUEST)):
                number += 1
                client.sendall(answer(struct.unpack_from(">i", frame, 8)[0], number))

    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            try:
                while True:
                    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
            except OSError:
                return

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def run(load: Path, port: int, requests: Path, rate: int = 0) -> subprocess.CompletedProcess[str]:
    command = [str(load), str(port), "3" if not rate else "1", SECONDS, str(rate), str(requests)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("rate", [0, 100])
def test_every_request_is_counted(load, requests, rate):
    counted = []

    def answer(correlation_id: int, number: int) -> bytes:
        counted.append(number)
        return struct.pack(">iiq", 12, correlation_id, 0)

    with answering(answer) as port:
        done = run(load, port, requests, rate)
    assert done.returncode == 0, done.stderr
    got = json.loads(done.stdout)
    assert got["requests"] + got["warm"] == len(counted)
    assert got["bytes"] == got["requests"] * 16
    assert got["p50_us"] <= got["p99_us"]


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (lambda one, number: struct.pack(">iiq", 12, one + (number > 2), 0), "another correlation ID"),
        (lambda one, number: struct.pack(">ii", 4 + (number > 2), one) + bytes(number > 2), "another length"),
    ],
)
def test_a_wrong_answer_ends_the_load(load, requests, answer, complaint):
    with answering(answer) as port:
        done = run(load, port, requests)
    assert done.returncode == 1
    assert complaint in done.stderr


def test_a_picture_has_a_bar_for_every_figure():
    figures = {
        f"{case}: {name}: {what}": {"median": 12.3, "min": 1.0, "max": 20.0, "runs": 3}
        for case in ("64 connections", "64 connections, Produce v12", "lone, 200/s")
        for name in TITLES
        for what in ("requests/s", "cpu us", "p50 us")
    }
    drawn = plot.svg(plot.charts({"figures": figures}, TITLES), "bars")
    bars = [part for part in ElementTree.fromstring(drawn).iter() if part.get("class") in {"bar", "ours"}]
    assert len(bars) == 5 * len(TITLES)


def test_the_table_names_what_was_not_measured():
    result = {
        "when": "now",
        "machine": {"cpus": 2},
        "arguments": {"rounds": 1, "seconds": 1},
        "wall_seconds": 1.0,
        "figures": {"lone: ours: requests/s": {"median": 200.0, "min": 199.0, "max": 200.0}},
    }
    assert "| **ours** | 200 (199–200) | – | – | – |" in markdown(result, ["lone"])
