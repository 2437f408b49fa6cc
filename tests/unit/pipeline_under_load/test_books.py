"""The books find lost, doubled, reordered and changed records, and accept what a topic may remove."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pipeline_under_load.books import (
    MAX_PROBLEMS,
    Headers,
    Keeps,
    Partition,
    Read,
    RecordId,
    as_read,
    digest,
    id_header,
)

RUN = b"12345678"
COUNT = 20
SIZE = 100
LEFT = 5
"""Minimum number of records that retention leaves."""


def content(record: RecordId) -> tuple[bytes, bytes | None, Headers, int]:
    value = None if record.sequence % 5 == 4 else b"value-%d" % record.sequence
    return b"key-%d" % (record.sequence % 3), value, [id_header(RUN, record), ("none", None)], 1_000 + record.sequence


def written(keeps: Keeps) -> tuple[Partition, list[Read]]:
    """Return books of two producers in turns, with all records acknowledged, and the records that a reader gets."""
    books = Partition(keeps, retention_bytes=LEFT * SIZE)
    read: list[Read] = []
    for offset in range(COUNT):
        record = RecordId(offset % 2, offset // 2)
        key, value, headers, timestamp_ms = content(record)
        books.sent(record, key, digest(key, value, headers, timestamp_ms), SIZE)
        books.acknowledged(record, offset)
        read.append(as_read(RUN, offset, key, value, headers, timestamp_ms))
    return books, read


def moved(read: list[Read]) -> list[Read]:
    """Let two records change places; offsets stay."""
    read[6], read[8] = read[6]._replace(offset=8), read[8]._replace(offset=6)
    return sorted(read)


def doubled(read: list[Read]) -> list[Read]:
    """Repeat one record; all later ones move by one offset."""
    return [*read[:8], *(one._replace(offset=one.offset + 1) for one in read[7:])]


SPOILED: dict[str, Callable[[list[Read]], list[Read]]] = {
    "lost": lambda read: read[:7] + read[8:],
    "first lost": lambda read: read[1:],
    "last lost": lambda read: read[:-1],
    "all lost": lambda _: [],
    "lost and closed up": lambda read: read[:7] + [one._replace(offset=one.offset - 1) for one in read[8:]],
    "read twice": lambda read: [*read[:8], read[7], *read[8:]],
    "doubled": doubled,
    "reordered": moved,
    "read in another order": lambda read: [*read[:6], read[7], read[6], *read[8:]],
    "changed": lambda read: [*read[:7], read[7]._replace(digest=b"other"), *read[8:]],
    "strange": lambda read: [*read, Read(COUNT, None, b"strange")],
    "never sent": lambda read: [*read, Read(COUNT, RecordId(9, 0), b"strange")],
}


@pytest.mark.parametrize("how", SPOILED)
def test_each_kind_of_error_is_found(how: str) -> None:
    books, read = written(Keeps.ALL)
    assert books.problems(read) == []
    assert books.problems(SPOILED[how](read)) != []


@pytest.mark.parametrize("how", SPOILED)
@pytest.mark.parametrize("gone", [0, 3])
def test_errors_in_the_records_that_retention_left(how: str, gone: int) -> None:
    books, read = written(Keeps.THE_NEWEST)
    left = [one for one in SPOILED[how](read) if one.offset >= gone + (how == "first lost")]
    assert books.problems(left, log_start=gone) != []


@given(st.integers(0, COUNT))
def test_retention_takes_the_oldest(count: int) -> None:
    books, read = written(Keeps.THE_NEWEST)
    for later in 0, 1:
        problems = books.problems(read[count:], log_start=count + later)
        assert bool(problems) == (count > COUNT - LEFT), "it leaves as much as it says, and may take more later"
    assert bool(written(Keeps.ALL)[0].problems(read[count:])) == (count > 0)


def last_of_each_key(books: Partition, read: list[Read]) -> list[Read]:
    last = {books.keys[one.record]: one for one in read if one.record is not None}
    return sorted(last.values())


@given(st.sets(st.integers(0, COUNT - 1)))
def test_compaction_may_keep_more_than_the_last_of_each_key(kept: set[int]) -> None:
    books, read = written(Keeps.THE_LAST_OF_EACH_KEY)
    last = last_of_each_key(books, read)
    assert len(last) == 3
    assert books.problems(sorted({*last, *(read[offset] for offset in kept)})) == []


@pytest.mark.parametrize("place", range(3))
def test_compaction_must_keep_the_last_of_each_key(place: int) -> None:
    books, read = written(Keeps.THE_LAST_OF_EACH_KEY)
    last = last_of_each_key(books, read)
    gone = last.pop(place)
    (problem,) = books.problems(last)
    assert str(gone.record) in problem
    assert "is missing" in problem


def test_compaction_leaves_offsets_as_they_were() -> None:
    books, read = written(Keeps.THE_LAST_OF_EACH_KEY)
    last = last_of_each_key(books, read)
    last[0] = last[0]._replace(offset=last[0].offset - 1)
    assert books.problems(last) != []


@pytest.mark.parametrize(
    "change",
    [
        {"key": b"other"},
        {"key": None},
        {"value": b""},
        {"value": None},
        {"headers": [("id", b"")]},
        {"headers": [("none", b"")]},
        {"timestamp_ms": 1_001},
    ],
)
def test_a_change_of_any_part_of_a_record_is_found(change: dict[str, object]) -> None:
    record = RecordId(1, 0)
    key, value, headers, timestamp_ms = content(record)
    as_sent: dict[str, object] = {"key": key, "value": value, "headers": headers, "timestamp_ms": timestamp_ms}
    assert digest(**as_sent) != digest(**{**as_sent, **change})  # type: ignore[arg-type]


def test_a_record_of_another_run_is_ignored() -> None:
    record = RecordId(1, 0)
    key, value, headers, timestamp_ms = content(record)
    assert as_read(RUN, 0, key, value, headers, timestamp_ms).record == record
    assert as_read(b"87654321", 0, key, value, headers, timestamp_ms).record is None
    assert as_read(RUN, 0, key, value, [], timestamp_ms).record is None


def test_the_number_of_reported_problems_is_limited() -> None:
    books, read = written(Keeps.ALL)
    spoiled = [one._replace(digest=b"") for one in read] + [Read(COUNT + at, None, b"") for at in range(100)]
    problems = books.problems(spoiled)
    assert len(problems) == MAX_PROBLEMS + 1
    assert problems[-1] == f"and {COUNT + 100 - MAX_PROBLEMS} more"
