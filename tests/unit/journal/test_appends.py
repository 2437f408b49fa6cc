"""Appends: the order of calls, shared batches and requests, certain failures and unknown outcomes, bounds, ends."""

from __future__ import annotations

import asyncio

import pytest

from proxy.coordinator.interface_journal import Appended, JournalUnavailable
from proxy.journal.journal import KafkaJournal
from proxy.protocol import errors
from tests.unit.journal.broker_double import TIME_MS, Act, cluster_double, journal_at

REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND = 7, 19, 20


async def under_way(journal: KafkaJournal, partition: int, value: bytes, act: Act) -> asyncio.Task[Appended]:
    """Return an append whose request a broker has, and does not answer until the act's event is set."""
    assert act.until is not None
    append = asyncio.create_task(journal.append(partition, value))
    await asyncio.sleep(0.05)
    assert not append.done()
    return append


async def test_values_of_a_step_share_a_batch_and_partitions_a_request() -> None:
    async with cluster_double(3) as double, journal_at(double) as journal:
        calls = [(0, b"a"), (1, b"b"), (0, b"c"), (2, b""), (0, b"d")]
        found = await asyncio.gather(*(journal.append(partition, value) for partition, value in calls))
        assert [request.values for request in double.produced] == [{0: [b"a", b"c", b"d"], 1: [b"b"], 2: [b""]}]
        assert found == [Appended(position, TIME_MS) for position in (0, 0, 1, 0, 2)]


async def test_partitions_of_different_leaders_go_to_different_brokers() -> None:
    async with cluster_double() as double:
        double.leaders[1] = 2, 0
        async with journal_at(double) as journal:
            await asyncio.gather(journal.append(0, b"a"), journal.append(1, b"b"))
        assert sorted((request.node, *request.values) for request in double.produced) == [(1, 0), (2, 1)]


async def test_a_partition_has_one_request_under_way_and_what_waits_shares_the_next() -> None:
    async with cluster_double() as double, journal_at(double) as journal:
        act = Act(until=asyncio.Event())
        double.acts.append(act)
        first = await under_way(journal, 0, b"0", act)
        others = [asyncio.create_task(journal.append(0, b"%d" % number)) for number in range(1, 30)]
        assert await journal.append(1, b"another partition") == Appended(0, TIME_MS)
        assert [request.values for request in double.produced] == [{0: [b"0"]}, {1: [b"another partition"]}]
        assert act.until is not None
        act.until.set()
        positions = [place.position for place in await asyncio.gather(first, *others)]
        assert positions == list(range(30))
        assert double.produced[2].values == {0: [b"%d" % number for number in range(1, 30)]}
        assert len(double.produced) == 3


async def test_partitions_wait_if_all_connections_to_a_broker_are_in_use() -> None:
    async with cluster_double(3) as double, journal_at(double, append_connections_max=1) as journal:
        act = Act(until=asyncio.Event())
        double.acts.append(act)
        first = await under_way(journal, 0, b"0", act)
        others = [asyncio.create_task(journal.append(partition, b"x")) for partition in (1, 2)]
        await asyncio.sleep(0.05)
        assert len(double.produced) == 1
        assert act.until is not None
        act.until.set()
        await asyncio.gather(first, *others)
        assert [sorted(request.values) for request in double.produced] == [[0], [1, 2]]
        assert len({request.connection for request in double.produced}) == 1


async def test_a_request_and_a_batch_keep_to_their_size() -> None:
    limit = 65_536
    async with cluster_double() as double, journal_at(double, max_append_bytes=limit) as journal:
        values = [bytes([number]) * 20_000 for number in range(10)]
        found = await asyncio.gather(*(journal.append(number % 2, value) for number, value in enumerate(values)))
        assert [place.position for place in found] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
        sizes = [sum(len(value) for values in one.values.values() for value in values) for one in double.produced]
        assert max(sizes) == 60_000
        largest = bytes(limit - 61 - 18)
        await journal.append(0, largest)
        with pytest.raises(JournalUnavailable, match="max_append_bytes") as rejected:
            await journal.append(0, largest + b"x")
        assert not rejected.value.appended


