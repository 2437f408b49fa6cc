"""Measure the cost of records, segments and object storage: `python -m benchmarks.storage`.

Figures are microseconds of CPU per operation, and wall time if a server or disk answers. Prints a table and writes
`benchmarks/results/storage.json`. Figures are of one machine on which client and server share the cores.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import statistics
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from threading import Event
from typing import Any

import uvloop
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from rich.console import Console
from rich.table import Table

from proxy.config import Storage
from proxy.coordinator.interface import Row
from proxy.demo.ports import ReservedPorts
from proxy.demo.s3 import ACCESS_KEY_ID, BUCKET, SECRET_ACCESS_KEY, SeaweedFS
from proxy.diskless.cache import BlockCache
from proxy.diskless.parts import DirectReads
from proxy.diskless.wal.segment import SegmentBuilder, segment_key
from proxy.records.batches import check_batch, patch_offsets
from proxy.storage import ObjectStorage, open_storage

RESULTS = Path(__file__).parent / "results" / "storage.json"
BATCH_BYTES = 16_384
SEGMENT_BYTES = 4_194_304
PARTITIONS = 50
ROUNDS = 5
UPLOADS = 20

Figure = dict[str, float | None]


def batch_of(size: int) -> bytearray:
    """Build a batch of one uncompressed record, `size` bytes in all."""
    value_bytes = size - 61
    while True:
        builder = DefaultRecordBatchBuilder(2, 0, 0, 5, 0, 0, 2 * size)
        builder.append(0, 1_700_000_000_000, None, os.urandom(value_bytes), [])
        batch = bytearray(builder.build())
        if len(batch) <= size:
            return batch
        value_bytes -= len(batch) - size


def cpu_us(operation: Callable[[], Any], repetitions: int) -> Figure:
    """Return the best of some rounds, because noise only adds."""
    rounds = []
    for _ in range(ROUNDS):
        began = time.process_time_ns()
        for _ in range(repetitions):
            operation()
        rounds.append((time.process_time_ns() - began) / repetitions / 1000)
    return {"cpu_us": min(rounds), "wall_us": None}


async def cpu_and_wall_us(operation: Callable[[int], Awaitable[Any]], repetitions: int) -> Figure:
    """Return the median wall time of the repetitions, and the mean CPU of this process, all threads."""
    walls = []
    began_cpu = time.process_time_ns()
    for number in range(repetitions):
        began = time.perf_counter_ns()
        await operation(number)
        walls.append((time.perf_counter_ns() - began) / 1000)
    return {
        "cpu_us": (time.process_time_ns() - began_cpu) / repetitions / 1000,
        "wall_us": statistics.median(walls),
    }


def in_memory() -> dict[str, Figure]:
    batch = memoryview(batch_of(BATCH_BYTES))
    header = check_batch(batch, max_message_bytes=1_048_576)
    run = bytearray().join([batch] * 100)
    builder = SegmentBuilder()
    count = SEGMENT_BYTES // len(batch)
    for number in range(count):
        builder.add(b"t" * 16, number % PARTITIONS, batch, header)

    def fill_and_build() -> None:
        filled = SegmentBuilder()
        for number in range(count):
            filled.add(b"t" * 16, number % PARTITIONS, batch, header)
        filled.build()

    built = builder.build()
    first = built.runs[0]
    length = sum(each.length for each in first.batches)
    row = Row(0, len(first.batches) - 1, built.segment, first.position, length, 0, 0)
    cache = BlockCache(DirectReads(open_storage(Storage(url="file:///"))), capacity_bytes=1 << 26, block_bytes=1 << 23)
    cache.insert(built.segment, built.data)
    return {
        "check_batch, 16 KiB": cpu_us(lambda: check_batch(batch, max_message_bytes=1_048_576), 20_000),
        "patch_offsets, 100 batches": cpu_us(lambda: patch_offsets(run, 5, 0), 2_000),
        "segment of 4 MiB, build": cpu_us(builder.build, 50),
        f"segment of 4 MiB, {count} adds to {PARTITIONS} partitions and build": cpu_us(fill_and_build, 50),
        "cache, row that is present": cpu_us(lambda: cache.cached(row), 50_000),
    }


async def stored(name: str, storage: ObjectStorage) -> dict[str, Figure]:
    await storage.open()
    data = bytearray(os.urandom(SEGMENT_BYTES))
    keys = [segment_key(uuid.uuid4().bytes) for _ in range(UPLOADS + 3)]
    for key in keys[UPLOADS:]:
        await storage.upload(key, data, len(data))
        await storage.fetch(key)
    gc.collect()
    figures = {
        f"{name}, PUT 4 MiB": await cpu_and_wall_us(lambda n: storage.upload(keys[n], data, len(data)), UPLOADS),
        f"{name}, GET 4 MiB": await cpu_and_wall_us(lambda n: storage.fetch(keys[n], 0, 2 * SEGMENT_BYTES), UPLOADS),
        f"{name}, GET 1 KiB": await cpu_and_wall_us(lambda n: storage.fetch(keys[n], 0, 1024), UPLOADS),
    }
    await storage.delete(keys)
    await storage.close()
    return figures


async def with_servers(directory: Path) -> dict[str, Figure]:
    figures = await stored("file", open_storage(Storage(url=f"file://{directory}/objects")))
    for name in ("config", "logs"):
        (directory / name).mkdir()
    reserved = ReservedPorts(None, proxies=0)
    server = SeaweedFS(directory, reserved.ports.s3)
    server.prepare()
    server.process.start()
    try:
        server.wait_ready(60, Event())
        settings = Storage(
            url=f"s3://{BUCKET}/benchmark",
            endpoint_url=server.endpoint_url,
            access_key_id=ACCESS_KEY_ID,
            secret_access_key=SECRET_ACCESS_KEY,
        )
        return figures | await stored("S3", open_storage(settings))
    finally:
        server.process.kill()
        server.clean_up()
        reserved.release()


def main() -> None:
    figures = in_memory()
    with tempfile.TemporaryDirectory() as directory:
        figures |= uvloop.run(with_servers(Path(directory)))
    table = Table("operation", "CPU µs", "wall µs", title="records, segments, object storage")
    for name, figure in figures.items():
        table.add_row(name, *("" if value is None else f"{value:,.2f}" for value in figure.values()))
    Console().print(table)
    RESULTS.parent.mkdir(exist_ok=True)
    machine = {"python": platform.python_version(), "cores": os.cpu_count(), "machine": platform.machine()}
    RESULTS.write_text(json.dumps({"machine": machine, "figures": figures}, indent=2) + "\n")


if __name__ == "__main__":
    main()
