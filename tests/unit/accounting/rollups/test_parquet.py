"""Arrow reads exactly the written data, whatever it is."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from proxy.accounting.rollups.parquet import Kind, encode

INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
ROWS = st.lists(st.tuples(TEXT, INT64, st.integers(0, 2**41)), max_size=300)


def read(data: bytes) -> tuple[pa.Table, Any]:
    file = pq.ParquetFile(io.BytesIO(data), page_checksum_verification=True)
    return file.read(), file.metadata


@given(ROWS, st.dictionaries(TEXT.filter(lambda key: key != "ARROW:schema"), TEXT, max_size=20))
def test_arrow_reads_what_was_written(rows: list[tuple[str, int, int]], metadata: dict[str, str]) -> None:
    texts, numbers, times = ([row[index] for row in rows] for index in range(3))
    data = encode(
        {"text": (Kind.TEXT, texts), "number": (Kind.INTEGER, numbers), "time": (Kind.TIMESTAMP_MS, times)},
        metadata,
        "tests",
    )
    table, footer = read(data)
    assert table.schema.types == [pa.string(), pa.int64(), pa.timestamp("ms", tz="UTC")]
    assert table["text"].to_pylist() == texts
    assert table["number"].to_pylist() == numbers
    assert table["time"].cast(pa.int64()).to_pylist() == times
    assert footer.created_by == "tests"
    assert {key.decode(): value.decode() for key, value in (footer.metadata or {}).items()} == metadata


@given(st.integers(1, 40))
def test_any_number_of_columns(count: int) -> None:
    """From 15 fields on, Parquet encodes lists differently."""
    table, footer = read(encode({f"c{index}": (Kind.INTEGER, [index, -index]) for index in range(count)}, {}, "tests"))
    assert table.column_names == [f"c{index}" for index in range(count)]
    assert [column.to_pylist() for column in table.columns] == [[index, -index] for index in range(count)]
    assert footer.num_rows == 2


def test_the_sizes_in_the_metadata_are_right() -> None:
    data = encode({"text": (Kind.TEXT, ["same"] * 5_000)}, {}, "tests")
    footer = read(data)[1].row_group(0).column(0)
    assert footer.total_compressed_size < len(data)
    assert footer.total_uncompressed_size > 5_000 * 8
    assert footer.compression == "GZIP"


def test_invalid_text_is_replaced() -> None:
    table, _ = read(encode({"text": (Kind.TEXT, ["a\ud800b"])}, {}, "tests"))
    assert table["text"].to_pylist() == ["a?b"]
