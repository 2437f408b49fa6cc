"""Merge data at rest with Spark: every batch stays the same, in fewer and larger objects; some objects are damaged."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pipeline.commands import app
from pipeline.merge.layout import ROW_BYTES
from pipeline.merge.options import MergeOptions
from proxy.config import Settings
from proxy.coordinator.interface import DeleteRequest
from proxy.diskless.wal.segment import segment_key
from proxy.inspection.stores import Stores
from tests.batches import GZIP
from tests.pipeline.merge.logs import OPTIONS, TARGET, ask, batches, merge, objects, rows, stored
from tests.support.segments import make_topic, write_segments


async def deleted_before(opened: Stores, topic_id: bytes, partition: int, offset: int) -> None:
    await opened.coordinator.delete_records([DeleteRequest(topic_id, partition, offset)])


def test_small_segments_become_large_objects_and_nothing_else_changes(spark: Any, light_settings: Settings) -> None:
    large = asyncio.run(make_topic(light_settings, "large", 2))
    mixed = asyncio.run(make_topic(light_settings, "mixed", 3))
    asyncio.run(write_segments(light_settings, large, 40, codec=GZIP, batches=4, value_bytes=3000))
    asyncio.run(write_segments(light_settings, mixed, 6, log_append_time=True))
    asyncio.run(write_segments(light_settings, mixed, 6, partitions=[0, 2]))
    before = {topic.name: batches(light_settings, topic) for topic in (large, mixed)}
    segments = objects(light_settings, large) | objects(light_settings, mixed)

    planned = merge(spark, light_settings, dry_run=True)
    assert planned.exit_code == 0
    assert planned.figures["objects_planned"] > 0
    assert objects(light_settings, large) | objects(light_settings, mixed) == segments

    report = merge(spark, light_settings)
    assert report.findings == []
    assert {topic.name: batches(light_settings, topic) for topic in (large, mixed)} == before
    assert report.figures["objects_written"] == planned.figures["objects_planned"]
    assert report.figures["bytes_merged"] == planned.figures["bytes_planned"] == report.figures["bytes_scanned"]
    now = stored(light_settings)
    for topic in (large, mixed):
        for partition, log in enumerate(rows(light_settings, topic)):
            assert all(row.offsets_in_place and row.length <= ROW_BYTES for row in log)
            if sum(row.length for row in log) >= TARGET:
                assert all(now[segment_key(row.segment)] > TARGET for row in log), partition
    assert ask(light_settings, lambda opened: opened.coordinator.used(list(segments))) == [False] * len(segments)
    assert set(ask(light_settings, lambda opened: opened.coordinator.garbage(0, 1_000))) == segments

    again = merge(spark, light_settings)
    assert (again.exit_code, again.figures["tasks"], again.figures["objects_written"]) == (0, 0, 0)
    assert stored(light_settings) == now


def test_named_topics_and_empty_ones(spark: Any, light_settings: Settings) -> None:
    named = asyncio.run(make_topic(light_settings, "named"))
    other = asyncio.run(make_topic(light_settings, "other"))
    asyncio.run(make_topic(light_settings, "empty", 2))
    asyncio.run(write_segments(light_settings, named, 4))
    asyncio.run(write_segments(light_settings, other, 4))
    report = merge(spark, light_settings, "named", "empty")
    assert (report.exit_code, report.figures["topics"], report.figures["objects_written"]) == (0, 2, 1)
    assert len(objects(light_settings, other)) == 4


@pytest.mark.parametrize(
    ("harm", "kind"), [("removed", "missing_object"), ("cut", "short_object"), ("flipped", "corrupt_batch")]
)
def test_a_damaged_object_is_named_and_all_others_are_merged(
    spark: Any, light_settings: Settings, harm: str, kind: str
) -> None:
    topic = asyncio.run(make_topic(light_settings, "damaged", 2))
    written = asyncio.run(write_segments(light_settings, topic, 16, value_bytes=400))
    bad = written[0].segments[5]
    path = Path(light_settings.storage.url.removeprefix("file://")) / segment_key(bad)
    data = bytearray(path.read_bytes())
    if harm == "removed":
        path.unlink()
    elif harm == "cut":
        path.write_bytes(data[:-1])
    else:
        data[-1] ^= 1
        path.write_bytes(data)
    report = merge(spark, light_settings)
    assert report.exit_code == 1
    assert {finding.kind for finding in report.findings} == {kind}
    for finding in report.findings:
        assert segment_key(bad) in finding.text
    assert "damaged-1, offset 50" in {finding.where for finding in report.findings}
    left = [row for log in rows(light_settings, topic) for row in log if not row.offsets_in_place]
    assert len(left) == len(report.findings)
    assert {row.segment for row in left} == {bad}
    if harm == "flipped":
        data[-1] ^= 1
    path.write_bytes(data)
    values = [b"".join(log) for log in batches(light_settings, topic)]
    for partition, log in enumerate(written.values()):
        assert all(value in values[partition] for value in log.values)


def test_old_objects_with_dead_bytes_are_rewritten_because_of_their_age(spark: Any, light_settings: Settings) -> None:
    topic = asyncio.run(make_topic(light_settings, "aged", 2))
    asyncio.run(write_segments(light_settings, topic, 30, value_bytes=400))
    assert merge(spark, light_settings).figures["objects_written"] > 2
    ask(light_settings, partial(deleted_before, topic_id=topic.topic_id, partition=1, offset=120))
    before = batches(light_settings, topic)
    assert merge(spark, light_settings).figures["tasks"] == 0

    young = MergeOptions(TARGET, 3 * TARGET, 0, max_age_ms=3_600_000)
    assert merge(spark, light_settings, options=young).figures["objects_aged"] == 0
    report = merge(spark, light_settings, options=MergeOptions(TARGET, 3 * TARGET, 0, max_age_ms=0))
    assert report.findings == []
    kept = [batch for batch in before[1] if int.from_bytes(batch[:8]) >= 120]
    assert batches(light_settings, topic) == [before[0], kept] != before
    used = list(objects(light_settings, topic))
    sizes = stored(light_settings)
    uses = ask(light_settings, lambda opened: opened.coordinator.segment_use(used))
    assert [sizes[segment_key(segment)] - 1 for segment in used] == [use.size_bytes for use in uses]
    assert OPTIONS.max_age_ms is None


def test_the_command(spark: Any, light_config: Path, light_settings: Settings) -> None:
    topic = asyncio.run(make_topic(light_settings, "topic"))
    asyncio.run(write_segments(light_settings, topic, 5))
    command = ["merge", "--config", str(light_config), "--json", "--min-inputs", "5", "--target-bytes", "4KiB"]
    reported = []
    for options in (["--min-age", "1h"], ["--min-age", "0s", "--dry-run"], ["--min-age", "0s"]):
        answer = CliRunner().invoke(app, [*command, *options])
        assert answer.exit_code == 0, answer.output
        reported.append(json.loads(answer.stdout)["figures"])
    assert [figures["objects_planned"] for figures in reported] == [0, 1, 1]
    assert [figures.get("objects_written") for figures in reported] == [0, None, 1]
    assert len(objects(light_settings, topic)) == 1
    for wrong in (["--target-bytes", "0"], ["--task-bytes", "1"], ["--min-age", "soon"], ["--topic", "nothing"]):
        assert CliRunner().invoke(app, [*command, *wrong]).exit_code != 0, wrong
