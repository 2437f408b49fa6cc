"""Rollups as Arrow tables: checked, filtered, summed up. Bounded by hours, racks and counted topics, not by files."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from pipeline.traffic.span import Span
from proxy.accounting.rollups.files import COLUMNS
from proxy.accounting.rollups.parquet import Kind
from proxy.accounting.rollups.table import FORMAT, FORMAT_KEY, Measure
from proxy.telemetry.stats import OTHER_TOPICS

if TYPE_CHECKING:
    import pyarrow as pa

KEYS = ("hour", "rack", "measure", "kind", "direction", "client_rack", "serving_rack", "topic")
"""Columns that sums are grouped by: all columns of a rollup except the proxy and the numbers."""
_SUMS = ("bytes", "requests")
MAX_ROWS = 500_000
"""More are summed up further: topics with few bytes become `(others)`."""
TOPICS_KEPT = 200
"""Number of topics that are then kept by name."""


class BadRollup(Exception):
    """The bytes are no rollup that this release can read; the reason in one line."""


class Flow(NamedTuple):
    """Bytes of records that went the same way."""

    kind: str
    direction: str
    client_rack: str
    proxy_rack: str
    serving_rack: str
    bytes: int


def decode(data: bytes | bytearray) -> pa.Table:
    """Return the rows of one rollup. Raises BadRollup."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(io.BytesIO(data), page_checksum_verification=True) as file:
            found = (file.metadata.metadata or {}).get(FORMAT_KEY.encode())
            if found is None:
                raise BadRollup("it is Parquet, but not a rollup of a proxy")
            if found != FORMAT.encode():
                raise BadRollup(f"it has format {found.decode(errors='replace')!r}, which this release does not know")
            table = file.read(columns=list(COLUMNS)).cast(_schema())
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BadRollup(f"it can't be read: {' '.join(str(error).split())[:200]}") from error
    if any((pc.min(table[name]).as_py() or 0) < 0 for name in _SUMS):
        raise BadRollup("it has negative numbers")
    unknown = set(pc.unique(table["measure"]).to_pylist()) - set(Measure)
    if unknown:
        raise BadRollup(f"it counts {sorted(unknown)[0]!r}, which this release does not know")
    return table


def summed(tables: Iterable[pa.Table], span: Span | None = None, topics: tuple[str, ...] = ()) -> pa.Table:
    """Sums of the rows in the span, over all proxies of a rack; with `topics`, of records of these alone."""
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = [one.select([*KEYS, *_SUMS]) for one in tables]
    table = pa.concat_tables(wanted) if wanted else empty()
    if span is not None:
        hours = table["hour"].cast(pa.int64())
        inside = pc.and_(pc.greater_equal(hours, span.from_ms), pc.less(hours, span.to_ms))
        table = table.filter(inside)
    if topics:
        table = table.filter(pc.is_in(table["topic"], pa.array(topics)))
    return grouped(table, KEYS)


def bounded(table: pa.Table, max_rows: int = MAX_ROWS, topics_kept: int = TOPICS_KEPT) -> pa.Table:
    """Return a table of at most `max_rows`, if folding topics can make it: those with the most bytes stay by name.

    The others' sums are one, `(others)`; no sum over topics changes.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    while table.num_rows > max_rows:
        by_topic = grouped(table, ("topic",)).sort_by([("bytes", "descending")])
        kept = pc.or_(pc.is_in(table["topic"], by_topic["topic"][:topics_kept]), pc.equal(table["topic"], ""))
        folded = pc.if_else(kept, table["topic"], pa.scalar(OTHER_TOPICS))
        table = grouped(table.set_column(table.column_names.index("topic"), "topic", folded), KEYS)
        if not topics_kept:
            break
        topics_kept //= 4
    return table


def flows(table: pa.Table, measure: Measure = Measure.RECORDS) -> list[Flow]:
    """Records by their ways, over all hours and topics; the largest first."""
    by = ("kind", "direction", "client_rack", "rack", "serving_rack")
    table = grouped(of_measure(table, measure), by).sort_by([("bytes", "descending")])
    return [Flow(*row) for row in zip(*(table[name].to_pylist() for name in (*by, "bytes")), strict=True)]


def racks_of(table: pa.Table) -> list[str]:
    """Racks in which proxies were seen, whatever they counted, or brokers that served records."""
    seen = {*table["rack"].to_pylist(), *of_measure(table, Measure.RECORDS)["serving_rack"].to_pylist()}
    return sorted(seen - {""})


def numbers(table: pa.Table, measure: Measure) -> tuple[int, int]:
    """Bytes and requests in all."""
    import pyarrow.compute as pc

    found = of_measure(table, measure)
    return tuple(pc.sum(found[name]).as_py() or 0 for name in _SUMS)  # type: ignore[return-value]


def of_measure(table: pa.Table, measure: Measure) -> pa.Table:
    """Return the rows that count it."""
    import pyarrow.compute as pc

    return table.filter(pc.equal(table["measure"], measure.value))


def empty() -> pa.Table:
    """No row."""
    return _schema().empty_table().select([*KEYS, *_SUMS])


def grouped(table: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    """Sums by the named columns."""
    sums = table.group_by(list(keys), use_threads=False).aggregate([(name, "sum") for name in _SUMS])
    return sums.select([*keys, *(f"{name}_sum" for name in _SUMS)]).rename_columns([*keys, *_SUMS])


def _schema() -> pa.Schema:
    import pyarrow as pa

    types = {Kind.TEXT: pa.string(), Kind.INTEGER: pa.int64(), Kind.TIMESTAMP_MS: pa.timestamp("ms", tz="UTC")}
    return pa.schema([pa.field(name, types[kind]) for name, kind in COLUMNS.items()])
