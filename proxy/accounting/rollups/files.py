"""Names of rollups in object storage, and their bytes.

`traffic/date=2026-11-22/<hour>-<proxy>-<process>-<number>.parquet`: by days of UTC, as the tools that read Parquet know
partitions. A name is used once: the process's part is random, the number counts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime

from proxy.accounting.rollups.parquet import Kind, encode
from proxy.accounting.rollups.table import FORMAT, FORMAT_KEY, RollupRow

FOLDER = "traffic/"
_LONGEST_PROXY_NAME = 80
_DAY = re.compile(rf"{FOLDER}date=(\d{{4}}-\d\d-\d\d)/[^/]+\.parquet")
_KINDS = {"hour_ms": Kind.TIMESTAMP_MS, "bytes": Kind.INTEGER, "requests": Kind.INTEGER}
COLUMNS = {name.removesuffix("_ms"): _KINDS.get(name, Kind.TEXT) for name in RollupRow._fields}
"""Columns by name, in the order of a row's fields."""


def day_folder(day: date) -> str:
    """Return the folder of the rollups of one day."""
    return f"{FOLDER}date={day.isoformat()}/"


def rollup_key(hour_ms: int, proxy: str, process: str, number: int) -> str:
    """The key of a rollup. `hour_ms`: of its newest row, milliseconds since 1970; `process`: a name of this start."""
    hour = datetime.fromtimestamp(hour_ms / 1000, UTC)
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", proxy)[:_LONGEST_PROXY_NAME]
    return f"{day_folder(hour.date())}{hour:%H}-{plain}-{process}-{number:06d}.parquet"


def day_of(key: str) -> date | None:
    """Return the day of a rollup's key; None if it is not a rollup's."""
    found = _DAY.fullmatch(key)
    try:
        return date.fromisoformat(found[1]) if found else None
    except ValueError:
        return None


def encode_rows(rows: Sequence[RollupRow]) -> bytes:
    """The Parquet file of these rows; there is at least one."""
    columns = {name: (kind, [row[index] for row in rows]) for index, (name, kind) in enumerate(COLUMNS.items())}
    return encode(columns, {FORMAT_KEY: FORMAT}, "diskless-proxy")  # type: ignore[arg-type]
