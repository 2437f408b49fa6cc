"""Readers of merged objects get the same records from every offset, whatever was merged or left out, and however
late."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.coordinator.interface import MAX_TIMESTAMP, DeleteRequest, ListRequest, OffsetAnswer
from proxy.diskless.wal.segment import segment_key
from proxy.protocol.errors import KAFKA_STORAGE_ERROR, NONE
from tests.batches import make_batch, make_timed_batch
from tests.support.memory_log import TOPIC, MemoryLog, new_log

LONG_S = 60.0
SIZE = len(make_batch())

times = st.lists(st.integers(0, 12), min_size=1, max_size=3)
segments = st.lists(st.tuples(st.lists(times, min_size=1, max_size=3), st.one_of(st.none(), st.integers(0, 12))))
changes = st.lists(
    st.tuples(st.sampled_from(["merge", "compact", "remove", "trim"]), st.randoms(use_true_random=False)), max_size=6
)


def records(read) -> list[tuple[int, int]]:
    """Offsets and times, by another reader of batches."""
    data, found = b"".join(bytes(part) for part in read.records), []
    while data:
        length = 12 + int.from_bytes(data[8:12], "big")
        batch = DefaultRecordBatch(data[:length])
        assert batch.validate_crc()
        assert data[12:16] == bytes(4), "the leader epoch"
        found += [(record.offset, record.timestamp) for record in batch]
        data = data[length:]
    return found


async def written(made: list[tuple[list[list[int]], int | None]]) -> tuple[MemoryLog, dict[int, int]]:
    """Write a log of those segments, each with the times in its batches and its append time, if it has one."""
    log, there = await new_log(1), {}
    for batches, append_time in made:
        log.now_ms = append_time or 0
        await log.write([(0, make_timed_batch(one)) for one in batches], log_append_time=append_time is not None)
        for batch in batches:
            for one in batch:
                there[len(there)] = one if append_time is None else append_time
    return log, there


async def change(log: MemoryLog, there: dict[int, int], kind: str, choice) -> None:
    """Do it to the log, and to the list of its records."""
    kept = log.coordinator.logs[TOPIC, 0]
    if not kept.rows:
        return
    first = choice.randrange(len(kept.rows))
    count = choice.randint(1, len(kept.rows) - first)
    if kind == "trim":
        start = choice.randint(kept.start, kept.end)
        await log.coordinator.delete_records([DeleteRequest(TOPIC, 0, start)])
        for offset in [offset for offset in there if offset < start]:
            del there[offset]
        return

    def keep(batch) -> bool:
        dropped = kind == "remove" or (kind == "compact" and choice.random() < 0.5)
        for offset in range(batch.base_offset, batch.last_offset + 1) if dropped else ():
            there.pop(offset, None)
        return not dropped

    await log.swap(0, first, count, keep=keep)


@settings(deadline=None)
@given(made=segments, changed=changes, delete=st.booleans())
async def test_all_records_are_read_from_every_offset_and_found_by_every_time(made, changed, delete) -> None:
    log, there = await written(made)
    following = asyncio.create_task(log.coordinates.follow())
    await asyncio.sleep(0)
    await log.read((0, 0))  # so that the next rows are unknown
    for kind, choice in changed:
        await change(log, there, kind, choice)
    if delete:
        log.delete_unused()
        log.forget_bytes()
    kept = log.coordinator.logs[TOPIC, 0]
    for offset in range(kept.start, kept.end):
        position, found = offset, {}
        while position < kept.end:
            (read,) = await log.read((0, position))
            assert (read.error_code, read.size_bytes > 0) == (NONE, True)
            found |= {one: time for one, time in records(read) if one >= offset}
            position = max(last_offset(bytes(part)) for part in read.records) + 1
        expected = {one: time for one, time in there.items() if one >= offset}
        assert found == expected if delete else expected.items() <= found.items()
    wanted = [MAX_TIMESTAMP, *range(14)]
    found = await log.lookup.list_offsets([ListRequest(TOPIC, 0, one) for one in wanted], LONG_S)
    assert found == [by_time(there, one) for one in wanted]
    following.cancel()
    with suppress(asyncio.CancelledError):
        await following


def last_offset(data: bytes) -> int:
    """Return the last offset of the last batch."""
    last = -1
    while data:
        length = 12 + int.from_bytes(data[8:12], "big")
        last = int.from_bytes(data[:8], "big") + int.from_bytes(data[23:27], "big")
        data = data[length:]
    return last


def by_time(there: dict[int, int], wanted: int) -> OffsetAnswer:
    if wanted == MAX_TIMESTAMP:
        wanted = max(there.values(), default=0)
    for offset, time in sorted(there.items()):
        if time >= wanted:
            return OffsetAnswer(0, offset, time)
    return OffsetAnswer(0, -1, -1)


async def test_a_read_in_a_gap_gets_the_next_batch_under_the_limits() -> None:
    log = await new_log(1)
    for _ in range(4):
        await log.write([(0, make_batch([b"a", b"b"]))])
    size = log.coordinator.logs[TOPIC, 0].rows[0].length
    await log.swap(0, 0, 4, keep=lambda batch: batch.base_offset not in (0, 4))
    for offset in (0, 1, 2, 3):
        assert [one for one, _ in records((await log.read((0, offset)))[0])] == [2, 3, 6, 7]
    for offset in (4, 5, 6, 7):
        assert [one for one, _ in records((await log.read((0, offset)))[0])] == [6, 7]
    assert [one for one, _ in records((await log.read((0, 0), max_bytes=1))[0])] == [2, 3]
    assert [one for one, _ in records((await log.read((0, 0), max_bytes=2 * size))[0])] == [2, 3, 6, 7]
    (read,) = await log.read((0, 0), max_bytes=size - 1, first_exempt=False)
    assert read.records == []


async def test_a_merged_row_whose_bytes_are_others_is_unreadable_and_others_are_not() -> None:
    log = await new_log(1)
    for _ in range(4):
        await log.write([(0, make_batch([b"a"]))])
    await log.swap(0, 0, 2)
    await log.swap(0, 1, 2)
    (row, other) = log.coordinator.logs[TOPIC, 0].rows
    log.storage.objects[segment_key(row.segment)][row.position + SIZE + 7] = 9  # an offset of the second batch
    assert (await log.read((0, 0)))[0].error_code == KAFKA_STORAGE_ERROR
    log.coordinator.logs[TOPIC, 0].rows[1] = other._replace(last_offset=4)
    assert (await log.read((0, 2)))[0].error_code == KAFKA_STORAGE_ERROR
    log.coordinator.logs[TOPIC, 0].rows[1] = other
    assert [one for one, _ in records((await log.read((0, 2)))[0])] == [2, 3]


async def test_the_bytes_of_a_merged_row_are_served_as_they_lie_in_the_object() -> None:
    log = await new_log(1)
    log.now_ms = 77
    await log.write([(0, make_batch([b"a", b"b"]))], log_append_time=True)
    await log.write([(0, make_batch([b"c"], producer_id=5, producer_epoch=1, base_sequence=7))])
    before = b"".join(bytes(part) for part in (await log.read((0, 0)))[0].records)
    await log.swap(0, 0, 2)
    (row,) = log.coordinator.logs[TOPIC, 0].rows
    data = log.storage.objects[segment_key(row.segment)]
    (read,) = await log.read((0, 0))
    assert (data[:1], bytes(data[1:])) == (b"\x01", before)
    assert b"".join(bytes(part) for part in read.records) == before
