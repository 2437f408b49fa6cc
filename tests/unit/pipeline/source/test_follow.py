from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import aclosing
from itertools import pairwise
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.source import follow as following
from pipeline.source.errors import DataLoss, SourceError
from pipeline.source.filters import ANY, Bounds
from pipeline.source.schema import FULL
from pipeline.source.splits import LogRange
from pipeline.source.task import arrow_batches
from proxy.coordinator.interface import DeleteRequest, Row
from proxy.diskless.wal.segment import segment_key
from proxy.records.batches import patch_offsets
from tests.batches import make_batch
from tests.support.memory_log import TOPIC, MemoryLog, new_log

SCHEMA = to_arrow_schema(FULL, timezone="UTC")
LENGTHS = st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), min_size=1, max_size=5), max_size=8)


def span(partition: int, start: int, end: int) -> LogRange:
    return LogRange("orders", TOPIC, partition, start, end)


async def read(
    log: MemoryLog,
    *ranges: LogRange,
    bounds: Bounds = ANY,
    fail: bool = True,
    meanwhile: Any = None,
    committed: bool = False,
) -> list[tuple[int, int, bytes]]:
    """Partition, offset and value. `meanwhile`: awaited after each run."""
    runs = []
    async with aclosing(
        following.follow(
            log.coordinator,  # type: ignore[arg-type]
            log.storage,  # type: ignore[arg-type]
            ranges,
            bounds=bounds,
            fail_on_data_loss=fail,
            committed=committed,
        )
    ) as found:
        async for run in found:
            runs.append(run)
            if meanwhile is not None:
                await meanwhile(run.row)
    tables = arrow_batches(runs, SCHEMA, bounds)
    return [(row["partition"], row["offset"], row["value"]) for table in tables for row in table.to_pylist()]


def values(partition: int, offsets: Sequence[int]) -> list[tuple[int, int, bytes]]:
    return [(partition, offset, f"{partition}-{offset}".encode()) for offset in offsets]


async def write(log: MemoryLog, *counts: tuple[int, int], codec: int = 0) -> None:
    """Write one segment with a batch of a given number of records for each partition."""
    batches = []
    for partition, count in counts:
        end = log.coordinator.logs[TOPIC, partition].end + sum(len_ for where, len_, _ in batches if where == partition)
        names = [f"{partition}-{end + number}".encode() for number in range(count)]
        batches.append((partition, count, make_batch(names, codec=codec)))
    await log.write([(partition, batch) for partition, _, batch in batches])


@settings(max_examples=60)
@given(LENGTHS, st.data())
async def test_each_offset_of_the_ranges_once_and_in_order(segments: Any, data: st.DataObject) -> None:
    log = await new_log()
    for segment in segments:
        await write(log, *segment, codec=data.draw(st.integers(0, 4)))
    ranges, expected = [], []
    for partition in range(3):
        end = log.coordinator.logs[TOPIC, partition].end
        edges = sorted(data.draw(st.lists(st.integers(0, end), min_size=2, max_size=4)))
        for start, until in pairwise(edges):
            ranges.append(span(partition, start, until))
            expected += values(partition, range(start, until))
    assert sorted(await read(log, *ranges)) == sorted(expected)
    for one in ranges:
        assert await read(log, one) == values(one.partition, range(one.start, one.end))


async def test_partitions_of_one_segment_are_read_by_one_get(monkeypatch: pytest.MonkeyPatch) -> None:
    log = await new_log()
    for _ in range(4):
        await write(log, (0, 2), (1, 3), (2, 1))
    gets = []
    fetch = log.storage.fetch

    async def counted(key: str, start: int = 0, end: int | None = None) -> bytearray:
        gets.append(key)
        return await fetch(key, start, end)

    monkeypatch.setattr(log.storage, "fetch", counted)
    found = await read(log, span(0, 0, 8), span(1, 0, 12), span(2, 0, 4))
    assert sorted(found) == sorted(values(0, range(8)) + values(1, range(12)) + values(2, range(4)))
    assert len(gets) == 4


