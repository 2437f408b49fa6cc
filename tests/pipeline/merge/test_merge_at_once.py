"""Merges while other changes go on, and merges that are stopped, between reading and swapping."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from proxy.config import Settings
from proxy.coordinator.connect import connect
from proxy.coordinator.interface import DeleteRequest
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.coordinator.registry import RedisTopicRegistry
from proxy.diskless.wal.segment import segment_key
from proxy.inspection.stores import Stores
from tests.integration.coordinator.conftest import Store
from tests.integration.coordinator.losses import Losses
from tests.pipeline.merge.logs import after_first_task, ask, batches, before_first_task, merge, objects, rows, stored
from tests.pipeline.merge.storages import DIE, WAIT, WAITING, marked, marks_of
from tests.support.segments import make_topic, write_segments

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def topic(light_settings: Settings) -> DisklessTopic:
    """Create a topic with 20 segments, enough for several objects."""
    made = asyncio.run(make_topic(light_settings, "topic", 2))
    asyncio.run(write_segments(light_settings, made, 20, value_bytes=300))
    return made


async def delete_topic(settings: Settings, topic: DisklessTopic) -> None:
    client = await connect(settings.redis)
    registry = RedisTopicRegistry(client, settings.redis)
    await registry.begin_delete(topic.name)
    await registry.remove(topic.name)
    await client.aclose()


async def delete_logs(opened: Stores, topic: DisklessTopic) -> None:
    await opened.coordinator.delete_logs(topic.topic_id, range(topic.partitions))
    await delete_topic(opened.settings, topic)


async def delete_before(opened: Stores, topic: DisklessTopic, offset: int) -> None:
    requests = [DeleteRequest(topic.topic_id, partition, offset) for partition in range(topic.partitions)]
    await opened.coordinator.delete_records(requests)


async def collect(opened: Stores) -> None:
    """Delete all garbage at once, as if the grace period were over."""
    garbage = await opened.coordinator.garbage(0, 10_000)
    dead = await opened.coordinator.tombstone(garbage)
    await opened.storage.delete([segment_key(segment) for segment in dead])
    await opened.coordinator.release(dead)


def test_records_produced_meanwhile_come_after_the_merged_ones(
    spark: Any, light_settings: Settings, topic: DisklessTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = batches(light_settings, topic)
    after_first_task(monkeypatch, lambda: asyncio.run(write_segments(light_settings, topic, 3)))
    report = merge(spark, light_settings)
    assert (report.exit_code, report.figures["swaps_changed"]) == (0, 0)
    now = batches(light_settings, topic)
    assert [log[: len(old)] for log, old in zip(now, before, strict=True)] == before
    assert [len(log) - len(old) for log, old in zip(now, before, strict=True)] == [3, 3]


def test_of_two_merges_at_once_one_swaps_and_the_other_leaves_garbage(
    spark: Any, light_settings: Settings, topic: DisklessTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = batches(light_settings, topic)
    inner = []
    after_first_task(monkeypatch, lambda: inner.append(merge(spark, light_settings)))
    outer = merge(spark, light_settings)
    assert (inner[0].exit_code, outer.exit_code) == (0, 0)
    assert (inner[0].figures["swaps_changed"], outer.figures["swaps_replaced"]) == (0, 0)
    assert inner[0].figures["swaps_replaced"] == outer.figures["swaps_changed"] > 0
    assert batches(light_settings, topic) == before
    tombstoned = ask(light_settings, lambda opened: opened.coordinator.tombstoned(0, 1_000))
    assert len(tombstoned) == outer.figures["objects_written"]
    assert not objects(light_settings, topic) & set(tombstoned)


def test_objects_that_another_merge_turned_into_garbage_are_not_reported(
    spark: Any, light_settings: Settings, topic: DisklessTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = batches(light_settings, topic)

    def meanwhile() -> None:
        merge(spark, light_settings)
        ask(light_settings, collect)

    before_first_task(monkeypatch, meanwhile)
    report = merge(spark, light_settings)
    assert report.findings == []
    assert report.figures["objects_written"] == 0
    assert batches(light_settings, topic) == before


def test_records_that_retention_deleted_meanwhile_do_not_come_back(
    spark: Any, light_settings: Settings, topic: DisklessTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = batches(light_settings, topic)
    after_first_task(monkeypatch, lambda: ask(light_settings, partial(delete_before, topic=topic, offset=55)))
    report = merge(spark, light_settings)
    assert report.exit_code == 0
    assert report.figures["swaps_changed"] > 0
    assert report.figures["swaps_replaced"] > 0
    assert batches(light_settings, topic) == [log[5:] for log in before]
    again = merge(spark, light_settings)
    assert again.exit_code == 0
    assert batches(light_settings, topic) == [log[5:] for log in before]


@pytest.mark.parametrize("interrupt", [before_first_task, after_first_task])
def test_a_topic_that_is_deleted_meanwhile_does_not_come_back_and_others_are_merged(
    spark: Any, light_settings: Settings, topic: DisklessTopic, interrupt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = asyncio.run(make_topic(light_settings, "z-other", 1))
    asyncio.run(write_segments(light_settings, other, 20, value_bytes=300))
    before = batches(light_settings, other)

    def meanwhile() -> None:
        ask(light_settings, partial(delete_logs, topic=topic))
        ask(light_settings, collect)

    interrupt(monkeypatch, meanwhile)
    report = merge(spark, light_settings, "topic", "z-other")
    assert [(finding.kind, finding.where) for finding in report.findings] == [("topic_deleted", "topic")]
    assert report.figures["topics_deleted"] == 1
    assert rows(light_settings, topic) == [[], []]
    assert batches(light_settings, other) == before
    assert all(row.offsets_in_place for log in rows(light_settings, other) for row in log)


def test_a_fenced_shard_stops_the_merge(
    spark: Any, light_settings: Settings, light_store: Store, topic: DisklessTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = Losses(light_store.port)
    old = losses.copy()
    asyncio.run(write_segments(light_settings, topic, 3))
    after_first_task(monkeypatch, lambda: losses.restore(old, same_life=True))
    report = merge(spark, light_settings)
    assert report.exit_code == 1
    assert [finding.kind for finding in report.findings] == ["shard_fenced"]
    assert "the merge has stopped" in report.findings[0].text
    again = merge(spark, light_settings)
    assert [finding.kind for finding in again.findings] == ["shard_fenced"]
    losses.close()


def test_a_task_whose_process_dies_is_repeated(spark: Any, light_settings: Settings, topic: DisklessTopic) -> None:
    before = batches(light_settings, topic)
    settings = marked(light_settings, DIE)
    report = merge(spark, settings)
    assert not (marks_of(settings.storage) / DIE).exists()
    assert report.findings == []
    assert report.figures["bytes_merged"] == report.figures["bytes_planned"]
    assert batches(light_settings, topic) == before


def test_a_driver_that_is_killed_leaves_nothing_but_orphans(
    spark: Any, light_settings: Settings, light_config: Path, topic: DisklessTopic, tmp_path: Path
) -> None:
    before = batches(light_settings, topic)
    written = stored(light_settings)
    settings = marked(light_settings, WAIT)
    config = tmp_path / "marked.yaml"
    content = yaml.safe_load(light_config.read_text())
    config.write_text(yaml.safe_dump(content | {"diskless.storage.class.name": settings.diskless_storage_class_name}))
    options = ["--target-bytes", "20000", "--task-bytes", "60000", "--min-age", "0s", "--master", "local[1]"]
    marks = marks_of(settings.storage)
    driver = subprocess.Popen(
        [sys.executable, "-m", "pipeline", "merge", "--config", config, *options],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        cwd=REPOSITORY,
        stderr=subprocess.PIPE,
    )
    try:
        deadline = time.monotonic() + 110
        while not (marks / WAITING).exists():
            assert driver.poll() is None, driver.communicate()
            assert time.monotonic() < deadline, "no object was uploaded"
            time.sleep(0.05)
    finally:
        driver.kill()
        driver.communicate()
    (marks / WAIT).unlink()
    assert batches(light_settings, topic) == before
    report = merge(spark, light_settings)
    assert report.findings == []
    assert report.figures["bytes_merged"] == report.figures["bytes_planned"] > 0
    assert batches(light_settings, topic) == before
    assert written.keys() <= stored(light_settings).keys()
