"""Offsets while the coordinator is away: a short outage is not noticed, and a long one delays no client."""

from __future__ import annotations

import asyncio
from typing import Any

from proxy.coordinator.interface import (
    EARLIEST_TIMESTAMP,
    LATEST_STABLE_TIMESTAMP,
    LATEST_TIMESTAMP,
    CoordinatorUnavailable,
    ListRequest,
    OffsetAnswer,
)
from proxy.handlers.offsets import Offsets
from proxy.protocol.errors import KAFKA_STORAGE_ERROR, NONE
from proxy.telemetry.throttled_log import ThrottledLog
from tests.unit.parts import settings_of

WANTED = [ListRequest(b"t" * 16, 0, LATEST_TIMESTAMP)]


class Proxy:
    """A proxy whose coordinator does not answer the next `failures` calls."""

    def __init__(self) -> None:
        self.failures = 0
        self.asked = 0
        self.ahead_s = 0.0
        clock = asyncio.get_running_loop().time
        settings = settings_of(fetch={"time_lookup_timeout_ms": 60_000}, redis={"timeout_ms": 400})
        lookup: Any = self
        coordinates: Any = self
        self.noted: list[tuple[bytes, int, str, int]] = []
        self.offsets = Offsets(
            settings.fetch,
            settings.redis,
            time_lookup=lookup,
            coordinates=coordinates,
            throttled_log=ThrottledLog(clock),
            now=lambda: clock() + self.ahead_s,
        )

    async def list_offsets(self, wanted: list[ListRequest], longest_s: float, *, committed: bool) -> list[OffsetAnswer]:
        self.asked += 1
        assert 0 <= longest_s <= 60
        if self.failures:
            self.failures -= 1
            raise CoordinatorUnavailable("reset")
        return [OffsetAnswer(NONE, 7, -1)] * len(wanted)

    def note(self, topic_id: bytes, partition: int, **ends: int) -> None:
        """Take the place of `Coordinates.note`."""
        self.noted += [(topic_id, partition, what, offset) for what, offset in ends.items()]

    async def code(self) -> int:
        (answer,) = await self.offsets.listed(WANTED)
        return answer.error_code


async def test_a_call_is_retried_while_the_coordinator_is_away_for_a_moment() -> None:
    proxy = Proxy()
    proxy.failures = 2
    assert (await proxy.code(), proxy.asked) == (NONE, 3)


async def test_later_in_an_outage_nobody_waits_and_after_it_as_before() -> None:
    proxy = Proxy()
    proxy.failures = 1_000
    assert await proxy.code() == KAFKA_STORAGE_ERROR
    first = proxy.asked
    assert first > 2
    proxy.ahead_s = 1.0
    assert (await proxy.code(), proxy.asked) == (KAFKA_STORAGE_ERROR, first + 1)
    proxy.failures = 0
    assert await proxy.code() == NONE
    proxy.failures = 2
    assert await proxy.code() == NONE


async def test_no_later_fetch_goes_below_a_listed_end() -> None:
    proxy = Proxy()
    times = (LATEST_TIMESTAMP, LATEST_STABLE_TIMESTAMP, EARLIEST_TIMESTAMP, 1_700_000_000_000)
    await proxy.offsets.listed([ListRequest(b"t" * 16, index, at) for index, at in enumerate(times)])
    assert proxy.noted == [(b"t" * 16, 0, "high_watermark", 7), (b"t" * 16, 1, "last_stable_offset", 7)]
