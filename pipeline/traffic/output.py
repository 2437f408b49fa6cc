"""The files of a report: everything by hour as CSV and Parquet, the bill as CSV, and the picture."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from pipeline.errors import PipelineError
from pipeline.traffic.picture import draw
from pipeline.traffic.summary import Summary
from pipeline.traffic.table import KEYS
from proxy.accounting.rollups.table import Measure
from proxy.routing.racks import borders

if TYPE_CHECKING:
    import pyarrow as pa

DETAIL = ("hour", "proxy_rack", *KEYS[2:], "bytes", "requests", "crossings")
"""Columns of `traffic.csv` and `traffic.parquet`."""
_BATCH_ROWS = 10_000


def write_files(directory: Path, table: pa.Table, summary: Summary) -> list[str]:
    """Write the files, replacing files of these names; return their paths. Raises PipelineError."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        detail = detailed(table)
        return [
            _replaced(directory / "traffic.csv", lambda path: _write_csv(path, DETAIL, _rows(detail))),
            _replaced(directory / "traffic.parquet", lambda path: _write_parquet(path, detail)),
            _replaced(directory / "costs.csv", lambda path: _write_csv(path, *_bill(summary))),
            _replaced(directory / "traffic.svg", lambda path: path.write_text(draw(summary), encoding="utf-8")),
        ]
    except OSError as error:
        raise PipelineError(f"--output {directory}: {error.strerror or error}") from error


def detailed(table: pa.Table) -> pa.Table:
    """All sums in order, with how often each went across racks."""
    import pyarrow as pa

    table = table.rename_columns(["proxy_rack" if name == "rack" else name for name in table.column_names])
    table = table.sort_by([(name, "ascending") for name in DETAIL[: len(KEYS)]])
    measured = zip(*(table[name].to_pylist() for name in ("measure", *_WAY)), strict=True)
    crossed = [borders(*way) if measure == Measure.RECORDS else 0 for measure, *way in measured]
    return table.append_column("crossings", pa.array(crossed, pa.int64())).select(list(DETAIL))


_WAY = ("client_rack", "proxy_rack", "serving_rack")


def _replaced(path: Path, write: Callable[[Path], object]) -> str:
    """Write a file next to its path and then put it in place, so that nobody reads half of it."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(unfinished)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
    return str(path)


def _write_parquet(path: Path, table: pa.Table) -> None:
    import pyarrow.parquet as pq

    pq.write_table(table, path, compression="zstd")


def _write_csv(path: Path, names: tuple[str, ...], rows: Iterator[tuple[Any, ...]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        _csv(file).writerow(names)
        _csv(file).writerows(rows)


def _csv(file: TextIO) -> Any:
    return csv.writer(file, lineterminator="\n")


def _rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    for batch in table.to_batches(max_chunksize=_BATCH_ROWS):
        hours, *others = (column.to_pylist() for column in batch.columns)
        for hour, *values in zip(hours, *others, strict=True):
            yield f"{hour.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}", *values


def _bill(summary: Summary) -> tuple[tuple[str, ...], Iterator[tuple[Any, ...]]]:
    names = "case", "kind", "what", "bytes", "requests", "usd"
    return names, (tuple(item._replace(usd=float(f"{item.usd:.9g}"))) for item in summary.bill.items)
