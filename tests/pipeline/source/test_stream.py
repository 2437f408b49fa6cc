"""Streams with `format("diskless")` and checkpoints: every record once, whatever stops and starts in between."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis as blocking_redis
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pipeline import DisklessDataSource, stores
from pipeline.source.options import parse_options
from pipeline.source.schema import FULL
from pipeline.source.stream import DisklessStreamReader
from proxy.config import Settings
from proxy.coordinator.connect import connect
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.coordinator.registry import RedisTopicRegistry
from tests.support.segments import make_topic, write_segments

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module", autouse=True)
def registered(spark: SparkSession) -> None:
    spark.dataSource.register(DisklessDataSource)


class Sink:
    """A query into Parquet files, and the content of these files."""

    def __init__(self, spark: SparkSession, config: Path) -> None:
        self._spark = spark
        self._config = config
        self._out = str(config.parent / "out")
        self._checkpoint = str(config.parent / "checkpoint")

    def run(self, **options: object) -> list[dict[str, Any]]:
        """Run the query to the end of the data; return the progress of each micro-batch."""
        reader = self._spark.readStream.format("diskless").option("config", str(self._config))
        frame = reader.options(**{name: str(value) for name, value in options.items()}).load()
        query = (
            frame.writeStream.format("parquet")
            .option("path", self._out)
            .option("checkpointLocation", self._checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination(100)
            assert not query.isActive
            return [dict(progress) for progress in query.recentProgress]  # type: ignore[call-overload]
        finally:
            query.stop()

    def values(self) -> dict[tuple[str, int], list[bytes]]:
        """Return values by topic and partition, in the order of offsets; each offset must exist once."""
        found: dict[tuple[str, int], list[tuple[int, bytes]]] = {}
        for row in self._spark.read.parquet(self._out).collect():
            found.setdefault((row.topic, row.partition), []).append((row.offset, bytes(row.value)))
        for rows in found.values():
            rows.sort()
            assert [offset for offset, _ in rows] == list(range(len(rows)))
        return {where: [value for _, value in rows] for where, rows in found.items()}


@pytest.fixture
def sink(spark: SparkSession, light_config: Path) -> Sink:
    return Sink(spark, light_config)


def test_each_run_continues_where_the_last_one_ended(sink: Sink, light_settings: Settings) -> None:
    topic = asyncio.run(make_topic(light_settings, "orders-a", 2))
    first = asyncio.run(write_segments(light_settings, topic, 5))
    options = {"subscribePattern": "orders-.*", "startingOffsets": "earliest", "maxOffsetsPerTrigger": 30}
    progress = sink.run(**options)
    assert max(one["numInputRows"] for one in progress) == 30
    assert sum(one["numInputRows"] for one in progress) == 100
    more = asyncio.run(write_segments(light_settings, topic, 1))
    other = asyncio.run(write_segments(light_settings, asyncio.run(make_topic(light_settings, "orders-b")), 2))
    sink.run(**options)
    assert sink.run(subscribePattern="orders-.*", minOffsetsPerTrigger=1_000)[-1]["numInputRows"] == 0
    assert sink.values() == {
        ("orders-a", 0): first[0].values + more[0].values,
        ("orders-a", 1): first[1].values + more[1].values,
        ("orders-b", 0): other[0].values,
    }


def test_a_stream_from_the_end_keeps_its_beginning(
    spark: SparkSession, light_config: Path, light_settings: Settings
) -> None:
    topic = asyncio.run(make_topic(light_settings, "orders"))
    asyncio.run(write_segments(light_settings, topic, 2))
    reader = spark.readStream.format("diskless").option("config", str(light_config)).option("subscribe", "orders")
    checkpoint = str(light_config.parent / "checkpoint")
    seen: list[bytes] = []
    failing = [True]

    def take(frame: Any, number: int) -> None:
        rows = [bytes(row.value) for row in frame.select("value").collect()]
        if rows and failing:
            failing.clear()
            raise RuntimeError("the sink fails in the first micro-batch that has records")
        seen.extend(rows)

    def start(**trigger: Any) -> Any:
        writer = reader.load().writeStream.foreachBatch(take).option("checkpointLocation", checkpoint)
        return writer.trigger(**trigger).start()

    query = start(processingTime="0 seconds")
    try:
        query.processAllAvailable()
        written = asyncio.run(write_segments(light_settings, topic, 2))
        with pytest.raises(StreamingQueryException, match="the sink fails"):
            query.processAllAvailable()
    finally:
        query.stop()
    query = start(availableNow=True)
    assert query.awaitTermination(100)
    assert seen == written[0].values


def test_a_stream_from_the_end_stores_its_beginning_before_it_reads(light_settings: Settings) -> None:
    topic = asyncio.run(make_topic(light_settings, "orders"))
    options = parse_options({"config": "-", "subscribe": "orders"}, kind="stream")
    reader = DisklessStreamReader(FULL, options, light_settings)
    try:
        start = reader.initialOffset()
        asyncio.run(write_segments(light_settings, topic, 2))
        assert reader.initialOffset() == start
        assert reader.latestOffset(start, ReadAllAvailable()) == start
        end = reader.latestOffset(start, ReadAllAvailable())
        (split,) = reader.partitions(start, end)
        assert [row for batch in reader.read(split) for row in batch.column("offset").to_pylist()] == list(range(20))
        with blocking_redis.Redis.from_url(light_settings.redis.url) as client:
            assert client.client_kill_filter(_type="normal") > 0
        assert reader.latestOffset(end, ReadAllAvailable()) == end
    finally:
        reader.stop()


async def remade(settings: Settings, topic: DisklessTopic) -> DisklessTopic:
    client = await connect(settings.redis)
    try:
        await RedisTopicRegistry(client, settings.redis).remove(topic.name)
    finally:
        await client.aclose()
    async with stores.opened(settings) as opened:
        await opened.coordinator.delete_logs(topic.topic_id, range(topic.partitions))
    return await make_topic(settings, topic.name)


def test_a_recreated_topic_is_a_loss_and_is_not_read_as_the_old_one(sink: Sink, light_settings: Settings) -> None:
    topic = asyncio.run(make_topic(light_settings, "orders"))
    asyncio.run(write_segments(light_settings, topic, 2))
    options = {"subscribe": "orders", "startingOffsets": "earliest"}
    sink.run(**options)
    recreated = asyncio.run(remade(light_settings, topic))
    asyncio.run(write_segments(light_settings, recreated, 3))
    with pytest.raises(StreamingQueryException, match="orders was deleted and recreated"):
        sink.run(**options)
    assert sum(one["numInputRows"] for one in sink.run(**options, failOnDataLoss="false")) == 30