async def merge(log: MemoryLog, partition: int, skip: Sequence[int] = ()) -> None:
    """Merge all rows of a partition into one, except for skipped batches; delete the old objects."""
    model = log.coordinator.logs[TOPIC, partition]
    data, old = bytearray([1]), list(model.rows)
    for number, row in enumerate(old):
        batch = bytearray(log.storage.objects[segment_key(row.segment)][row.position : row.position + row.length])
        patch_offsets(batch, row.base_offset, 0, None)
        if number not in skip:
            data += batch
    segment = uuid.uuid4().bytes
    log.storage.objects[segment_key(segment)] = data
    for row in old:
        log.storage.objects.pop(segment_key(row.segment), None)
    newest = max(row.max_timestamp_ms for row in old)
    merged = Row(old[0].base_offset, old[-1].last_offset, segment, 1, len(data) - 1, newest, 0, offsets_in_place=True)
    model.rows[:] = [merged]


async def test_reading_continues_at_the_next_offset_after_objects_were_replaced() -> None:
    log = await new_log()
    for _ in range(200):
        await write(log, (0, 2))
    seen: list[Row] = []

    async def merge_after(row: Row) -> None:
        seen.append(row)
        if len(seen) == 1:
            await merge(log, 0)

    assert await read(log, span(0, 3, 399), meanwhile=merge_after) == values(0, range(3, 399))
    assert seen[0].length < 200
    assert seen[-1].offsets_in_place


@settings(max_examples=60)
@example(partitions=[0, 0, 1, 2], merges={1, 2, 3}, ahead=False)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=40), st.sets(st.integers(0, 60)), st.booleans())
async def test_merges_at_any_time_cost_no_record(partitions: list[int], merges: set[int], ahead: bool) -> None:
    log = await new_log()
    for partition in partitions:
        await write(log, (partition, 2))
    seen: list[Row] = []

    async def merge_now(row: Row) -> None:
        seen.append(row)
        if len(seen) in merges:
            for partition in range(3):
                if log.coordinator.logs[TOPIC, partition].rows:
                    await merge(log, partition)

    # Little is read ahead, so that most of the objects are gone when they are requested.
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(following, "_PAUSE_S", 0)
        patched.setattr(following, "MAX_BYTES_IN_FLIGHT", following.MAX_BYTES_IN_FLIGHT if ahead else 1)
        spans = [span(number, 0, 2 * partitions.count(number)) for number in range(3)]
        found = await read(log, *spans, meanwhile=merge_now)
    for one in spans:
        of_one = [record for record in found if record[0] == one.partition]
        assert of_one == values(one.partition, range(one.end))


async def test_gaps_left_by_compaction_are_not_a_loss() -> None:
    log = await new_log()
    for _ in range(6):
        await write(log, (0, 2))
    await merge(log, 0, skip=(0, 2, 3))
    assert await read(log, span(0, 0, 12)) == values(0, [2, 3, 8, 9, 10, 11])
    assert await read(log, span(0, 5, 9)) == values(0, [8])


async def test_an_object_that_is_really_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "_PAUSE_S", 0)
    log = await new_log()
    for _ in range(3):
        await write(log, (0, 2))
    row = log.coordinator.logs[TOPIC, 0].rows[1]
    del log.storage.objects[segment_key(row.segment)]
    with pytest.raises(SourceError, match=f"orders-0 can't be read from offset 2: .*{segment_key(row.segment)}"):
        await read(log, span(0, 0, 6))
    assert await read(log, span(0, 4, 6)) == values(0, [4, 5])


async def test_several_objects_that_are_missing_for_good_end_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "_PAUSE_S", 0)
    log = await new_log()
    for _ in range(4):
        await write(log, (0, 2))
    for row in log.coordinator.logs[TOPIC, 0].rows[1:]:
        del log.storage.objects[segment_key(row.segment)]
    with pytest.raises(SourceError, match=r"orders-0 can't be read from offset 2: .*there is no object"):
        await read(log, span(0, 0, 8))


@pytest.mark.parametrize("place", [61, 70])
async def test_a_corrupt_batch_is_named_with_object_and_offsets(place: int) -> None:
    log = await new_log()
    for _ in range(3):
        await write(log, (0, 2))
    row = log.coordinator.logs[TOPIC, 0].rows[1]
    log.storage.objects[segment_key(row.segment)][row.position + place] ^= 1
    with pytest.raises(SourceError, match=f"offset 2: object {segment_key(row.segment)}, position 1.*CRC"):
        await read(log, span(0, 0, 6))


async def test_a_batch_that_can_not_be_decoded_is_named() -> None:
    log = await new_log()
    batch = make_batch([b"x"], codec=1)
    broken = make_batch([b"x"])
    broken[21:23] = batch[21:23]  # a valid CRC over records that say a codec they are not of
    broken[17:21] = crc32c(bytes(broken[21:])).to_bytes(4, "big")
    await log.write([(0, broken)])
    key = next(iter(log.storage.objects))
    with pytest.raises(SourceError, match=f"orders-0 can't be read from offset 0 to 0: object {key}, position 1: gzip"):
        await read(log, span(0, 0, 1))


