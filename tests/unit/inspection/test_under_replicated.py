"""Partitions short of replicas: those that a proxy completes, those that the brokers recover, and those that are
both."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from proxy.brokers.states import ClassicTopic
from proxy.coordinator.interface_registry import NO_TOPIC_ID
from proxy.creation.replication.interface import Pending
from proxy.creation.replication.reassignments import KnownReplicas
from proxy.inspection import under_replicated as module
from proxy.inspection.stores import InspectionError
from proxy.inspection.under_replicated import (
    BEING_MADE,
    CLASSIC,
    DISKLESS,
    HIDDEN,
    UNKNOWN,
    ShortPartition,
    accept_replicas,
    short_partitions,
)
from proxy.wire.partition_states import PartitionState

ID, SHADOW_ID, GONE_ID = (bytes([number]) * 16 for number in (1, 2, 3))


def topic(name: str, topic_id: bytes, *partitions: tuple[tuple[int, ...], tuple[int, ...]]) -> ClassicTopic:
    known = {number: PartitionState(isr[0], 0, replicas, isr) for number, (replicas, isr) in enumerate(partitions)}
    return ClassicTopic(name, topic_id, known)


def short(topics: list[ClassicTopic], wishes: list[Pending], *diskless: str) -> list[ShortPartition]:
    return list(short_partitions(topics, wishes, set(diskless)))


def wish(name: str, **values: Any) -> Pending:
    return Pending(name, name, **{"replication_factor": 3, "made_replicas": 2, "since_ms": 1_700_000_000_000} | values)


def test_all_is_well() -> None:
    well = topic("t", ID, ((1, 2, 3), (3, 1, 2)))
    assert short([well], []) == []
    assert short([well], [wish("t", topic_id=ID)]) == []


def test_partitions_that_brokers_recover_are_distinguished_from_those_a_proxy_completes() -> None:
    known = topic("t", ID, ((1, 2), (1, 2)), ((1, 2), (2,)), ((1, 2, 3), (1, 2)), ((1, 2, 3), (1, 2, 3)))
    found = short([known, topic("other", SHADOW_ID, ((1, 2, 3), (1,)))], [wish("t", topic_id=ID)])
    assert [
        (one.topic, one.partition, one.pending, one.out_of_sync, one.wanted, one.missing, one.why) for one in found
    ] == [
        ("t", 0, True, False, 3, 1, ("waiting for brokers",)),
        ("t", 1, True, True, 3, 1, ("waiting for brokers", "out of sync")),
        ("t", 2, True, True, 3, 1, ("copying", "out of sync")),
        ("other", 0, False, True, None, 2, ("out of sync",)),
    ]
    assert [one.pending_since for one in found] == ["2023-11-14T22:13:20+00:00"] * 3 + [None]
    assert (found[2].replicas, found[2].in_sync) == ((1, 2, 3), (1, 2))


def test_a_partition_that_somebody_reduced_is_reported_as_such() -> None:
    (found,) = short([topic("t", ID, ((1,), (1,)))], [wish("t", topic_id=ID)])
    assert (found.why, found.missing) == (("made smaller",), 0)


def test_kinds() -> None:
    topics = [topic(name, topic_id, ((1, 2), (1,))) for name, topic_id in (("c", ID), ("d", SHADOW_ID))]
    assert [one.kind for one in short(topics, [], "d")] == [CLASSIC, DISKLESS]
    assert [one.kind for one in short(topics, [wish("c", topic_id=ID, shadow=True)])] == [DISKLESS, CLASSIC]


def test_topics_that_the_brokers_do_not_know() -> None:
    exact = wish("exact", replication_factor=0, assignment=((1, 2, 3, 4),), topic_id=GONE_ID)
    found = short([], [wish("intent"), exact])
    assert [(one.topic, one.partition, one.wanted, one.why) for one in found] == [
        ("intent", None, 3, (BEING_MADE,)),
        ("exact", None, 4, (UNKNOWN,)),
    ]


def test_a_topic_is_reported_once_however_many_wishes_it_has() -> None:
    exact = wish("t", replication_factor=0, assignment=((1, 2, 3),), since_ms=1_600_000_000_000)
    for topic_id, why in ((NO_TOPIC_ID, BEING_MADE), (GONE_ID, UNKNOWN)):
        (found,) = short([], [replace(one, topic_id=topic_id) for one in (wish("t"), exact)])
        assert (found.topic, found.wanted, found.why, found.pending_since) == (
            "t",
            3,
            (why,),
            "2020-09-13T12:26:40+00:00",
        )


def test_topics_that_the_brokers_do_not_show() -> None:
    wishes = [wish("intent"), wish("hidden", topic_id=ID), wish("gone", topic_id=GONE_ID)]
    found = short_partitions([], wishes, set(), {"intent", ID})
    assert [(one.topic, *one.why) for one in found] == [("intent", HIDDEN), ("hidden", HIDDEN), ("gone", UNKNOWN)]


async def test_missing_topics_are_requested_separately_by_name_and_by_id(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str | bytes]] = []

    async def ask(_: object, topics: list[str | bytes]) -> KnownReplicas:
        asked.append(topics)
        return KnownReplicas((), frozenset(), frozenset(topics[:1]))

    monkeypatch.setattr(module, "ask_replicas", ask)
    wishes = [wish("intent"), wish("hidden", topic_id=ID), wish("known", topic_id=SHADOW_ID)]
    service: Any = None
    assert await module._hidden(service, wishes, {SHADOW_ID}) == {"intent", ID}
    assert sorted(asked, key=str) == [["intent"], [ID]]


class Opened:
    """Stands for the opened store."""

    def __init__(self, *wishes: Pending) -> None:
        self.wishes = list(wishes)

    async def all(self) -> tuple[Pending, ...]:
        return tuple(self.wishes)

    async def forget(self, wishes: list[Pending]) -> None:
        self.wishes = [one for one in self.wishes if one not in wishes]


async def test_replicas_are_accepted_for_all_of_the_named_topics_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    first, again, other = wish("t"), wish("t", topic_id=ID), wish("other")
    store = Opened(first, again, other)

    @asynccontextmanager
    async def opened(_: object) -> AsyncIterator[tuple[None, Opened]]:
        yield None, store

    monkeypatch.setattr(module, "_opened", opened)
    settings: Any = None
    with pytest.raises(InspectionError, match="unknown"):
        await accept_replicas(settings, ["t", "unknown"])
    assert store.wishes == [first, again, other]
    await accept_replicas(settings, ["t", "t"])
    assert store.wishes == [other]
