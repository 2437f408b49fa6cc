"""Reads: whole records from a position on, ends that are true, and losses that are noticed."""

from __future__ import annotations

import pytest

from proxy.coordinator.interface_journal import JournalRecord, JournalUnavailable, PositionTrimmed
from proxy.journal.batches import read_batches
from proxy.protocol import errors
from proxy.records.batches import RecordsError
from tests.unit.journal.broker_double import (
    FETCH,
    LIST_OFFSETS,
    METADATA,
    TIME_MS,
    cluster_double,
    journal_at,
    stored,
)

VALUES = [b"a", b"", b"c" * 300]


def records_of(values: list[bytes], first: int = 0) -> list[JournalRecord]:
    return [JournalRecord(place, TIME_MS, value) for place, value in enumerate(values)][first:]


async def test_records_from_a_position_on() -> None:
    async with cluster_double() as double, journal_at(double) as journal:
        double.logs[0] += VALUES
        for first in range(4):
            assert list(await journal.read(0, first, 1_000)) == records_of(VALUES, first)
        assert await journal.end(0) == 3
        assert list(await journal.read(0, 99, 1_000)) == []


async def test_many_records_are_read_in_their_order() -> None:
    values = [b"%d" % number for number in range(1_000)]
    async with cluster_double() as double, journal_at(double) as journal:
        double.logs[0] += values
        assert list(await journal.read(0, 0, 1 << 20)) == records_of(values)
        assert list(await journal.read(0, 232, 1 << 20)) == records_of(values, 232)  # 768 are three times 256


async def test_a_trimmed_position_has_an_error_of_its_own() -> None:
    async with cluster_double() as double, journal_at(double) as journal:
        double.logs[0] += VALUES
        assert await journal.trim(0, 2) == 2
        with pytest.raises(PositionTrimmed) as trimmed:
            await journal.read(0, 1, 1_000)
        assert trimmed.value.start == 2
        assert await journal.start(0) == 2


@pytest.mark.parametrize(
    "error_code",
    [
        errors.OFFSET_NOT_AVAILABLE,
        errors.NOT_LEADER_OR_FOLLOWER,
        errors.FENCED_LEADER_EPOCH,
        errors.UNKNOWN_SERVER_ERROR,
    ],
)
async def test_the_end_is_requested_until_the_leader_knows_it(error_code: int) -> None:
    async with cluster_double() as double, journal_at(double) as journal:
        double.logs[0] += VALUES
        double.positions += [(error_code, -1)] * 3
        asked = double.asked.count(METADATA)
        assert await journal.end(0) == 3
        assert double.asked.count(LIST_OFFSETS) == 4
        assert double.asked.count(METADATA) == asked + 3


async def test_an_end_that_is_never_known_is_an_error() -> None:
    async with cluster_double() as double, journal_at(double, timeout_ms=2_000) as journal:
        double.positions += [(errors.OFFSET_NOT_AVAILABLE, -1)] * 1_000
        with pytest.raises(JournalUnavailable, match="OFFSET_NOT_AVAILABLE") as failed:
            await journal.end(0)
        assert not failed.value.appended


async def test_rights_are_not_tried_again() -> None:
    async with cluster_double() as double, journal_at(double) as journal:
        double.positions.append((errors.TOPIC_AUTHORIZATION_FAILED, -1))
        with pytest.raises(JournalUnavailable, match="TOPIC_AUTHORIZATION_FAILED"):
            await journal.end(0)


async def test_records_that_a_new_leader_does_not_return_yet_are_read_again() -> None:
    async with cluster_double() as double, journal_at(double) as journal:
        await journal.append(0, b"a")
        double.fetches += [b"", b""]
        assert list(await journal.read(0, 0, 1_000)) == records_of([b"a"])
        assert double.asked.count(FETCH) == 3
        assert list(await journal.read(0, 1, 1_000)) == []


async def test_a_journal_that_lost_records_is_noticed() -> None:
    async with cluster_double() as double, journal_at(double) as journal:
        for value in VALUES:
            await journal.append(0, value)
        del double.logs[0][1:]
        for call in (journal.end(0), journal.read(0, 2, 1_000)):
            with pytest.raises(JournalUnavailable, match="lost records: it reached position 3 and ends at 1"):
                await call


async def test_no_leader_of_an_earlier_epoch_is_asked() -> None:
    """A broker that is cut off answers with the leaders that it knew last."""
    async with cluster_double() as double:
        double.leaders[0] = 2, 5
        async with journal_at(double) as journal:
            double.leaders[0] = 1, 4
            double.positions.append((errors.NOT_LEADER_OR_FOLLOWER, -1))
            double.leaders[1] = 2, 1
            await journal.end(0)
            double.leaders[0] = 2, 5
            assert (await journal.append(0, b"a")).position == 0
            assert [request.node for request in double.produced] == [2]


async def test_a_topic_that_was_deleted_is_named() -> None:
    async with cluster_double() as double, journal_at(double, timeout_ms=2_000) as journal:
        double.topic_error = errors.UNKNOWN_TOPIC_ID
        double.positions += [(errors.UNKNOWN_TOPIC_OR_PARTITION, -1)] * 1_000
        with pytest.raises(JournalUnavailable, match="the topic was deleted"):
            await journal.end(0)
        with pytest.raises(JournalUnavailable, match="the topic was deleted"):
            await journal.trim(0, 1)


@pytest.mark.parametrize("cut", [1, 8, 9, 60, 69])
def test_a_batch_that_is_cut_off_is_left_out(cut: int) -> None:
    data = stored(7, [b"a", b"b"]) + stored(9, [b"c"])
    assert [record.position for record in read_batches(data[:-cut], 8)] == [8]
    assert list(read_batches(data[: 69 - cut], 8)) == []


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (stored(8, [b"a"]), "position 8 instead of 7"),
        (stored(7, [b"a"]) + stored(9, [b"b"]), "position 9 instead of 8"),
        (stored(7, [b"a"]) + stored(7, [b"b"]), "position 7 instead of 8"),
        (stored(7, [b"a"], attributes=0), "no time of its append"),
        (stored(7, [b"a"])[:-1] + b"\1", "CRC"),
    ],
)
def test_records_that_no_journal_has_are_errors(data: bytes, reason: str) -> None:
    with pytest.raises(RecordsError, match=reason):
        list(read_batches(data, 7))
