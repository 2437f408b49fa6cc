"""The benchmark writes to the server that it started, and to no other."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any, cast

import pytest
from redis.exceptions import ConnectionError as NoConnection

from benchmarks.coordinator import wait_for


class Store:
    """Answers like a server that takes a moment to start."""

    def __init__(self, process_id: int, refusals: int = 0) -> None:
        self.process_id, self.refusals = process_id, refusals

    async def info(self, section: str) -> dict[str, Any]:
        if self.refusals:
            self.refusals -= 1
            raise NoConnection("refused")
        return {"process_id": self.process_id}


@pytest.fixture
def server() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.communicate(b"\n")


@pytest.fixture
def ended() -> subprocess.Popen[bytes]:
    with subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"]) as process:
        process.wait()
    return process


async def test_the_benchmark_waits_for_its_own_server(server: subprocess.Popen[bytes]) -> None:
    store = Store(server.pid, refusals=2)
    await wait_for(server, cast("Any", store))
    assert store.refusals == 0


async def test_another_server_at_the_port_is_rejected(server: subprocess.Popen[bytes]) -> None:
    with pytest.raises(RuntimeError, match="another server"):
        await wait_for(server, cast("Any", Store(server.pid + 1)))


async def test_the_benchmark_does_not_wait_for_a_server_that_has_ended(ended: subprocess.Popen[bytes]) -> None:
    with pytest.raises(RuntimeError, match="exit code 3"):
        await wait_for(ended, cast("Any", Store(ended.pid, refusals=10**9)))
