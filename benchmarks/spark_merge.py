"""Compare `pipeline merge` with copying the same objects with the same storage client on as many processes.

They run in turns, in one session; a last run has twice the data. The GETs of cold readers are counted before and after
the merge.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import tempfile
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from benchmarks.measure import memory_mib, spread
from benchmarks.storage import batch_of
from pipeline.job import JobContext, JobReport
from pipeline.logs import rows_of_log
from pipeline.merge import job
from pipeline.merge.options import MergeOptions
from pipeline.merge.rewriting import GETS
from pipeline.progress import Progress
from pipeline.reading import coalesce
from pipeline.session import spark_session
from pipeline.stores import opened, storage_opened
from pipeline.tasks import TaskFailed, run_tasks
from proxy.config import Settings
from proxy.coordinator.connect import connect
from proxy.coordinator.interface import Row
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.coordinator.registry import RedisTopicRegistry
from proxy.demo.ports import ReservedPorts
from proxy.demo.s3 import ACCESS_KEY_ID, BUCKET, REGION, SECRET_ACCESS_KEY, SeaweedFS
from proxy.demo.valkey import Valkey
from proxy.diskless.cache import BlockCache
from proxy.diskless.parts import DirectReads
from proxy.diskless.wal.segment import SegmentBuilder, segment_key
from proxy.inspection.stores import Stores
from proxy.records.batches import read_header
from proxy.storage import ObjectStorage, open_storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 6
SEGMENT_BYTES = 4 << 20
BATCH_BYTES = 65_536
TASK_BYTES = 128 << 20
"""Bytes of a task, half of the default, because the data of a run must make several tasks for each process."""
MAX_ROUNDS = 3
MEGABYTES_PER_PARTITION = 80
START_SECONDS = 60.0
CONF = {"spark.driver.memory": "1g", "spark.default.parallelism": "2"}

Figures = dict[str, list[float]]


def measure(figures: Figures, rounds: int, megabytes: int, storages: Sequence[str] = ("file", "s3")) -> None:
    """Add `merge_…` to the figures: MB/s of merge and copy, their ratio pair by pair, that of twice the data, the
    driver's memory, GETs per GB of a cold scan, and the smallest object.

    There are at most MAX_ROUNDS rounds. The data is large enough that every partition gets its own object.
    """
    rounds, megabytes = min(rounds, MAX_ROUNDS), max(megabytes, PARTITIONS * MEGABYTES_PER_PARTITION)
    with spark_session("bench-merge", master="local[2]", conf=CONF) as spark:
        for storage in storages:
            with stores(storage) as settings:
                _round(spark, settings, defaultdict(list), 32, storage)  # the first tasks load modules
                for number in range(rounds):
                    _round(
                        spark, settings, figures, megabytes, storage, is_merge_first=number % 2 == 1, scans=number == 0
                    )
                    _round(spark, settings, figures, 2 * megabytes, storage, twice="_twice")
                for of, name in ((f"{storage}_ratio", "copy_s"), (f"{storage}_twice_ratio", "merge_twice_s")):
                    over = zip(figures[f"merge_{storage}_{name}"], figures[f"merge_{storage}_merge_s"], strict=True)
                    figures[f"merge_{of}"] = [one / merging for one, merging in over]


def _round(
    spark: SparkSession,
    settings: Settings,
    figures: Figures,
    megabytes: int,
    storage: str,
    *,
    is_merge_first: bool = False,
    scans: bool = False,
    twice: str = "",
) -> None:
    """Run one round. `scans` counts the GETs of readers, which are the same in every round; `twice` runs the merge
    only, under that name."""
    topic = asyncio.run(_filled(settings, megabytes))
    segments = asyncio.run(_segments(settings, topic))
    name = f"merge_{storage}"
    if scans:
        figures[f"{name}_block_gets_per_gb_before"].append(asyncio.run(_proxy_gets(settings, topic)))
        figures[f"{name}_gets_per_gb_before"].append(asyncio.run(_job_gets(settings, topic)))

    def copy() -> None:
        began = time.perf_counter()
        _copy(spark, settings, segments)
        figures[f"{name}_copy_s"].append(time.perf_counter() - began)

    def merge() -> None:
        with DriverMemory(spark) as memory:
            began = time.perf_counter()
            report = _merge(spark, settings, topic)
            seconds = time.perf_counter() - began
        assert not report.findings, report.findings
        figures[f"{name}_merge{twice}_s"].append(seconds)
        figures[f"{name}_merge{twice}_mb_s"].append(report.figures["bytes_merged"] / seconds / 1e6)
        figures[f"{name}_python_mib{twice}"].append(memory.python_mib)
        figures[f"{name}_jvm_mib{twice}"].append(memory.jvm_mib)

    for step in (merge,) if twice else (merge, copy) if is_merge_first else (copy, merge):
        step()
    if not twice:
        figures[f"{name}_copy_mb_s"].append(megabytes / figures[f"{name}_copy_s"][-1])
        say(f"{storage}, {megabytes} MB: copy {figures[f'{name}_copy_mb_s'][-1]:.0f} MB/s")
    if scans:
        figures[f"{name}_block_gets_per_gb_after"].append(asyncio.run(_proxy_gets(settings, topic)))
        figures[f"{name}_gets_per_gb_after"].append(asyncio.run(_job_gets(settings, topic)))
        figures[f"{name}_smallest_object_mib"].append(asyncio.run(_smallest_object_mib(settings, topic)))
    say(f"{storage}, {megabytes} MB: merge {figures[f'{name}_merge{twice}_mb_s'][-1]:.0f} MB/s")
    asyncio.run(_emptied(settings, topic))


# The data


@contextmanager
def stores(storage: str) -> Iterator[Settings]:
    """Start a Redis-compatible server, and a directory or an S3 server, without brokers and proxies."""
    with tempfile.TemporaryDirectory(prefix="diskless-proxy-bench-") as name:
        directory = Path(name)
        for folder in ("config", "logs", "data", "wal"):
            (directory / folder).mkdir()
        reserved = ReservedPorts(None, proxies=0)
        redis = Valkey(directory, reserved.ports.redis)
        server = SeaweedFS(directory, reserved.ports.s3) if storage == "s3" else None
        try:
            redis.prepare()
            redis.process.start()
            storage_settings = {"url": (directory / "wal").as_uri()}
            if server:
                server.prepare()
                server.process.start()
                server.wait_ready(START_SECONDS, Event())
                keys = {"access_key_id": ACCESS_KEY_ID, "secret_access_key": SECRET_ACCESS_KEY}
                storage_settings = {
                    "url": f"s3://{BUCKET}/wal",
                    "endpoint_url": server.endpoint_url,
                    "region": REGION,
                    **keys,
                }
            redis.wait_ready(START_SECONDS, Event())
            settings = Settings.model_validate(
                {
                    "rack": "rack-a",
                    "brokers": {"bootstrap": ["127.0.0.1:1"]},
                    "redis": {"url": redis.url},
                    "journal": {"mode": "off"},
                    "storage": storage_settings,
                }
            )
            asyncio.run(_try_out(settings))
            yield settings
        finally:
            redis.process.kill()
            if server:
                server.process.kill()
                server.clean_up()
            reserved.release()


async def _try_out(settings: Settings) -> None:
    storage = open_storage(settings.storage)
    await storage.open()
    await storage.close()


async def _filled(settings: Settings, megabytes: int) -> DisklessTopic:
    """Create a topic with that much random data, in segments that have batches of all partitions."""
    topic_id, name = uuid.uuid4().bytes, f"topic-{uuid.uuid4().hex}"
    batch = batch_of(BATCH_BYTES)
    header = read_header(batch)
    async with opened(settings) as stores:
        await stores.coordinator.create_logs(topic_id, range(PARTITIONS))
        for _ in range(max(1, megabytes * 1_000_000 // SEGMENT_BYTES)):
            builder = SegmentBuilder()
            for number in range(SEGMENT_BYTES // BATCH_BYTES):
                plain = bytearray(batch)  # without a producer, so that there is no sequence to keep
                builder.add(topic_id, number % PARTITIONS, memoryview(plain), header._replace(producer_id=-1))
            built = builder.build()
            await stores.storage.upload(segment_key(built.segment), built.data, len(built.data))
            await stores.coordinator.commit(built.segment, built.runs)
    client = await connect(settings.redis)
    try:
        registry = RedisTopicRegistry(client, settings.redis)
        await registry.reserve(name, PARTITIONS, {}, "benchmark")
        await registry.activate(name, topic_id, PARTITIONS)
    finally:
        await client.aclose()
    return DisklessTopic(name, topic_id, PARTITIONS, "live")


async def _emptied(settings: Settings, topic: DisklessTopic) -> None:
    async with opened(settings) as stores:
        await stores.coordinator.delete_logs(topic.topic_id, range(PARTITIONS))
        keys = [stored.key async for stored in stores.storage.objects()]
        await stores.storage.delete(keys)
    client = await connect(settings.redis)
    try:
        await RedisTopicRegistry(client, settings.redis).remove(topic.name)
    finally:
        await client.aclose()


# The compared jobs


def _merge(spark: SparkSession, settings: Settings, topic: DisklessTopic) -> JobReport:
    options = MergeOptions(task_bytes=TASK_BYTES, min_age_ms=0)
    with Progress("merge", io.StringIO()) as progress:
        return job.run(JobContext(settings, spark, (topic.name,), False, progress), options)


def _copy(spark: SparkSession, settings: Settings, segments: Sequence[bytes]) -> None:
    """Read every object completely and write it under another name, in tasks of the same size."""
    left = iter(segments)
    per_task = TASK_BYTES // SEGMENT_BYTES
    tasks = iter(lambda: list(islice(left, per_task)), [])
    for _, answer in run_tasks(spark, partial(copy_objects, settings), tasks):
        assert not isinstance(answer, TaskFailed), answer


def copy_objects(settings: Settings, segments: Sequence[bytes]) -> int:
    """Copy the objects in a Spark process; return the bytes."""
    return asyncio.run(_copy_objects(settings, segments))


async def _copy_objects(settings: Settings, segments: Sequence[bytes]) -> int:
    permits = asyncio.Semaphore(GETS)

    async def copy(storage: ObjectStorage, segment: bytes) -> int:
        async with permits:
            data = await storage.fetch(segment_key(segment))
            await storage.upload(segment_key(uuid.uuid4().bytes), data, len(data))
            return len(data)

    async with storage_opened(settings) as storage:
        return sum(await asyncio.gather(*(copy(storage, segment) for segment in segments)))


class DriverMemory:
    """Measures the peak memory of the driver's Python and JVM during the context."""

    def __init__(self, spark: SparkSession) -> None:
        assert spark.sparkContext._jvm is not None
        self._jvm = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.python_mib = self.jvm_mib = 0.0

    def __enter__(self) -> DriverMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self.python_mib = max(self.python_mib, memory_mib(os.getpid()))
            self.jvm_mib = max(self.jvm_mib, memory_mib(self._jvm))
            if self._ended.wait(0.1):
                return


