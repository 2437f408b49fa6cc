"""Diskless logs in memory, to test their readers: the coordinator's model, objects in a dict, real caches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from proxy.coordinator.interface import Row
from proxy.coordinator.interface_transactions import Enlistment, Marker, MarkersRead
from proxy.diskless.cache import BlockCache
from proxy.diskless.coordinates import Coordinates
from proxy.diskless.diskless_reader import DisklessReader, PartitionRead, ReadRequest
from proxy.diskless.parts import DirectReads
from proxy.diskless.row_reader import RowReader
from proxy.diskless.time_lookup import TimeLookup
from proxy.diskless.wal.segment import SegmentBuilder, segment_key
from proxy.records.batches import BatchBounds, check_batch
from proxy.storage.interface import ObjectMissing
from proxy.telemetry.throttled_log import ThrottledLog
from tests.coordinator_model import ModelCoordinator
from tests.support.merging import keep_all, merge_rows

TOPIC = b"t" * 16
LARGE = 1 << 20
MOST_ROWS = 2
"""Rows that lookups by time read at a time."""


class MemoryObjects:
    """The part of ObjectStorage that readers need, in a dict."""

    def __init__(self) -> None:
        self.objects: dict[str, bytearray] = {}

    async def fetch(self, key: str, start: int = 0, end: int | None = None) -> bytearray:
        if key not in self.objects:
            raise ObjectMissing(key)
        return self.objects[key][start:end]

    async def upload(self, key: str, data: bytearray, length: int) -> None:
        self.objects[key] = data


class MemoryLog:
    """The parts that a reader needs, and a writer that makes one segment per `write`."""

    def __init__(self) -> None:
        self.storage = MemoryObjects()
        self.now_ms = 0
        """Current time of the coordinator's clock."""
        self.coordinator = ModelCoordinator(clock=lambda: self.now_ms)
        self.tail, self.cold = (
            BlockCache(DirectReads(self.storage), capacity_bytes=LARGE, block_bytes=LARGE // 8)  # type: ignore[arg-type]
            for _ in range(2)
        )
        rows = RowReader(self.tail, self.cold, cold_after_ms=60_000, now_ms=lambda: self.now_ms)
        throttled_log = ThrottledLog(lambda: self.now_ms / 1000)
        self.coordinates = Coordinates(self.coordinator)
        self.reader = DisklessReader(self.coordinates, rows, throttled_log)
        self.lookup = TimeLookup(self.coordinator, rows, throttled_log, max_rows=MOST_ROWS, max_batch_bytes=LARGE)

    async def write(self, batches: Iterable[tuple[int, bytearray]], *, log_append_time: bool = False) -> None:
        """Write one segment of `batches`: (partition, batch) in order of arrival. `log_append_time` sets the current
        time. Transactional batches are of version 1."""
        builder = SegmentBuilder()
        transactional = set()
        for partition, batch in batches:
            header = check_batch(memoryview(batch), max_message_bytes=LARGE)
            builder.add(TOPIC, partition, memoryview(batch), header, log_append_time=log_append_time)
            if header.is_transactional:
                transactional.add(header.producer_id)
        built = builder.build()
        self.storage.objects[segment_key(built.segment)] = built.data
        runs = []
        for run in built.runs:
            kinds = [int(batch.producer_id in transactional) for batch in run.batches]
            marked = (batch._replace(transaction_version=kind) for batch, kind in zip(run.batches, kinds, strict=True))
            runs.append(run._replace(batches=tuple(marked)))
        answers = await self.coordinator.commit(built.segment, runs)
        assert not any(batch.error_code for answer in answers for batch in answer.batches)

    async def begin(self, partition: int, producer_id: int) -> None:
        """Add a partition to a transaction."""
        end = self.coordinator.logs[TOPIC, partition].shadow.next_offset
        await self.coordinator.transactions.enlist([Enlistment(TOPIC, partition, producer_id, 0, end)])

    async def end(self, partition: int, producer_id: int, *, committed: bool) -> None:
        """End a transaction in a partition."""
        at = self.coordinator.logs[TOPIC, partition].shadow.next_offset
        marker = Marker(at, producer_id, 0, 7, committed, 1_700_000_000_500)
        (answer,) = await self.coordinator.transactions.apply_markers(
            [MarkersRead(TOPIC, partition, at, at + 1, 0, (marker,))]
        )
        assert answer.ended == 1

    async def swap(
        self, partition: int, first: int, count: int, *, keep: Callable[[BatchBounds], bool] = keep_all
    ) -> Row | None:
        """Replace `count` rows by one row of a merged object; see `merge_rows`."""
        old = tuple(self.coordinator.logs[TOPIC, partition].rows[first : first + count])
        return await merge_rows(self.coordinator, self.storage, TOPIC, partition, old, keep=keep)  # type: ignore[arg-type]

    def delete_unused(self) -> None:
        """Delete the objects that no row uses."""
        for segment in self.coordinator.unused:
            self.storage.objects.pop(segment_key(segment), None)

    async def read(
        self,
        *wanted: Sequence[int],
        max_bytes: int = LARGE,
        first_exempt: bool = True,
        committed: bool = False,
        trust_ends: bool = False,
    ) -> list[PartitionRead]:
        """Read `wanted`: (partition, offset) or (partition, offset, maximum bytes)."""
        requests = [ReadRequest(TOPIC, one[0], one[1], one[2] if len(one) > 2 else LARGE, committed) for one in wanted]
        return await self.reader.read(requests, max_bytes=max_bytes, trust_ends=trust_ends, first_exempt=first_exempt)

    def forget_bytes(self) -> None:
        """Empty the caches, as if other blocks had evicted these."""
        for cache in (self.tail, self.cold):
            for key in list(cache._entries):
                cache._forget(key)


async def new_log(partitions: int = 3) -> MemoryLog:
    """Create a log with empty partitions."""
    log = MemoryLog()
    await log.coordinator.create_logs(TOPIC, range(partitions))
    return log
