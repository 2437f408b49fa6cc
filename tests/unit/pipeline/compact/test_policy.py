"""How far a log can be cleaned, and when it is due."""

from __future__ import annotations

import pytest

from pipeline.compact.policy import Cleanable, CompactionConfigs, configs_of, first_dirty_offset
from proxy.coordinator.interface import Row
from proxy.topics.topic_configs import registry_configs

NOW_MS = 1_000_000


def row(
    base: int, last: int, *, length: int = 100, newest_ms: int = 0, append_ms: int = 0, stamped: bool = False
) -> Row:
    return Row(base, last, b"s" * 16, 1, length, newest_ms, append_ms, stamped)


def test_configs_have_kafkas_defaults() -> None:
    assert configs_of({"cleanup.policy": "compact"}) == CompactionConfigs(86_400_000, 0, 2**63 - 1, 0.5)


def test_configs_are_taken_from_the_topic() -> None:
    configs = configs_of(
        {
            "delete.retention.ms": "7",
            "min.compaction.lag.ms": "8",
            "max.compaction.lag.ms": "9",
            "min.cleanable.dirty.ratio": "0.25",
        }
    )

    assert configs == CompactionConfigs(7, 8, 9, 0.25)


@pytest.mark.parametrize(("written", "ratio"), [("0.5f", 0.5), (" 1d ", 1.0), (".25", 0.25), ("1e-1", 0.1)])
def test_a_ratio_is_read_as_java_does(written: str, ratio: float) -> None:
    assert configs_of(registry_configs({"min.cleanable.dirty.ratio": written})).min_dirty_ratio == ratio


@pytest.mark.parametrize("configs", [{"min.cleanable.dirty.ratio": "half"}, {"delete.retention.ms": "long"}])
def test_an_invalid_number_raises_the_one_error(configs: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=next(iter(configs.values()))):
        configs_of(configs)


@pytest.mark.parametrize(("compacted", "first"), [(0, 10), (9, 10), (10, 10), (15, 15), (20, 20), (21, 10)])
def test_cleaning_begins_where_it_ended_or_at_the_log_start(compacted: int, first: int) -> None:
    assert first_dirty_offset(compacted, 10, 20) == first


def test_everything_is_cleanable_without_a_lag() -> None:
    cleanable = Cleanable(CompactionConfigs(), first_dirty=0, now_ms=NOW_MS)

    assert cleanable.takes(row(0, 4, newest_ms=NOW_MS))
    assert cleanable.takes(row(5, 9, newest_ms=NOW_MS + 5))
    assert (cleanable.end_offset, cleanable.dirty_bytes, cleanable.clean_bytes) == (10, 200, 0)


def test_the_first_row_that_is_too_young_ends_it() -> None:
    cleanable = Cleanable(CompactionConfigs(min_lag_ms=100), first_dirty=5, now_ms=NOW_MS)

    assert cleanable.takes(row(0, 4, newest_ms=NOW_MS)), "what was cleaned is not asked for its age"
    assert cleanable.takes(row(5, 9, newest_ms=NOW_MS - 100))
    assert not cleanable.takes(row(10, 14, newest_ms=NOW_MS - 99))
    assert cleanable.end_offset == 10


def test_under_log_append_time_the_append_counts() -> None:
    cleanable = Cleanable(CompactionConfigs(min_lag_ms=100), first_dirty=0, now_ms=NOW_MS)

    assert not cleanable.takes(row(0, 4, newest_ms=0, append_ms=NOW_MS, stamped=True))


@pytest.mark.parametrize(("dirty", "due"), [(49, False), (50, False), (51, True)])
def test_due_above_the_dirty_ratio(dirty: int, due: bool) -> None:
    cleanable = Cleanable(CompactionConfigs(), first_dirty=5, now_ms=NOW_MS)

    cleanable.takes(row(0, 4, length=100 - dirty))
    cleanable.takes(row(5, 9, length=dirty))

    assert cleanable.dirty_ratio == dirty / 100
    assert cleanable.is_due is due


@pytest.mark.parametrize(("newest_ms", "due"), [(NOW_MS - 1_000, False), (NOW_MS - 1_001, True), (-1, False)])
def test_due_by_the_longest_lag(newest_ms: int, due: bool) -> None:
    configs = CompactionConfigs(max_lag_ms=1_000, min_dirty_ratio=1.0)
    cleanable = Cleanable(configs, first_dirty=5, now_ms=NOW_MS)

    cleanable.takes(row(0, 4, newest_ms=1))
    cleanable.takes(row(5, 9, newest_ms=newest_ms))
    cleanable.takes(row(10, 14, newest_ms=NOW_MS))

    assert cleanable.is_due is due


def test_a_log_without_dirty_records_is_never_due() -> None:
    cleanable = Cleanable(CompactionConfigs(max_lag_ms=0, min_dirty_ratio=0.0), first_dirty=5, now_ms=NOW_MS)

    cleanable.takes(row(0, 4, newest_ms=1))

    assert not cleanable.is_due
    assert Cleanable(CompactionConfigs(), first_dirty=0, now_ms=NOW_MS).dirty_ratio == 0.0
