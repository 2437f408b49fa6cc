"""Compactions of logs with transactions: aborted records go, markers go after them, and readers see no difference."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.compact.apply import Applier, State
from pipeline.compact.markers import Place, left_before
from pipeline.compact.records import delete_horizon_ms
from pipeline.compact.spans import read_rows
from pipeline.reading import RowUnreadable
from proxy.coordinator.interface import FindRequest
from proxy.coordinator.interface_transactions import AbortedTransaction
from proxy.records.batches import BatchHeader, read_header
from tests.support.keyed import Keyed, decoded, last_of_each_key
from tests.support.memory_log import TOPIC
from tests.support.records import Stored
from tests.support.transactions import transactional_batch
from tests.unit.pipeline.compact.simulated import DELETE_RETENTION_MS, Simulated

PRODUCERS = range(3)


class Transactions:
    """A log of a compacted topic with transactions, and what readers of both isolation levels may see of it."""

    def __init__(self, log: Simulated, seed: int) -> None:
        self.log = log
        self.chance = random.Random(seed)
        self.committed: list[Stored] = []
        """Records that a reader of committed records may see, plain ones among them."""
        self.cleaned = 0
        """Offset up to which a compaction may have removed records."""
        self._sequences = dict.fromkeys(PRODUCERS, 0)
        self.open: dict[int, list[Stored]] = {}

    @property
    def end(self) -> int:
        return self.log.log.coordinator.logs[TOPIC, 0].end

    async def write(self, producer_id: int, *records: Keyed) -> None:
        """Write a batch; of no transaction for producer -1."""
        if producer_id >= 0 and producer_id not in self.open:
            await self.log.log.begin(0, producer_id)
            self.open[producer_id] = []
        first, sequence = self.end, self._sequences.get(producer_id, -1)
        batch = transactional_batch(records, producer_id, sequence, timestamp_ms=self.log.log.now_ms)
        await self.log.log.write([(0, batch)])
        stored = [one._replace(offset=one.offset + first) for one in decoded([bytes(batch)])]
        self.log.written[0] += stored
        if producer_id >= 0:
            self._sequences[producer_id] += len(records)
            self.open[producer_id] += stored
        else:
            self.committed += stored

    async def finish(self, producer_id: int, *, committed: bool) -> None:
        records = self.open.pop(producer_id)
        await self.log.log.end(0, producer_id, committed=committed)
        self.committed += records if committed else []

    async def step(self) -> None:
        producer_id = self.chance.choice([-1, *PRODUCERS])
        if producer_id in self.open and self.chance.random() < 0.4:
            await self.finish(producer_id, committed=self.chance.random() < 0.5)
            return
        keys = [b"key-%d" % self.chance.randrange(4) for _ in range(self.chance.randrange(1, 4))]
        await self.write(producer_id, *(Keyed(key, self.chance.choice([None, b"value"])) for key in keys))

    @property
    def stable(self) -> int:
        return min((records[0].offset for records in self.open.values()), default=self.end)

    async def batches(self) -> list[tuple[BatchHeader, bytes]]:
        coordinator = self.log.log.coordinator
        start = coordinator.logs[TOPIC, 0].start
        (answer,) = await coordinator.find([FindRequest(TOPIC, 0, start, 1 << 40)])
        found: dict[int, list[bytes]] = {}
        async for place, read in read_rows(self.log.stores().storage, answer.rows):
            assert not isinstance(read, RowUnreadable), read.text
            found[place] = [bytes(read.run[one.position : one.position + one.length]) for one in read.bounds]
        return [(read_header(batch), batch) for place in sorted(found) for batch in found[place]]

    async def seen(self) -> list[Stored]:
        """Read as a consumer of committed records does, by the markers and the list of aborted transactions."""
        coordinator, start = self.log.log.coordinator, self.log.log.coordinator.logs[TOPIC, 0].start
        (answer,) = await coordinator.find([FindRequest(TOPIC, 0, start, 1 << 40)])
        assert answer.last_stable_offset == max(self.stable, start)
        left = [batch for header, batch in await self.batches() if _last_offset(header, batch) < self.stable]
        return [one for one in decoded(_committed(left, answer.aborted)) if one.offset >= start]

    async def compact(self) -> Applier:
        applier = await self.log.compact()
        self.cleaned = max([self.cleaned, *(one.end_offset for one in applier.plan.logs)])
        return applier

    async def check(self) -> None:
        """Require that the newest committed record of each key is there, and nothing that was aborted."""
        cleaned = self.cleaned
        seen = await self.seen()
        assert set(seen) <= set(self.committed)
        for record in last_of_each_key([one for one in self.committed if one.offset < cleaned], tombstones=False):
            newer = [one for one in self.committed if one.key == record.key and one.offset > record.offset]
            assert newer or record in seen, f"{record} is lost"
        assert [one for one in seen if one.offset >= cleaned] == [
            one for one in sorted(self.committed) if cleaned <= one.offset < self.stable
        ]

    def marker_offsets(self) -> list[int]:
        return [one.last_offset for one in self.log.log.coordinator.logs[TOPIC, 0].aborted]


def _last_offset(header: BatchHeader, batch: bytes) -> int:
    return int.from_bytes(batch[:8], "big") + header.last_offset_delta


def _committed(batches: Iterable[bytes], aborted: Iterable[AbortedTransaction]) -> list[bytes]:
    """Leave out batches as `CompletedFetch` of the Java consumer does."""
    waiting = sorted(aborted, key=lambda one: one.first_offset)
    out: set[int] = set()
    left: list[bytes] = []
    for batch in batches:
        header = read_header(batch)
        while waiting and waiting[0].first_offset <= _last_offset(header, batch):
            out.add(waiting.pop(0).producer_id)
        if header.is_control:
            if header.record_count and batch.endswith(_END_OF_ABORT):
                out.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in out):
            left.append(batch)
    return left


_END_OF_ABORT = bytes([0, 0, 0, 0, 12, 0, 0, 0, 0, 0, 7, 0])
"""The key of an abort marker, and the value of a coordinator of epoch 7."""


async def written(seed: int, steps: int, chunk_bytes: int, *, merged: bool) -> Transactions:
    log = await Simulated(seed=seed, chunk_bytes=chunk_bytes).start()
    made = Transactions(log, seed)
    for _ in range(steps):
        await made.step()
    if merged:
        await log.merge_some()
    return made


@given(
    seed=st.integers(0, 2**32),
    steps=st.integers(1, 40),
    chunk_bytes=st.sampled_from([1, 300, 9_999]),
    merged=st.booleans(),
)
@settings(max_examples=25)
def test_readers_of_committed_records_see_no_difference(seed: int, steps: int, chunk_bytes: int, merged: bool) -> None:
    async def compacted() -> None:
        made = await written(seed, steps, chunk_bytes, merged=merged)
        for _ in range(3):
            applier = await made.compact()
            assert set(applier.states) <= {State.DONE}
            await made.check()
            made.log.log.now_ms += DELETE_RETENTION_MS
            for _ in range(made.chance.randrange(4)):
                await made.step()
            if made.chance.random() < 0.3:
                await made.log.merge_some()

    asyncio.run(compacted())


@given(seed=st.integers(0, 2**32), steps=st.integers(1, 40))
@settings(max_examples=15)
def test_the_cut_into_tasks_changes_nothing(seed: int, steps: int) -> None:
    """A transaction may begin in one task's span and end in another one's."""

    async def left(chunk_bytes: int) -> tuple[list[bytes], list[int]]:
        made = await written(seed, steps, chunk_bytes, merged=False)
        for _ in range(4):
            await made.log.compact()
            made.log.log.now_ms += DELETE_RETENTION_MS
        return [batch for _, batch in await made.batches()], made.marker_offsets()

    assert asyncio.run(left(1)) == asyncio.run(left(1 << 20)) == asyncio.run(left(200))


@pytest.mark.parametrize("committed", [True, False])
def test_a_marker_goes_when_its_transaction_has_gone_and_its_horizon_is_over(committed: bool) -> None:
    async def compacted() -> None:
        made = Transactions(await Simulated(chunk_bytes=1).start(), 0)
        await made.write(0, Keyed(b"key", b"old"))
        await made.write(0, Keyed(b"other", b"old"))
        await made.finish(0, committed=committed)
        await made.write(0, Keyed(b"key", b"new"), Keyed(b"other", b"new"))
        await made.finish(0, committed=True)
        await made.write(-1, Keyed(b"last", b"value"))
        has_entry = [2] if not committed else []

        async def markers() -> list[int | None]:
            return [delete_horizon_ms(header) for header, _ in await made.batches() if header.is_control]

        await made.compact()  # the records go
        assert await markers() == [None, None]
        await made.compact()  # the marker is alone
        horizon_ms = made.log.log.now_ms + DELETE_RETENTION_MS
        assert await markers() == [horizon_ms, None]
        assert made.marker_offsets() == has_entry
        made.log.log.now_ms = horizon_ms - 1
        await made.compact()
        assert await markers() == [horizon_ms, None]
        made.log.log.now_ms += 1
        await made.compact()
        assert await markers() == [None]
        assert made.marker_offsets() == []
        await made.check()

    asyncio.run(compacted())


def test_nothing_from_the_last_stable_offset_on_is_touched() -> None:
    async def compacted() -> None:
        made = Transactions(await Simulated(chunk_bytes=9_999).start(), 0)
        await made.write(-1, Keyed(b"key", b"old"))
        await made.write(0, Keyed(b"key", b"open"))
        await made.write(-1, Keyed(b"key", b"new"))
        before = await made.batches()
        (log,) = (await made.log.compact()).plan.logs
        assert (log.end_offset, await made.batches()) == (1, before)
        await made.log.log.swap(0, 0, 2)
        assert (await made.log.compact()).plan.logs == []
        await made.finish(0, committed=False)
        await made.log.compact()
        assert [one.value for one in await made.seen()] == [b"new"]

    asyncio.run(compacted())


def test_what_is_left_before_a_span() -> None:
    spans = [Place(0, 0), Place(0, 10), Place(0, 20), Place(1, 0)]
    events = {Place(0, 0): {7: 5 << 1, 8: 6 << 1 | 1}, Place(0, 10): {7: 12 << 1 | 1, 9: 13 << 1}}
    assert left_before(reversed(spans), events) == {Place(0, 10): {7}, Place(0, 20): {9}}
