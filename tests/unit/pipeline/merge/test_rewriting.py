"""A task copies the batches' bytes, changes only offsets, leader epoch and time, and uses as few GETs as possible."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.merge.layout import swap_of
from pipeline.merge.plan import MergeTask, Output, Part
from pipeline.merge.rewriting import Merged, Merger
from pipeline.reading import Range, row_batches
from proxy.coordinator.interface import Row
from proxy.diskless.row_reader import marker_run
from proxy.diskless.wal.segment import segment_key
from proxy.records.batches import patch_offsets, read_header
from proxy.storage.interface import Buffer, ObjectRefused, StorageError
from tests.batches import ENCODE, make_batch
from tests.support.memory_log import MemoryObjects
from tests.support.transactions import marker_row

TOPIC = b"t" * 16


class Objects(MemoryObjects):
    """Objects that also accept uploads."""

    def __init__(self) -> None:
        super().__init__()
        self.gets = 0
        self.broken = False
        self.refused: set[str] = set()

    async def fetch(self, key: str, start: int = 0, end: int | None = None) -> bytearray:
        self.gets += 1
        if key in self.refused:
            raise ObjectRefused(f"fetch of {key}: InvalidObjectState")
        return await super().fetch(key, start, end)

    async def upload(self, key: str, data: Buffer, length: int) -> None:
        await asyncio.sleep(0)
        if self.broken:
            raise StorageError("the disk is full")
        assert len(data) == length
        assert key not in self.objects
        self.objects[key] = bytearray(data)


class Produced:
    """Segments in which several partitions lie, and their logs."""

    def __init__(self, partitions: int) -> None:
        self.storage = Objects()
        self.logs: list[list[Row]] = [[] for _ in range(partitions)]
        self.readable: list[list[bytes]] = [[] for _ in range(partitions)]
        """Batches that readers get of each row."""

    def segment(self, runs: Sequence[tuple[int, Sequence[bytearray]]], *, append_time_ms: int | None = None) -> bytes:
        segment = uuid.uuid4().bytes
        data = bytearray(1)
        for partition, batches in runs:
            log = self.logs[partition]
            base = log[-1].last_offset + 1 if log else 1_000 * partition
            run = bytearray().join(batches)
            seen = bytearray(run)
            bounds = patch_offsets(seen, base, 0, append_time_ms)
            row = Row(base, bounds[-1].last_offset, segment, len(data), len(run), 7, append_time_ms or 9)
            log.append(row._replace(log_append_time=append_time_ms is not None))
            self.readable[partition].append(bytes(seen))
            data += run
        self.storage.objects[segment_key(segment)] = data
        return segment

    def marker(self, partition: int, *, committed: bool) -> None:
        """Append the marker of a transaction."""
        log = self.logs[partition]
        row = marker_row(log[-1].last_offset + 1 if log else 1_000 * partition, committed=committed)
        log.append(row)
        self.readable[partition].append(bytes(marker_run(row).data))

    def task(self, *groups: Sequence[int]) -> MergeTask:
        """An object for each group of partitions."""
        outputs = tuple(Output(tuple(Part(at, tuple(self.logs[at])) for at in group)) for group in groups)
        return MergeTask("topic", TOPIC, outputs)

    def merge(self, task: MergeTask) -> Merged:
        return asyncio.run(Merger(self.storage, task).merge())  # type: ignore[arg-type]

    def rows(self, task: MergeTask, merged: Merged) -> list[tuple[int, Row]]:
        """The new ones."""
        made = [(task.outputs[one.place], one) for one in sorted(merged.made)]
        swaps = [swap_of(output, joined, TOPIC, one.segment) for output, one in made for joined in one.joined]
        return [(swap.partition, swap.new) for swap in swaps if swap.new is not None]

    def read(self, row: Row) -> bytes:
        """Read a row as a job does."""
        data = self.storage.objects[segment_key(row.segment)]
        return bytes(row_batches(data, Range(row.segment, 0, len(data), (0,)), row)[0])


BATCH = st.builds(
    lambda count, codec, producer: make_batch(
        [bytes([count]) * 9] * count,
        codec=codec,
        producer_id=producer,
        producer_epoch=3 if producer >= 0 else -1,
        base_sequence=17 if producer >= 0 else -1,
    ),
    st.integers(1, 4),
    st.sampled_from(sorted(ENCODE)),
    st.sampled_from([-1, 4_711]),
)
RUNS = st.dictionaries(st.integers(0, 2), st.lists(BATCH, min_size=1, max_size=3), min_size=1)


@given(st.lists(st.tuples(RUNS, st.sampled_from([None, 1_234])), min_size=1, max_size=6), st.booleans())
def test_readers_get_the_same_bytes(
    segments: list[tuple[dict[int, list[bytearray]], int | None]], shared: bool
) -> None:
    log = Produced(3)
    for runs, append_time_ms in segments:
        log.segment(list(runs.items()), append_time_ms=append_time_ms)
    there = [at for at in range(3) if log.logs[at]]
    task = log.task(there) if shared else log.task(*([at] for at in there))
    merged = log.merge(task)
    assert merged.unread == ()
    assert merged.gets == log.storage.gets == len(segments)
    assert len(merged.made) == len(task.outputs)
    for made in merged.made:
        assert len(log.storage.objects[segment_key(made.segment)]) == made.size_bytes
        assert log.storage.objects[segment_key(made.segment)][0] == 1
    rows = log.rows(task, merged)
    for at in there:
        assert b"".join(log.read(row) for partition, row in rows if partition == at) == b"".join(log.readable[at])


def test_a_merged_object_can_be_merged_again() -> None:
    log = Produced(1)
    for _ in range(2):
        log.segment([(0, [make_batch([b"v"] * 3)])], append_time_ms=5)
    task = log.task([0])
    log.logs[0] = [row for _, row in log.rows(task, log.merge(task))]
    log.segment([(0, [make_batch()])])
    task = log.task([0])
    merged = log.merge(task)
    assert merged.unread == ()
    assert b"".join(log.read(row) for _, row in log.rows(task, merged)) == b"".join(log.readable[0])


@pytest.mark.parametrize(
    ("harm", "kind"),
    [
        ("remove", "missing"),
        ("archive", "refused"),
        ("cut", "short"),
        ("flip", "corrupt"),
        ("format", "unknown_format"),
        ("count", "wrong_offsets"),
    ],
)
def test_a_row_that_can_not_be_read_stays_and_all_others_are_merged(harm: str, kind: str) -> None:
    log = Produced(2)
    segments = [log.segment([(0, [make_batch([b"v"] * 2)]), (1, [make_batch([b"w"])])]) for _ in range(3)]
    key = segment_key(segments[1])
    data = log.storage.objects[key]
    bad = {(0, log.logs[0][1]), (1, log.logs[1][1])}
    if harm == "remove":
        del log.storage.objects[key]
    elif harm == "archive":
        log.storage.refused.add(key)
    elif harm == "cut":
        del data[-1]
        bad = {(1, log.logs[1][1])}
    elif harm == "flip":
        data[70] ^= 1
        bad = {(0, log.logs[0][1])}
    elif harm == "format":
        data[0] = 9
    else:
        log.logs[0][1] = log.logs[0][1]._replace(last_offset=log.logs[0][1].last_offset + 1)
        bad = {(0, log.logs[0][1])}
    task = log.task([0, 1])
    merged = log.merge(task)
    assert {(unread.partition, unread.row) for unread in merged.unread} == bad
    assert {unread.kind for unread in merged.unread} == {kind}
    for unread in merged.unread:
        assert key in unread.text
        assert f"offsets {unread.row.base_offset} to {unread.row.last_offset}" in unread.text
    rows = log.rows(task, merged)
    (made,) = merged.made
    assert sum(row.length for _, row in rows) + 1 == made.size_bytes
    for at in range(2):
        kept = [data for row, data in zip(log.logs[at], log.readable[at], strict=True) if (at, row) not in bad]
        assert b"".join(log.read(row) for partition, row in rows if partition == at) == b"".join(kept)


@given(st.data())
def test_batches_before_the_log_start_are_left_out(data: st.DataObject) -> None:
    log = Produced(2)
    segments = st.lists(st.dictionaries(st.integers(0, 1), st.lists(BATCH, min_size=1, max_size=4), min_size=2))
    for runs in data.draw(segments.filter(len)):
        log.segment(list(runs.items()))
    task = log.task([0, 1])
    if data.draw(st.booleans()):  # its batches have their offsets in place
        (rows_of_one,) = [[row for at, row in log.rows(task, log.merge(task)) if at == 1]]
        log.logs[1] = rows_of_one
        task = log.task([0, 1])
    first = log.logs[1][0]
    start = data.draw(st.integers(first.base_offset, first.last_offset))
    task = task._replace(log_starts=((1, start),))
    merged = log.merge(task)
    rows = log.rows(task, merged)
    (made,) = merged.made
    assert merged.unread == ()
    assert (
        sum(row.length for _, row in rows) + 1 == made.size_bytes == len(log.storage.objects[segment_key(made.segment)])
    )
    whole = b"".join(log.readable[1])
    while int.from_bytes(whole[:8]) + (header := read_header(whole)).last_offset_delta < start:
        whole = whole[header.length :]
    assert b"".join(log.read(row) for at, row in rows if at == 1) == whole
    assert b"".join(log.read(row) for at, row in rows if at == 0) == b"".join(log.readable[0])
    assert next(row.base_offset for at, row in rows if at == 1) == first.base_offset


def test_the_attempt_fails_if_storage_returns_nothing() -> None:
    log = Produced(1)
    for _ in range(3):
        log.segment([(0, [make_batch()])])
    log.storage.refused |= log.storage.objects.keys()
    with pytest.raises(StorageError, match="InvalidObjectState"):
        log.merge(log.task([0]))


def test_no_object_is_written_if_no_row_can_be_read() -> None:
    log = Produced(1)
    log.segment([(0, [make_batch()])])
    log.storage.objects.clear()
    merged = log.merge(log.task([0]))
    assert (merged.made, len(merged.unread), log.storage.objects) == ((), 1, {})


def test_a_storage_that_fails_fails_the_task() -> None:
    log = Produced(2)
    log.segment([(0, [make_batch()]), (1, [make_batch()])])
    log.storage.broken = True
    with pytest.raises(StorageError, match="disk is full"):
        log.merge(log.task([0], [1]))


def test_the_producers_fields_are_kept() -> None:
    log = Produced(1)
    sent = make_batch(producer_id=8, producer_epoch=2, base_sequence=99)
    log.segment([(0, [sent])])
    task = log.task([0])
    ((_, row),) = log.rows(task, log.merge(task))
    assert read_header(log.read(row))._replace(partition_leader_epoch=-1) == read_header(sent)._replace(
        partition_leader_epoch=-1
    )


def test_markers_become_bytes_and_the_new_row_covers_them() -> None:
    log = Produced(2)
    log.marker(0, committed=True)
    log.segment([(0, [make_batch()]), (1, [make_batch([b"other"])])])
    log.marker(0, committed=False)
    log.marker(1, committed=True)
    log.segment([(0, [make_batch([b"last"] * 3)])])
    task = log.task([0, 1])
    merged = log.merge(task)
    found = log.rows(task, merged)
    assert [(partition, row.base_offset, row.last_offset) for partition, row in found] == [(0, 0, 5), (1, 1000, 1001)]
    assert [log.read(row) for _, row in found] == [b"".join(readable) for readable in log.readable]
    assert merged.gets == log.storage.gets == 2
    old = [row for rows in log.logs for row in rows]
    assert max(row.max_timestamp_ms for _, row in found) == max(row.max_timestamp_ms for row in old)


def test_rows_around_an_unreadable_one_keep_their_markers() -> None:
    log = Produced(1)
    log.segment([(0, [make_batch()])])
    log.marker(0, committed=True)
    lost = log.segment([(0, [make_batch()])])
    log.marker(0, committed=False)
    del log.storage.objects[segment_key(lost)]
    task = log.task([0])
    found = log.rows(task, log.merge(task))
    assert [(row.base_offset, row.last_offset) for _, row in found] == [(0, 1), (3, 3)]
    assert [log.read(row) for _, row in found] == [b"".join(log.readable[0][:2]), log.readable[0][3]]
