"""Plant every defect in a healthy store: the audit finds exactly this defect."""

from __future__ import annotations

import asyncio
import os
import struct
import time
import uuid
from collections.abc import Callable

import pytest

from pipeline.audit.audit import Audit, AuditOptions
from pipeline.audit.defects import Defect
from pipeline.audit.reads import read
from pipeline.audit.report import AuditReport
from pipeline.audit.spill import Spill
from pipeline.progress import Progress
from proxy.config import Settings
from proxy.coordinator.connect import connect
from proxy.coordinator.interface import DeleteRequest
from proxy.coordinator.registry import RedisTopicRegistry
from proxy.inspection.stores import open_stores
from tests.pipeline.audit.healthy import Hands, audited, kinds
from tests.support.segments import make_topic, write_segments

PLANTED: dict[str, tuple[Defect, Callable[[Hands], None]]] = {}
Plant = Callable[[Hands], None]
NO_DATA_FINDS = (
    "missing_object",
    "short_object",
    "overlapping_rows",
    "overlapping_bytes",
    "gap",
    "gap_at_the_end",
    "row_beyond_high_watermark",
    "row_below_log_start",
    "wrong_log_size",
    "wrong_used_bytes",
    "use_forgotten",
    "use_without_rows",
    "orphan_object",
    "tombstoned_in_use",
    "wrong_running_maximum",
    "last_stable_offset_beyond_an_open_transaction",
    "last_stable_offset_below_the_end",
    "open_transaction_that_its_producer_does_not_know",
    "aborted_transaction_forgotten",
    "aborted_transaction_without_a_marker",
)


def planted(defect: Defect) -> Callable[[Plant], Plant]:
    def keep(plant: Plant) -> Plant:
        PLANTED[plant.__name__] = defect, plant
        return plant

    return keep


@planted(Defect.MISSING_OBJECT)
def missing_object(hands: Hands) -> None:
    hands.path(hands.rows()[3].segment).unlink()


@planted(Defect.SHORT_OBJECT)
def short_object(hands: Hands) -> None:
    with hands.bytes_of(hands.rows()[3].segment) as data:
        del data[-1:]


@planted(Defect.SHORT_OBJECT)
def empty_object(hands: Hands) -> None:
    with hands.bytes_of(hands.rows()[3].segment) as data:
        data.clear()


@planted(Defect.CORRUPT_BATCH)
def corrupt_batch(hands: Hands) -> None:
    row = hands.rows()[3]
    with hands.bytes_of(row.segment) as data:
        data[row.position + 100] ^= 1


@planted(Defect.CORRUPT_BATCH)
def no_batch(hands: Hands) -> None:
    row = hands.rows()[3]
    with hands.bytes_of(row.segment) as data:
        data[row.position + 16] = 1


@planted(Defect.WRONG_LAST_STABLE_OFFSET)
def last_stable_offset_beyond_an_open_transaction(hands: Hands) -> None:
    hands.of_topic("transactional").change_log(stable=1)


@planted(Defect.WRONG_LAST_STABLE_OFFSET)
def last_stable_offset_below_the_end(hands: Hands) -> None:
    hands.change_log(stable=-1)


@planted(Defect.WRONG_OPEN_TRANSACTION)
def open_transaction_that_its_producer_does_not_know(hands: Hands) -> None:
    log = hands.of_topic("transactional")
    log.client.hdel(log.prefix + b"txn", log.key + (72).to_bytes(8, "big"))


@planted(Defect.WRONG_ABORTED_TRANSACTION)
def aborted_transaction_forgotten(hands: Hands) -> None:
    log = hands.of_topic("transactional")
    log.client.zrem(log.prefix + b"aborted", log.aborted()[-1])


@planted(Defect.WRONG_ABORTED_TRANSACTION)
def aborted_transaction_forgotten_whose_marker_was_merged(hands: Hands) -> None:
    log = hands.of_topic("transactional")
    log.client.zrem(log.prefix + b"aborted", log.aborted()[0])


