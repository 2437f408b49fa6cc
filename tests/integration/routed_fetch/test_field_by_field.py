"""A foreign listener answers, field by field, what the leader itself answers, whichever replica was read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from proxy.demo.stack import Stack
from tests.integration.routed_fetch.conftest import (
    EMPTY,
    END,
    EPOCH_BEGINS,
    FENCED,
    MARKED,
    OPEN,
    PLAIN,
    RECORDS,
    SIZE,
    TRIMMED,
    TRIMMED_START,
    Logs,
)
from tests.support.routed import (
    CLOSED,
    HIGHEST_VERSION,
    RACK,
    Answer,
    Asked,
    Served,
    Twins,
    partitions,
    records_of,
    warm_up,
)

VERSIONS = range(4, HIGHEST_VERSION + 1)
ROUNDS = 2_226
"""Rounds of the review that found no difference; there are at least as many here."""
FIRST_SESSION, FIRST_EPOCH, FIRST_RACK, FIRST_LAST_EPOCH, FIRST_ID = 7, 9, 11, 12, 13
NO_SESSION, FIRST = -1, 0
LARGE = 1 << 40
FENCED_LEADER_EPOCH = 74


class Case(NamedTuple):
    """A Fetch to send to both."""

    label: str
    asked: tuple[Asked, ...]
    values: dict[str, Any]
    since: int = 4
    """Version that introduced the tested field."""


def case(label: str, *asked: Asked, since: int = 4, **values: Any) -> Case:
    return Case(label, asked, values, since)


def read_cases(logs: Logs) -> Iterator[Case]:
    """Yield cases in which records, or their absence, come from a replica."""
    topic, everything = logs.topic, logs.all()
    for isolation_level in (0, 1):
        for one in everything:
            yield case(f"from the start, isolation {isolation_level}", one, isolation_level=isolation_level)
        yield case(f"everything, isolation {isolation_level}", *everything, isolation_level=isolation_level)
        for offset in range(1, 24, 2):
            marked = Asked(topic, MARKED, offset)
            yield case(
                f"transactions from {offset}, isolation {isolation_level}", marked, isolation_level=isolation_level
            )
        for offset in range(1, RECORDS + 1):
            within = Asked(topic, OPEN, offset)
            yield case(f"open transaction from {offset}", within, isolation_level=isolation_level)
    for offset in range(1, END + 1):
        yield case(f"plain from {offset}", Asked(topic, PLAIN, offset))
    yield case("in the first batch that is left", Asked(topic, TRIMMED, TRIMMED_START + 1))
    for limit in (0, 1, SIZE - 1, SIZE, SIZE + 1, 2 * SIZE + 10):
        yield case(f"at most {limit} bytes of a partition", Asked(topic, PLAIN, 0, max_bytes=limit))
        yield case(f"at most {limit} bytes of each", *logs.all(max_bytes=limit))
        yield case(f"at most {limit} bytes in all", *everything, max_bytes=limit)
        yield case(f"at most {limit} bytes in all, in reverse", *everything[::-1], max_bytes=limit)
    yield case("at most a record in all, mid-batch", Asked(topic, PLAIN, 4), Asked(topic, MARKED, 1), max_bytes=1)
    for shift in range(len(everything)):
        rotated = everything[shift:] + everything[:shift]
        yield case(f"rotated by {shift}", *rotated, max_bytes=3 * SIZE)
    yield case("no bytes needed", Asked(topic, EMPTY, 0), min_bytes=0, max_wait=500)
    yield case("more bytes needed than there are, no wait", *everything, min_bytes=1 << 20)
    yield case("more bytes needed than there are, a short wait", *everything, min_bytes=1 << 20, max_wait=60)
    yield case("less than no wait", Asked(topic, EMPTY, 0), max_wait=-1)
    yield case("twice in a topic", Asked(topic, PLAIN, 0), Asked(topic, PLAIN, 6))
    yield case("twice in two", Asked(topic, PLAIN, 0), Asked(topic, MARKED, 0), Asked(topic, PLAIN, 6))
    yield case("nothing", since=4)
    yield case("a new session", *everything, since=FIRST_SESSION, session_id=0, session_epoch=FIRST)
    yield case("no session", *everything, since=FIRST_SESSION, session_id=0, session_epoch=NO_SESSION)
    yield case("a session's end", *everything, since=FIRST_SESSION, session_id=77, session_epoch=NO_SESSION)
    yield case("in place of a session", *everything, since=FIRST_SESSION, session_id=77, session_epoch=FIRST)
    for number in (1, 2):
        session = {"session_id": 77, "session_epoch": number}
        yield case(f"epoch {number} of a session that is not there", *everything, since=FIRST_SESSION, **session)
    yield case("epoch 1 of no session", since=FIRST_SESSION, session_id=0, session_epoch=1)
    for epoch in (-1, 1):
        yield case(f"current leader epoch {epoch}", Asked(topic, PLAIN, 0, epoch=epoch), since=FIRST_EPOCH)
    for offset, epoch in ((10, 0), (EPOCH_BEGINS, 0), (END, 1)):
        asked = Asked(topic, PLAIN, offset, last_epoch=epoch)
        yield case(f"fetched epoch {epoch} up to {offset}", asked, since=FIRST_LAST_EPOCH)
    for rack in (RACK, "rack-c", "no such rack"):
        yield case(f"a client of {rack}", *everything, since=FIRST_RACK, rack_id=rack)


def refused_cases(logs: Logs) -> Iterator[Case]:
    """Yield cases in which the leader returns an error for at least one partition."""
    topic, known = logs.topic, Asked(logs.topic, FENCED, 0)
    for offset in (END + 1, LARGE, -1, -2):
        yield case(f"offset {offset}", Asked(topic, FENCED, offset))
        yield case(f"offset {offset} next to others", known, Asked(topic, FENCED, offset), Asked(topic, EMPTY, 0))
    for offset in (0, TRIMMED_START - 1):
        yield case(f"deleted offset {offset}", Asked(topic, TRIMMED, offset))
        yield case(f"deleted offset {offset}, in a long poll", Asked(topic, TRIMMED, offset), max_wait=10_000)
    for unknown in ("never-there", os.urandom(16), bytes(16)):
        strange, since = Asked(unknown, 0, 0), FIRST_ID if isinstance(unknown, bytes) else 4
        yield case(f"unknown topic {unknown!r}", strange, since=since)
        yield case(f"unknown topic {unknown!r} before others", strange, known, since=since)
        poll = {"max_wait": 50, "min_bytes": 1 << 20}
        yield case(f"unknown topic {unknown!r} behind others", known, strange, since=since, **poll)
    for index in (99, -1):
        yield case(f"partition {index}", Asked(topic, index, 0))
        yield case(f"partition {index} next to others", Asked(topic, index, 0), known)
    for epoch in (0, 7, -2):
        for offset in (0, END + 1):
            asked = Asked(topic, FENCED, offset, epoch=epoch)
            yield case(f"current leader epoch {epoch}, offset {offset}", asked, since=FIRST_EPOCH)
            yield case(
                f"current leader epoch {epoch} next to others", asked, Asked(topic, MARKED, 0), since=FIRST_EPOCH
            )
    for offset, epoch in ((10, 1), (END - 1, 0), (10, 2), (10, 7)):
        asked = Asked(topic, FENCED, offset, last_epoch=epoch)
        yield case(f"fetched epoch {epoch} up to {offset}, which diverges", asked, since=FIRST_LAST_EPOCH)
    yield case("less than no bytes of a partition", known._replace(max_bytes=-1))
    yield case("an isolation level that nobody knows", known, isolation_level=7)


def replica_cases(logs: Logs) -> Iterator[Case]:
    """Yield cases of requests that do not claim to be a consumer's; the leader must handle them."""
    for replica in (-2, 99):
        state = {"replica_id": replica, "replica_epoch": -1}
        asked = Asked(logs.topic, PLAIN, 0)
        yield case(f"as replica {replica}", asked, replica_id=replica, replica_state=state)