@pytest.mark.parametrize(
    "error_code",
    [
        errors.UNKNOWN_TOPIC_OR_PARTITION,
        errors.LEADER_NOT_AVAILABLE,
        errors.NOT_LEADER_OR_FOLLOWER,
        errors.UNKNOWN_TOPIC_ID,
    ],
)
async def test_a_moved_partition_is_tried_again_in_the_same_order(error_code: int) -> None:
    async with cluster_double() as double, journal_at(double) as journal:
        double.acts += [Act(error_code), Act(error_code)]
        appends = [asyncio.create_task(journal.append(0, b"%d" % number)) for number in range(3)]
        await asyncio.sleep(0)
        double.leaders[0] = 2, 1
        found = await asyncio.gather(*appends, journal.append(0, b"3"))
        assert [place.position for place in found] == [0, 1, 2, 3]
        assert double.logs[0] == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize(
    ("error_code", "appended"),
    [
        (errors.MESSAGE_TOO_LARGE, False),
        (NOT_ENOUGH_REPLICAS, False),
        (errors.TOPIC_AUTHORIZATION_FAILED, False),
        (errors.INVALID_RECORD, False),
        (NOT_ENOUGH_REPLICAS_AFTER_APPEND, True),
        (REQUEST_TIMED_OUT, True),
        (errors.KAFKA_STORAGE_ERROR, True),
        (errors.UNKNOWN_SERVER_ERROR, True),
        (12_345, True),
    ],
)
async def test_other_errors_are_not_tried_again(error_code: int, appended: bool) -> None:
    async with cluster_double() as double, journal_at(double) as journal:
        double.acts.append(Act(error_code))
        results = await asyncio.gather(journal.append(0, b"a"), journal.append(0, b"b"), return_exceptions=True)
        assert [isinstance(one, JournalUnavailable) and one.appended for one in results] == [appended] * 2
        assert len(double.produced) == 1
        assert (await journal.append(0, b"next")).position == 0


async def test_a_leader_that_loses_its_office_after_the_append_has_an_unknown_outcome() -> None:
    """The followers may have the record. The answer has the error of an append that did not begin and a base offset."""
    async with cluster_double() as double, journal_at(double) as journal:
        double.acts.append(Act(errors.NOT_LEADER_OR_FOLLOWER, base_offset=0))
        with pytest.raises(JournalUnavailable) as unknown:
            await journal.append(0, b"a")
        assert unknown.value.appended
        assert double.logs[0] == [b"a"]
        assert (await journal.append(0, b"b")).position == 1


@pytest.mark.parametrize("appends", [True, False])
async def test_a_connection_that_ends_before_the_answer_leaves_the_outcome_unknown(appends: bool) -> None:
    async with cluster_double() as double, journal_at(double) as journal:
        double.acts.append(Act(closes=True, appends=appends))
        with pytest.raises(JournalUnavailable) as unknown:
            await journal.append(0, b"a")
        assert unknown.value.appended
        assert (await journal.append(0, b"b")).position == len(double.logs[0]) - 1
        assert double.logs[0] == [b"a", b"b"] if appends else [b"b"]


async def test_no_answer_in_time_leaves_the_outcome_unknown() -> None:
    async with cluster_double() as double, journal_at(double, timeout_ms=2_000) as journal:
        double.acts.append(Act(until=asyncio.Event()))
        with pytest.raises(JournalUnavailable, match="within 2 s") as unknown:
            await journal.append(0, b"a")
        assert unknown.value.appended
        assert double.logs[0] == [b"a"]


async def test_a_leader_that_can_not_be_connected_to_has_appended_nothing() -> None:
    async with cluster_double() as double, journal_at(double, timeout_ms=2_000) as journal:
        double.ports[3] = 1
        double.leaders[0] = 3, 1
        double.acts.append(Act(errors.NOT_LEADER_OR_FOLLOWER))
        with pytest.raises(JournalUnavailable, match=r"could not be sent within 2 s: 127\.0\.0\.1:1") as failed:
            await journal.append(0, b"a")
        assert not failed.value.appended
        append = asyncio.create_task(journal.append(0, b"b"))
        await asyncio.sleep(0.05)
        double.leaders[0] = 2, 2
        assert await append == Appended(0, TIME_MS)
        assert double.logs[0] == [b"b"]


async def test_a_partition_without_a_leader_waits_for_one_and_others_go_on() -> None:
    async with cluster_double() as double:
        double.leaders[0] = -1, 0
        async with journal_at(double) as journal:
            waiting = asyncio.create_task(journal.append(0, b"a"))
            assert await journal.append(1, b"b") == Appended(0, TIME_MS)
            assert not waiting.done()
            double.leaders[0] = 1, 1
            assert await waiting == Appended(0, TIME_MS)


