"""Rows, objects and use of segments, compared with each other."""

from __future__ import annotations

import random
import uuid

import pytest

from pipeline.audit.books import Totals, check_bucket
from pipeline.audit.defects import Defect, Log, Suspicion
from pipeline.audit.reads import ReadTask, read_tasks
from pipeline.audit.spill import BUCKETS, ListedObject, PlacedRow, ShardUse, Spill
from proxy.config import Settings
from proxy.coordinator.interface import Row, SegmentUse
from proxy.coordinator.shards import partition_key, shard_of

SHARDS = 3
LOGS = [Log(f"topic-{number % 2}", bytes([number % 2]) * 16, number // 2) for number in range(8)]
NOW_MS = 1_000_000


class Store:
    """Segments with a row of 100 bytes of each log."""

    def __init__(self, segments: int) -> None:
        chance = random.Random(segments)
        self.segments = [uuid.UUID(int=chance.getrandbits(128)).bytes for _ in range(segments)]
        self.rows = [
            PlacedRow(number, True, Row(10 * at, 10 * at + 9, segment, 1 + 100 * number, 100, 0, 0))
            for at, segment in enumerate(self.segments)
            for number in range(len(LOGS))
        ]
        self.sizes = {segment: 1 + 100 * len(LOGS) for segment in self.segments}
        self.modified_ms = dict.fromkeys(self.segments, 0)
        self.use: dict[tuple[int, bytes], SegmentUse] = {}
        for placed in self.rows:
            log = LOGS[placed.log]
            key = shard_of(partition_key(log.topic_id, log.partition), SHARDS), placed.row.segment
            size_bytes, rows = self.use.get(key, SegmentUse(0, 0))
            self.use[key] = SegmentUse(size_bytes + 100, rows + 1)

    def checked(self, *, shards: int = SHARDS) -> tuple[list[Suspicion], Totals]:
        totals = Totals()
        found: list[Suspicion] = []
        with Spill() as spill:
            for placed in self.rows:
                spill.add_row(placed)
            for (shard, segment), use in self.use.items():
                spill.add_use(ShardUse(shard, segment, use))
            for segment, size in self.sizes.items():
                spill.add_object(ListedObject(segment, size, self.modified_ms[segment]))
            for bucket in range(BUCKETS):
                found += check_bucket(spill, bucket, LOGS, shards, totals, orphans_before_ms=NOW_MS)
        return found, totals


@pytest.fixture
def store() -> Store:
    return Store(50)


def test_a_consistent_store_has_no_findings(store: Store) -> None:
    found, totals = store.checked()
    assert found == []
    assert totals.objects == 50
    assert totals.bytes_stored == 50 * 801
    assert totals.bytes_named == 50 * 800
    assert totals.unnamed_objects == 0
    assert [(name, topic.rows, topic.bytes, topic.objects) for name, topic in sorted(totals.topics.items())] == [
        ("topic-0", 200, 20_000, 50),
        ("topic-1", 200, 20_000, 50),
    ]


def test_a_missing_object(store: Store) -> None:
    segment = store.segments[7]
    del store.sizes[segment]
    found, _ = store.checked()
    assert {one.defect for one in found} == {Defect.MISSING_OBJECT}
    assert {one.log for one in found} == set(LOGS)
    assert all(one.row is not None and one.row.segment == segment for one in found)


def test_an_object_that_is_too_short_is_so_for_its_last_row(store: Store) -> None:
    store.sizes[store.segments[7]] -= 1
    (found,), _ = store.checked()
    assert (found.defect, found.log) == (Defect.SHORT_OBJECT, LOGS[-1])


def test_bytes_of_two_rows(store: Store) -> None:
    placed = store.rows[9]
    store.rows[9] = placed._replace(row=placed.row._replace(position=placed.row.position - 1))
    (found,), _ = store.checked()
    assert found.defect == Defect.OVERLAPPING_BYTES
    assert found.text.startswith("1 bytes")


@pytest.mark.parametrize("change", [SegmentUse(1, 0), SegmentUse(-1, 0), SegmentUse(0, 1), SegmentUse(0, -1)])
def test_use_that_is_wrong_in_one_shard(store: Store, change: SegmentUse) -> None:
    key = next(iter(store.use))
    size_bytes, rows = store.use[key]
    store.use[key] = SegmentUse(size_bytes + change.size_bytes, rows + change.rows)
    (found,), _ = store.checked()
    assert (found.defect, found.shard, found.segment) == (Defect.WRONG_USED_BYTES, *key)


def test_use_is_not_looked_at_where_not_all_rows_are_known(store: Store) -> None:
    store.use.clear()
    store.sizes[bytes(16)], store.modified_ms[bytes(16)] = 10, 0
    found, _ = store.checked(shards=0)
    assert found == []


def test_an_orphan_is_old(store: Store) -> None:
    for segment, modified_ms in ((bytes(16), NOW_MS - 1), (bytes([1]) * 16, NOW_MS)):
        store.sizes[segment], store.modified_ms[segment] = 10, modified_ms
    (found,), totals = store.checked()
    assert (found.defect, found.segment) == (Defect.ORPHAN_OBJECT, bytes(16))
    assert (totals.unnamed_objects, totals.unnamed_bytes) == (2, 20)


def test_an_object_that_is_only_recorded_as_used_is_not_an_orphan(store: Store) -> None:
    store.sizes[bytes(16)], store.modified_ms[bytes(16)] = 10, 0
    store.use[0, bytes(16)] = SegmentUse(10, 1)
    (found,), _ = store.checked()
    assert found.defect == Defect.WRONG_USED_BYTES


def test_tasks_never_part_an_object(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.audit.reads.TASK_BYTES", 2_000)
    settings = Settings(
        rack="a",
        brokers={"bootstrap": ["127.0.0.1:1"]},  # type: ignore[arg-type]
        redis={"url": "redis://127.0.0.1:1/0"},  # type: ignore[arg-type]
        storage={"url": "file:///nowhere"},  # type: ignore[arg-type]
    )
    rows = sorted(store.rows, key=lambda placed: placed.row.segment)
    tasks: list[ReadTask] = list(read_tasks(settings, iter(rows)))
    assert [placed for task in tasks for placed in task.rows] == rows
    assert {task.size_bytes for task in tasks[:-1]} == {2_400}
    segments = [{placed.row.segment for placed in task.rows} for task in tasks]
    assert sum(map(len, segments)) == len(store.segments)