def _without_leaders_of_fenced(answer: Answer) -> Answer:
    """Remove the leaders that an answer names from v16 on (KIP-951), because a replica may reject a fenced epoch
    itself."""
    if isinstance(answer, str) or all(one["error_code"] != FENCED_LEADER_EPOCH for one in partitions(answer)):
        return answer
    for one in partitions(answer):
        if one["error_code"] == FENCED_LEADER_EPOCH:
            one.pop("current_leader", None)
    return {**answer, "nodes": []}


def assert_same(twins: Twins, version: int, cases: Iterator[Case], *, in_order: bool = True) -> None:
    """Require the same answer from both; without `in_order`, the order of its partitions may differ."""
    found = []
    asked = [one for one in cases if version >= one.since]
    assert asked
    for one in asked:
        directly, routed = twins.fetch(version, *one.asked, **one.values)
        directly = _without_leaders_of_fenced(directly)
        if (directly != routed) if in_order else (_in_any_order(directly) != _in_any_order(routed)):
            found.append(f"{one.label}:\n   directly {_shown(directly)}\n   routed   {_shown(routed)}")
    assert not found, f"Fetch v{version}, {len(found)} of {len(asked)}:\n" + "\n".join(found)


def _in_any_order(answer: Answer) -> object:
    if isinstance(answer, str):
        return answer
    found = [
        (topic.get("topic") or topic["topic_id"], one["partition_index"], one)
        for topic in answer["responses"]
        for one in topic["partitions"]
    ]
    return {**answer, "responses": sorted(found, key=lambda one: one[:2])}


