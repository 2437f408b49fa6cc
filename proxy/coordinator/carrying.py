"""Carriers of calls to the shards' scripts: one with a guard, one by a journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from proxy.coordinator import packing_state
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.packing_state import ShardState

READING = frozenset(
    {
        "find",
        "list_offsets",
        "describe",
        "use",
        "segment_use",
        "garbage",
        "tombstoned",
        "producers",
        "compacted",
        "index_page",
        "used_segments",
        "shadow_positions",
        "followed",
        "open_transactions",
    },
)
"""Scripts that write nothing."""
LOOKING = frozenset({"state", "index_size", "unfence"})
"""Scripts that run on a fenced shard, too."""
FOREIGN = "redis.url leads to the store of another deployment by now; fix it, or see `diskless-proxy coordinator check`"


class Refused(Enum):
    """Why a shard did nothing, for certain."""

    FENCED = auto()
    LATE = auto()
    SETTLING = auto()
    """Only `touch` gets this; other calls wait."""
    JOURNAL = auto()
    """The journal took no record of the call."""
    FULL = auto()
    """The shard's indexes take `redis.max_index_bytes`, and the call would add to them."""
    LIVES = auto()
    """The store wants the lives that led to what is known; the guarded carrier sends them."""


@dataclass(slots=True)
class StoreTrust:
    """Findings of the guard about the store; carriers obey them."""

    unfit: str | None = None
    """Why nothing may be written at the moment."""
    closed: str | None = None
    """Why nothing may be read either: the store is another deployment's, or of a layout that nobody here knows."""
    command_rejected: bool = False
    """Whether the store has rejected a command of a script since the store's commands were tried."""
    identity: bytes = packing_state.NO_IDENTITY
    """Identity of the store that all calls are about."""


CarriedReply = bytes | Refused | CoordinatorUnavailable


class Carrier(Protocol):
    """Runs scripts on shards."""

    bytes_sent: int
    """Payload of calls so far."""
    bytes_received: int
    """Payload of their replies."""

    async def carry(
        self,
        name: str,
        calls: Sequence[tuple[int, tuple[bytes, ...]]],
        not_after_ms: int,
        known: Mapping[int, ShardState] | None,
    ) -> list[CarriedReply]:
        """Run a script with arguments on shards; return replies in the order of `calls`, failures among them."""

    def heard(self, shard: int, message: bytes) -> None:
        """Take note of an announcement of a shard."""

    def why_refused(self, shard: int) -> str:
        """Return why a shard refuses calls; empty if it does not."""


def check_trust(trust: StoreTrust, name: str) -> None:
    """Raise CoordinatorUnavailable if the store must not run this script now."""
    if trust.closed is not None and name not in LOOKING:
        raise CoordinatorUnavailable(trust.closed)
    if trust.unfit is not None and name not in READING | LOOKING | {"touch"}:
        raise CoordinatorUnavailable(f"the coordinator's store can't be trusted with writes: {trust.unfit}")
