"""The leaders of diskless partitions: the four values of `leader_choice`.

The candidates are the live brokers of the client's rack that may be named to clients. If the rack is unknown, empty or
has none, they are all such brokers. Any of them will do, because any proxy serves any diskless partition. The values
differ in how often a client has to change its connection, and how evenly the brokers' ports are used.

The replicas are the leader and a broker of each other rack: rack-aware assignors (KIP-881) have to see that every
consumer has each diskless partition in its rack. With `round_robin`, which is exactly KAFKA-19257, the leader is the
only replica.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from functools import lru_cache

from proxy.routing.sticky import sticky_choice, sticky_order
from proxy.wire.partition_leaders import HASH_SLOTS, HashedLeaders, Leaders, ReplicaLeaders, SoleLeader

_MAX_REMEMBERED = 10_000


class LeaderChoice:
    """The rule of one proxy, named as the setting."""

    def __init__(self, choice: str) -> None:
        self._choice = choice
        self._turns = Turns()

    def leaders(
        self,
        client: str,
        live: tuple[int, ...],
        in_rack: tuple[int, ...],
        *,
        metadata: bool,
        racks: tuple[str | None, ...] = (),
    ) -> Leaders | None:
        """Return the leaders in one response to `client`; None if no broker lives.

        `live` and `in_rack` are node IDs, ascending, `racks` those of the live ones; `metadata`: whether the response
        is one of Metadata, with which the turn of `round_robin` moves.
        """
        candidates = in_rack or live
        if not candidates:
            return None
        if self._choice == "round_robin":
            turns = self._turns
            return SoleLeader(turns.next(client, candidates) if metadata else turns.last(client, candidates))
        if self._choice == "partition_hash":
            return _hashed(candidates, live, racks)
        if self._choice == "replica":
            return ReplicaLeaders(sticky_order(client, in_rack), sticky_choice(client, candidates))
        leader = sticky_choice(client, candidates)
        return SoleLeader(leader, others_of(leader, live, racks))


class Turns:
    """Round robin over candidates (KAFKA-19257): the turn moves with every response of Metadata.

    The last broker named to a client is cached, so that DescribeTopicPartitions, which moves nothing and may take
    several pages, agrees with that client's last Metadata.
    """

    def __init__(self, max_remembered: int = _MAX_REMEMBERED) -> None:
        self._max_remembered = max_remembered
        self._turns: OrderedDict[tuple[int, ...], int] = OrderedDict()
        self._named: OrderedDict[str, int] = OrderedDict()

    def next(self, client: str, candidates: tuple[int, ...]) -> int:
        """Return the candidate whose turn it is; the turn moves."""
        turn = self._turns.get(candidates, 0)
        self._turns[candidates] = (turn + 1) % len(candidates)
        self._turns.move_to_end(candidates)
        self._named[client] = chosen = candidates[turn]
        self._named.move_to_end(client)
        for remembered in (self._turns, self._named):
            if len(remembered) > self._max_remembered:
                remembered.popitem(last=False)
        return chosen

    def last(self, client: str, candidates: tuple[int, ...]) -> int:
        """Return the broker last named to the client if it is still a candidate, else the one whose turn it is; nothing
        moves."""
        named = self._named.get(client)
        return named if named in candidates else candidates[self._turns.get(candidates, 0)]


@lru_cache(maxsize=1024)
def others_of(leader: int, live: tuple[int, ...], racks: tuple[str | None, ...]) -> tuple[int, ...]:
    """Return a broker of each rack other than the leader's, sorted by rack; each is kept as long as it lives."""
    by_rack: defaultdict[str, list[int]] = defaultdict(list)
    for node, rack in zip(live, racks, strict=False):
        if rack:
            by_rack[rack].append(node)
    return tuple(sticky_choice(rack, tuple(nodes)) for rack, nodes in sorted(by_rack.items()) if leader not in nodes)


@lru_cache(maxsize=256)
def _hashed(candidates: tuple[int, ...], live: tuple[int, ...], racks: tuple[str | None, ...]) -> HashedLeaders:
    """Each slot keeps its candidate as long as that is there, on every proxy."""
    slots = tuple(sticky_choice(f"slot {slot}", candidates) for slot in range(HASH_SLOTS))
    return HashedLeaders(slots, {leader: others_of(leader, live, racks) for leader in candidates})