# The GETs of readers


async def _logs(stores: Stores, topic: DisklessTopic) -> list[list[Row]]:
    return [
        [row async for page in rows_of_log(stores.coordinator, topic.topic_id, partition) for row in page]
        for partition in range(PARTITIONS)
    ]


async def _segments(settings: Settings, topic: DisklessTopic) -> list[bytes]:
    async with opened(settings) as stores:
        return list({row.segment: None for log in await _logs(stores, topic) for row in log})


async def _job_gets(settings: Settings, topic: DisklessTopic) -> float:
    """Return GETs per GB of jobs that read each partition from beginning to end."""
    async with opened(settings) as stores:
        logs = await _logs(stores, topic)
    size = sum(row.length for log in logs for row in log)
    return sum(len(coalesce(log)) for log in logs) / size * 1e9


async def _proxy_gets(settings: Settings, topic: DisklessTopic) -> float:
    """Return GETs per GB of a proxy with cold caches whose clients read one partition after the other."""
    async with opened(settings) as stores:
        logs = await _logs(stores, topic)
        cache = BlockCache(
            DirectReads(stores.storage),
            capacity_bytes=settings.fetch.cold_cache_bytes,
            block_bytes=settings.fetch.cold_block_bytes,
            merged_block_bytes=settings.fetch.merged_block_bytes,
            max_gets=settings.fetch.cold_max_gets,
        )
        for log in logs:
            for row in log:
                await cache.run(row)
        await cache.close()
    return cache.get_count / sum(row.length for log in logs for row in log) * 1e9


