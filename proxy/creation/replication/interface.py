"""What is remembered of topics that have fewer replicas than were asked for, until they have them all (KIP-409).

A wish is written down before the brokers are asked to make what it is about, so that a proxy that dies at any moment
leaves either nothing or a wish that somebody can settle:

1. `remember` with topic ID `NO_TOPIC_ID`: an intent, the topic may not exist yet (CreatePartitions knows the ID);
2. the topic is made with the replicas that can be had;
3. `bind` with the ID that the brokers gave it; then the client is answered;
4. when all its replicas are in sync, or the topic is gone: `forget`.

What the brokers refused is forgotten at once by whoever asked them. An intent that stays is one whose outcome nobody
knows: its owner died, or got no clear answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol

from proxy.coordinator.interface_registry import NO_TOPIC_ID


@dataclass(frozen=True, slots=True)
class Pending:
    """A wish for replicas that a topic does not have yet.

    Either of a replication factor, then it is about all partitions of the topic, also those that are added meanwhile
    (the brokers give them as many replicas as partition 0 has); or of an exact assignment for some partitions. A topic
    may have several: an exact one, which one of a replication factor always comes with, goes before that for the
    partitions that it names.
    """

    pending_id: str
    """Unique; made by who remembers it."""
    name: str
    replication_factor: int
    """Replicas that each partition is to have; 0 where `assignment` says it."""
    made_replicas: int
    """Replicas that each partition was, or is to be, made with."""
    since_ms: int
    """Milliseconds since 1970, when it was remembered, by the clock of `owner`."""
    topic_id: bytes = NO_TOPIC_ID
    """NO_TOPIC_ID while it is an intent only."""
    assignment: tuple[tuple[int, ...], ...] = ()
    """Node IDs in order of preference, the preferred leader first, as the client asked for them; empty where
    `replication_factor` says how many."""
    first_partition: int = 0
    """Number of replicas that `assignment` begins with; the others follow."""
    shadow: bool = False
    """Whether it is the shadow of a diskless topic."""
    owner: str = ""
    """The proxy that remembered it, as its record in the fleet is named."""
    made_as: str = ""
    """`replicas_digest` of an intent's topic, which distinguishes it from another topic of its name."""

    @property
    def is_intent(self) -> bool:
        """Whether the topic is known by its name only, and may not exist."""
        return self.topic_id == NO_TOPIC_ID

    def wanted(self, partition: int) -> int | tuple[int, ...] | None:
        """How many replicas that partition is to have, or exactly which; None where this wish is not about it."""
        if not self.assignment:
            return self.replication_factor
        index = partition - self.first_partition
        return self.assignment[index] if 0 <= index < len(self.assignment) else None


def replicas_digest(partitions: Iterable[Sequence[int]]) -> str:
    """Return a digest that identifies the replicas of a topic's partitions, both in order."""
    return blake2b(repr([tuple(map(int, replicas)) for replicas in partitions]).encode(), digest_size=16).hexdigest()


class PendingTopics(Protocol):
    """The wishes of one Kafka cluster. Every method may raise CoordinatorUnavailable, and may be repeated."""

    async def remember(self, wishes: Sequence[Pending]) -> None:
        """Write down all of them or none; one of the same `pending_id` is replaced.

        Raises CoordinatorUnavailable also where too many are remembered already.
        """

    async def bind(self, pending: Pending, topic_id: bytes) -> Pending:
        """The topic exists, under this ID; the wish as it is remembered now, also where it was forgotten meanwhile."""

    async def change(self, was: Pending, to: Pending) -> bool:
        """Replace one by another of its `pending_id`; whether it was still there, and still the same."""

    async def all(self) -> tuple[Pending, ...]:
        """Every wish, the oldest first."""

    async def forget(self, wishes: Sequence[Pending]) -> None:
        """They are fulfilled, or there is nothing left to wish for. Unknown ones are no error."""
