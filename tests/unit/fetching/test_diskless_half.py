"""The diskless half of a Fetch: the conditions and the length of its wait.

The time is the loop's, which jumps forward when all tasks wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from proxy.coordinator.interface import CoordinatorUnavailable, FindRequest, LogAnswer
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.protocol.errors import KAFKA_STORAGE_ERROR, NONE, OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION
from tests.batches import make_batch
from tests.support.memory_log import TOPIC, MemoryLog, new_log
from tests.unit.fetching.broker_model import LEADER
from tests.unit.fetching.test_rounds import append, lengths, proxied_with
from tests.unit.fetching.test_routed import asked

SIZE = len(make_batch())
LIMIT = 3 * SIZE - 1
"""Two batches."""
WAIT_S = 0.5
UNAVAILABLE_WAIT_S = 0.25


@pytest.fixture
async def elapsed_s(monkeypatch: pytest.MonkeyPatch) -> Callable[[], float]:
    loop: Any = asyncio.get_running_loop()
    select, waited_s = loop._selector.select, 0.0

    def wait(timeout_s: float | None) -> Any:
        nonlocal waited_s
        if timeout_s is None:
            return select(None)
        waited_s += timeout_s
        return select(0)

    monkeypatch.setattr(loop, "time", lambda: waited_s)
    monkeypatch.setattr(loop._selector, "select", wait)
    return lambda: round(waited_s, 3)


class Reader:
    """A client of topic `d`, of two partitions, and of the classic topic `t`."""

    def __init__(self, log: MemoryLog) -> None:
        self.proxied = proxied = proxied_with(2)
        proxied.set("fetch", mixed_wait_ms=50)
        proxied.topics.diskless["d"] = DisklessTopic("d", TOPIC, 2, "live")
        proxied.reader = log.reader
        proxied.allow("d")
        self.trusted: list[bool] = []
        """For each round, whether it trusted the cached end of the log."""
        read = log.reader.read

        async def counted(requests: Any, *, trust_ends: bool, **limits: Any) -> Any:
            self.trusted.append(trust_ends)
            return await read(requests, trust_ends=trust_ends, **limits)

        log.reader.read = counted  # type: ignore[method-assign]

    async def fetch(self, *partitions: tuple[str, int, int], **values: Any) -> Any:
        """Fetch with a wait of half a second by default."""
        return await self.proxied.fetch(asked(12, *partitions, **{"max_wait_ms": int(WAIT_S * 1000)} | values))

    def over_quota(self) -> None:
        """Return a quota that is used up, so that the answer must wait for 200 ms."""
        quotas: Any = self.proxied.quotas
        quotas.fetch.available_bytes = lambda *_: 0.0
        quotas.throttle_fetch = lambda connection, client_id, size: 200 if size else 0


def errors(response: Any) -> list[int]:
    return [one.error_code for topic in response.topics for one in topic.partitions]


async def test_over_its_quota_a_client_waits_for_records_and_is_throttled_when_they_come(
    elapsed_s: Callable[[], float],
) -> None:
    log = await new_log()
    reader = Reader(log)
    reader.over_quota()
    response = await reader.fetch(("d", 0, 0))
    assert (lengths(response), response.throttle_ms, elapsed_s()) == ([("d", 0, 0)], 0, WAIT_S)
    following = asyncio.create_task(log.coordinates.follow())
    waiting = asyncio.create_task(reader.fetch(("d", 0, 0)))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await log.write([(0, make_batch())])
    response = await waiting
    assert (response.topics, response.throttle_ms, elapsed_s()) == ([], 200, WAIT_S + 0.1)
    following.cancel()


async def test_a_fetch_of_no_bytes_does_not_wait(elapsed_s: Callable[[], float]) -> None:
    reader = Reader(await new_log())
    assert lengths(await reader.fetch(("d", 0, 0), max_bytes=0)) == [("d", 0, 0)]
    assert elapsed_s() == 0


@pytest.mark.parametrize("in_one_segment", [True, False])
@pytest.mark.parametrize(
    ("limits", "quota_bytes"),
    [({"partition_max_bytes": LIMIT}, float("inf")), ({"max_bytes": LIMIT}, float("inf")), ({}, float(LIMIT))],
)
async def test_a_reader_that_lags_does_not_wait_for_records_beyond_its_limits(
    limits: dict[str, int], quota_bytes: float, in_one_segment: bool, elapsed_s: Callable[[], float]
) -> None:
    """Batches are answered whole, which is a bit less than a limit, and may be less than `min_bytes`."""
    log = await new_log()
    batches = [(0, make_batch()) for _ in range(5)]
    for part in [batches] if in_one_segment else [[batch] for batch in batches]:
        await log.write(part)
    reader = Reader(log)
    reader.proxied.quotas.fetch.available_bytes = lambda *_: quota_bytes
    behind = await reader.fetch(("d", 0, 0), min_bytes=LIMIT, **limits)
    assert (lengths(behind), len(reader.trusted), elapsed_s()) == ([("d", 0, 2 * SIZE)], 1, 0)
    at_end = await reader.fetch(("d", 0, 3), min_bytes=LIMIT, **limits)
    assert (lengths(at_end), len(reader.trusted), elapsed_s()) == ([("d", 0, 2 * SIZE)], 3, WAIT_S)


async def test_a_reader_that_lags_does_not_wait_for_rows_that_were_not_announced(
    elapsed_s: Callable[[], float],
) -> None:
    log = await new_log()
    for _ in range(5):
        await log.write([(0, make_batch())])
    find = log.coordinator.find

    async def find_two(requests: Sequence[FindRequest]) -> list[LogAnswer]:
        return [answer._replace(rows=answer.rows[:2]) for answer in await find(requests)]

    log.coordinator.find = find_two  # type: ignore[method-assign]
    reader = Reader(log)
    behind = await reader.fetch(("d", 0, 0), min_bytes=4 * SIZE)
    assert (lengths(behind), elapsed_s()) == ([("d", 0, 2 * SIZE)], 0)
    at_end = await reader.fetch(("d", 0, 3), min_bytes=4 * SIZE)
    assert (lengths(at_end), elapsed_s()) == ([("d", 0, 2 * SIZE)], WAIT_S)


def refuse(log: MemoryLog, times: int = 1 << 30) -> None:
    """Fail this many requests, as if the coordinator's store were down."""
    find, left = log.coordinator.find, times

    async def down(requests: Sequence[FindRequest]) -> list[LogAnswer]:
        nonlocal left
        left -= 1
        if left < 0:
            return await find(requests)
        raise CoordinatorUnavailable("connection refused")

    log.coordinator.find = down  # type: ignore[method-assign]