@planted(Defect.WRONG_ABORTED_TRANSACTION)
def aborted_transaction_without_a_marker(hands: Hands) -> None:
    log = hands.of_topic("transactional")
    last = log.rows()[-1].base_offset
    log.client.zadd(log.prefix + b"aborted", {log.key + struct.pack(">qqqq", last, 0, 70, last + 1): 0})


@planted(Defect.WRONG_OFFSETS)
def wrong_offsets(hands: Hands) -> None:
    hands.change_row(4, lambda row: row._replace(base_offset=row.base_offset + 1))
    hands.change_row(3, lambda row: row._replace(last_offset=row.last_offset + 1))


@planted(Defect.UNKNOWN_FORMAT)
def unknown_format(hands: Hands) -> None:
    with hands.bytes_of(hands.rows()[3].segment) as data:
        data[0] = 7


@planted(Defect.WRONG_MAX_TIMESTAMP)
def wrong_max_timestamp(hands: Hands) -> None:
    hands.change_row(3, lambda row: row._replace(max_timestamp_ms=row.max_timestamp_ms - 1))


@planted(Defect.WRONG_MAX_TIMESTAMP)
def wrong_running_maximum(hands: Hands) -> None:
    rows = hands.rows()
    hands.change_row(3, lambda row: row, running_ms=rows[2].max_timestamp_ms - 1)


@planted(Defect.OVERLAPPING_ROWS)
def overlapping_rows(hands: Hands) -> None:
    merged_log = hands.of_partition(1)
    assert merged_log.rows()[2].offsets_in_place  # so its bytes fit an earlier beginning
    merged_log.change_row(2, lambda row: row._replace(base_offset=row.base_offset - 1))


@planted(Defect.OVERLAPPING_BYTES)
def overlapping_bytes(hands: Hands) -> None:
    row, twin = hands.rows()[3:5]
    assert row.length == twin.length
    hands.change_row(
        4,
        lambda one: one._replace(segment=row.segment, position=row.position, max_timestamp_ms=row.max_timestamp_ms),
    )
    hands.change_use(row.segment, row.length, 1)
    hands.change_use(twin.segment, -twin.length, -1)


@planted(Defect.GAP)
def gap(hands: Hands) -> None:
    _drop_row(hands, 3)


@planted(Defect.GAP)
def gap_at_the_end(hands: Hands) -> None:
    _drop_row(hands, -1)


@planted(Defect.ROW_BEYOND_HIGH_WATERMARK)
def row_beyond_high_watermark(hands: Hands) -> None:
    hands.change_log(end=-20, stable=-20)


@planted(Defect.ROW_BELOW_LOG_START)
def row_below_log_start(hands: Hands) -> None:
    hands.change_log(start=20)


@planted(Defect.WRONG_LOG_SIZE)
def wrong_log_size(hands: Hands) -> None:
    hands.change_log(bytes=1)


@planted(Defect.WRONG_USED_BYTES)
def wrong_used_bytes(hands: Hands) -> None:
    hands.change_use(hands.rows()[3].segment, -1, 0)


@planted(Defect.WRONG_USED_BYTES)
def use_forgotten(hands: Hands) -> None:
    hands.client.hdel(hands.prefix + b"segments", hands.rows()[3].segment)


@planted(Defect.WRONG_USED_BYTES)
def use_without_rows(hands: Hands) -> None:
    hands.change_use(uuid.uuid4().bytes, 100, 1)


@planted(Defect.ORPHAN_OBJECT)
def orphan_object(hands: Hands) -> None:
    path = hands.path(uuid.uuid4().bytes)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"\0nobody")
    old = time.time() - 24 * 3600
    os.utime(path, (old, old))


@planted(Defect.TOMBSTONED_IN_USE)
def tombstoned_in_use(hands: Hands) -> None:
    hands.client.zadd(hands.prefix + b"tombstones", {hands.rows()[3].segment: 1})


