"""How far the wishes of one topic are fulfilled, and what is to be done next; pure computation.

A partition with fewer replicas than it was made with was made smaller by somebody, on purpose: what was wished for it
does not hold any more. One that has as many as wished for has what it needs, also where somebody has chosen them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple
from zlib import crc32

from proxy.brokers.states import ClassicTopic
from proxy.creation.replication.interface import Pending, replicas_digest
from proxy.creation.replication.placement import ReplicaList, place
from proxy.wire.partition_states import PartitionState


class Progress(StrEnum):
    """The progress of one partition."""

    COMPLETE = "complete"
    """It has all replicas, all in sync."""
    SYNCING = "syncing"
    """It has all replicas, not all in sync."""
    WAITING = "waiting"
    """It has fewer than it should."""
    LOWERED = "lowered"
    """It has fewer than it was made with."""


class PartitionWish(NamedTuple):
    """One partition that somebody has wished more replicas for."""

    wanted: int
    """How many it is to have."""
    exact: ReplicaList | None
    """Replicas in order of preference, if they were named."""
    known: PartitionState
    progress: Progress

    @property
    def missing(self) -> int:
        """How many replicas it lacks, or lacks in sync."""
        if self.progress in (Progress.COMPLETE, Progress.LOWERED):
            return 0
        has = len(self.known.isr) if self.progress is Progress.SYNCING else len(self.known.replicas)
        return max(self.wanted - has, 1)


def partition_wishes(topic: ClassicTopic, wishes: Sequence[Pending]) -> dict[int, PartitionWish]:
    """The partitions of a topic that its wishes are about: an exact one goes before a replication factor.

    Of several factors the highest counts, and of several wishes for the same the newest.
    """
    found = {}
    for number, known in sorted(topic.partitions.items()):
        assignments = [wish for wish in wishes if wish.assignment and wish.wanted(number) is not None]
        exact = max(assignments, key=lambda wish: wish.since_ms, default=None)
        factors = [wish for wish in wishes if not wish.assignment]
        chosen = exact or max(factors, key=lambda wish: (wish.replication_factor, wish.since_ms), default=None)
        wanted = chosen.wanted(number) if chosen is not None else None
        if chosen is None or wanted is None:
            continue
        replicas = wanted if isinstance(wanted, tuple) else None
        count = len(wanted) if isinstance(wanted, tuple) else wanted
        found[number] = PartitionWish(count, replicas, known, _progress(known, count, chosen.made_replicas))
    return found


def _progress(known: PartitionState, wanted: int, made: int) -> Progress:
    if len(known.replicas) >= wanted:
        return Progress.COMPLETE if set(known.replicas) <= set(known.isr) else Progress.SYNCING
    return Progress.LOWERED if len(known.replicas) < made else Progress.WAITING


def can_grow(wish: PartitionWish, live: Collection[int]) -> bool:
    """Whether `targets` has more replicas for it, cheaply. `live`: node IDs of the live brokers."""
    if wish.progress is not Progress.WAITING:
        return False
    has = wish.known.replicas
    if wish.exact is not None:
        return any(node in live and node not in has for node in wish.exact)
    return any(node not in has for node in live)


def targets(
    topic: ClassicTopic,
    wishes: Mapping[int, PartitionWish],
    racks: Mapping[int, str | None],
    *,
    down: Mapping[int, str | None] | None = None,
) -> dict[int, ReplicaList]:
    """The replicas that partitions can be given now, by number; without those that can't be given any more than before.

    `racks`: of the live brokers, by node ID; `down`: of others. Takes a second for thousands of partitions.
    """
    smaller = {number for number, wish in wishes.items() if wish.progress is Progress.LOWERED}
    counted = [number for number in sorted(topic.partitions) if number not in smaller]
    exact = {
        number: _towards(wish.exact, wish.known.replicas, racks)
        for number, wish in wishes.items()
        if wish.exact is not None
    }
    # Together with the partitions whose replicas are settled, so that all of the topic are spread evenly.
    existing = [exact.get(number, topic.partitions[number].replicas) for number in counted]
    start = crc32(topic.topic_id)
    placed = {
        factor: dict(zip(counted, place(existing, factor, racks, start=start, down=down), strict=True))
        for factor in {wish.wanted for wish in wishes.values() if wish.exact is None}
    }
    found = {
        number: exact[number] if number in exact else placed[wish.wanted][number]
        for number, wish in wishes.items()
        if number not in smaller
    }
    return {
        number: replicas
        for number, replicas in sorted(found.items())
        if wishes[number].progress is Progress.WAITING and len(replicas) > len(wishes[number].known.replicas)
    }


def _towards(exact: ReplicaList, has: ReplicaList, live: Collection[int]) -> ReplicaList:
    """Return the existing replicas, and the wished ones that are live, in the wished order; no more than wished."""
    if set(has) <= set(exact):
        return tuple(node for node in exact if node in has or node in live)
    # Somebody has chosen others: they stay, and as many of the wished ones come as there is room for.
    more = [node for node in exact if node not in has and node in live]
    return (*has, *more[: max(len(exact) - len(has), 0)])


def is_made_by(wish: Pending, topic: ClassicTopic) -> bool:
    """Whether a topic of the name of an intent is just as the intent's owner would have made it."""
    return wish.made_as == replicas_digest(known.replicas for _, known in sorted(topic.partitions.items()))
