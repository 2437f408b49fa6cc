"""Compaction on light stores: a real coordinator, real objects, real Spark, and no brokers."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from typer.testing import CliRunner

from pipeline.commands import app
from pipeline.compact import job
from pipeline.compact.chunk import ChunkAnswer
from pipeline.compact.plan import Plan
from pipeline.compact.records import delete_horizon_ms
from pipeline.compact.survivors import Survivors
from proxy.config import Settings
from proxy.coordinator.connect import connect
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.coordinator.interface_rewriting import Swap, SwapAnswer
from proxy.coordinator.registry import RedisTopicRegistry
from proxy.coordinator.rewriting import IndexRewriting
from proxy.diskless.wal.segment import segment_key
from proxy.inspection.stores import open_stores
from proxy.records.batches import read_header
from tests.pipeline.compact.running import compact
from tests.support.keyed import (
    Keyed,
    decoded,
    keyed_batch,
    last_of_each_key,
    log_batches,
    log_records,
    rows_in,
    write_batches,
)
from tests.support.merging import merge_rows
from tests.support.records import Stored
from tests.support.segments import make_topic
from tests.support.transactions import TransactionalLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMPACT = {"cleanup.policy": "compact", "delete.retention.ms": "60000", "min.cleanable.dirty.ratio": "0.1"}
SMALL = 400
"""Bytes of a task, so that there are many tasks."""


async def write_some(settings: Settings, topic: DisklessTopic, *, segments: int = 6, seed: int = 1) -> None:
    chance = random.Random(seed)
    for number in range(segments):
        batches = []
        for partition in range(topic.partitions):
            records = []
            for place in range(chance.randrange(1, 9)):
                text = f"{topic.name}-{partition}-{number}-{place}".encode()
                value = None if chance.random() < 0.2 else text
                headers = (("trace", text), ("none", None)) if place % 3 == 0 else ()
                records.append(Keyed(b"key-%d" % chance.randrange(10), value, headers))
            batches.append((partition, keyed_batch(records, codec=chance.randrange(5))))
        await write_batches(settings, topic, batches)


async def all_records(settings: Settings, topic: DisklessTopic) -> list[list[Stored]]:
    return [await log_records(settings, topic, partition) for partition in range(topic.partitions)]


async def test_compaction_keeps_the_last_record_of_each_key(light_settings: Settings, spark: SparkSession) -> None:
    topic = await make_topic(light_settings, "orders", 3, COMPACT)
    other = await make_topic(light_settings, "not-compacted", 1)
    await write_some(light_settings, topic)
    await write_some(light_settings, other)
    before, untouched = await all_records(light_settings, topic), await all_records(light_settings, other)
    wanted = [last_of_each_key(records) for records in before]

    dry = await compact(light_settings, spark, dry_run=True)
    assert await all_records(light_settings, topic) == before
    assert dry.figures["records_after"] == sum(map(len, wanted))
    assert dry.figures["swaps"] == 0
    assert (dry.figures["objects_to_write"], "objects_written" in dry.figures) == (1, False)

    report = await compact(light_settings, spark)

    assert report.findings == []
    assert await all_records(light_settings, topic) == wanted
    assert await all_records(light_settings, other) == untouched
    assert (report.figures["logs"], report.figures["logs_compacted"], report.figures["objects_written"]) == (3, 3, 1)
    assert report.figures["records_before"] == sum(map(len, before))
    assert report.figures["records_after"] == sum(map(len, wanted))
    async with open_stores(light_settings) as stores:
        ends = [one.high_watermark for one in await stores.coordinator.describe(topic.topic_id, range(3)) if one]
        assert await stores.coordinator.rows.compacted([(topic.topic_id, number) for number in range(3)]) == ends
    assert (await compact(light_settings, spark)).figures["logs_not_due"] == 3


async def test_markers_of_transactions_that_several_tasks_compact(
    light_settings: Settings, spark: SparkSession
) -> None:
    """The task that has a marker knows whether its transaction has a batch in another task's span."""
    topic = await make_topic(light_settings, "transactional", 1, {**COMPACT, "delete.retention.ms": "0"})
    async with open_stores(light_settings) as stores:
        log = TransactionalLog(stores, topic)
        await log.write([Keyed(b"key", b"committed")], 70)
        await log.write([Keyed(b"key", b"aborted")], 71)
        await log.end(71, committed=False)
        await log.end(70, committed=True)
        await log.write([Keyed(b"other", b"committed")], 71)
        await log.end(71, committed=True)
        await log.write([Keyed(b"last", b"value")])
    found = []
    for _ in range(3):
        report = await compact(light_settings, spark, force=True, task_bytes=1)
        assert report.findings == []
        batches = [(read_header(batch), batch) for batch in await log_batches(light_settings, topic)]
        markers = {int.from_bytes(batch[:8], "big"): header for header, batch in batches if header.is_control}
        horizons = [delete_horizon_ms(header) is not None for header in markers.values()]
        async with open_stores(light_settings) as stores:
            page = await stores.coordinator.rows.index_page(topic.topic_id, 0, 0)
        found.append((list(markers), horizons, [one.last_offset for one in page.aborted]))
        left = decoded([batch for header, batch in batches if not header.is_control])
        assert [one.value for one in left] == [b"committed", b"committed", b"value"]
    assert found == [
        ([2, 3, 5], [False, False, False], [2]),
        ([2, 3, 5], [True, False, False], [2]),
        ([3, 5], [False, False], []),
    ]


