"""The choice of rollups, the size of the pieces, and unreadable rollups."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.traffic import reading
from pipeline.traffic.reading import ROLLUPS_PER_TASK, TASK_BYTES, Stored, read_rollups, rollups_in, tasks_of
from pipeline.traffic.span import Span
from pipeline.traffic.table import numbers
from proxy.accounting.rollups.files import rollup_key
from proxy.accounting.rollups.table import HOUR_MS, Measure
from proxy.config import Settings
from proxy.storage.interface import StorageError
from tests.unit.pipeline.traffic.rollups import HOUR, rollup, row

SPAN = Span(HOUR, HOUR + 24 * HOUR_MS)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "wal").mkdir()
    return settings_in(tmp_path / "wal")


def settings_in(directory: Path) -> Settings:
    return Settings(
        rack="a",
        brokers={"bootstrap": ["127.0.0.1:1"]},
        redis={"url": "redis://127.0.0.1:1"},
        storage={"url": directory.as_uri()},
    )


def put(directory: Path, key: str, data: bytes) -> str:
    path = directory / "wal" / key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return key


def test_days_of_the_span_and_the_one_behind(settings: Settings, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(reading, "MAX_ROLLUP_BYTES", 10_000)
    days = {
        day: put(tmp_path, rollup_key(HOUR + day * 24 * HOUR_MS, "p", "0", 1), rollup(row(1))) for day in range(-2, 3)
    }
    large = put(tmp_path, rollup_key(HOUR, "p", "0", 2), bytes(10_001))
    other = put(tmp_path, "traffic/date=2026-06-16/readme", b"x")
    found, foreign = rollups_in(settings, SPAN)
    assert {one.key for one in found} == {days[0], days[1], days[2]}
    assert dict(foreign) == {
        large: "it has 10,001 bytes, more than any rollup",
        other: "its name is none of a rollup",
    }


def test_a_rollup_that_is_deleted_meanwhile_is_not_reported(settings: Settings, tmp_path: Path) -> None:
    there = put(tmp_path, rollup_key(HOUR, "p", "0", 1), rollup(row(5)))
    gone = rollup_key(HOUR, "p", "0", 2)
    (task,) = tasks_of(settings, [Stored(there, 1), Stored(gone, 1)], SPAN, ())
    answer = read_rollups(task)
    assert numbers(answer.table, Measure.RECORDS) == (5, 0)
    assert (answer.bad, answer.rollups) == ([], 1)


def test_more_than_are_held_at_a_time(settings: Settings, tmp_path: Path) -> None:
    keys = [put(tmp_path, rollup_key(HOUR, "p", "0", number), rollup(row(1), row(2))) for number in range(150)]
    (task,) = tasks_of(settings, [Stored(key, 1) for key in keys], SPAN, ())
    answer = read_rollups(task)
    assert numbers(answer.table, Measure.RECORDS) == (450, 0)
    assert answer.rollups == 150


def test_no_storage_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="is missing"):
        rollups_in(settings_in(tmp_path / "nowhere"), SPAN)


@given(st.lists(st.integers(0, TASK_BYTES + 1), max_size=3 * ROLLUPS_PER_TASK))
def test_pieces_are_bounded_and_hold_all(sizes: list[int]) -> None:
    rollups = [Stored(str(number), size) for number, size in enumerate(sizes)]
    pieces = [task.rollups for task in tasks_of(settings_in(Path("/")), rollups, SPAN, ())]
    assert [rollup for piece in pieces for rollup in piece] == rollups
    for piece in pieces:
        assert 0 < len(piece) <= ROLLUPS_PER_TASK
        assert len(piece) == 1 or sum(rollup.size_bytes for rollup in piece) <= TASK_BYTES
