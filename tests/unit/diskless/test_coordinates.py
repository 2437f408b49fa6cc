"""Coordinates: cached ones are true, the coordinator is asked when in doubt, and waiting readers are woken."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.coordinator.interface import CoordinatorUnavailable, FindRequest, PartitionRun, ProposedBatch
from proxy.coordinator.interface_transactions import Marker, MarkersRead
from proxy.diskless.coordinates import Coordinates
from proxy.protocol.errors import KAFKA_STORAGE_ERROR, NONE, OFFSET_OUT_OF_RANGE
from tests.coordinator_model import ModelCoordinator

TOPIC = b"t" * 16
LARGE = 1 << 20


class Coordinator(ModelCoordinator):
    """Counts the partitions of lookups, and may be down; its announcements may be lost."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.down = False
        self.segments = 0

    async def find(self, requests):
        self.asked += len(requests)
        if self.down:
            raise CoordinatorUnavailable("no")
        return await super().find(requests)

    async def append(self, partition=0, records=1, *, heard=True):
        """Commit one batch of 100 bytes; without `heard`, its announcement is lost."""
        self.segments += 1
        batch = ProposedBatch(100, records, 0, -1, -1, -1)
        listeners = self._listeners
        if not heard:
            self._listeners = []
        await self.commit(self.segments.to_bytes(16, "big"), [PartitionRun(TOPIC, partition, 1, (batch,))])
        self._listeners = listeners
        await turns()

    def lose_subscription(self):
        for listener in self._listeners:
            listener.put_nowait(None)


async def turns():
    for _ in range(5):
        await asyncio.sleep(0)


@asynccontextmanager
async def following(partitions=2):
    coordinator = Coordinator()
    await coordinator.create_logs(TOPIC, range(partitions))
    coordinates = Coordinates(coordinator)
    task = asyncio.create_task(coordinates.follow())
    await turns()
    try:
        yield coordinator, coordinates
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def locate(coordinates, offset, *, partition=0, trust_ends=False, max_bytes=LARGE, committed=False):
    request = FindRequest(TOPIC, partition, offset, max_bytes)
    (answer,) = await coordinates.locate([request], trust_ends=trust_ends, committed=committed)
    return answer


async def test_a_tail_is_asked_for_once_and_then_grows_by_what_is_announced():
    async with following() as (coordinator, coordinates):
        await coordinator.append()
        await locate(coordinates, 0)
        await coordinator.append(records=3)
        answer = await locate(coordinates, 1)
        assert (answer.rows[0].base_offset, answer.rows[0].last_offset, answer.high_watermark) == (1, 3, 4)
        assert coordinator.asked == 1


async def test_the_end_of_a_log_is_asked_for_unless_it_is_trusted():
    async with following() as (coordinator, coordinates):
        await coordinator.append()
        await locate(coordinates, 0)
        await coordinator.append(heard=False)
        assert (await locate(coordinates, 1, trust_ends=True)).rows == ()
        assert len((await locate(coordinates, 1)).rows) == 1


async def test_rows_of_an_own_commit_are_kept_until_their_announcement():
    async with following() as (coordinator, coordinates):
        await coordinator.append(records=2)
        await locate(coordinates, 0)
        await coordinator.append(heard=False)
        assert (await locate(coordinates, 0)).high_watermark == 2
        coordinates.note(TOPIC, 0, 0, 3)
        assert (await locate(coordinates, 0)).high_watermark == 3
        assert (await locate(coordinates, 0)).high_watermark == 3
        assert coordinator.asked == 2
        coordinates.note(TOPIC, 0, 2)
        coordinates.note(TOPIC, 0, 1)
        await locate(coordinates, 1)
        assert coordinator.asked == 3, "the coordinator answers for offsets before the log start"
        assert (await locate(coordinates, 2)).log_start_offset == 2


async def test_an_end_that_any_answer_had_is_never_gone_below():
    async with following() as (coordinator, coordinates):
        await coordinator.append()
        await coordinator.append()
        await locate(coordinates, 1)
        await coordinator.append(heard=False)
        assert (await locate(coordinates, 0, max_bytes=0)).high_watermark == 3, "it does not lead up to the end"
        assert (await locate(coordinates, 1)).high_watermark == 3


