"""The replica that a partition is read from: in the proxy's rack, alive, in sync, not shunned; else the leader.

The order is KIP-392's: the leader if it is near, because no replica is ahead of it; else the most caught-up of the
followers in the ISR. Among equally caught-up ones a hash of client and partition chooses, so that each client keeps its
replica and the clients spread.
"""

from __future__ import annotations

from collections.abc import Container
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from proxy.routing.sticky import sticky_choice
from proxy.wire.partition_states import PartitionState

NOBODY: frozenset[int] = frozenset()


class LeaderReason(StrEnum):
    """Why a partition that might have been read from a near replica was read from its leader."""

    NOT_KNOWN = "not_known"
    """The brokers that have it are not known (yet)."""
    NO_NEAR_REPLICA = "no_near_replica"
    """None of its replicas is in the proxy's rack."""
    NOT_IN_ISR = "not_in_isr"
    """The near replica has fallen behind."""
    NOT_ALIVE = "not_alive"
    """The broker of its near replica is down."""
    SHUNNED = "shunned"
    """Its near replica failed a short while ago."""
    NO_CONNECTION = "no_connection"
    """`fetch.replica_connections_max`, or no file descriptor left."""
    NO_MEMORY = "no_memory"
    """`fetch.replica_answer_bytes_max` is used up."""
    UNREACHABLE = "unreachable"
    """The replica's broker can't be connected to, or closed the connection."""
    TIMED_OUT = "timed_out"
    """The replica did not answer in time."""
    THROTTLED = "throttled"
    """The replica's broker throttles, and for no quota of the client's own; or all connections to it rest for one."""
    OUT_OF_RANGE = "out_of_range"
    """The replica does not have the offset, the leader may."""
    REPLICA_ERROR = "replica_error"
    """The replica answered another error, or something that can't be read."""
    NOT_ALLOWED = "not_allowed"
    """The client's right to read is not known, so its own broker is to decide; or the proxy has none."""
    SWITCHED_OFF = "switched_off"
    """`fetch.read_near_replicas` is off."""
    BY_SETTING = "by_setting"
    """`fetch.leader_read_topics` names the topic."""
    TOO_MANY = "too_many"
    """The Fetch names more partitions than `fetch.near_partitions_max`."""


class Choice(NamedTuple):
    """The broker to read from, or why it is to be the leader: one of the two is None."""

    broker: int | None
    reason: LeaderReason | None


_NO_NEAR_REPLICA = Choice(None, LeaderReason.NO_NEAR_REPLICA)
_NOT_IN_ISR = Choice(None, LeaderReason.NOT_IN_ISR)
_NOT_ALIVE = Choice(None, LeaderReason.NOT_ALIVE)
_SHUNNED = Choice(None, LeaderReason.SHUNNED)


def near_replica(
    state: PartitionState,
    near: frozenset[int],
    shunned: Container[int],
    client: str,
    topic: str,
    partition: int,
    *,
    down: frozenset[int] = NOBODY,
    behind: Container[int] = NOBODY,
) -> Choice:
    """Return the broker to read a partition from.

    `near` are the live brokers of the proxy's rack, `down` its known brokers that are not alive (`NearBrokers.now`
    returns both). `shunned` brokers must not be asked for this partition (`Shunned.of`). A broker that is `behind`
    (`LogEnds.behind`) is chosen only if no other one is left. `client` distinguishes clients (`racks.client_key`):
    equally good brokers are spread over (client, topic, partition).
    """
    found = [node for node in state.isr if node in near]
    if not found:
        return _why_none(state, near, down)
    chosen = [node for node in found if node not in shunned]
    if not chosen:
        return _SHUNNED
    if len(chosen) == 1:
        return _of(chosen[0])
    if state.leader in chosen:
        return _of(state.leader)
    caught_up = [node for node in chosen if node not in behind] or chosen
    return _of(sticky_choice(f"{client}\0{topic}\0{partition}", tuple(sorted(caught_up))))


def equals(state: PartitionState, near: frozenset[int]) -> tuple[int, ...]:
    """Return the near brokers among which only the state of their logs decides; none if there is at most one."""
    found = tuple(node for node in state.isr if node in near)
    return found if len(found) > 1 and state.leader not in found else ()


def _why_none(state: PartitionState, near: frozenset[int], down: frozenset[int]) -> Choice:
    if not near.isdisjoint(state.replicas):
        return _NOT_IN_ISR
    return _NO_NEAR_REPLICA if down.isdisjoint(state.replicas) else _NOT_ALIVE


@lru_cache(maxsize=1024)
def _of(broker: int) -> Choice:
    return Choice(broker, None)
