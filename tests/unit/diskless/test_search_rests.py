"""Searches by time yield to the event loop for as long as they worked, however many searches run."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from proxy.coordinator.interface import ListRequest, OffsetAnswer
from proxy.diskless import record_times, time_lookup
from tests.batches import make_timed_batch
from tests.support.memory_log import TOPIC, new_log

RECORDS, STRETCH = 5_000, 100


async def test_each_stretch_is_followed_by_a_rest_and_no_two_searches_work_at_once(monkeypatch: Any) -> None:
    monkeypatch.setattr(record_times, "_RECORDS_BETWEEN_LOOKS", STRETCH)
    times = list(range(RECORDS))
    log = await new_log(1)
    await log.write([(0, make_timed_batch(times))])
    clock_s, slept, working, most = 0.0, list[float](), set[int](), 0
    lock = threading.Lock()

    def perf_counter() -> float:
        """Let every stretch take a millisecond."""
        nonlocal clock_s, most
        with lock:
            clock_s += 0.001
            working.add(threading.get_ident())
            most = max(most, len(working))
            return clock_s

    def sleep(seconds: float) -> None:
        with lock:
            slept.append(seconds)
            working.discard(threading.get_ident())

    monkeypatch.setattr(time_lookup, "perf_counter", perf_counter)
    monkeypatch.setattr(time_lookup, "sleep", sleep)
    wanted = [ListRequest(TOPIC, 0, RECORDS - 1)] * 3
    found = await asyncio.gather(*(log.lookup.list_offsets([one], 30) for one in wanted))
    assert found == [[OffsetAnswer(0, RECORDS - 1, RECORDS - 1)]] * 3
    assert len(slept) >= 3 * RECORDS // STRETCH
    assert slept == pytest.approx([0.001] * len(slept))
    assert most == 1
    log.lookup.close()
