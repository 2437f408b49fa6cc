"""Pending wishes: topics with fewer replicas than requested, stored until they have all replicas (KIP-409).

A wish is stored before the brokers create its topic. So a proxy that dies at any moment leaves either nothing, or a
wish that another proxy can settle:

1. `remember` with the topic ID `NO_TOPIC_ID`: an intent; the topic may not exist yet (CreatePartitions knows the ID);
2. the topic is created with as many replicas as there are brokers for;
3. `bind` with the topic's ID from the brokers; then the client gets its answer;
4. `forget` when all replicas are in sync, or when the topic does not exist any more.

If the brokers reject the creation, its owner forgets the intent at once. The outcome of an intent that stays is
unknown: its owner died, or got no clear answer.
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

    A wish for a replication factor is about all partitions of the topic, also about partitions that are added meanwhile
    (the brokers give them as many replicas as partition 0 has). A wish for an exact assignment is about some
    partitions. A topic may have several wishes. An exact wish always comes with a wish for a replication factor, and
    takes precedence for the partitions that it names.
    """

    pending_id: str
    """Unique ID, which the owner creates."""
    name: str
    replication_factor: int
    """Number of replicas that each partition is to have; 0 if `assignment` names them."""
    made_replicas: int
    """Number of replicas that each partition is created with."""
    since_ms: int
    """Time when it was stored, in milliseconds since 1970, by the clock of `owner`."""
    topic_id: bytes = NO_TOPIC_ID
    """NO_TOPIC_ID while the wish is an intent only."""
    assignment: tuple[tuple[int, ...], ...] = ()
    """Node IDs of each partition as the client requested them, the preferred leader first; empty if
    `replication_factor` has the number."""
    first_partition: int = 0
    """Number of replicas that `assignment` begins with; the others follow."""
    shadow: bool = False
    """True if the topic is the placeholder (shadow) of a diskless topic."""
    owner: str = ""
    """Proxy that stored the wish, by the name of its record in the fleet."""
    made_as: str = ""
    """`replicas_digest` of an intent's topic, which distinguishes it from another topic of its name."""

    @property
    def is_intent(self) -> bool:
        """True if only the topic's name is known, and the topic may not exist."""
        return self.topic_id == NO_TOPIC_ID

    def wanted(self, partition: int) -> int | tuple[int, ...] | None:
        """Return the number of replicas that a partition is to have, or their node IDs; None if the wish is not about
        it."""
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
        """Store all wishes or none; replace a wish that has the same `pending_id`.

        Raises CoordinatorUnavailable also if too many wishes are stored already.
        """

    async def bind(self, pending: Pending, topic_id: bytes) -> Pending:
        """Store the ID of a topic that exists now; return the wish as stored, even if it was forgotten meanwhile."""

    async def change(self, was: Pending, to: Pending) -> bool:
        """Replace a wish by another one with its `pending_id`; True if it was still there and unchanged."""

    async def all(self) -> tuple[Pending, ...]:
        """Return every wish, the oldest first."""

    async def forget(self, wishes: Sequence[Pending]) -> None:
        """Delete wishes that are fulfilled, or whose topic does not exist any more. Unknown wishes are not an error."""
