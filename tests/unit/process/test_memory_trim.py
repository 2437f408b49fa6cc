"""Freed memory is used again, and returned to the system from time to time, whatever lies between the freed blocks."""

from __future__ import annotations

import asyncio
import ctypes
import os
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

BLOCKS = """
import resource
import sys
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from proxy.process.memory_trim import keep_freed_memory

def block(number: int) -> bytearray:
    return bytearray(b"x") * (4_000_000 + number % 7 * 300_000)

if sys.argv[1] == "kept":
    keep_freed_memory()
held = deque(maxlen=20)
with ThreadPoolExecutor(8) as threads:
    for number in range(0, 400, 4):
        if number == 200:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        others = [threads.submit(block, number + one) for one in range(3)]
        held.append(block(number))
        held.extend(other.result() for other in others)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
NEW_PAGES = 200 * 4_900_000 // 4096
"""Pages of 200 blocks, if none of them is in memory that was used before."""
needs_glibc = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="not glibc")


@needs_glibc
@pytest.mark.parametrize(
    ("mode", "environment", "is_kept"),
    [("kept", {}, True), ("as ever", {}, False), ("kept", {"MALLOC_ARENA_MAX": "4"}, False)],
)
def test_blocks_are_in_memory_that_was_freed(mode: str, environment: dict[str, str], is_kept: bool) -> None:
    command = [sys.executable, "-c", BLOCKS, mode]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **environment})
    assert (int(done.stdout) < NEW_PAGES / 20) is is_kept


@needs_glibc
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