@planted(Defect.UNREADABLE)
def fenced_shard(hands: Hands) -> None:
    hands.client.hset(hands.prefix + b"meta", "fenced", "planted")


def _drop_row(hands: Hands, number: int) -> None:
    row = hands.rows()[number]
    hands.change_row(number, lambda _: None)
    hands.change_log(bytes=-row.length, rows=-1)
    hands.change_use(row.segment, -row.length, -1)


@pytest.mark.parametrize("name", PLANTED)
def test_the_audit_finds_this_defect_and_nothing_else(name: str, hands: Hands, light_settings: Settings) -> None:
    before = audited(light_settings)
    assert not before.findings
    assert before.exit_code == 0
    defect, plant = PLANTED[name]
    plant(hands)
    report = audited(light_settings)
    assert kinds(report) == {defect.value}
    assert report.exit_code == 1
    assert report.figures["defects"] == {defect.value: len(report.findings)}
    without_data = audited(light_settings, AuditOptions(data=False, settle_ms=0))
    assert kinds(without_data) == ({defect.value} if name in NO_DATA_FINDS or name == "fenced_shard" else set()) or (
        name == "empty_object"
    )


def test_findings_name_the_place(hands: Hands, light_settings: Settings) -> None:
    row = hands.rows()[3]
    corrupt_batch(hands)
    (finding,) = audited(light_settings).findings
    assert finding.where == f"plain-0@{row.base_offset}"
    assert row.segment.hex() in finding.text
    assert f"offsets {row.base_offset} to {row.last_offset}" in finding.text


def test_all_defects_at_once(hands: Hands, light_settings: Settings) -> None:
    corrupt_batch(hands)
    tombstoned_in_use(hands)
    orphan_object(hands)
    _drop_row(hands, 6)
    wrong_log_size(hands.of_partition(2))
    assert kinds(audited(light_settings)) == {
        "corrupt_batch",
        "tombstoned_in_use",
        "orphan_object",
        "gap",
        "wrong_log_size",
    }


def test_a_young_object_is_no_orphan(hands: Hands, light_settings: Settings) -> None:
    path = hands.path(uuid.uuid4().bytes)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"\0on its way")
    report = audited(light_settings)
    assert not report.findings
    assert report.figures["objects_unnamed"] >= 1
    assert kinds(audited(light_settings, AuditOptions(orphan_age_ms=-60_000))) == {"orphan_object"}


@pytest.mark.parametrize("where", [b"garbage", b"tombstones"])
def test_an_object_that_waits_for_its_deletion_is_no_orphan(
    where: bytes, hands: Hands, light_settings: Settings
) -> None:
    orphan_object(hands)
    (finding,) = audited(light_settings).findings
    hands.client.zadd(hands.prefix + where, {bytes.fromhex(finding.where): 1})
    assert not audited(light_settings).findings


def _in_the_middle(
    settings: Settings, change: Callable[[], None], then: Callable[[], None] = lambda: None
) -> AuditReport:
    """Audit a store that `change` modifies after the first look, and `then` before the second look."""
    audit = Audit(settings, AuditOptions(settle_ms=0), Progress("audit"))
    with Spill() as spill:
        asyncio.run(audit.gather(spill))
        change()
        for task in audit.tasks(spill):
            audit.take(task, read(task))
    then()
    return audit.report(asyncio.run(audit.decide()))


def _delete_objects(hands: Hands) -> None:
    for path in list(hands.root.glob("??/*")):
        path.unlink()


def test_records_that_are_deleted_during_the_audit(hands: Hands, light_settings: Settings) -> None:
    async def trim() -> None:
        async with open_stores(light_settings) as opened:
            for topic in opened.topics:
                requests = [DeleteRequest(topic.topic_id, partition, -1) for partition in range(topic.partitions)]
                await opened.coordinator.delete_records(requests)

    def change() -> None:
        asyncio.run(trim())
        _delete_objects(hands)

    report = _in_the_middle(light_settings, change)
    assert not report.findings
    assert report.figures["suspicions"] > 0
    assert not audited(light_settings).findings