async def test_a_merge_and_produces_during_a_compaction(
    light_settings: Settings, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await make_topic(light_settings, "disturbed", 1, COMPACT)
    await write_some(light_settings, topic, segments=12)
    wanted = last_of_each_key(await log_records(light_settings, topic))
    new = Keyed(b"new", b"value")
    swaps = 0

    async def disturb() -> None:
        async with open_stores(light_settings) as stores:
            rows = await rows_in(stores, topic)
            await merge_rows(stores.coordinator, stores.storage, topic.topic_id, 0, tuple(rows[-4:]))
        await write_batches(light_settings, topic, [(0, keyed_batch([new]))])

    async def counted(self: IndexRewriting, asked: Sequence[Swap], **limits: int) -> list[SwapAnswer]:
        nonlocal swaps
        swaps += 1
        if swaps == 3:
            monkeypatch.setattr(IndexRewriting, "replace", replace)
            await disturb()
            monkeypatch.setattr(IndexRewriting, "replace", counted)
        return await replace(self, asked, **limits)

    replace = IndexRewriting.replace
    monkeypatch.setattr(IndexRewriting, "replace", counted)
    report = await compact(light_settings, spark, "disturbed", task_bytes=SMALL)

    assert report.findings == []
    assert (report.figures["passes"], report.figures["logs_compacted"]) == (2, 1)
    there = await log_records(light_settings, topic)
    assert there[:-1] == wanted
    assert (there[-1].key, there[-1].value) == new[:2]


async def test_a_topic_whose_policy_changes_keeps_its_new_records(
    light_settings: Settings, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await make_topic(light_settings, "changed", 1, COMPACT)
    await write_some(light_settings, topic, segments=12)
    since = [Keyed(None, b"one"), Keyed(None, b"other"), Keyed(b"same", b"first"), Keyed(b"same", b"second")]
    swaps = 0

    async def change() -> None:
        """Change the policy and append records; also merge, so that the log is planned again, up to these records."""
        client = await connect(light_settings.redis)
        registry = RedisTopicRegistry(client, light_settings.redis)
        await registry.configure(topic.name, (await registry.load()).change, {"cleanup.policy": "delete"})
        await client.aclose()
        async with open_stores(light_settings) as stores:
            rows = await rows_in(stores, topic)
            await merge_rows(stores.coordinator, stores.storage, topic.topic_id, 0, tuple(rows[-4:]))
        await write_batches(light_settings, topic, [(0, keyed_batch(since))])

    async def counted(self: IndexRewriting, asked: Sequence[Swap], **limits: int) -> list[SwapAnswer]:
        nonlocal swaps
        swaps += 1
        if swaps == 3:
            monkeypatch.setattr(IndexRewriting, "replace", replace)
            await change()
        return await replace(self, asked, **limits)

    replace = IndexRewriting.replace
    monkeypatch.setattr(IndexRewriting, "replace", counted)
    report = await compact(light_settings, spark, "changed", task_bytes=SMALL)

    assert report.findings == []
    there = await log_records(light_settings, topic)
    assert [(one.key, one.value) for one in there[-4:]] == [one[:2] for one in since]


async def test_a_driver_that_dies_between_swaps_while_another_one_runs(
    light_settings: Settings, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await make_topic(light_settings, "interrupted", 2, COMPACT)
    await write_some(light_settings, topic, segments=12)
    before = await all_records(light_settings, topic)

    async def dying(self: IndexRewriting, asked: Sequence[Swap], **limits: int) -> list[SwapAnswer]:
        monkeypatch.setattr(IndexRewriting, "replace", dead)
        return await replace(self, asked, **limits)

    async def dead(self: IndexRewriting, asked: Sequence[Swap], **limits: int) -> list[SwapAnswer]:
        raise KeyError("the driver is dead")

    replace = IndexRewriting.replace
    monkeypatch.setattr(IndexRewriting, "replace", dying)
    with pytest.raises(KeyError, match="dead"):
        await compact(light_settings, spark, task_bytes=2 * SMALL)
    monkeypatch.setattr(IndexRewriting, "replace", replace)
    there = await all_records(light_settings, topic)
    assert there != before
    assert [last_of_each_key(records) for records in there] == [last_of_each_key(records) for records in before]

    await asyncio.gather(*(compact(light_settings, spark, force=True, task_bytes=2 * SMALL) for _ in range(2)))

    assert await all_records(light_settings, topic) == [last_of_each_key(records) for records in before]


@pytest.mark.parametrize("kind", ["missing_object", "short_object", "corrupt_batch"])
async def test_a_partition_that_cannot_be_read_stays_unchanged(
    light_settings: Settings, spark: SparkSession, kind: str
) -> None:
    topic = await make_topic(light_settings, "broken", 2, COMPACT)
    await write_some(light_settings, topic)
    segment = await write_batches(light_settings, topic, [(0, keyed_batch([Keyed(b"key-1", b"value")]))])
    path = Path(light_settings.storage.url.removeprefix("file://")) / segment_key(segment)
    data = path.read_bytes()
    async with open_stores(light_settings) as stores:
        rows = await rows_in(stores, topic)
    wanted = last_of_each_key(await log_records(light_settings, topic, 1))
    path.unlink()
    if kind == "corrupt_batch":
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    elif kind == "short_object":
        path.write_bytes(data[:-1])

    report = await compact(light_settings, spark)

    (finding,) = report.findings
    assert (finding.kind, finding.where, report.exit_code) == (kind, "broken-0", 1)
    assert segment_key(segment) in finding.text
    assert str(rows[-1].base_offset) in finding.text
    async with open_stores(light_settings) as stores:
        assert await rows_in(stores, topic) == rows
    assert await log_records(light_settings, topic, 1) == wanted


class Losing(Survivors):
    """Loses the output of the key tasks before the first chunk; an object is missing while Spark repeats them."""

    unreadable_once: ClassVar[Path]
    _done_again = Event()

    def rewrite(self, chunk: int) -> ChunkAnswer:
        if chunk:
            assert self._done_again.wait(60)
            return super().rewrite(chunk)
        jvm = self._context._jvm
        assert jvm is not None
        tracker = jvm.org.apache.spark.SparkEnv.get().mapOutputTracker()
        shuffles = tracker.shuffleStatuses().keysIterator()
        while shuffles.hasNext():
            tracker.unregisterAllMapAndMergeOutput(shuffles.next())
        away = self.unreadable_once.rename(self.unreadable_once.with_suffix(".away"))
        try:
            return super().rewrite(chunk)
        finally:
            away.rename(self.unreadable_once)
            self._done_again.set()


async def test_keys_that_are_lost_and_cannot_be_read_again_lose_no_record(
    light_settings: Settings, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await make_topic(light_settings, "recomputed", 2, COMPACT)
    for number in range(4):
        segment = await write_batches(light_settings, topic, [(0, keyed_batch([Keyed(b"key", b"%d" % number * 40)]))])
        await write_batches(light_settings, topic, [(1, keyed_batch([Keyed(b"key", b"%d" % number * 400)]))])
    before = await all_records(light_settings, topic)
    path = Path(light_settings.storage.url.removeprefix("file://")) / segment_key(segment)
    monkeypatch.setattr(Losing, "unreadable_once", path, raising=False)
    monkeypatch.setattr(job, "Survivors", Losing)

    report = await compact(light_settings, spark, task_bytes=SMALL)

    (finding,) = report.findings
    assert (finding.kind, finding.where) == ("missing_object", "recomputed-0")
    assert segment_key(segment) in finding.text
    assert await all_records(light_settings, topic) == [before[0], last_of_each_key(before[1])]


async def test_a_topic_with_an_unknown_config_stops_no_other_topic(
    light_settings: Settings, spark: SparkSession
) -> None:
    broken = await make_topic(light_settings, "broken", 1, COMPACT | {"min.cleanable.dirty.ratio": "half"})
    javas = await make_topic(light_settings, "javas", 1, COMPACT | {"min.cleanable.dirty.ratio": "0.1f"})
    for topic in (broken, javas):
        await write_some(light_settings, topic)

    report = await compact(light_settings, spark)

    assert [(finding.kind, finding.where) for finding in report.findings] == [("invalid_config", "broken")]
    assert "min.cleanable.dirty.ratio=half is not a number" in report.findings[0].text
    assert report.figures["logs_compacted"] == 1


async def test_a_topic_without_a_policy_is_compacted_if_the_brokers_default_says_so(
    light_settings: Settings, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await make_topic(light_settings, "silent", 1)
    deleted_from = await make_topic(light_settings, "outspoken", 1, {"cleanup.policy": "delete"})
    for one in (topic, deleted_from):
        await write_some(light_settings, one)
    before = [await log_records(light_settings, one) for one in (topic, deleted_from)]

    async def compact_policy(_: Settings) -> str:
        return "compact"

    monkeypatch.setattr(job, "default_cleanup_policy", compact_policy)
    report = await compact(light_settings, spark)

    assert report.figures["logs_compacted"] == 1
    there = [await log_records(light_settings, one) for one in (topic, deleted_from)]
    assert there == [last_of_each_key(before[0]), before[1]]


async def test_a_fenced_shard_that_a_task_meets_is_reported_as_fenced(
    light_settings: Settings, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await make_topic(light_settings, "fenced", 1, COMPACT)
    await write_some(light_settings, topic)
    planned = job.plan_logs

    async def planned_then_fenced(*arguments: Any, **options: Any) -> Plan:
        plan = await planned(*arguments, **options)
        client = await connect(light_settings.redis)
        try:
            for shard in range(light_settings.redis.shards):
                await client.hset(f"diskless:{{d{shard}}}:meta", "fenced", "planted")
        finally:
            await client.aclose()
        return plan

    monkeypatch.setattr(job, "plan_logs", planned_then_fenced)
    report = await compact(light_settings, spark)

    (finding,) = report.findings
    assert finding.kind == "shard_fenced"
    assert "coordinator check" in finding.text


def test_the_command(light_config: Path, light_settings: Settings, spark: SparkSession) -> None:
    topic = asyncio.run(make_topic(light_settings, "chosen", 1, COMPACT))
    asyncio.run(make_topic(light_settings, "plain", 1))
    asyncio.run(write_some(light_settings, topic))
    common = ["compact", "--config", str(light_config), "--json", "--topic"]

    done = CliRunner().invoke(app, [*common, "chosen"])
    refused = CliRunner().invoke(app, [*common, "plain", "--force"])

    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["figures"]["logs_compacted"] == 1
    assert refused.exit_code == 1
    assert json.loads(refused.stdout)["findings"][0]["kind"] == "not_compacted"
