from __future__ import annotations

import gc
import struct
import warnings
from typing import Any

import pyarrow as pa
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.source.decoding import ArrowBuilder, decode, header_column, no_garbage_collection
from pipeline.source.errors import SourceError
from pipeline.source.schema import FULL
from proxy.records.batches import RecordsError, patch_offsets, read_header
from tests.batches import make_timed_batch

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python's own way of reading its schemas
    from kafka.record.default_records import DefaultRecordBatch as OtherDecoder

SCHEMA = to_arrow_schema(FULL, timezone="UTC")
BYTES = st.none() | st.binary(max_size=40)
HEADERS = st.lists(st.tuples(st.text(max_size=8), BYTES), max_size=3)
RECORDS = st.lists(st.tuples(BYTES, BYTES, HEADERS, st.integers(0, 2**40)), min_size=1, max_size=8)


def build(records: list[Any], codec: int, base_offset: int, append_time_ms: int | None) -> bytearray:
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 16)
    for offset, (key, value, headers, time_ms) in enumerate(records):
        builder.append(offset, time_ms, key, value, headers)
    batch = bytearray(builder.build())
    patch_offsets(batch, base_offset, 0, append_time_ms)
    return batch


def table(batch: bytearray, base_offset: int, schema: pa.Schema = SCHEMA) -> list[dict[str, Any]]:
    builder = ArrowBuilder(schema)
    builder.add("orders", 3, *decode(memoryview(batch), read_header(batch), base_offset))
    made = builder.take()
    assert made is not None
    made.validate(full=True)
    assert made.schema.equals(schema)
    return made.to_pylist()


@given(RECORDS, st.integers(0, 4), st.integers(0, 2**40), st.none() | st.integers(0, 2**40))
def test_records_are_those_that_another_client_reads(
    records: list[Any], codec: int, base_offset: int, append_time_ms: int | None
) -> None:
    batch = build(records, codec, base_offset, append_time_ms)
    expected = [
        (one.offset, one.timestamp, one.timestamp_type, one.key, one.value, list(one.headers))
        for one in OtherDecoder(bytes(batch))
    ]
    rows = table(batch, base_offset)
    found = [
        (
            row["offset"],
            round(row["timestamp"].timestamp() * 1000),
            row["timestampType"],
            row["key"],
            row["value"],
            [(header["key"], header["value"]) for header in row["headers"] or []],
        )
        for row in rows
    ]
    assert found == expected
    assert all(row["headers"] is None or row["headers"] for row in rows)
    assert {(row["topic"], row["partition"]) for row in rows} == {("orders", 3)}


@given(RECORDS, st.integers(0, 4), st.data())
def test_a_broken_batch_raises_the_one_error(records: list[Any], codec: int, data: st.DataObject) -> None:
    batch = build(records, codec, 0, None)
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(61, len(batch) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode(memoryview(batch), read_header(batch), 0)
    except RecordsError:
        pass


def test_header_keys_that_are_not_utf_8_are_as_in_javas_client() -> None:
    batch = build([(b"k", b"v", [("ab", b"x"), ("c", None)], 5)], 0, 7, None)
    assert batch.count(b"ab") == 1
    batch[batch.index(b"ab")] = 0xFF
    (row,) = table(batch, 7)
    assert row["headers"] == [{"key": "\N{REPLACEMENT CHARACTER}b", "value": b"x"}, {"key": "c", "value": None}]
    assert (row["offset"], row["key"], row["value"]) == (7, b"k", b"v")


def test_only_the_columns_that_are_wanted() -> None:
    schema = pa.schema([SCHEMA.field("offset"), SCHEMA.field("value")])
    assert table(build([(b"k", b"v", [], 5)] * 2, 0, 7, None), 7, schema) == [
        {"offset": 7, "value": b"v"},
        {"offset": 8, "value": b"v"},
    ]


def test_an_unknown_codec_and_a_time_beyond_spark_are_named() -> None:
    batch = build([(b"k", b"v", [], 5)], 0, 0, None)
    struct.pack_into(">h", batch, 21, 7)
    with pytest.raises(RecordsError, match="compression codec 7 is not known"):
        decode(memoryview(batch), read_header(batch), 0)
    late = make_timed_batch([2**62])
    with pytest.raises(SourceError, match="orders-3 has a timestamp that Spark can't hold among offsets 0 to 0: 4611"):
        table(late, 0)


def test_partitions_can_share_an_arrow_batch() -> None:
    builder = ArrowBuilder(SCHEMA)
    for topic, partition in (("a", 1), ("a", 2), ("b", 1)):
        batch = build([(b"k", topic.encode(), [], 5)] * 2, 0, 7, None)
        builder.add(topic, partition, *decode(memoryview(batch), read_header(batch), 7))
    made = builder.take()
    assert made is not None
    found = [(row["topic"], row["partition"], row["offset"], row["value"]) for row in made.to_pylist()]
    assert found == [
        (topic, partition, offset, topic.encode())
        for topic, partition in (("a", 1), ("a", 2), ("b", 1))
        for offset in (7, 8)
    ]
    assert builder.take() is None


def test_a_missing_time_is_the_same_as_in_the_kafka_source() -> None:
    (row,) = table(make_timed_batch([-1]), 0)
    assert row["timestamp"].timestamp() == -0.001


def test_headers_of_some_records() -> None:
    headers = [[], [("a", b"1"), ("a", None)], [], [("b", b"")], []]
    column = header_column(headers, SCHEMA.field("headers").type)
    column.validate(full=True)
    assert column.to_pylist() == [
        None,
        [{"key": "a", "value": b"1"}, {"key": "a", "value": None}],
        None,
        [{"key": "b", "value": b""}],
        None,
    ]


def test_garbage_collection_is_as_it_was() -> None:
    with no_garbage_collection(), no_garbage_collection():
        assert not gc.isenabled()
    assert gc.isenabled()