def test_topics_that_are_deleted_during_the_audit(hands: Hands, light_settings: Settings) -> None:
    async def delete() -> None:
        client = await connect(light_settings.redis)
        try:
            async with open_stores(light_settings) as opened:
                registry = RedisTopicRegistry(client, light_settings.redis)
                for topic in opened.topics:
                    await registry.begin_delete(topic.name, topic.topic_id)
                    await opened.coordinator.delete_logs(topic.topic_id, range(topic.partitions))
                    await registry.remove(topic.name, topic.topic_id)
        finally:
            await client.aclose()

    def change() -> None:
        asyncio.run(delete())
        _delete_objects(hands)

    assert not _in_the_middle(light_settings, change).findings


def test_rows_that_a_dead_deletion_left_are_only_counted(hands: Hands, light_settings: Settings) -> None:
    hands.client.hdel(hands.prefix + b"logs", hands.key)
    hands.path(hands.rows()[3].segment).unlink()
    kinds_found = kinds(audited(light_settings))
    assert kinds_found == {"missing_object"}  # of the other partitions, which are alive
    assert all(finding.where.startswith(("plain-1", "plain-2")) for finding in audited(light_settings).findings)


def test_gaps_in_compacted_topics_are_not_defects(hands: Hands, light_settings: Settings) -> None:
    _drop_row(hands, 3)
    assert kinds(audited(light_settings)) == {"gap"}

    async def mark() -> None:
        async with open_stores(light_settings) as opened:
            topic_id, partition = hands.key[:16], int.from_bytes(hands.key[16:], "big")
            await opened.coordinator.rows.mark_compacted([(topic_id, partition, 100)])

    asyncio.run(mark())
    assert not audited(light_settings).findings


def test_a_shard_that_is_fenced_during_the_audit(hands: Hands, light_settings: Settings) -> None:
    other = hands
    while other.shard == hands.shard:  # topic IDs are random, and determine the shard
        topic = asyncio.run(make_topic(light_settings, f"other-{uuid.uuid4().hex}"))
        other = Hands(light_settings, topic)
    asyncio.run(write_segments(light_settings, topic, 4))
    _drop_row(hands, 3)
    corrupt_batch(other)
    report = _in_the_middle(light_settings, lambda: fenced_shard(hands))
    assert kinds(report) == {"unreadable", "corrupt_batch"}


def test_a_second_look_that_storage_rejects_does_not_stop_the_others(hands: Hands, light_settings: Settings) -> None:
    path = hands.path(hands.rows()[3].segment)
    corrupt_batch(hands)
    _drop_row(hands, 5)

    def refuse() -> None:
        path.unlink()
        path.mkdir()  # it cannot be read as a file

    assert kinds(_in_the_middle(light_settings, lambda: None, refuse)) == {"unreadable", "gap"}


def test_one_topic_alone(hands: Hands, light_settings: Settings) -> None:
    corrupt_batch(hands)
    assert not audited(light_settings, topics=("stamped",)).findings
    assert kinds(audited(light_settings, topics=("plain",))) == {"corrupt_batch"}


@pytest.mark.parametrize("plant", [wrong_used_bytes, use_forgotten, use_without_rows])
def test_use_is_corrected(plant: Plant, hands: Hands, light_settings: Settings) -> None:
    plant(hands)
    options = AuditOptions(repair_used_bytes=True, settle_ms=0)
    assert kinds(audited(light_settings, options, dry_run=True)) == {"wrong_used_bytes"}
    report = audited(light_settings, options)
    assert not report.findings
    assert report.figures["use_repaired"] == 1
    after = audited(light_settings)
    assert not after.findings

    waiting = hands.client.zrange(hands.prefix + b"garbage", 0, -1)
    assert isinstance(waiting, list)
    assert not {row.segment for row in hands.rows()} & set(waiting)
