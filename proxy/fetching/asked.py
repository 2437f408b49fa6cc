"""The partitions that a Fetch requests."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import TYPE_CHECKING, NamedTuple

from proxy.coordinator.interface_registry import DisklessTopic
from proxy.wire.fetch import FetchRequest, PartitionFetch, TopicFetch
from proxy.wire.steps import Steps, at_once, in_slices

if TYPE_CHECKING:
    from proxy.client.request import Request

Key = tuple[str | bytes, int]
"""A topic as the client names it, and a partition's index."""


class DisklessAsked(NamedTuple):
    """A topic of the request that the proxy answers for."""

    asked: TopicFetch
    entry: DisklessTopic | None
    """Entry in the registry; None if it is unknown whether the topic is diskless."""


class FetchAsked(NamedTuple):
    """A Fetch that the proxy answers."""

    request: Request
    parsed: FetchRequest
    """It names the rack that brokers may redirect to (KIP-392), or none."""
    topics: list[TopicFetch]
    """Its topics, each partition once; they are either of the next two."""
    diskless: list[DisklessAsked]
    classic: list[TopicFetch]


def each_once(topics: list[TopicFetch]) -> list[TopicFetch]:
    """Return each partition once, as brokers do (`FetchRequest.fetchData`): at its first place, with its last
    values."""
    last = {(asked.topic, partition.index): partition for asked in topics for partition in asked.partitions}
    if len(last) == sum(len(asked.partitions) for asked in topics):
        return topics
    return at_once(each_once_in_steps(topics))


def each_once_in_steps(topics: list[TopicFetch]) -> Steps[list[TopicFetch]]:
    """Do `each_once` with pauses."""
    last: dict[Key, PartitionFetch] = {}
    named = 0
    for asked in topics:
        named += len(asked.partitions)
        for some in in_slices(asked.partitions):
            last |= {(asked.topic, partition.index): partition for partition in some}
            yield
    if len(last) == named:
        return topics
    once = []
    for asked in topics:
        partitions = []
        for some in in_slices(asked.partitions):
            for partition in some:
                found = last.pop((asked.topic, partition.index), None)
                if found is not None:
                    partitions.append(found)
            yield
        if partitions:
            once.append(asked._replace(partitions=partitions))
    return once


def keys_of(topics: Iterable[TopicFetch]) -> list[Key]:
    """All partitions."""
    return [(asked.topic, partition.index) for asked in topics for partition in asked.partitions]


def only(topics: Iterable[TopicFetch], keys: Container[Key]) -> list[TopicFetch]:
    """Return those partitions, in the request's order."""
    picked = []
    for asked in topics:
        partitions = [partition for partition in asked.partitions if (asked.topic, partition.index) in keys]
        if len(partitions) == len(asked.partitions):
            picked.append(asked)
        elif partitions:
            picked.append(asked._replace(partitions=partitions))
    return picked