async def test_records_deleted_meanwhile_are_a_loss() -> None:
    log = await new_log()
    for _ in range(4):
        await write(log, (0, 2))
    await log.coordinator.delete_records([DeleteRequest(TOPIC, 0, 3)])
    with pytest.raises(DataLoss, match="offsets 1 to 2 of orders-0 were deleted before they were read; set"):
        await read(log, span(0, 1, 8))
    assert await read(log, span(0, 1, 8), fail=False) == values(0, range(3, 8))
    assert await read(log, span(0, 0, 2), fail=False) == []
    await log.coordinator.delete_logs(TOPIC, [0])
    with pytest.raises(DataLoss, match="orders-0 was deleted; offsets 1 to 7 were to be read"):
        await read(log, span(0, 1, 8))
    assert await read(log, span(0, 1, 8), fail=False) == []


async def test_a_log_that_has_become_shorter_is_a_loss() -> None:
    log = await new_log()
    await write(log, (0, 2))
    with pytest.raises(DataLoss, match="orders-0 ends at offset 2 now, 5 was its end"):
        await read(log, span(0, 1, 5))
    assert await read(log, span(0, 1, 5), fail=False) == values(0, [1])
    with pytest.raises(DataLoss, match="orders-0 ends at 2 now; offsets 3 to 4 were to be read"):
        await read(log, span(0, 3, 5))


async def test_rows_that_are_too_old_are_not_read() -> None:
    log = await new_log()
    for number in range(5):
        await log.write([(0, make_batch([f"0-{number}".encode()], timestamp_ms=1_000 * number))])
    rows = log.coordinator.logs[TOPIC, 0].rows
    for row in rows[:3]:
        del log.storage.objects[segment_key(row.segment)]
    assert await read(log, span(0, 0, 5), bounds=Bounds(lowest_timestamp_ms=2_500)) == values(0, [3, 4])


OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["write", "write", "commit", "abort"]), st.integers(-1, 2)), max_size=25
)


@settings(max_examples=60)
@given(OPERATIONS, st.data())
async def test_both_isolation_levels(operations: list[tuple[str, int]], data: st.DataObject) -> None:
    """Any transactions, with merges over their markers: what is aborted or open is left out by read_committed only."""
    log, written = await new_log(), list[tuple[int, int]]()
    outcome: dict[int, str] = {}
    sequences, begun = dict.fromkeys(range(3), 0), dict[int, list[int]]()
    for operation, producer in operations:
        end = log.coordinator.logs[TOPIC, 0].end
        if operation == "write":
            if producer >= 0 and producer not in begun:
                await log.begin(0, producer)
                begun[producer] = []
            number = data.draw(st.integers(1, 3))
            names = [f"0-{end + place}".encode() for place in range(number)]
            fields: Any = {}
            if producer >= 0:
                fields = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequences[producer]}
                sequences[producer] += number
                begun[producer] += range(end, end + number)
            await log.write([(0, make_batch(names, transactional=producer >= 0, **fields))])
            written += [(offset, producer) for offset in range(end, end + number)]
        elif offsets := begun.pop(producer, []):
            await log.end(0, producer, committed=operation == "commit")
            outcome |= dict.fromkeys(offsets, operation)
    rows = len(log.coordinator.logs[TOPIC, 0].rows)
    for _ in range(data.draw(st.integers(0, 2)) if rows else 0):
        rows = len(log.coordinator.logs[TOPIC, 0].rows)
        first = data.draw(st.integers(0, rows - 1))
        await log.swap(0, first, data.draw(st.integers(1, rows - first)))
        log.delete_unused()
    (described,) = await log.coordinator.describe(TOPIC, [0])
    assert described is not None
    stable, end = described.last_stable_offset, described.high_watermark
    seen = [offset for offset, producer in written if producer < 0 or outcome.get(offset) == "commit"]
    assert stable == min((min(offsets) for offsets in begun.values() if offsets), default=end)
    assert await read(log, span(0, 0, end)) == values(0, [offset for offset, _ in written])
    start = data.draw(st.integers(0, stable))
    expected = [offset for offset in seen if start <= offset < stable]
    assert await read(log, span(0, start, stable), committed=True) == values(0, expected)
