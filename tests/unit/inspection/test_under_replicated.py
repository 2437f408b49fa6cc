"""Partitions short of replicas: which a proxy gives more, which the brokers mend, and which are both."""

from __future__ import annotations

from typing import Any

from proxy.inspection.under_replicated import BEING_MADE, CLASSIC, DISKLESS, UNKNOWN, ShortPartition, short_partitions
from proxy.replicas.states import PartitionState
from proxy.replication.interface import Pending
from proxy.replication.reassignments import TopicReplicas

ID, SHADOW_ID, GONE_ID = (bytes([number]) * 16 for number in (1, 2, 3))


def topic(name: str, topic_id: bytes, *partitions: tuple[tuple[int, ...], tuple[int, ...]]) -> TopicReplicas:
    known = {number: PartitionState(isr[0], 0, replicas, isr) for number, (replicas, isr) in enumerate(partitions)}
    return TopicReplicas(name, topic_id, known)


def short(topics: list[TopicReplicas], wishes: list[Pending], *diskless: str) -> list[ShortPartition]:
    return list(short_partitions(topics, wishes, set(diskless)))


def wish(name: str, **values: Any) -> Pending:
    return Pending(name, name, **{"replication_factor": 3, "made_replicas": 2, "since_ms": 1_700_000_000_000} | values)


def test_all_is_well() -> None:
    well = topic("t", ID, ((1, 2, 3), (3, 1, 2)))
    assert short([well], []) == []
    assert short([well], [wish("t", topic_id=ID)]) == []


def test_what_the_brokers_mend_is_told_apart_from_what_a_proxy_does() -> None:
    known = topic("t", ID, ((1, 2), (1, 2)), ((1, 2), (2,)), ((1, 2, 3), (1, 2)), ((1, 2, 3), (1, 2, 3)))
    found = short([known, topic("other", SHADOW_ID, ((1, 2, 3), (1,)))], [wish("t", topic_id=ID)])
    assert [
        (one.topic, one.partition, one.pending, one.out_of_sync, one.wanted, one.missing, one.state) for one in found
    ] == [
        ("t", 0, True, False, 3, 1, "waiting for brokers"),
        ("t", 1, True, True, 3, 1, "waiting for brokers"),
        ("t", 2, True, True, 3, 1, "copying"),
        ("other", 0, False, True, None, 2, ""),
    ]
    assert [one.since for one in found] == ["2023-11-14T22:13:20+00:00"] * 3 + [None]
    assert (found[2].replicas, found[2].in_sync) == ((1, 2, 3), (1, 2))


def test_a_partition_that_somebody_made_smaller_is_told_as_such() -> None:
    (found,) = short([topic("t", ID, ((1,), (1,)))], [wish("t", topic_id=ID)])
    assert (found.state, found.missing) == ("made smaller", 0)


def test_kinds() -> None:
    topics = [topic(name, topic_id, ((1, 2), (1,))) for name, topic_id in (("c", ID), ("d", SHADOW_ID))]
    assert [one.kind for one in short(topics, [], "d")] == [CLASSIC, DISKLESS]
    assert [one.kind for one in short(topics, [wish("c", topic_id=ID, shadow=True)])] == [DISKLESS, CLASSIC]


def test_topics_that_the_brokers_do_not_know() -> None:
    exact = wish("exact", replication_factor=0, assignment=((1, 2, 3, 4),), topic_id=GONE_ID)
    found = short([], [wish("intent"), exact])
    assert [(one.topic, one.partition, one.wanted, one.state) for one in found] == [
        ("intent", None, 3, BEING_MADE),
        ("exact", None, 4, UNKNOWN),
    ]
