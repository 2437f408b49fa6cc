"""Spark's own Kafka source and sink through the proxies, on topics of both kinds."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from proxy.demo.stack import Stack
from tests.support.confluent import produce_to, read_partitions
from tests.support.metrics import Metrics, bytes_stay_in
from tests.support.records import Stored, samples, stored
from tests.support.spark_kafka import kafka_options, reading
from tests.support.topics import DISKLESS, KINDS, create_topic, new_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.timeout(300)
RACK, OTHER = "rack-a", "rack-b"
PARTITIONS = 3
TIMEOUT_SECONDS = 120
LITTLE_AT_A_TIME = {"kafka.max.poll.records": "20", "kafka.max.partition.fetch.bytes": "4000"}
"""Options with which a consumer needs several requests for a small topic."""
CHOSEN = "topic", "partition", "offset", "key", "value", "headers", "CAST(timestamp AS DOUBLE) * 1000 AS time_ms"


def filled(stack: Stack, kind: str, count: int = 60) -> tuple[str, list[list[Stored]]]:
    """Create a topic with records in each partition; return them in the form of a reader."""
    topic = new_topic(stack, "spark", kind, PARTITIONS)
    return topic, fill(stack, topic, count)


def fill(stack: Stack, topic: str, count: int, first_offset: int = 0) -> list[list[Stored]]:
    sent = {partition: samples(count, f"{topic}-{partition}-{first_offset}", 500) for partition in range(PARTITIONS)}
    produce_to(stack.bootstrap("rack-c"), topic, sent, batch_num_messages=20, enable_idempotence=True)
    return [stored(one, first_offset) for one in sent.values()]


def content(frame: DataFrame) -> dict[str, list[list[Stored]]]:
    """Return the records of a frame with the source's columns, by topic and partition, in the order of their
    offsets."""
    found: dict[str, list[list[Stored]]] = {}
    for row in sorted(frame.selectExpr(*CHOSEN).collect(), key=lambda one: one.offset):
        headers = tuple((one.key, None if one.value is None else bytes(one.value)) for one in row.headers or ())
        record = Stored(row.offset, as_bytes(row.key), as_bytes(row.value), headers, round(row.time_ms))
        found.setdefault(row.topic, [[] for _ in range(PARTITIONS)])[row.partition].append(record)
    return found


def as_bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def test_a_batch_reads_what_was_written_in_its_own_rack(stack: Stack, spark: SparkSession) -> None:
    written = dict(filled(stack, kind) for kind in KINDS)
    options = reading([stack.bootstrap(OTHER)], RACK, *written)
    with bytes_stay_in(stack, RACK, KINDS, "fetch"):
        assert content(spark.read.format("kafka").options(**options).load()) == written


def test_a_batch_writes_what_a_consumer_reads(stack: Stack, spark: SparkSession) -> None:
    source, written = filled(stack, DISKLESS)
    sinks = {kind: new_topic(stack, "spark-sink", kind, PARTITIONS) for kind in KINDS}
    frame = spark.read.format("kafka").options(**reading([stack.bootstrap(RACK)], RACK, source)).load()
    chosen = frame.select("partition", "key", "value", "headers")
    with bytes_stay_in(stack, RACK, (DISKLESS,), "produce"):
        for topic in sinks.values():
            options = kafka_options([stack.bootstrap(OTHER)], RACK) | {"topic": topic}
            chosen.write.format("kafka").options(**options).save()
    for topic in sinks.values():
        assert sunk(stack, topic) == sent(written)


def sent(written: list[list[Stored]]) -> list[list[tuple[Any, ...]]]:
    """Return the columns that a sink uses: it sets the records' times itself."""
    return [[(record.key, record.value, record.headers) for record in one] for one in written]


def sunk(stack: Stack, topic: str) -> list[list[tuple[Any, ...]]]:
    return sent(read_partitions(stack.bootstrap("rack-c"), topic, PARTITIONS))


def stream(spark: SparkSession, options: dict[str, str], to: Path, **trigger: Any) -> StreamingQuery:
    """Write every record into files, each once, with a checkpoint next to them."""
    frame = spark.readStream.format("kafka").options(**options).load()
    writer = frame.writeStream.format("parquet").option("path", str(to / "records"))
    return writer.option("checkpointLocation", str(to / "checkpoint")).trigger(**trigger).start()


def end(query: StreamingQuery) -> None:
    assert query.awaitTermination(TIMEOUT_SECONDS), query.lastProgress


def test_a_stream_continues_from_its_checkpoint(stack: Stack, spark: SparkSession, tmp_path: Path) -> None:
    written = dict(filled(stack, kind) for kind in KINDS)
    options = reading([stack.bootstrap(OTHER)], RACK, *written, maxOffsetsPerTrigger="300")
    with bytes_stay_in(stack, RACK, KINDS, "fetch"):
        end(stream(spark, options, tmp_path, availableNow=True))
        assert content(spark.read.parquet(str(tmp_path / "records"))) == written
        for topic, partitions in written.items():
            for records, more in zip(partitions, fill(stack, topic, 10, len(partitions[0])), strict=True):
                records += more
        end(stream(spark, options, tmp_path, availableNow=True))
    assert content(spark.read.parquet(str(tmp_path / "records"))) == written


def test_a_proxy_that_is_killed_costs_a_stream_no_record(stack: Stack, spark: SparkSession, tmp_path: Path) -> None:
    """The proxy is the only one of its rack: the query continues with another rack's, unchanged, and writes nothing
    twice."""
    written = dict(filled(stack, kind, 200) for kind in KINDS)
    sinks = {topic: f"{topic}-sink" for topic in written}
    for kind, topic in zip(KINDS, sinks.values(), strict=True):
        create_topic(stack, topic, kind, PARTITIONS)
    both = [stack.bootstrap(RACK), stack.bootstrap(OTHER)]
    options = reading(both, RACK, *written, maxOffsetsPerTrigger="300") | LITTLE_AT_A_TIME
    columns = "partition", "key", "value", "headers", "topic || '-sink' AS topic"
    query = (
        spark.readStream.format("kafka")
        .options(**options)
        .load()
        .selectExpr(*columns)
        .writeStream.format("kafka")
        .options(**kafka_options(both, RACK), checkpointLocation=str(tmp_path))
        .start()
    )
    try:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while (progress := query.lastProgress) is None or progress.numInputRows == 0:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        stack.kill_proxy(RACK)
        before = Metrics(stack, OTHER)
        query.processAllAvailable()
    finally:
        query.stop()
    after = Metrics(stack, OTHER)
    for kind, direction in itertools.product(KINDS, ("fetch", "produce")):
        way = {"direction": direction, "client_rack": RACK, "kind": kind}
        assert after.value("record_bytes_total", **way) > before.value("record_bytes_total", **way), way
    for topic, records in written.items():
        assert sunk(stack, sinks[topic]) == sent(records)
