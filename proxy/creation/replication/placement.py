"""The placement of a topic's replicas on brokers, by KIP-36's rules; pure computation.

1. Existing replicas stay; a partition gets more replicas, never fewer or others.
2. As many racks as possible: with at least as many racks as replicas, no rack has two of a partition; with fewer, each
   has at least one. That goes before all that follows, so a rack of few brokers has more on each (as in KIP-36).
3. Replicas are spread evenly over the brokers.
4. So are preferred leaders (the first replica of each partition), and the second replicas of those that share one.

Racks count only if every broker has one. (If some have racks and others don't, KIP-36 rejects that for tools, and lets
automatic creation continue without racks, as is done here.)
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

ReplicaList = tuple[int, ...]
"""Node IDs of a partition's replicas, the preferred leader first."""
_Moves = Iterable[tuple[int, int, int]]
"""Partition, from which broker, to which."""


def place(
    existing: Sequence[Sequence[int]],
    replication_factor: int,
    racks: Mapping[int, str | None],
    *,
    start: int = 0,
    down: Mapping[int, str | None] | None = None,
) -> list[ReplicaList]:
    """Return the replicas that each partition is to have, in the order of `existing`, which may hold empty lists.

    `racks` has the racks of the brokers that can take replicas, by node ID; None or empty for a broker without a rack.
    Other brokers keep the replicas that they have. `down` has the racks of those brokers, if they are known; a
    partition with a replica there counts as having one in that rack. If there are too few brokers, partitions get as
    many replicas as possible. Partitions that have enough replicas are returned unchanged. `start` selects the broker
    that comes first if all else is equal, so that topics of one partition are spread too.
    """
    brokers = sorted(racks)
    if not brokers:
        return [tuple(replicas) for replicas in existing]
    turn = start % len(brokers)
    return _Placing(existing, replication_factor, racks, brokers[turn:] + brokers[:turn], down or {}).place()


def rack_aware(racks: Mapping[int, str | None]) -> bool:
    """Whether racks count: every broker has one."""
    return all(racks.values())


class _Placing:
    """One call of `place`."""

    def __init__(
        self,
        existing: Sequence[Sequence[int]],
        replication_factor: int,
        racks: Mapping[int, str | None],
        brokers: Sequence[int],
        down: Mapping[int, str | None],
    ) -> None:
        self._brokers = brokers
        """Brokers in the order in which they come if all else is equal."""
        self._racks: dict[int, str] = {}
        """Rack of each broker; each broker is its own rack if racks don't count."""
        for node in brokers:
            self._racks[node] = (racks[node] or "") if rack_aware(racks) else str(node)
        if rack_aware(racks):
            self._racks |= {node: rack for node, rack in down.items() if rack and node not in racks}
        self._existing = [tuple(replicas) for replicas in existing]
        self._replicas = [list(replicas) for replicas in self._existing]
        self._missing = [max(0, replication_factor - len(replicas)) for replicas in self._existing]
        self._load = dict.fromkeys(brokers, 0)

    def place(self) -> list[ReplicaList]:
        for replicas in self._replicas:
            for node in replicas:
                if node in self._load:
                    self._load[node] += 1
        for replicas, missing in zip(self._replicas, self._missing, strict=True):
            for _ in range(missing):
                self._add(replicas)
        _level(self._load, self._moves, self._move)
        return self._ordered()

    def _add(self, replicas: list[int]) -> None:
        in_racks = self._in_racks(replicas)
        free = [node for node in self._brokers if node not in replicas]
        if free:
            node = min(free, key=lambda one: (in_racks[self._racks[one]], self._load[one]))
            replicas.append(node)
            self._load[node] += 1

    def _in_racks(self, replicas: Iterable[int]) -> Counter[str]:
        return Counter(self._racks[node] for node in replicas if node in self._racks)

    def _moves(self) -> Iterator[tuple[int, int, int]]:
        """Each added replica that may as well be elsewhere: not at the cost of the spread over racks."""
        for partition, replicas in enumerate(self._replicas):
            added = replicas[len(self._existing[partition]) :]
            in_racks = self._in_racks(replicas)
            for source in added:
                rack = self._racks[source]
                for target in self._brokers:
                    as_spread = self._racks[target] == rack or in_racks[self._racks[target]] < in_racks[rack]
                    if target not in replicas and as_spread:
                        yield partition, source, target

    def _move(self, partition: int, source: int, target: int) -> None:
        replicas = self._replicas[partition]
        replicas[replicas.index(source)] = target

    def _ordered(self) -> list[ReplicaList]:
        """Choose again the preferred leader of each partition that changes, and its follower."""
        leads = dict.fromkeys(self._brokers, 0)
        leaders: dict[int, int] = {}
        changed = [
            partition for partition, old in enumerate(self._existing) if len(self._replicas[partition]) > len(old)
        ]
        for partition in set(range(len(self._existing))) - set(changed):
            if self._existing[partition] and self._existing[partition][0] in leads:
                leads[self._existing[partition][0]] += 1
        for partition in changed:
            candidates = [node for node in self._brokers if node in self._replicas[partition]]
            leader = leaders[partition] = min(candidates, key=lambda node: leads[node])
            leads[leader] += 1

        def moves() -> _Moves:
            for partition, leader in leaders.items():
                for node in self._brokers:
                    if node != leader and node in self._replicas[partition]:
                        yield partition, leader, node

        _level(leads, moves, lambda partition, _, target: leaders.__setitem__(partition, target))
        followed: Counter[tuple[int, int]] = Counter()
        ordered = list(self._existing)
        for partition, leader in leaders.items():
            rest = [node for node in self._replicas[partition] if node != leader]
            rest.sort(key=lambda node: followed[leader, node])
            if rest:
                followed[leader, rest[0]] += 1
            ordered[partition] = (leader, *rest)
        return ordered


def _level(load: dict[int, int], moves: Callable[[], _Moves], move: Callable[[int, int, int], None]) -> None:
    """Move load, directly or by way of other brokers, until nobody has two more than one who could have it."""
    while True:
        edges: dict[int, dict[int, int]] = {}
        if max(load.values()) - min(load.values()) < 2:
            return
        for partition, source, target in moves():
            edges.setdefault(source, {}).setdefault(target, partition)
        moved = set[int]()
        while path := _best_path(load, edges):
            for partition, source, target in path:
                move(partition, source, target)
                moved.add(partition)
            load[path[0][1]] -= 1
            load[path[-1][2]] += 1
            # What is known of the other partitions holds on; that of all is costly to find.
            edges = {
                source: {target: partition for target, partition in targets.items() if partition not in moved}
                for source, targets in edges.items()
            }
        if not moved:
            return


def _best_path(load: Mapping[int, int], edges: Mapping[int, Mapping[int, int]]) -> list[tuple[int, int, int]]:
    """From the broker with the most load that has one. Empty where there is none."""
    return next(filter(None, (_path(load, edges, node) for node in sorted(load, key=load.__getitem__)[::-1])), [])


def _path(load: Mapping[int, int], edges: Mapping[int, Mapping[int, int]], start: int) -> list[tuple[int, int, int]]:
    """The shortest chain of moves to a broker with at least two less; no partition twice. Empty where there is none."""
    reached: dict[int, tuple[int, int, int] | None] = {start: None}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        if load[node] <= load[start] - 2:
            path = []
            while (step := reached[node]) is not None:
                path.append(step)
                node = step[1]
            return path[::-1] if len({partition for partition, _, _ in path}) == len(path) else []
        for target, partition in edges.get(node, {}).items():
            if target not in reached:
                reached[target] = partition, node, target
                queue.append(target)
    return []
