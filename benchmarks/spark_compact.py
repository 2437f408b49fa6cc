"""Run `pipeline compact` with more keys than fit the executors' memory: speed, spilled bytes, the driver's memory.

There are small records of mostly different keys, in a JVM with little memory; a last run has twice as many. Each run's
result is checked: as many records are left as there are keys.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import random
import time
import uuid
from collections import defaultdict
from typing import TYPE_CHECKING

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from benchmarks.measure import spread
from benchmarks.spark_merge import DriverMemory, say, stores
from pipeline.compact import job
from pipeline.compact.options import CompactOptions
from pipeline.job import JobContext, JobReport
from pipeline.progress import Progress
from pipeline.session import spark_session
from pipeline.stores import opened
from proxy.config import Settings
from proxy.coordinator.connect import connect
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.coordinator.registry import RedisTopicRegistry
from proxy.diskless.wal.segment import SegmentBuilder, segment_key
from proxy.records.batches import read_header

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 4
KEY_BYTES = 48
VALUE_BYTES = 100
RECORDS_PER_BATCH = 400
BATCHES_PER_SEGMENT = 40
UPDATES = 0.25
"""Share of the records whose key came before."""
TASK_BYTES = 32 << 20
"""Bytes of a task, a quarter of the default, because the data of a run must make several tasks for each process."""
HEAP_MIB, RESERVED_MIB, FRACTION = 512, 300, 0.08
"""Heap of the JVM, the memory that Spark reserves, and the share of the rest that keys may use before they are
spilled."""
CONF = {
    "spark.driver.memory": f"{HEAP_MIB}m",
    "spark.memory.fraction": str(FRACTION),
    "spark.default.parallelism": "2",
    "spark.sql.shuffle.partitions": "4",
}

Figures = dict[str, list[float]]


def measure(figures: Figures, rounds: int, megabytes: int) -> None:
    """Add `compact_…` to the figures: MB/s and records/s, keys and spilled bytes in MiB, the same for twice the data,
    and the driver's memory. It uses a quarter of `megabytes`, because records are small."""
    size = max(1, megabytes // 4)
    with spark_session("bench-compact", master="local[2]", conf=CONF) as spark, stores("file") as settings:
        _round(spark, settings, defaultdict(list), 8, "")  # the first tasks load modules
        for _ in range(rounds):
            _round(spark, settings, figures, size, "")
            _round(spark, settings, figures, 2 * size, "_twice")
    over = zip(figures["compact_twice_s"], figures["compact_s"], strict=True)
    figures["compact_twice_ratio"] = [twice / once for twice, once in over]


def _round(spark: SparkSession, settings: Settings, figures: Figures, megabytes: int, twice: str) -> None:
    topic, keys, records, size_bytes = asyncio.run(_filled(settings, megabytes))
    with DriverMemory(spark) as memory:
        began = time.perf_counter()
        report = _compact(spark, settings, topic)
        seconds = time.perf_counter() - began
    assert not report.findings, report.findings
    assert report.figures["records_after"] == keys, (report.figures, keys)
    figures[f"compact{twice}_s"].append(seconds)
    figures[f"compact{twice}_keys_s"].append(report.figures["keys_seconds"])
    figures[f"compact{twice}_mb_s"].append(size_bytes / seconds / 1e6)
    figures[f"compact{twice}_krecords_s"].append(records / seconds / 1e3)
    figures[f"compact{twice}_keys_mib"].append(keys * KEY_BYTES / 2**20)
    figures[f"compact{twice}_spilled_mib"].append(report.figures["bytes_spilled"] / 2**20)
    figures[f"compact{twice}_python_mib"].append(memory.python_mib)
    figures[f"compact{twice}_jvm_mib"].append(memory.jvm_mib)
    spilled = figures[f"compact{twice}_spilled_mib"][-1]
    say(f"compact, {size_bytes / 1e6:.0f} MB, {keys:,} keys: {seconds:.1f} s, {spilled:.0f} MiB spilled")
    asyncio.run(_emptied(settings, topic))


async def _filled(settings: Settings, megabytes: int) -> tuple[DisklessTopic, int, int, int]:
    """Create a topic; return its keys, records and bytes. Keys are different in each partition."""
    topic_id, name = uuid.uuid4().bytes, f"topic-{uuid.uuid4().hex}"
    chance = random.Random(megabytes)
    keys: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    records = size_bytes = 0
    async with opened(settings) as stores:
        await stores.coordinator.create_logs(topic_id, range(PARTITIONS))
        while size_bytes < megabytes * 1_000_000:
            builder = SegmentBuilder()
            for number in range(BATCHES_PER_SEGMENT):
                batch = _batch(keys[number % PARTITIONS], chance)
                builder.add(topic_id, number % PARTITIONS, memoryview(batch), read_header(batch))
                records += RECORDS_PER_BATCH
            built = builder.build()
            size_bytes += len(built.data)
            await stores.storage.upload(segment_key(built.segment), built.data, len(built.data))
            await stores.coordinator.commit(built.segment, built.runs)
    configs = {"cleanup.policy": "compact"}
    client = await connect(settings.redis)
    try:
        registry = RedisTopicRegistry(client, settings.redis)
        await registry.reserve(name, PARTITIONS, configs, "benchmark")
        await registry.activate(name, topic_id, PARTITIONS)
    finally:
        await client.aclose()
    topic = DisklessTopic(name, topic_id, PARTITIONS, "live", configs)
    return topic, sum(map(len, keys)), records, size_bytes


def _batch(keys: list[bytes], chance: random.Random) -> bytearray:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    for place in range(RECORDS_PER_BATCH):
        if keys and chance.random() < UPDATES:
            key = chance.choice(keys)
        else:
            key = os.urandom(KEY_BYTES)
            keys.append(key)
        builder.append(place, 1_700_000_000_000, key, b"v" * VALUE_BYTES, [])
    return bytearray(builder.build())


async def _emptied(settings: Settings, topic: DisklessTopic) -> None:
    async with opened(settings) as stores:
        await stores.coordinator.delete_logs(topic.topic_id, range(PARTITIONS))
        await stores.storage.delete([stored.key async for stored in stores.storage.objects()])
    client = await connect(settings.redis)
    try:
        await RedisTopicRegistry(client, settings.redis).remove(topic.name)
    finally:
        await client.aclose()


def _compact(spark: SparkSession, settings: Settings, topic: DisklessTopic) -> JobReport:
    options = CompactOptions(force=True, task_bytes=TASK_BYTES)
    with Progress("compact", io.StringIO()) as progress:
        return job.run(JobContext(settings, spark, (topic.name,), False, progress), options)


def table(figures: dict[str, dict[str, float]]) -> list[str]:
    """Return lines of Markdown."""

    def cell(name: str, digits: int = 0) -> str:
        one = figures[f"compact_{name}"]
        return f"{one['median']:.{digits}f} ({one['min']:.{digits}f}–{one['max']:.{digits}f})"

    def both(name: str, digits: int = 0) -> str:
        return f"{cell(name, digits)} | {cell(f'twice_{name}', digits)}"

    room = (HEAP_MIB - RESERVED_MIB) * FRACTION
    return [
        f"| compaction, {KEY_BYTES} bytes of key and {VALUE_BYTES} of value | once | twice the data |",
        "|---|---|---|",
        f"| keys, MiB (at most {room:.0f} MiB of the executors' memory are for them) | {both('keys_mib')} |",
        f"| spilled to disk, MiB | {both('spilled_mib')} |",
        f"| of its seconds, for keys | {both('keys_s', 1)} |",
        f"| seconds | {cell('s', 1)} | {cell('twice_s', 1)} |",
        f"| MB/s | {both('mb_s', 1)} |",
        f"| thousand records/s | {both('krecords_s')} |",
        f"| time of twice the data ÷ of once (at most 2.2) | | {cell('twice_ratio', 2)} |",
        f"| driver: Python, MiB | {both('python_mib')} |",
        f"| driver and executors: JVM, MiB | {both('jvm_mib')} |",
    ]


def main() -> None:
    """Run alone, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=400)
    arguments = parser.parse_args()
    figures: Figures = defaultdict(list)
    measure(figures, arguments.rounds, arguments.megabytes)
    print("\n".join(table({name: spread(values) for name, values in figures.items()})))


if __name__ == "__main__":
    main()
