"""Rollups for tests."""

from __future__ import annotations

from typing import Any

from proxy.accounting.rollups.files import encode_rows
from proxy.accounting.rollups.table import HOUR_MS, Measure, RollupRow

HOUR = 494_900 * HOUR_MS
"""2026-06-16 20:00 UTC."""


def row(size: int, measure: str = Measure.RECORDS, *, hour: int = 0, requests: int = 0, **labels: Any) -> RollupRow:
    """Return a row of a diskless fetch inside rack a by default; `hour` counts from HOUR."""
    defaults = {"kind": "diskless", "direction": "fetch", "client_rack": "a", "serving_rack": "a", "topic": "orders"}
    all_labels = {"proxy": "p", "rack": "a"} | defaults | labels
    return RollupRow(HOUR + hour * HOUR_MS, measure=measure, bytes=size, requests=requests, **all_labels)


def rollup(*rows: RollupRow) -> bytes:
    """The file of these rows."""
    return encode_rows(rows)
