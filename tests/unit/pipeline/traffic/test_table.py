"""Rollups are checked before they are used, and sums of sums are right."""

from __future__ import annotations

import io
from collections import Counter
from itertools import chain

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.traffic.span import Span
from pipeline.traffic.table import BadRollup, Flow, bounded, decode, empty, flows, numbers, racks_of, summed
from proxy.accounting.rollups.files import COLUMNS
from proxy.accounting.rollups.parquet import Kind, encode
from proxy.accounting.rollups.table import FORMAT, FORMAT_KEY, HOUR_MS, Measure, RollupRow
from tests.unit.pipeline.traffic.rollups import HOUR, rollup, row

ROWS = st.builds(
    row,
    st.integers(0, 2**40),
    st.sampled_from(list(Measure)),
    hour=st.integers(0, 3),
    proxy=st.sampled_from("pq"),
    client_rack=st.sampled_from(["", "a", "b"]),
    topic=st.sampled_from(["", "orders", "x"]),
)


@given(st.lists(st.lists(ROWS, min_size=1, max_size=20), max_size=6), st.integers(0, 6))
def test_sums_are_the_same_in_any_order(files: list[list[RollupRow]], split: int) -> None:
    tables = [decode(rollup(*rows)) for rows in files]
    whole = summed(tables)
    parts = summed([summed(tables[:split]), summed(tables[split:])])
    expected = Counter[tuple[object, ...]]()
    for one in chain.from_iterable(files):
        labels = one._asdict()
        expected[tuple(value for name, value in labels.items() if name not in ("proxy", "bytes", "requests"))] += (
            one.bytes
        )
    for table in (whole, parts):
        columns = [table["hour"].cast(pa.int64()).to_pylist(), *(column.to_pylist() for column in table.columns[1:-2])]
        found = dict(zip(zip(*columns, strict=True), table["bytes"].to_pylist(), strict=True))
        assert found == dict(expected)


def test_only_the_hours_of_the_span() -> None:
    table = summed(
        [decode(rollup(*(row(10**hour, hour=hour) for hour in range(4))))], Span(HOUR + HOUR_MS, HOUR + 3 * HOUR_MS)
    )
    assert numbers(table, Measure.RECORDS) == (10 + 100, 0)


def test_only_the_topics_that_are_named() -> None:
    rows = row(1), row(10, topic="payments"), row(100, Measure.PUTS, topic="", requests=1)
    table = summed([decode(rollup(*rows))], topics=("payments",))
    assert numbers(table, Measure.RECORDS) == (10, 0)
    assert numbers(table, Measure.PUTS) == (0, 0)


def test_ways_are_over_hours_topics_and_proxies() -> None:
    rows = row(1), row(2, hour=1), row(4, topic="x"), row(8, proxy="q"), row(16, rack="b"), row(32, Measure.NEAR_READS)
    table = summed([decode(rollup(*rows))])
    assert flows(table) == [
        Flow("diskless", "fetch", "a", "b", "a", 16),
        Flow("diskless", "fetch", "a", "a", "a", 15),
    ]
    assert flows(table, Measure.NEAR_READS) == [Flow("diskless", "fetch", "a", "a", "a", 32)]


def test_no_rollups_sum_up_to_nothing() -> None:
    assert summed([]).num_rows == 0
    assert flows(empty()) == []
    assert numbers(empty(), Measure.PUTS) == (0, 0)


@pytest.mark.parametrize(
    ("max_rows", "named"),
    [(10, {"t39", "t38"}), (5, set()), (1, set())],
    ids=["some fit by name", "none does", "nothing helps"],
)
def test_more_than_is_held_is_summed_up_further(max_rows: int, named: set[str]) -> None:
    rows = [row(size, topic=f"t{size}", hour=size % 3) for size in range(1, 40)]
    table = bounded(summed([decode(rollup(*rows, row(5, Measure.PUTS, topic="")))]), max_rows, topics_kept=2)
    assert numbers(table, Measure.RECORDS)[0] == sum(range(1, 40))
    assert set(table["topic"].to_pylist()) == {*named, "(others)", ""}
    assert bounded(table, table.num_rows).equals(table)


def changed(**columns: tuple[Kind, list[int]]) -> bytes:
    """Return a rollup with some columns replaced."""
    whole = {name: (kind, [row(1)[index]]) for index, (name, kind) in enumerate(COLUMNS.items())}
    return encode(whole | columns, {FORMAT_KEY: FORMAT}, "tests")


def foreign() -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table({"a": [1]}), file)
    return file.getvalue()


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


GOOD = rollup(row(1))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "can't be read"),
        (b"PAR1", "can't be read"),
        (b"hello, world, this is no Parquet", "can't be read"),
        (GOOD[:-5], "can't be read"),
        (flipped(GOOD, 60), "can't be read"),
        (foreign(), "not a rollup of a proxy"),
        (encode({"a": (Kind.INTEGER, [1])}, {FORMAT_KEY: FORMAT}, "tests"), "can't be read"),
        (encode({"a": (Kind.INTEGER, [1])}, {FORMAT_KEY: "2"}, "tests"), "format '2'"),
        (changed(bytes=(Kind.TEXT, ["many"])), "can't be read"),  # type: ignore[arg-type]
        (changed(bytes=(Kind.INTEGER, [-1])), "negative"),
        (rollup(row(1, "steps")), "counts 'steps'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_invalid_rollup_is_reported(data: bytes, text: str) -> None:
    with pytest.raises(BadRollup, match=text):
        decode(data)


@given(st.integers(0, len(GOOD) - 1), st.binary(min_size=1, max_size=4))
def test_changed_bytes_are_rejected_or_make_no_difference(at: int, put: bytes) -> None:
    try:
        table = decode(GOOD[:at] + put + GOOD[at + len(put) :])
    except BadRollup:
        return
    assert table.num_rows <= 1


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_rejected(data: bytes) -> None:
    with pytest.raises(BadRollup):
        decode(data)


def test_racks_are_those_of_brokers_and_of_proxies_that_only_wrote_segments() -> None:
    rows = row(1, serving_rack="b"), row(1, serving_rack=""), row(1, Measure.PUTS, rack="c", serving_rack="")
    assert racks_of(summed([decode(rollup(*rows))])) == ["a", "b", "c"]