def _shown(answer: Answer) -> str:
    """Shorten an answer: only the number of bytes of its records."""
    if isinstance(answer, str):
        return answer
    head = {name: value for name, value in answer.items() if name != "responses"}
    short = [
        {name: len(value) if isinstance(value, bytes) else value for name, value in one.items()}
        for one in partitions(answer)
    ]
    return f"{head}" + "".join(f"\n      {list(one.values())}" for one in short)


def test_there_are_as_many_rounds_as_in_the_review() -> None:
    logs, kinds = Logs("t", "far", {}), (read_cases, refused_cases, replica_cases)
    cases = [one for kind in kinds for one in kind(logs)]
    assert sum(version >= one.since for version in VERSIONS for one in cases) >= ROUNDS


@pytest.mark.parametrize("version", VERSIONS)
def test_reads_of_every_kind_are_the_leaders(stack: Stack, logs: Logs, version: int) -> None:
    with Twins(stack, logs.ids) as twins:
        warm_up(stack, logs.ids, *logs.all())
        served = Served.begin(stack)
        assert_same(twins, version, read_cases(logs))
    assert (set(served.record_bytes()), served.leader_reads()) == ({RACK}, {})


@pytest.mark.parametrize("version", VERSIONS)
def test_replicas_are_not_rerouted(stack: Stack, logs: Logs, version: int) -> None:
    with Twins(stack, logs.ids) as twins:
        assert_same(twins, version, replica_cases(logs))


@pytest.mark.parametrize("version", [4, 11, HIGHEST_VERSION])
def test_the_leader_is_read_if_no_replica_is_near(stack: Stack, logs: Logs, version: int) -> None:
    """Alone, and next to partitions that a replica serves."""
    far = [Asked(logs.far, 0, 0), Asked(logs.far, 1, 4)]
    near = [Asked(logs.topic, PLAIN, 0), Asked(logs.topic, MARKED, 0)]
    with Twins(stack, logs.ids) as twins:
        warm_up(stack, logs.ids, *near)
        served = Served.begin(stack)
        assert_same(twins, version, iter([case("far ones", *far)]))
        assert set(served.record_bytes()) == {"rack-b"}
        mixed = [near[0], far[0], near[1], far[1]]
        orders = [mixed, mixed[::-1], near + far, far + near]
        assert_same(twins, version, (case(f"order {place}", *order) for place, order in enumerate(orders)))
        waited = {"min_bytes": 1 << 20, "max_wait": 100}
        assert_same(twins, version, iter([case("waiting for more", *mixed, **waited)]))
    assert set(served.record_bytes()) == {RACK, "rack-b"}
    assert set(served.leader_reads()) == {"no_near_replica"}


@pytest.mark.parametrize("version", [4, 11, HIGHEST_VERSION])
def test_limits_hold_over_several_sources(stack: Stack, logs: Logs, version: int) -> None:
    """A leader that has all partitions may give the bytes to others; the answer is valid anyway."""
    asked = [Asked(logs.far, 0, 0), Asked(logs.topic, PLAIN, 0), Asked(logs.far, 1, 0), Asked(logs.topic, MARKED, 0)]
    with Twins(stack, logs.ids) as twins:
        for limit in (0, 1, SIZE, 2 * SIZE, 5 * SIZE, 7 * SIZE + 5):
            for order in (asked, asked[::-1], asked[1:] + asked[:1]):
                directly = twins.directly(version, *order)
                routed = twins.routed(version, *order, max_bytes=limit)
                whole, got = records_of(directly), records_of(routed)
                assert [len(one) for one in got] != [0] * len(order), "one batch comes whatever the limit"
                assert all(one.startswith(part) for one, part in zip(whole, got, strict=True))
                first = next(part for part in got if part)
                assert sum(len(part) for part in got) <= max(limit, SIZE, len(first) if limit < SIZE else 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_errors_of_every_kind_are_the_leaders(stack: Stack, logs: Logs, version: int) -> None:
    """A broker puts unknown partitions last, the proxy keeps their place."""
    with Twins(stack, logs.ids) as twins:
        assert_same(twins, version, refused_cases(logs), in_order=False)


@pytest.mark.parametrize("version", [7, 11, HIGHEST_VERSION])
def test_a_session_that_the_leader_created_is_ended(stack: Stack, logs: Logs, version: int) -> None:
    """A client that comes from the leader itself, with its session there, starts over with all partitions."""
    with Twins(stack, logs.ids) as twins:
        began = twins.directly(version, *logs.all(), session_id=0, session_epoch=FIRST)
        assert isinstance(began, dict)
        assert began["session_id"] != 0
        ended = twins.routed(version, session_id=began["session_id"], session_epoch=1)
        assert ended != CLOSED
        assert isinstance(ended, dict)
        assert (ended["error_code"], ended["responses"]) == (70, [])
        restarted = twins.routed(version, *logs.all(), session_id=0, session_epoch=FIRST)
        assert records_of(restarted) == records_of(began)