async def test_a_cancelled_append_that_waits_is_not_sent() -> None:
    async with cluster_double() as double, journal_at(double) as journal:
        act = Act(until=asyncio.Event())
        double.acts.append(act)
        first = await under_way(journal, 0, b"0", act)
        waiting = [asyncio.create_task(journal.append(0, b"%d" % number)) for number in (1, 2, 3)]
        await asyncio.sleep(0)
        waiting[1].cancel()
        await asyncio.sleep(0)
        assert act.until is not None
        act.until.set()
        found = await asyncio.gather(first, waiting[0], waiting[2])
        assert [place.position for place in found] == [0, 1, 2]
        assert double.logs[0] == [b"0", b"1", b"3"]


async def test_a_cancelled_append_that_was_sent_is_finished() -> None:
    async with cluster_double() as double, journal_at(double, append_connections_max=1) as journal:
        act = Act(until=asyncio.Event())
        double.acts.append(act)
        first = await under_way(journal, 0, b"0", act)
        first.cancel()
        second = asyncio.create_task(journal.append(0, b"1"))
        await asyncio.sleep(0.05)
        assert len(double.produced) == 1
        assert act.until is not None
        act.until.set()
        assert await second == Appended(1, TIME_MS)
        assert len({request.connection for request in double.produced}) == 1


async def test_more_than_may_wait_is_rejected_and_cancelled_appends_make_room() -> None:
    async with (
        cluster_double() as double,
        journal_at(double, max_append_bytes=65_536, max_waiting_bytes=65_536) as journal,
    ):
        act = Act(until=asyncio.Event())
        double.acts.append(act)
        first = await under_way(journal, 0, bytes(30_000), act)
        second = asyncio.create_task(journal.append(0, bytes(30_000)))
        await asyncio.sleep(0)
        with pytest.raises(JournalUnavailable, match="max_waiting_bytes") as rejected:
            await journal.append(1, bytes(30_000))
        assert not rejected.value.appended
        second.cancel()
        await asyncio.sleep(0)
        await journal.append(1, bytes(30_000))
        assert act.until is not None
        act.until.set()
        await first
        await asyncio.gather(journal.append(0, bytes(32_000)), journal.append(1, bytes(32_000)))


async def test_a_topic_that_does_not_set_the_time_of_records_is_an_error() -> None:
    async with cluster_double() as double, journal_at(double) as journal:
        double.acts.append(Act(time_ms=-1))
        with pytest.raises(JournalUnavailable, match=r"message\.timestamp\.type") as failed:
            await journal.append(0, b"a")
        assert failed.value.appended


async def test_a_position_that_was_reached_before_is_an_error() -> None:
    async with cluster_double() as double, journal_at(double) as journal:
        for value in (b"a", b"b"):
            await journal.append(0, value)
        double.logs[0].clear()
        with pytest.raises(JournalUnavailable, match="lost records: it reached position 2 and ends at 0") as lost:
            await journal.append(0, b"c")
        assert lost.value.appended
        double.logs[0] += [b"d"] * 9
        with pytest.raises(JournalUnavailable, match="it reached position 2 and ends at 0") as again:
            await journal.append(0, b"e")
        assert not again.value.appended
        assert b"e" not in double.logs[0]
        await journal.append(1, b"f")


async def test_older_brokers_get_the_name_of_the_topic() -> None:
    async with cluster_double() as double:
        double.produce_version = 9
        async with journal_at(double) as journal:
            assert await journal.append(0, b"a") == Appended(0, TIME_MS)


async def test_the_end_of_the_journal_ends_all_appends() -> None:
    async with cluster_double() as double, journal_at(double) as journal:
        act = Act(until=asyncio.Event())
        double.acts.append(act)
        sent = await under_way(journal, 0, b"0", act)
        waiting = asyncio.create_task(journal.append(0, b"1"))
        begun = asyncio.create_task(journal.append(1, b"2"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await journal.close()
        results = await asyncio.gather(sent, waiting, begun, return_exceptions=True)
        appended = [one.appended for one in results if isinstance(one, JournalUnavailable)]
        assert appended == [True, False, True]
        with pytest.raises(JournalUnavailable) as closed:
            await journal.append(0, b"3")
        assert not closed.value.appended
        assert act.until is not None
        act.until.set()
