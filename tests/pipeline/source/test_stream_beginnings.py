"""The beginning of a stream: the source's calls in Spark's order, with a real coordinator, without Spark."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pipeline.source.errors import DataLoss
from pipeline.source.options import parse_options
from pipeline.source.schema import FULL
from pipeline.source.stream import DisklessStreamReader
from proxy.config import Settings
from tests.support.segments import make_topic, write_segments

ALL = ReadAllAvailable()
FAR_AHEAD_MS = 4_000_000_000_000


@contextmanager
def stream(settings: Settings, **options: object) -> Iterator[DisklessStreamReader]:
    texts = {name: str(value) for name, value in options.items()}
    parsed = parse_options({"config": "-", "subscribe": "orders", **texts}, kind="stream")
    reader = DisklessStreamReader(FULL, parsed, settings)
    try:
        yield reader
    finally:
        reader.stop()


def offsets(reader: DisklessStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    """Return the offsets of a micro-batch's records."""
    return [
        offset
        for split in reader.partitions(start, end)
        for batch in reader.read(split)
        for offset in batch.column("offset").to_pylist()
    ]


BEGINNINGS: list[dict[str, object]] = [
    {"startingOffsets": "latest"},
    {"startingOffsets": "earliest"},
    {"startingOffsets": '{"orders": {"0": 15}}'},
    {"startingTimestamp": FAR_AHEAD_MS, "startingOffsetsByTimestampStrategy": "latest"},
]


@pytest.mark.parametrize("options", BEGINNINGS)
def test_a_first_micro_batch_that_fails_costs_no_record(light_settings: Settings, options: dict[str, object]) -> None:
    """Spark has the batch's end in the checkpoint, and asks a new reader for its start."""
    topic = asyncio.run(make_topic(light_settings, "orders"))
    asyncio.run(write_segments(light_settings, topic, 2))
    with stream(light_settings, **options) as reader:
        start = reader.initialOffset()
        asyncio.run(write_segments(light_settings, topic, 1))
        end = reader.latestOffset(start, ALL)
    asyncio.run(write_segments(light_settings, topic, 1))
    with stream(light_settings, **options) as reader:
        reader.prepareForTriggerAvailableNow()
        found = offsets(reader, reader.initialOffset(), end)
        found += offsets(reader, end, reader.latestOffset(end, ALL))
    assert found == list(range(start["topics"]["orders"]["offsets"]["0"], 40))


@pytest.mark.parametrize("options", BEGINNINGS)
def test_records_written_while_a_query_begins_are_not_a_loss(
    light_settings: Settings, options: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark lets `Trigger.AvailableNow` prepare before it asks where the stream begins."""
    topic = asyncio.run(make_topic(light_settings, "orders"))
    asyncio.run(write_segments(light_settings, topic, 2))
    for fail in ("true", "false"):
        with stream(light_settings, failOnDataLoss=fail, **options) as reader:
            reader.prepareForTriggerAvailableNow()
            asyncio.run(write_segments(light_settings, topic, 1))
            start = reader.initialOffset()
            assert reader.latestOffset(start, ALL) == start == reader.initialOffset()
            assert offsets(reader, start, start) == []
            end = reader.latestOffset(start, ALL)
            asyncio.run(write_segments(light_settings, topic, 1))
            assert reader.latestOffset(end, ALL) == end
            found = offsets(reader, start, end)
        first = start["topics"]["orders"]["offsets"]["0"]
        assert found == list(range(first, end["topics"]["orders"]["offsets"]["0"]))
    assert "data_lost" not in capsys.readouterr().out


def test_a_beginning_beyond_the_end_is_a_loss(light_settings: Settings) -> None:
    topic = asyncio.run(make_topic(light_settings, "orders"))
    asyncio.run(write_segments(light_settings, topic, 2))
    with stream(light_settings, startingOffsets='{"orders": {"0": 25}}') as reader:
        reader.prepareForTriggerAvailableNow()
        start = reader.initialOffset()
        assert reader.latestOffset(start, ALL) == start
        with pytest.raises(DataLoss, match="orders-0 ends at offset 20, and was read up to 25"):
            reader.latestOffset(start, ALL)