async def test_without_the_coordinator_clients_are_not_answered_at_once(elapsed_s: Callable[[], float]) -> None:
    log = await new_log()
    refuse(log)
    reader = Reader(log)
    assert errors(await reader.fetch(("d", 0, 0), ("d", 1, 0))) == [KAFKA_STORAGE_ERROR] * 2
    assert elapsed_s() == UNAVAILABLE_WAIT_S
    assert errors(await reader.fetch(("d", 0, 0), max_wait_ms=100)) == [KAFKA_STORAGE_ERROR]
    assert elapsed_s() == UNAVAILABLE_WAIT_S + 0.1


async def test_a_topic_that_may_be_a_placeholder_is_not_rejected_at_once(elapsed_s: Callable[[], float]) -> None:
    reader = Reader(await new_log())
    reader.proxied.topics.unsure = {"u"}
    assert errors(await reader.fetch(("u", 0, 0))) == [KAFKA_STORAGE_ERROR]
    assert elapsed_s() == UNAVAILABLE_WAIT_S


@pytest.mark.parametrize(("batches", "waited_s"), [(1, UNAVAILABLE_WAIT_S), (0, WAIT_S)])
async def test_the_coordinator_is_asked_again_before_its_silence_is_answered(
    batches: int, waited_s: float, elapsed_s: Callable[[], float]
) -> None:
    log = await new_log()
    await log.write([(0, make_batch()) for _ in range(batches)] + [(1, make_batch())])
    refuse(log, times=1)
    reader = Reader(log)
    response = await reader.fetch(("d", 0, 0))
    assert (errors(response), lengths(response), elapsed_s()) == ([NONE], [("d", 0, batches * SIZE)], waited_s)
    # A failed read may not have updated the log's end either.
    assert reader.trusted[:2] == [False, False]
    assert all(reader.trusted[2:])


@pytest.mark.parametrize(
    ("other", "error_code", "size"),
    [(("d", 1, 0), NONE, SIZE), (("d", 1, 9), OFFSET_OUT_OF_RANGE, 0), (("d", 7, 0), UNKNOWN_TOPIC_OR_PARTITION, 0)],
)
async def test_other_errors_and_records_are_answered_at_once(
    other: tuple[str, int, int], error_code: int, size: int, elapsed_s: Callable[[], float]
) -> None:
    log = await new_log()
    await log.write([(1, make_batch())])
    find = log.coordinator.find

    async def fenced(requests: Sequence[FindRequest]) -> list[LogAnswer]:
        return [
            answer if request.partition else LogAnswer(KAFKA_STORAGE_ERROR, (), -1, -1, -1)
            for request, answer in zip(requests, await find(requests), strict=True)
        ]

    log.coordinator.find = fenced  # type: ignore[method-assign]
    response = await Reader(log).fetch(("d", 0, 0), other)
    assert (errors(response), lengths(response)[1][2]) == ([KAFKA_STORAGE_ERROR, error_code], size)
    assert elapsed_s() == 0


@pytest.mark.parametrize("names", [[("d", 0, 0), ("t", 2, 0)], [("t", 2, 0), ("d", 0, 0)]])
async def test_without_the_coordinator_new_records_of_a_broker_end_the_wait(
    names: list[tuple[str, int, int]], elapsed_s: Callable[[], float]
) -> None:
    log = await new_log()
    refuse(log)
    reader = Reader(log)
    broker = reader.proxied.brokers[LEADER]
    response = await reader.fetch(*names)
    assert sorted(errors(response)) == [NONE, KAFKA_STORAGE_ERROR]
    assert elapsed_s() == UNAVAILABLE_WAIT_S
    assert [request.max_wait_ms for request in broker.asked[:2]] == [0, 50]
    waiting = asyncio.create_task(reader.fetch(*names))
    await asyncio.sleep(0.02)
    append(reader.proxied, LEADER, 2, 100)
    response = await waiting
    assert sorted(errors(response)) == [NONE, KAFKA_STORAGE_ERROR]
    assert sorted(size for _, _, size in lengths(response)) == [0, 100]
    assert elapsed_s() == UNAVAILABLE_WAIT_S + 0.05
    response = await reader.fetch(*names, min_bytes=200)
    assert (sorted(size for _, _, size in lengths(response)), elapsed_s()) == ([0, 100], UNAVAILABLE_WAIT_S + 0.05)
