"""A compaction without Spark and without servers: its steps on the coordinator's model and objects in a dict."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

from pipeline.compact.apply import Applier, State
from pipeline.compact.chunk import Unread, rewrite_in
from pipeline.compact.keys import Events, keys_in
from pipeline.compact.markers import Place, left_before
from pipeline.compact.plan import Plan, plan_logs
from pipeline.compact.spans import Work, read_rows
from pipeline.merge.layout import swap_of
from pipeline.merge.options import MergeOptions
from pipeline.merge.plan import Planner
from pipeline.merge.rewriting import Merger
from pipeline.reading import RowUnreadable
from pipeline.stores import swap_before_ms
from proxy.config import Garbage
from proxy.coordinator.interface import FindRequest
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.coordinator.interface_rewriting import Swap, SwapAnswer
from proxy.inspection.stores import Stores
from tests.support.keyed import Keyed, Producer, decoded, keyed_batch
from tests.support.memory_log import TOPIC, MemoryLog
from tests.support.records import Stored

NAME = "compacted"
SETTINGS = SimpleNamespace(garbage=Garbage())
DELETE_RETENTION_MS = 1_000
AN_HOUR_MS = 3_600_000
CONFIGS = {"cleanup.policy": "compact", "delete.retention.ms": str(DELETE_RETENTION_MS)}


async def _nothing() -> None:
    """While one hook runs no other is called."""


class Killed(Exception):
    """The driver is dead."""


class Simulated:
    """A topic's logs, all records ever written to them, and compactions of them."""

    def __init__(self, partitions: int = 1, *, chunk_bytes: int = 400, seed: int = 0) -> None:
        self.log = MemoryLog()
        self.log.now_ms = 1_000_000
        self.topic = DisklessTopic(NAME, TOPIC, partitions, "live", CONFIGS)
        self.chunk_bytes = chunk_bytes
        self.written: list[list[Stored]] = [[] for _ in range(partitions)]
        self.chance = random.Random(seed)
        self.before_swap: Callable[[], Awaitable[None]] | None = None
        """Called before each `replace` of a compaction."""

    async def start(self) -> Simulated:
        await self.log.coordinator.create_logs(TOPIC, range(self.topic.partitions))
        return self

    async def produce(
        self,
        records: Sequence[Keyed],
        partition: int = 0,
        *,
        codec: int = 0,
        producer: Producer = Producer(),
        timestamp_ms: int | None = None,
    ) -> None:
        """Produce one batch in its own segment; its time is now by default."""
        at_ms = self.log.now_ms if timestamp_ms is None else timestamp_ms
        batch = keyed_batch(records, codec=codec, producer=producer, timestamp_ms=at_ms)
        first = self.log.coordinator.logs[TOPIC, partition].end
        await self.log.write([(partition, batch)])
        self.written[partition] += [record._replace(offset=record.offset + first) for record in decoded([bytes(batch)])]

    async def produce_some(self, keys: int = 4) -> None:
        """A batch of a few records of a few keys, to any partition."""
        records = [
            Keyed(b"key-%d" % self.chance.randrange(keys), self.chance.choice([None, b"value", b"other" * 9]))
            for _ in range(self.chance.randrange(1, 5))
        ]
        await self.produce(records, self.chance.randrange(self.topic.partitions), codec=self.chance.randrange(5))

    async def merge_some(self) -> None:
        """Merge some neighbours, as a merge would."""
        partition = self.chance.randrange(self.topic.partitions)
        if rows := len(self.log.coordinator.logs[TOPIC, partition].rows):
            first = self.chance.randrange(rows)
            await self.log.swap(partition, first, self.chance.randrange(1, rows - first + 1))
            self.log.delete_unused()

    async def merge(self, target_bytes: int) -> None:
        """Merge with the job itself, which also joins rows that are not neighbours: a large one between them stays."""
        options = MergeOptions(target_bytes=target_bytes, task_bytes=4 * target_bytes, min_inputs=2)
        planner = Planner(options, now_ms=self.log.now_ms + AN_HOUR_MS)
        logs = [
            (number, list(self.log.coordinator.logs[TOPIC, number].rows)) for number in range(self.topic.partitions)
        ]
        for task in planner.tasks(NAME, TOPIC, logs):
            for made in (await Merger(self.log.storage, task).merge()).made:
                swaps = [swap_of(task.outputs[made.place], joined, TOPIC, made.segment) for joined in made.joined]
                await self.log.coordinator.rows.replace(swaps)
        self.log.delete_unused()

    async def trim_some(self) -> None:
        """Trim some logs, as retention and DeleteRecords do."""
        partition = self.chance.randrange(self.topic.partitions)
        log = self.log.coordinator.logs[TOPIC, partition]
        self.log.coordinator._trim(log, log.start + self.chance.randrange(max(1, (log.end - log.start) // 3)))
        self.log.delete_unused()

    async def compact(self, *, force: bool = True) -> Applier:
        """Keys of every chunk, the last of each, every chunk rewritten in any order, swaps."""
        stores = self.stores()
        plan = await plan_logs(stores, [self.topic], now_ms=self.log.now_ms, chunk_bytes=self.chunk_bytes, force=force)
        work = Work(None, tuple(plan.logs), tuple(plan.chunks), self.log.now_ms, dry_run=False)  # type: ignore[arg-type]
        applier = Applier(_Hooked(self), plan)  # type: ignore[arg-type]
        events: Events = {}
        survivors = await self._survivors(stores, work, plan, applier, events)
        places = [Place(span.log, span.start) for chunk in plan.chunks for span in chunk]
        left = left_before(places, events)
        numbers = list(range(len(plan.chunks)))
        self.chance.shuffle(numbers)
        for number in numbers:
            chunk = plan.chunks[number]
            here = {
                span.log: sorted(
                    code
                    for of_span in chunk
                    if of_span.log == span.log
                    for code in survivors.get(span.log, {}).values()
                    if of_span.start <= code >> 1 < of_span.end
                )
                for span in chunk
            }
            before = {span.log: left.get(Place(span.log, span.start), ()) for span in chunk}
            applier.begin(number, swap_before_ms(stores))
            await applier.take(number, await rewrite_in(stores, work, chunk, here, before))
        return applier

    async def _survivors(
        self, stores: Stores, work: Work, plan: Plan, applier: Applier, events: Events
    ) -> dict[int, dict[bytes, int]]:
        last: dict[int, dict[bytes, int]] = {}
        for chunk in plan.chunks:
            async for log, keys in keys_in(stores, work, chunk, events):
                if isinstance(keys, Unread):
                    applier.stop(log, State.FAILED, keys.text, keys.kind)
                    continue
                of_log = last.setdefault(log, {})
                for key, code in keys.items():
                    of_log[key] = max(code, of_log.get(key, -1))
        return last

    def stores(self) -> Stores:
        return Stores(SETTINGS, (self.topic,), self.log.coordinator, _Uploads(self.log))  # type: ignore[arg-type]

    async def records(self, partition: int = 0) -> list[Stored]:
        """Return the records that a reader sees now."""
        coordinator = self.log.coordinator
        start = coordinator.logs[TOPIC, partition].start
        (answer,) = await coordinator.find([FindRequest(TOPIC, partition, start, 1 << 40)])
        found: dict[int, list[Stored]] = {}
        async for place, read in read_rows(self.stores().storage, answer.rows):
            assert not isinstance(read, RowUnreadable), read.text
            batches = [bytes(read.run[one.position : one.position + one.length]) for one in read.bounds]
            found[place] = decoded(batches)
        return [record for place in sorted(found) for record in found[place] if record.offset >= start]

    async def check(self) -> None:
        """Require that no relevant record is lost, and no deleted one has come back."""
        for partition, written in enumerate(self.written):
            start = self.log.coordinator.logs[TOPIC, partition].start
            there = await self.records(partition)
            assert there == sorted(there)
            assert set(there) <= set(written)
            last = {record.key: record for record in written}
            for key, record in last.items():
                of_key = [one for one in there if one.key == key]
                if record.value is not None and record.offset >= start:
                    assert record in of_key, f"{record} is lost"
                elif of_key and record.offset >= start:
                    assert of_key[-1] == record, f"{of_key[-1]} lives again, after {record}"


@dataclass
class _Uploads:
    """The part of ObjectStorage that a compaction needs."""

    log: MemoryLog
    failing: set[str] = field(default_factory=set)

    async def fetch(self, key: str, start: int = 0, end: int | None = None) -> bytearray:
        return await self.log.storage.fetch(key, start, end)

    async def upload(self, key: str, data: bytearray, length: int) -> None:
        assert key not in self.log.storage.objects
        assert len(data) == length
        self.log.storage.objects[key] = data


class _Hooked:
    """The coordinator as one compaction has it."""

    def __init__(self, simulated: Simulated) -> None:
        self._simulated = simulated
        self._coordinator = simulated.log.coordinator
        self.describe = self._coordinator.describe
        self.rows = self
        self.mark_compacted = self._coordinator.rows.mark_compacted
        self.tombstone = self._coordinator.tombstone

    async def replace(self, swaps: Sequence[Swap], *, not_after_ms: int = 0) -> list[SwapAnswer]:
        hook, self._simulated.before_swap = self._simulated.before_swap, None
        if hook is not None:
            self._simulated.before_swap = _nothing
            await hook()
            if self._simulated.before_swap is _nothing:
                self._simulated.before_swap = hook
        return await self._coordinator.rows.replace(swaps, not_after_ms=not_after_ms)
