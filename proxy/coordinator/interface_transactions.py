"""The interface of the coordinator for transactions over classic and diskless topics.

Brokers keep the truth of a transaction. When it ends, they write a *marker* into the placeholder topic (the *shadow*)
of each partition that was added to it. A tail reads the shadows and applies the markers here, in their order. So the
coordinator needs two offsets of the shadow's log: up to which one markers were applied, and from which one on a marker
may end a transaction (`markers_from`): the end of the shadow's log after the partition was added to the transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol

NOT_TRANSACTIONAL = 0
"""Transaction version of a batch that belongs to no transaction."""
NO_MARKERS = -1
"""The offset from which on a marker may end the transaction, of a batch of another version than 2."""
NO_EPOCH = -1
"""Leader epoch or coordinator epoch that is not known."""


class EnlistAnswer(IntEnum):
    """The outcome of an enlistment."""

    ENLISTED = 0
    """The producer may append to the partition."""
    WAIT = 1
    """Markers before `markers_from` have not been applied; nothing was done."""
    ENDED = 2
    """A marker of the producer from `markers_from` on was applied: the transaction is over."""
    GONE = 3
    """The log does not exist."""
    FENCED = 4
    """The log knows a higher epoch of the producer."""


class Enlistment(NamedTuple):
    """A partition that was added to a transaction of version 1."""

    topic_id: bytes
    partition: int
    producer_id: int
    producer_epoch: int
    markers_from: int


class Marker(NamedTuple):
    """The end of a transaction in one partition, from a control batch."""

    offset: int
    """Offset in the shadow's log."""
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool
    """False if the transaction was aborted."""
    timestamp_ms: int
    log_append_time: bool = False
    """True if the broker set the timestamp (`message.timestamp.type`)."""


class MarkersRead(NamedTuple):
    """The markers in a part of a shadow's log."""

    topic_id: bytes
    partition: int
    from_offset: int
    """First offset of the part."""
    next_offset: int
    """First offset after it."""
    leader_epoch: int
    """Leader epoch at its end; NO_EPOCH if it is not known."""
    markers: tuple[Marker, ...]


class MarkersApplied(NamedTuple):
    """The answer to `MarkersRead`."""

    error_code: int
    """0; UNKNOWN_TOPIC_OR_PARTITION (3) if the log does not exist."""
    next_offset: int
    """Offset of the next marker to read. It is not the end of the part if other markers were expected."""
    ended: int
    """Number of transactions that the markers have ended."""
    aborted: int = 0
    """Number of them that were aborted."""


class ShadowPosition(NamedTuple):
    """The place in a shadow's log up to which its markers were applied."""

    leader_epoch: int
    """NO_EPOCH if nothing was read yet."""
    next_offset: int


class OpenTransaction(NamedTuple):
    """A transaction that is open in a log."""

    topic_id: bytes
    partition: int
    producer_id: int
    producer_epoch: int
    first_offset: int
    markers_from: int
    """Offset in the shadow's log from which on a marker ends it."""
    since_ms: int
    """Time when it began, or was enlisted again after that, by the store's clock."""


class AbortedTransaction(NamedTuple):
    """An aborted transaction in a log (`AbortedTxn` of brokers)."""

    last_offset: int
    """Offset of its marker."""
    first_offset: int
    producer_id: int
    last_stable_offset: int
    """Last stable offset after its marker: no later entry begins before it."""


class TransactionCoordinator(Protocol):
    """Opens and ends transactions (`Coordinator.transactions`). Every method may raise CoordinatorUnavailable."""

    async def enlist(self, enlistments: Sequence[Enlistment]) -> list[EnlistAnswer]:
        """Let producers of transaction version 1 append; answers in the order of `enlistments`.

        A caller that got WAIT reads `positions` until the markers before `markers_from` are applied. Each call is a
        write. Raises ValueError if a number is out of range.
        """

    async def apply_markers(self, parts: Sequence[MarkersRead]) -> list[MarkersApplied]:
        """Apply markers; answers in the order of `parts`. A part that begins at another offset than the expected one
        does nothing, so the call may be repeated, and two tails may read one shadow.

        A part without markers whose `next_offset` is before its `from_offset` says that the shadow's log was truncated
        there, by an unclean election: markers with the same offsets will come again.

        Raises ValueError if two parts are of one partition, or if a number is out of range.
        """

    async def positions(self, logs: Sequence[tuple[bytes, int]]) -> list[ShadowPosition | None]:
        """Return up to where the markers of these logs (topic ID, partition) were applied; None if a log does not
        exist."""

    async def followed(self, for_ms: int, shards: Sequence[int] | None = None) -> list[tuple[bytes, int]]:
        """Return the logs in which a transaction is open, or was in the last `for_ms`, in any order; of these shards,
        or of all."""

    async def open_transactions(self, shards: Sequence[int] | None = None) -> list[OpenTransaction]:
        """Return the open transactions of these shards, or of all, in any order."""