async def _smallest_object_mib(settings: Settings, topic: DisklessTopic) -> float:
    used = set(await _segments(settings, topic))
    async with storage_opened(settings) as storage:
        sizes = {stored.key: stored.size_bytes async for stored in storage.objects()}
    return min(sizes[segment_key(segment)] for segment in used) / 2**20


def table(figures: dict[str, dict[str, float]], storages: Sequence[str] = ("file", "s3")) -> list[str]:
    """Return lines of Markdown."""

    def cells(name: str, digits: int) -> str:
        spreads = [figures[f"merge_{storage}_{name}"] for storage in storages]
        return " | ".join(
            f"{one['median']:.{digits}f} ({one['min']:.{digits}f}–{one['max']:.{digits}f})" for one in spreads
        )

    rows = {
        "merge, MB/s": cells("merge_mb_s", 0),
        "copying the same objects, MB/s": cells("copy_mb_s", 0),
        "merge ÷ copy, pair by pair (at least 0.5 is wanted)": cells("ratio", 2),
        "time of twice the data ÷ of once (at most 2.2)": cells("twice_ratio", 2),
        "GETs per GB of a job's cold scan, before": cells("gets_per_gb_before", 0),
        "GETs per GB of a job's cold scan, after (a tenth)": cells("gets_per_gb_after", 0),
        "GETs per GB of a proxy's cold reads, before": cells("block_gets_per_gb_before", 0),
        "GETs per GB of a proxy's cold reads, after (a tenth)": cells("block_gets_per_gb_after", 0),
        "smallest object, MiB (64)": cells("smallest_object_mib", 1),
        "driver: Python, MiB": cells("python_mib", 0),
        "driver: Python, twice the data": cells("python_mib_twice", 0),
        "driver: JVM, MiB": cells("jvm_mib", 0),
        "driver: JVM, twice the data": cells("jvm_mib_twice", 0),
    }
    lines = [
        f"| merge of {SEGMENT_BYTES >> 20} MiB segments of {PARTITIONS} partitions | {' | '.join(storages)} |",
        "|---|" + "---|" * len(storages),
    ]
    return lines + [f"| {name} | {spreads} |" for name, spreads in rows.items()]


def say(text: str) -> None:
    """Print progress."""
    print(f"  {text}", flush=True)


def main() -> None:
    """Run alone, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=600)
    parser.add_argument("--storage", action="append", choices=("file", "s3"))
    arguments = parser.parse_args()
    figures: Figures = defaultdict(list)
    storages = tuple(arguments.storage or ("file", "s3"))
    measure(figures, arguments.rounds, arguments.megabytes, storages)
    print("\n".join(table({name: spread(values) for name, values in figures.items()}, storages)))


if __name__ == "__main__":
    main()
