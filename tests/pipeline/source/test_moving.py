"""A task reads while rows get new objects and the old ones are deleted: with a real coordinator, without Spark."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from pipeline import stores
from pipeline.reading import coalesce, row_batches
from pipeline.source import decoding
from pipeline.source.errors import SourceError
from pipeline.source.options import parse_options
from pipeline.source.reader import DisklessReader
from pipeline.source.schema import FULL
from proxy.config import Settings
from proxy.coordinator.interface import FindRequest, Row
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.coordinator.interface_rewriting import Swap, SwapAnswer
from proxy.diskless.wal.segment import segment_key
from tests.support.segments import make_topic, write_segments

SEGMENTS = 60
"""Number of segments, many more than a task reads ahead."""


def reader_of(settings: Settings) -> DisklessReader:
    return DisklessReader(FULL, parse_options({"config": "-", "subscribe": "orders"}, kind="batch"), settings)


async def merge(settings: Settings, topic: DisklessTopic, partition: int) -> None:
    """Merge all rows of a partition into one in a new object; the old objects are deleted at once."""
    async with stores.opened(settings) as opened:
        (found,) = await opened.coordinator.find([FindRequest(topic.topic_id, partition, 0, 1 << 40)])
        data, old = bytearray([1]), found.rows
        for row in old:
            (range_,) = coalesce([row])
            raw = await opened.storage.fetch(segment_key(row.segment), range_.start, range_.end)
            data += row_batches(bytearray(raw), range_, row)[0]
        segment = uuid.uuid4().bytes
        await opened.storage.upload(segment_key(segment), data, len(data))
        times = {"max_timestamp_ms": max(row.max_timestamp_ms for row in old), "append_time_ms": old[-1].append_time_ms}
        new = Row(0, old[-1].last_offset, segment, 1, len(data) - 1, **times, offsets_in_place=True)
        answers = await opened.coordinator.rows.replace([Swap(topic.topic_id, partition, old, new)])
        assert answers == [SwapAnswer.REPLACED]
        await opened.storage.delete([segment_key(row.segment) for row in old])


def take(batches: Any, found: list[dict[str, Any]]) -> None:
    for batch in batches:
        found += batch.to_pylist()


@pytest.fixture
def record_by_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Return each row's records before the next row is read."""
    monkeypatch.setattr(decoding, "ARROW_BATCH_RECORDS", 1)


@pytest.mark.usefixtures("record_by_record")
def test_a_merge_in_mid_read_costs_no_record(light_settings: Settings) -> None:
    topic = asyncio.run(make_topic(light_settings, "orders"))
    written = asyncio.run(write_segments(light_settings, topic, SEGMENTS))
    reader = reader_of(light_settings)
    (split,) = reader.partitions()
    batches: Any = reader.read(split)
    found = next(batches).to_pylist()
    asyncio.run(merge(light_settings, topic, 0))
    take(batches, found)
    assert [row["offset"] for row in found] == list(range(10 * SEGMENTS))
    assert [row["value"] for row in found] == written[0].values


@pytest.mark.usefixtures("record_by_record")
def test_vanished_objects_are_named_and_records_read_before_are_kept(light_settings: Settings) -> None:
    topic = asyncio.run(make_topic(light_settings, "orders"))
    written = asyncio.run(write_segments(light_settings, topic, SEGMENTS))
    reader = reader_of(light_settings)
    (split,) = reader.partitions()
    batches: Any = reader.read(split)
    found = next(batches).to_pylist()

    async def lose() -> None:
        async with stores.opened(light_settings) as opened:
            await opened.storage.delete([segment_key(written[0].segments[-1])])

    asyncio.run(lose())
    with pytest.raises(SourceError, match=f"offset {10 * SEGMENTS - 10}: .*{segment_key(written[0].segments[-1])}"):
        take(batches, found)
    assert [row["offset"] for row in found] == list(range(10 * SEGMENTS - 10))
