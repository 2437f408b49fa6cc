"""Batch queries with `format("diskless")`, on real Spark, a real store and files, without brokers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from pipeline import DisklessDataSource, stores
from proxy.config import Settings
from proxy.coordinator.interface import DeleteRequest
from tests.support.segments import make_topic, write_segments

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module", autouse=True)
def registered(spark: SparkSession) -> None:
    spark.dataSource.register(DisklessDataSource)


def read(spark: SparkSession, config: Path, **options: object) -> DataFrame:
    reader = spark.read.format("diskless").option("config", str(config))
    return reader.options(**{name: str(value) for name, value in options.items()}).load()


def by_partition(frame: DataFrame) -> dict[int, list[tuple[int, bytes]]]:
    found: dict[int, list[tuple[int, bytes]]] = {}
    for row in frame.select("partition", "offset", "value").collect():
        found.setdefault(row.partition, []).append((row.offset, bytes(row.value)))
    return found


def test_every_record_once_and_in_order_with_the_columns_of_the_kafka_source(
    spark: SparkSession, light_config: Path, light_settings: Settings
) -> None:
    topic = asyncio.run(make_topic(light_settings, "orders", 3))
    written = asyncio.run(write_segments(light_settings, topic, 5, batches=2, codec=4))
    frame = read(spark, light_config, subscribe="orders")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
    )
    assert all(field.nullable for field in frame.schema.fields)
    assert by_partition(frame) == {number: list(enumerate(one.values)) for number, one in written.items()}
    row = frame.where("partition = 1 and offset = 11").collect()[0]
    assert (row.topic, row.partition, row.offset, row.key, row.timestampType) == ("orders", 1, 11, None, 0)
    assert row.timestamp.timestamp() == 1_700_000_000.001


def test_filters_are_pushed_down_and_only_necessary_objects_are_read(
    spark: SparkSession, light_config: Path, light_settings: Settings
) -> None:
    topic = asyncio.run(make_topic(light_settings, "orders", 3))
    written = asyncio.run(write_segments(light_settings, topic, 6))
    frame = read(spark, light_config, subscribe="orders", pushFilters=True)
    values = {number: list(enumerate(one.values)) for number, one in written.items()}
    chosen = frame.where("partition in (1, 2) and offset >= 25 and offset < 35 and topic = 'orders'")
    assert by_partition(chosen) == {number: values[number][25:35] for number in (1, 2)}
    recent = frame.where("timestamp >= timestamp '2023-11-14 22:13:24.005'")  # 4 s and 5 ms after the first
    assert by_partition(recent) == {number: values[number][45:] for number in values}
    for segment in written[0].segments[:4]:  # nothing in them is that new
        (path,) = (light_config.parent / "wal").rglob(segment.hex())
        path.unlink()
    assert by_partition(recent) == {number: values[number][45:] for number in values}
    with pytest.raises(PySparkException, match="there is no object"):
        read(spark, light_config, subscribe="orders").where("timestamp >= timestamp '2023-11-14 22:13:24.005'").count()


def test_a_frame_can_be_used_with_all_kinds_of_filters(
    spark: SparkSession, light_config: Path, light_settings: Settings
) -> None:
    topic = asyncio.run(make_topic(light_settings, "orders", 3))
    asyncio.run(write_segments(light_settings, topic, 6))
    frame = read(spark, light_config, subscribe="orders", minPartitions=6)
    first, last = frame.where("offset < 5"), frame.where("offset >= 50")
    assert first.count() == 15
    assert first.union(last).count() == 45
    assert frame.count() == 180
    assert frame.rdd.getNumPartitions() == 6


def test_a_schema_of_some_columns_and_headers(
    spark: SparkSession, light_config: Path, light_settings: Settings
) -> None:
    topic = asyncio.run(make_topic(light_settings, "orders"))
    asyncio.run(write_segments(light_settings, topic, 2))
    reader = spark.read.format("diskless").option("config", str(light_config)).option("subscribe", "orders")
    with_headers = reader.option("includeHeaders", "true").load()
    assert [row.headers for row in with_headers.collect()] == [None] * 20
    rows = reader.schema("offset BIGINT, topic STRING").load().collect()
    assert [tuple(row) for row in rows] == [(offset, "orders") for offset in range(20)]
    with pytest.raises(PySparkException, match="the schema asks for value string; there are key binary"):
        reader.schema("value STRING").load().collect()


def test_errors_are_reported_in_one_line(spark: SparkSession, light_config: Path, light_settings: Settings) -> None:
    asyncio.run(make_topic(light_settings, "empty", 2))
    assert read(spark, light_config, subscribe="empty").collect() == []
    topic = asyncio.run(make_topic(light_settings, "orders"))
    asyncio.run(write_segments(light_settings, topic, 3))
    with pytest.raises(PySparkException, match="none is not a diskless topic"):
        read(spark, light_config, subscribe="none").collect()
    with pytest.raises(PySparkException, match="exactly one of the options"):
        read(spark, light_config, assign='{"orders": [0]}', subscribe="orders")
    with pytest.raises(PySparkException, match="is of no use to format"):
        read(spark, light_config, subscribe="orders", **{"kafka.bootstrap.servers": "a:1"})
    with pytest.raises(PySparkException, match="can't read"):
        read(spark, light_config.parent / "not-there.yaml", subscribe="orders").collect()

    async def delete() -> None:
        async with stores.opened(light_settings) as opened:
            await opened.coordinator.delete_records([DeleteRequest(topic.topic_id, 0, 15)])

    asyncio.run(delete())
    old = '{"orders": {"0": 5}}'
    with pytest.raises(PySparkException, match="orders-0 begins at offset 15, 5 was asked for"):
        read(spark, light_config, subscribe="orders", startingOffsets=old).collect()
    left = read(spark, light_config, subscribe="orders", startingOffsets=old, failOnDataLoss="false")
    assert [row.offset for row in left.collect()] == list(range(15, 30))
