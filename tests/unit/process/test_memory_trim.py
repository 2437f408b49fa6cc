"""Freed memory is returned to the system, whatever lies between the freed blocks."""

from __future__ import annotations

import asyncio
import ctypes
import subprocess
import sys

import pytest

from proxy.process.memory_trim import keep_trimming

BUSY = """
import asyncio
import sys
from benchmarks.measure import memory_mib
from proxy.process.memory_trim import keep_trimming
import os

async def main() -> None:
    blocks = [bytes(1_000) for _ in range(200_000)]
    left = blocks[::500]
    full = memory_mib(os.getpid())
    del blocks
    trimming = asyncio.create_task(keep_trimming(lambda: int(sys.argv[1])))
    await asyncio.sleep(1)
    print(full - memory_mib(os.getpid()), len(left))

asyncio.run(main())
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="not glibc")
@pytest.mark.parametrize(("interval_ms", "given_back"), [(100, True), (0, False)])
def test_free_memory_is_returned_unless_that_is_off(interval_ms: int, given_back: bool) -> None:
    done = subprocess.run([sys.executable, "-c", BUSY, str(interval_ms)], capture_output=True, text=True, check=True)
    freed_mib = float(done.stdout.split()[0])
    assert (freed_mib > 150) is given_back


async def test_an_allocator_that_can_not_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    trimming = asyncio.create_task(keep_trimming(lambda: 1))
    await asyncio.sleep(0.05)
    assert not trimming.done()
    trimming.cancel()
