"""Rollups reach storage once each, and a failing storage affects nothing else."""

from __future__ import annotations

import asyncio
import io
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import structlog

from proxy.accounting.rollups import writer as writer_module
from proxy.accounting.rollups.counted import Amount, What
from proxy.accounting.rollups.table import HOUR_MS, Measure, RollupRow
from proxy.accounting.rollups.writer import RollupWriter
from proxy.config import Rollups, Storage
from proxy.storage.file import FileStorage
from proxy.storage.interface import StorageError

START_MS = 500_000 * HOUR_MS + 1_000


class Faulty(FileStorage):
    """File storage whose uploads fail in a given way: `before` or `after` the write, `half` way, or not."""

    def __init__(self, directory: Path) -> None:
        super().__init__(Storage(url=directory.as_uri()))
        self.directory = directory
        self.fails = ""
        self.hangs = False

    async def upload(self, key: str, data: Any, length: int) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        if self.fails == "half":
            await super().upload(key, data[:20], 20)
        elif self.fails != "before":
            await super().upload(key, data, length)
        if self.fails:
            raise StorageError("the store is away")


class Process:
    """A writer with its own counters."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.storage = Faulty(directory)
        self.counters = Counter[str]()
        self.now_ms = START_MS
        self.writer = RollupWriter(
            Rollups(**settings),
            self.storage,
            "rack-a/h:1",
            "rack-a",
            totals=self.totals,
            now_ms=lambda: self.now_ms,
        )

    def totals(self) -> Iterator[tuple[What, Amount]]:
        for topic, size in self.counters.items():
            yield What(Measure.RECORDS, "diskless", "fetch", "rack-a", "rack-a", topic), Amount(size)

    async def moved(self, topic: str = "orders", size: int = 5) -> None:
        """Count record bytes, and write a rollup."""
        self.counters[topic] += size
        await self.writer.write()

    def files(self) -> list[Path]:
        return sorted(self.storage.directory.glob("traffic/*/*.parquet"))

    def stored(self) -> dict[str, int]:
        """Return bytes by topic in all files that can be read."""
        sums = Counter[str]()
        for path in self.files():
            data = path.read_bytes()
            if data.endswith(b"PAR1"):
                for row in pq.ParquetFile(io.BytesIO(data)).read().to_pylist():
                    sums[row["topic"]] += row["bytes"]
        return dict(sums)


@pytest.fixture
async def process(tmp_path: Path) -> Process:
    made = Process(tmp_path, max_waiting=3)
    await made.storage.open()
    return made


async def test_each_interval_has_a_file_with_its_own_records(process: Process) -> None:
    await process.moved(size=5)
    await process.moved(size=7)
    assert len(process.files()) == 2
    assert process.stored() == {"orders": 12}
    assert process.writer.written == 2
    assert process.writer.waiting == 0


async def test_no_file_is_written_without_records(process: Process) -> None:
    await process.writer.write()
    await process.moved()
    await process.writer.write()
    await process.writer.finish()
    assert len(process.files()) == 1


async def test_two_processes_of_one_proxy_write_separate_files(process: Process, tmp_path: Path) -> None:
    other = Process(tmp_path)
    await process.moved()
    await other.moved()
    assert len(process.files()) == 2
    assert process.stored() == {"orders": 10}


async def test_records_before_the_end_of_an_hour_count_for_that_hour(process: Process) -> None:
    process.counters["orders"] += 5
    process.now_ms += HOUR_MS
    await process.writer.write()
    await process.moved(size=7)
    hours = [pq.ParquetFile(path).read()["hour"].to_pylist()[0].hour for path in process.files()]
    assert hours[1] == (hours[0] + 1) % 24
    assert [path.name[:2] for path in process.files()] == [f"{hour:02}" for hour in hours]


@pytest.mark.parametrize("fails", ["before", "after", "half"])
async def test_an_upload_that_failed_is_counted_once(process: Process, fails: str) -> None:
    process.storage.fails = fails
    with structlog.testing.capture_logs() as logged:
        await process.moved(size=5)
        await process.moved(size=7)
        process.storage.fails = ""
        await process.moved(size=1)
    assert process.stored() == {"orders": 13}
    assert process.writer.written == 3
    events = [entry["event"] for entry in logged]
    assert events == ([] if fails == "after" else ["rollups_waiting", "rollups_written_again"])


async def test_a_storage_that_stays_away_loses_the_oldest_and_is_reported_once(process: Process) -> None:
    process.storage.fails = "before"
    with structlog.testing.capture_logs() as logged:
        for size in (1, 2, 4, 8, 16):
            await process.moved(size=size)
        assert process.writer.waiting == 3
        process.storage.fails = ""
        await process.writer.write()
    assert process.stored() == {"orders": 4 + 8 + 16}
    assert process.writer.dropped == 2
    events = [entry["event"] for entry in logged]
    assert events == ["rollups_waiting", "rollups_dropped", "rollups_written_again"]


async def test_fewer_may_wait_after_a_reload(process: Process) -> None:
    process.storage.fails = "before"
    for size in (1, 2, 4):
        await process.moved(size=size)
    process.writer._settings.__dict__["max_waiting"] = 1
    await process.moved(size=8)
    assert (process.writer.waiting, process.writer.dropped) == (1, 3)
    process.storage.fails = ""
    await process.moved(size=16)
    assert process.stored() == {"orders": 16}


async def test_a_storage_that_hangs_does_not_delay_the_end(process: Process, monkeypatch) -> None:
    monkeypatch.setattr(writer_module, "_LAST_WRITE_S", 0.01)
    process.storage.hangs = True
    process.counters["orders"] += 1
    with structlog.testing.capture_logs() as logged:
        await process.writer.finish()
    assert [entry["event"] for entry in logged] == ["rollups_lost"]


async def test_counts_survive_a_writer_that_is_cancelled(process: Process, monkeypatch) -> None:
    """It is cancelled during the encoding, when a drain ends the background work."""
    begun, go_on, encode_rows = asyncio.Event(), threading.Event(), writer_module.encode_rows
    loop = asyncio.get_running_loop()

    def slowly(rows: Sequence[RollupRow]) -> bytes:
        loop.call_soon_threadsafe(begun.set)
        go_on.wait(60)
        return encode_rows(rows)

    monkeypatch.setattr(writer_module, "encode_rows", slowly)
    process.counters["orders"] += 5
    writing = asyncio.create_task(process.writer.write())
    await begun.wait()
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    go_on.set()
    await process.writer.finish()
    assert process.stored() == {"orders": 5}
    assert len(process.files()) == 1


async def test_failures_do_not_delay_the_end(process: Process, monkeypatch) -> None:
    def broken() -> Iterator[tuple[What, Amount]]:
        raise ValueError("nobody thought of this")

    monkeypatch.setattr(process.writer, "_totals", broken)
    with structlog.testing.capture_logs() as logged:
        await process.writer.finish()
    assert [entry["event"] for entry in logged] == ["rollups_lost"]
    assert "nobody thought of this" in logged[0]["reason"]


async def test_unconfirmed_records_are_in_the_last_rollup(process: Process) -> None:
    """The brokers have not confirmed the records' topic yet."""
    await process.moved()
    process.writer._settle_all = lambda: process.counters.update({"(unknown)": 7})
    await process.writer.finish()
    assert process.stored() == {"orders": 5, "(unknown)": 7}


async def test_the_writer_continues_after_any_failure(tmp_path: Path) -> None:
    process = Process(tmp_path, interval_ms=100)
    await process.storage.open()
    process.counters["orders"] += 1
    rounds, whole = 0, process.writer._totals

    def broken() -> Iterator[tuple[What, Amount]]:
        nonlocal rounds
        rounds += 1
        if rounds < 3:
            raise ValueError("nobody thought of this")
        return iter(whole())

    process.writer._totals = broken
    with structlog.testing.capture_logs() as logged:
        keeping = asyncio.create_task(process.writer.keep_writing())
        async with asyncio.timeout(60):
            while not process.writer.written:  # noqa: ASYNC110 (nothing announces it)
                await asyncio.sleep(0.01)
    assert not keeping.done()
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    assert [entry["event"] for entry in logged] == ["rollups_broken"]
    assert process.stored() == {"orders": 1}


async def test_a_disabled_writer_writes_nothing(tmp_path: Path) -> None:
    process = Process(tmp_path, enable=False, interval_ms=100)
    await process.storage.open()
    process.counters["orders"] += 1
    keeping = asyncio.create_task(process.writer.keep_writing())
    await asyncio.sleep(0.3)
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    await process.writer.finish()
    assert process.files() == []
