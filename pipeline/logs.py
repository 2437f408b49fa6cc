"""The rows of one partition's log, as the coordinator has them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import TypeVar

from proxy.coordinator import patience
from proxy.coordinator.interface import Coordinator, FindRequest, LogAnswer, Row, ShardFenced
from proxy.coordinator.packing import MAX_EXACT
from proxy.protocol.errors import KAFKA_STORAGE_ERROR, NONE, OFFSET_OUT_OF_RANGE

TRIES = 5
FIRST_PAUSE_SECONDS = 0.5
"""Before a call is tried a second time; each further pause is twice as long."""

Answer = TypeVar("Answer")


class LogGone(Exception):
    """The log does not live: its topic was deleted."""


async def rows_of_log(
    coordinator: Coordinator, topic_id: bytes, partition: int, *, start: int = 0, end: int | None = None
) -> AsyncIterator[tuple[Row, ...]]:
    """Yield the confirmed rows that hold offsets from `start` to before `end`, a bounded number at a time.

    They begin at the log start if that is later. They end at the high watermark of the first answer if `end` is None.
    Rows that go meanwhile may or may not be among them. Raises LogGone, ShardFenced and CoordinatorUnavailable.
    """
    async for page in pages_of_log(coordinator, topic_id, partition, start=start, end=end):
        yield page.rows


async def pages_of_log(
    coordinator: Coordinator, topic_id: bytes, partition: int, *, start: int = 0, end: int | None = None
) -> AsyncIterator[LogAnswer]:
    """Yield the same rows with the aborted transactions that have records in them. Raises as `rows_of_log` does."""
    offset = start
    while end is None or offset < end:
        answer = await patiently(partial(first_rows, coordinator, topic_id, partition, offset))
        if end is None:
            end = answer.high_watermark
        rows = tuple(row for row in answer.rows if row.base_offset < end)
        if not rows:
            return
        yield answer._replace(rows=rows)
        offset = rows[-1].last_offset + 1


async def first_rows(coordinator: Coordinator, topic_id: bytes, partition: int, offset: int) -> LogAnswer:
    """Return the answer of `find` at an offset, or at the log start if that is beyond it; no rows beyond the log's end.

    Raises LogGone, ShardFenced and CoordinatorUnavailable.
    """
    while True:
        (answer,) = await coordinator.find([FindRequest(topic_id, partition, offset, MAX_EXACT)])
        if answer.error_code == OFFSET_OUT_OF_RANGE:
            if answer.log_start_offset <= offset:
                return answer
            offset = answer.log_start_offset
        elif answer.error_code == KAFKA_STORAGE_ERROR:
            raise ShardFenced(f"the shard of partition {partition} is fenced; see `diskless-proxy coordinator check`")
        elif answer.error_code != NONE:
            raise LogGone(f"the log of partition {partition} does not exist any more")
        else:
            return answer


async def patiently(call: Callable[[], Awaitable[Answer]]) -> Answer:
    """Return the answer of a repeatable call of the coordinator; it is retried if the store does not answer.

    Raises ShardFenced at once, and CoordinatorUnavailable after TRIES.
    """
    return await patience.patiently(call, tries=TRIES, first_pause_s=FIRST_PAUSE_SECONDS)
