"""Compare the same batches in a classic topic, cleaned by a real broker, and in a diskless one, compacted by the
job."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from proxy.config import Settings
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.demo.stack import Stack
from proxy.inspection.stores import open_stores
from proxy.records.batches import read_header
from tests.pipeline.compact.running import compact
from tests.support.keyed import Keyed, Producer, commit_batches, keyed_batch, log_batches
from tests.support.log_cleaner import BatchLog, CleanedLog, quick_cleaner, records_of
from tests.support.topics import DISKLESS, new_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIGS = {"cleanup.policy": "compact", "delete.retention.ms": "0", "min.cleanable.dirty.ratio": "0"}
CODECS = 5
PER_SEGMENT = 4
DELETE_HORIZON = 0x40


class Batches:
    """Generates batches of all codecs by several producers, with tombstones and headers; the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._now_ms = int(time.time() * 1000) - 60_000
        self._sequences = {7_000_000 + number: 0 for number in range(3)}
        self._count = 0

    def some(self, count: int) -> list[bytearray]:
        return [self._one() for _ in range(count)] + [keyed_batch([self._record(b"end-%d" % self._count)])]

    def _one(self) -> bytearray:
        records = [self._record() for _ in range(self._chance.randrange(1, 20))]
        producer = Producer()
        if self._chance.random() < 0.6:
            producer_id = self._chance.choice(list(self._sequences))
            producer = Producer(producer_id, 0, self._sequences[producer_id])
            self._sequences[producer_id] += len(records)
        self._now_ms += self._chance.randrange(-5, 50)
        return keyed_batch(records, codec=self._chance.randrange(CODECS), producer=producer, timestamp_ms=self._now_ms)

    def _record(self, key: bytes | None = None) -> Keyed:
        self._count += 1
        name = key or b"key-%d" % int(self._chance.expovariate(0.05))
        value = (
            None if self._chance.random() < 0.25 and key is None else b"%d-" % self._count * self._chance.randrange(60)
        )
        return Keyed(name, value, (("trace", b"%d" % self._count), ("none", None)) if self._count % 3 == 0 else ())


def comparable(batch: bytes) -> tuple[object, ...]:
    """Return the part of a batch that must be the same; not the time of a run, nor the compressed bytes.

    A batch without records keeps the maximum timestamp of the records that the run before left in it. The cleaner may
    run more often than the job: the first batch after a seal makes the seal's segment ready for it.
    """
    header = read_header(batch)
    return (
        int.from_bytes(batch[:8], "big"),
        header.last_offset_delta,
        header.record_count,
        header.attributes,
        header.record_count and header.max_timestamp_ms,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.base_timestamp_ms if header.record_count == 0 else bool(header.attributes & DELETE_HORIZON),
    )


async def append(settings: Settings, name: str, batches: Sequence[bytes | bytearray]) -> DisklessTopic:
    """Append to the diskless topic, some batches per segment; a real proxy would take 250 ms for each segment."""
    async with open_stores(settings) as stores:
        (topic,) = stores.named([name])
        for first in range(0, len(batches), PER_SEGMENT):
            some = batches[first : first + PER_SEGMENT]
            await commit_batches(stores, topic, [(0, bytearray(batch)) for batch in some])
    return topic


async def test_compaction_keeps_the_same_as_the_log_cleaner(
    stack: Stack, stack_settings: Settings, spark: SparkSession
) -> None:
    seed = int(time.time())
    made = Batches(seed)
    with quick_cleaner(stack):
        classic = await asyncio.to_thread(CleanedLog, stack, "compaction", configs=CONFIGS)
        name = await asyncio.to_thread(new_topic, stack, "compaction", DISKLESS, configs=CONFIGS)
        for count in (60, 25, 10):
            batches = made.some(count)
            await asyncio.to_thread(classic.produce, batches)
            end = await asyncio.to_thread(classic.clean)
            topic = await append(stack_settings, name, [*batches, *classic.seals[-1:]])

            report = await compact(stack_settings, spark, name)

            assert report.findings == []
            assert report.figures["logs_compacted"] == 1
            left = [one for one in await log_batches(stack_settings, topic) if int.from_bytes(one[:8], "big") < end]
            wanted = [one for one in await asyncio.to_thread(classic.batches) if int.from_bytes(one[:8], "big") < end]
            assert records_of(left) == records_of(wanted), seed
            assert [comparable(one) for one in left] == [comparable(one) for one in wanted], seed
    seen = await asyncio.to_thread(BatchLog(stack.bootstrap("rack-b"), name).records)
    assert set(records_of(left)) <= set(seen), "through a proxy, which may not have heard of it yet"
