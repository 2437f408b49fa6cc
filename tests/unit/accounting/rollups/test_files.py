"""Names and contents of rollups."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime

import pyarrow.parquet as pq
import pytest

from proxy.accounting.rollups.files import COLUMNS, day_folder, day_of, encode_rows, rollup_key
from proxy.accounting.rollups.table import FORMAT, FORMAT_KEY, RollupRow
from proxy.storage.keys import checked_key

WHEN_MS = int(datetime(2026, 11, 22, 23, tzinfo=UTC).timestamp() * 1000)
ROW = RollupRow(WHEN_MS, "rack-a/h:1", "rack-a", "records", "classic", "fetch", "a", "b", "orders", 5, 0)


def test_a_key_has_the_day_the_hour_and_the_proxy() -> None:
    key = rollup_key(WHEN_MS, "rack-a/proxy.example:19092", "00ff", 7)
    assert key == "traffic/date=2026-11-22/23-rack-a_proxy_example_19092-00ff-000007.parquet"
    assert key.startswith(day_folder(date(2026, 11, 22)))
    assert day_of(key) == date(2026, 11, 22)


@pytest.mark.parametrize("proxy", ["../../x", "ä" * 500, ".", "a/b", ""])
def test_any_proxy_name_makes_a_valid_key(proxy: str) -> None:
    assert checked_key(rollup_key(WHEN_MS, proxy, "0", 1))


@pytest.mark.parametrize(
    "key",
    [
        "00/00000000000000000000000000000000",
        "traffic/readme",
        "traffic/date=2026-11-22/x.csv",
        "traffic/date=2026-13-22/x.parquet",
        "other/traffic/date=2026-11-22/x.parquet",
    ],
)
def test_other_objects_have_no_day(key: str) -> None:
    assert day_of(key) is None


def test_rows_are_read_as_they_were_written() -> None:
    rows = [ROW, ROW._replace(topic="payments", bytes=2**62)]
    file = pq.ParquetFile(io.BytesIO(encode_rows(rows)))
    assert file.schema_arrow.names == list(COLUMNS)
    assert file.metadata.metadata == {FORMAT_KEY.encode(): FORMAT.encode()}
    table = file.read().to_pylist()
    assert [one.pop("hour") for one in table] == [datetime(2026, 11, 22, 23, tzinfo=UTC)] * 2
    assert table == [dict(zip(row._fields[1:], row[1:], strict=True)) for row in rows]
