"""The checker of the run under moves: it accepts right histories and finds every doctored one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.demo import payload
from tests.moves_under_load.books import CONNECTION, RETRIABLE, Life, ReaderBooks, compare
from tests.retention_under_load.books import Problems

RUN = b"the run."
TOPIC, OTHER = "moving", "renewed"
COUNT = 12
History = list[dict[str, Any]]


class Case:
    """Two topics and their readers."""

    def __init__(self) -> None:
        self.problems = Problems()
        self.lives = {TOPIC: [Life(RUN, TOPIC, 1, 2)], OTHER: [Life(RUN, OTHER, 2, 1)]}
        self.life_count = 2

    def reader(self, name: str = "reader") -> ReaderBooks:
        return ReaderBooks(name, self.lives, self.problems)

    def write(self, topic: str, partition: int, count: int = COUNT) -> History:
        """Return the lines that a reader of `count` more records should print."""
        life = self.lives[topic][-1]
        lines = []
        for _ in range(count):
            offset = len(life.partitions[partition].checksums)
            key, value, _ = life.new_record(partition)
            life.partitions[partition].acknowledge(offset, offset)
            sent = payload.read(RUN, value)
            assert sent is not None
            lines.append(
                {
                    "event": "record",
                    "topic": topic,
                    "partition": partition,
                    "offset": offset,
                    "producer": sent.producer,
                    "sequence": sent.sequence,
                    "checksum": payload.checksum(key, value),
                    "ms": 1.0,
                }
            )
        return lines

    def renew(self) -> None:
        """Delete the other topic and recreate it."""
        self.life_count += 1
        self.lives[OTHER][-1].ending.set()
        self.lives[OTHER].append(Life(RUN, OTHER, self.life_count, 1))


def take(reader: ReaderBooks, history: History) -> None:
    for event in history:
        assert reader.take(event) is None


def reset(topic: str, partition: int = 0) -> dict[str, Any]:
    return {"event": "reset", "topic": topic, "partition": partition, "offset": 5}


def test_a_right_history_has_no_problems() -> None:
    case = Case()
    reader = case.reader()
    take(reader, case.write(TOPIC, 0))
    take(reader, case.write(TOPIC, 1))
    take(reader, case.write(OTHER, 0))
    case.renew()
    take(reader, [reset(OTHER), *case.write(OTHER, 0, 3)])
    case.lives[TOPIC][-1].grow(3)
    take(reader, case.write(TOPIC, 2))
    assert case.problems.reports == []
    assert (reader.records, reader.expected_resets, reader.resets.total()) == (4 * COUNT + 3, 1, 0)
    assert not any(reader.behind(lives[-1]) for lives in case.lives.values())


def altered(field: str, change: Callable[[int], int]) -> Callable[[History, int], None]:
    def doctor(history: History, at: int) -> None:
        history[at] = {**history[at], field: change(history[at][field])}

    return doctor


def dropped(history: History, at: int) -> None:
    del history[at]


def doubled(history: History, at: int) -> None:
    history.insert(at, history[at])


def swapped(history: History, at: int) -> None:
    history[at], history[at + 1] = history[at + 1], history[at]


def back_to_the_beginning(history: History, at: int) -> None:
    history[at:] = [*history[:at], *history[at:]]


def moved_up(history: History, at: int) -> None:
    """Remove a record and move all later ones into its place."""
    del history[at]
    history[at:] = [{**event, "offset": event["offset"] - 1} for event in history[at:]]


DOCTORS = {
    "dropped": dropped,
    "doubled": doubled,
    "swapped": swapped,
    "back to the beginning": back_to_the_beginning,
    "moved up": moved_up,
    "other bytes": altered("checksum", lambda checksum: checksum ^ 1),
    "another record": altered("sequence", lambda sequence: sequence + 1),
    "another partition's": altered("producer", lambda producer: producer + 1),
    "another life's": altered("producer", lambda producer: producer + 64 * 7),
}


@pytest.mark.parametrize("name", DOCTORS)
@settings(max_examples=20)
@given(at=st.integers(1, COUNT - 2), partition=st.integers(0, 1))
def test_a_doctored_history_is_found(name: str, at: int, partition: int) -> None:
    case = Case()
    reader = case.reader()
    history = case.write(TOPIC, partition)
    DOCTORS[name](history, at)
    take(reader, history)
    assert case.problems.count > 0


def test_a_high_watermark_beyond_the_written_records_is_found() -> None:
    case = Case()
    reader = case.reader()
    history = case.write(TOPIC, 0)
    take(reader, [{**event, "high": COUNT} for event in history[:-1]])
    assert case.problems.reports == []
    take(reader, [{**history[-1], "high": 100}])
    assert "high watermark 100" in case.problems.reports[0]


def test_a_record_that_was_never_written_is_found() -> None:
    case = Case()
    history = case.write(TOPIC, 0, 2)
    history.append({**history[-1], "offset": 2, "sequence": 2})
    take(case.reader(), history)
    assert "never written" in case.problems.reports[0]


def test_a_missing_record_at_the_end_counts_as_behind() -> None:
    case = Case()
    reader = case.reader()
    take(reader, case.write(TOPIC, 1)[:-1])
    assert reader.behind(case.lives[TOPIC][0]) == {1: (COUNT - 1, COUNT)}


def test_a_record_of_an_old_life_after_the_new_one_began_is_found() -> None:
    case = Case()
    reader = case.reader()
    old = case.write(OTHER, 0)
    take(reader, old[:-1])
    case.renew()
    take(reader, case.write(OTHER, 0, 3))
    assert case.problems.reports == []
    take(reader, old[-1:])
    assert "after records of life" in case.problems.reports[0]


def test_a_new_life_begins_at_its_beginning() -> None:
    case = Case()
    reader = case.reader()
    take(reader, case.write(OTHER, 0))
    case.renew()
    take(reader, case.write(OTHER, 0, 2 * COUNT)[COUNT:])
    assert f"{COUNT} records are lost" in case.problems.reports[0]


def test_records_repeated_after_a_reset_are_accepted_but_the_reset_is_reported() -> None:
    case = Case()
    direct, proxied = case.reader("direct"), case.reader("proxied")
    history = case.write(TOPIC, 0)
    take(direct, history)
    take(proxied, [*history[:5], reset(TOPIC), *history])
    assert case.problems.reports == []
    compare(direct, direct, case.problems)
    assert case.problems.reports == []
    compare(proxied, direct, case.problems)
    assert "out of range, its twin never" in case.problems.reports[0]


def test_records_repeated_without_another_reset_are_found() -> None:
    case = Case()
    reader = case.reader()
    history = case.write(TOPIC, 0)
    take(reader, [*history, reset(TOPIC), *history, *case.write(TOPIC, 0, 1)])
    assert case.problems.reports == []
    take(reader, history[-1:])
    assert "came after" in case.problems.reports[0]


def test_a_reset_that_the_twin_had_too_is_accepted() -> None:
    case = Case()
    direct, proxied = case.reader("direct"), case.reader("proxied")
    history = case.write(TOPIC, 0)
    for reader in (direct, proxied):
        take(reader, [*history, reset(TOPIC)])
    compare(proxied, direct, case.problems)
    assert case.problems.reports == []


@pytest.mark.parametrize(
    ("kind", "of_twin", "is_told"),
    [
        ("UNKNOWN_TOPIC", (), True),
        ("UNKNOWN_TOPIC", ("UNKNOWN_TOPIC",), False),
        (CONNECTION, (), False),
        (f"{RETRIABLE}not_leader", (), False),
    ],
)
def test_a_kind_of_error_that_the_twin_did_not_get_is_found(kind: str, of_twin: tuple[str, ...], is_told: bool) -> None:
    case = Case()
    direct, proxied = case.reader("direct"), case.reader("proxied")
    proxied.take({"event": "error", "kind": kind})
    for one in of_twin:
        direct.take({"event": "error", "kind": one})
    compare(proxied, direct, case.problems)
    assert bool(case.problems.count) is is_told