async def test_a_last_stable_offset_that_a_client_got_is_never_gone_below():
    async with following() as (coordinator, coordinates):
        batch = ProposedBatch(100, 1, 0, 70, 0, 0, 2, 0)
        await coordinator.commit(bytes(16), [PartitionRun(TOPIC, 0, 1, (batch,))])
        await turns()
        assert (await locate(coordinates, 0)).last_stable_offset == 0
        listeners, coordinator._listeners = coordinator._listeners, []
        markers = (Marker(0, 70, 0, 0, True, 1_000),)
        await coordinator.transactions.apply_markers([MarkersRead(TOPIC, 0, 0, 1, 0, markers)])
        coordinator._listeners = listeners
        assert (await locate(coordinates, 0)).last_stable_offset == 0
        coordinates.note(TOPIC, 0, last_stable_offset=2)
        assert (await locate(coordinates, 0)).last_stable_offset == 2


async def test_records_before_the_log_start_are_not_served_from_a_row_that_the_log_start_cuts():
    async with following() as (coordinator, coordinates):
        await coordinator.append(records=3)
        await locate(coordinates, 0)
        coordinates.note(TOPIC, 0, 1)
        assert (await locate(coordinates, 1)).log_start_offset == 1
        assert coordinator.asked == 1
        await locate(coordinates, 0)
        assert coordinator.asked == 2, "the coordinator decides about offsets before the log start"


async def test_an_announcement_that_does_not_fit_throws_the_tail_away():
    async with following() as (coordinator, coordinates):
        await coordinator.append()
        await locate(coordinates, 0)
        await coordinator.append(heard=False)
        await coordinator.append()
        answer = await locate(coordinates, 1, trust_ends=True)
        assert (len(answer.rows), answer.high_watermark) == (2, 3)
        assert coordinator.asked == 2


async def test_a_lost_subscription_throws_everything_away_and_wakes_who_waits():
    async with following() as (coordinator, coordinates):
        await locate(coordinates, 0)
        event = coordinates.listen([(TOPIC, 0)])
        await coordinator.append(heard=False)
        coordinator.lose_subscription()
        await turns()
        assert event.is_set()
        assert len((await locate(coordinates, 0, trust_ends=True)).rows) == 1


async def test_the_coordinator_decides_which_offsets_are_out_of_range():
    async with following() as (coordinator, coordinates):
        await coordinator.append()
        await locate(coordinates, 0)
        for offset in (-1, 2):
            assert (await locate(coordinates, offset, trust_ends=True)).error_code == OFFSET_OUT_OF_RANGE
        await coordinator.append(heard=False)
        assert (await locate(coordinates, 2)).error_code == NONE


async def test_a_reader_is_woken_by_its_partitions_only_and_leaves_nothing_behind():
    async with following() as (coordinator, coordinates):
        mine, other = coordinates.listen([(TOPIC, 0)]), coordinates.listen([(TOPIC, 1)])
        await coordinator.append(0)
        assert (mine.is_set(), other.is_set()) == (True, False)
        coordinates.unlisten([(TOPIC, 0)], mine)
        coordinates.unlisten([(TOPIC, 1)], other)
        assert (coordinates._waiting, coordinates._announced) == ({}, {})


async def test_an_answer_older_than_an_announcement_begins_no_tail():
    async with following() as (coordinator, coordinates):
        coordinates.listen([(TOPIC, 0)])
        stale = await coordinator.find([FindRequest(TOPIC, 0, 0, LARGE)])
        await coordinator.append()
        coordinates._learn(FindRequest(TOPIC, 0, 0, LARGE), stale[0])
        assert len((await locate(coordinates, 0, trust_ends=True)).rows) == 1


async def test_rows_are_given_until_they_hold_the_bytes_asked_for():
    async with following() as (coordinator, coordinates):
        for _ in range(5):
            await coordinator.append()
        await locate(coordinates, 0)
        assert len((await locate(coordinates, 1, max_bytes=150)).rows) == 2
        assert len((await locate(coordinates, 1, max_bytes=0)).rows) == 1


async def test_without_the_coordinator_cached_rows_are_still_used():
    """One partition that needs a lookup must not fail the others."""
    async with following() as (coordinator, coordinates):
        await coordinator.append(0)
        await locate(coordinates, 0)
        coordinator.down = True
        known, unknown = await coordinates.locate(
            [FindRequest(TOPIC, 0, 0, LARGE), FindRequest(TOPIC, 1, 0, LARGE)], trust_ends=False, committed=False
        )
        assert (known.error_code, len(known.rows)) == (NONE, 1)
        assert unknown.error_code == KAFKA_STORAGE_ERROR


