"""Read the same topics with `format("diskless")`, a Kafka consumer, and Spark's own Kafka source: equal in every
field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pipeline import DisklessDataSource
from proxy.demo.stack import Stack
from tests.support.confluent import produce_to, read_partitions
from tests.support.records import COMPRESSIONS, Stored, samples
from tests.support.spark_kafka import reading
from tests.support.topics import DISKLESS, new_topic

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 2
TIME_MS = "CAST(timestamp AS DOUBLE) * 1000 AS time_ms"


def content(frame: DataFrame) -> dict[str, list[list[Stored]]]:
    """Return the records by topic and partition, in their order."""
    found: dict[str, list[list[Stored]]] = {}
    columns = ("topic", "partition", "offset", "key", "value", "headers", TIME_MS)
    for row in frame.selectExpr(*columns).collect():
        headers = tuple((one.key, as_bytes(one.value)) for one in row.headers or ())
        record = Stored(row.offset, as_bytes(row.key), as_bytes(row.value), headers, round(row.time_ms))
        found.setdefault(row.topic, [[] for _ in range(PARTITIONS)])[row.partition].append(record)
    return found


def as_bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
def test_every_field_equals_what_others_read(
    stack: Stack, stack_config: Path, spark: SparkSession, timestamp_type: str
) -> None:
    spark.dataSource.register(DisklessDataSource)
    topic = new_topic(stack, "source", DISKLESS, PARTITIONS, configs={"message.timestamp.type": timestamp_type})
    for codec in COMPRESSIONS:
        sent = {partition: samples(40, f"{topic}-{codec}-{partition}", 500) for partition in range(PARTITIONS)}
        produce_to(stack.bootstrap("rack-a"), topic, sent, compression_type=codec)
    reader = spark.read.format("diskless").option("config", str(stack_config)).option("subscribe", topic)
    frame = reader.option("includeHeaders", "true").load()
    consumed = {topic: read_partitions(stack.bootstrap("rack-b"), topic, PARTITIONS)}
    assert content(frame) == consumed
    assert {row.timestampType for row in frame.select("timestampType").distinct().collect()} == {
        ("CreateTime", "LogAppendTime").index(timestamp_type)
    }
    kafka = spark.read.format("kafka").options(**reading([stack.bootstrap("rack-b")], "rack-b", topic)).load()
    assert frame.schema == kafka.schema
    assert content(kafka) == consumed