async def test_memory_is_bounded_however_many_rows_are_announced(monkeypatch):
    monkeypatch.setattr("proxy.diskless.coordinates._MAX_ROWS_PER_TAIL", 8)
    async with following() as (coordinator, coordinates):
        await locate(coordinates, 0)
        for _ in range(20):
            await coordinator.append()
        assert len((await locate(coordinates, 19)).rows) == 1
        assert coordinator.asked == 1
        assert len((await locate(coordinates, 0)).rows) == 20
        assert coordinator.asked == 2


async def test_rows_are_asked_for_again_after_some_time_as_others_may_have_taken_their_place():
    now_s = 100.0
    async with following() as (coordinator, coordinates):
        coordinates._now_s = lambda: now_s
        await coordinator.append()
        await locate(coordinates, 0)
        now_s += 14
        await coordinator.append()
        for asked, later_s in ((1, 0), (2, 1), (3, 2)):
            now_s += later_s
            assert (await locate(coordinates, 0)).rows[0].base_offset == 0
            assert coordinator.asked == asked, "what came first is known no longer"
        for asked, later_s in ((3, 0), (4, 15), (5, 0)):
            now_s += later_s
            assert (await locate(coordinates, 1)).rows[0].base_offset == 1
            assert coordinator.asked == asked, "then what came later"
        assert (await locate(coordinates, 2, trust_ends=True)).high_watermark == 2
        await coordinator.append()
        now_s += 14
        assert (await locate(coordinates, 2)).rows[0].base_offset == 2
        now_s += 31
        assert (await locate(coordinates, 2)).rows[0].base_offset == 2
        assert coordinator.asked == 6


async def test_without_the_coordinator_cached_rows_expire():
    """Perhaps only this proxy is cut off: others may trim, compact and delete the log meanwhile."""
    now_s = 0.0
    async with following() as (coordinator, coordinates):
        coordinates._now_s = lambda: now_s
        await coordinator.append(records=2)
        await locate(coordinates, 0)
        coordinator.down = True
        now_s = 60.0
        assert (await locate(coordinates, 0)).error_code == NONE
        assert (await locate(coordinates, 2, trust_ends=True)).high_watermark == 2
        now_s = 60.1
        for offset in (0, 1, 2):
            assert (await locate(coordinates, offset, trust_ends=True)).error_code == KAFKA_STORAGE_ERROR
        coordinator.down = False
        assert len((await locate(coordinates, 0)).rows) == 1
        coordinator.down = True
        now_s = 120.0
        assert (await locate(coordinates, 0)).error_code == NONE, "it has been confirmed again"


async def test_without_the_coordinator_old_rows_are_not_looked_up_all_the_time():
    now_s = 0.0
    async with following() as (coordinator, coordinates):
        coordinates._now_s = lambda: now_s
        await coordinator.append()
        await locate(coordinates, 0)
        now_s += 40
        coordinator.down = True
        for asked, later_s in ((2, 0), (2, 4), (3, 1)):
            now_s += later_s
            assert len((await locate(coordinates, 0)).rows) == 1
            assert coordinator.asked == asked, "it is not asked in vain all the time"
        assert (await locate(coordinates, 0, partition=1)).error_code == KAFKA_STORAGE_ERROR
        coordinator.down = False
        now_s += 5
        assert len((await locate(coordinates, 0)).rows) == 1
        assert coordinator.asked == 5


@settings(deadline=None)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["append", "unheard", "lost", "read", "wait"]), st.integers(0, 1), st.integers(-1, 12)
        ),
        max_size=40,
    )
)
async def test_whatever_is_missed_rows_are_never_wrong(steps):
    now_s = 0.0
    async with following() as (coordinator, coordinates):
        coordinates._now_s = lambda: now_s
        for what, partition, offset in steps:
            if what in ("append", "unheard"):
                await coordinator.append(partition, heard=what == "append")
            elif what == "lost":
                coordinator.lose_subscription()
                await turns()
            elif what == "wait":
                now_s += offset
            else:
                answer = await locate(coordinates, offset, partition=partition)
                (truth,) = await ModelCoordinator.find(coordinator, [FindRequest(TOPIC, partition, offset, LARGE)])
                assert answer.error_code == truth.error_code
                assert answer.rows == truth.rows[: len(answer.rows)]
                assert len(answer.rows) > 0 or not truth.rows
                assert answer.high_watermark <= truth.high_watermark
