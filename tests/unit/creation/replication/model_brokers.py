"""Brokers that move replicas on request, a store of wishes, and a proxy that uses both to complete topics."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from proxy.brokers.cluster import ClusterView
from proxy.brokers.states import ClassicTopic
from proxy.brokers.upstream import BrokerUnreachable
from proxy.coordinator.interface_registry import NO_TOPIC_ID
from proxy.creation.replication import completion as module
from proxy.creation.replication.completion import Completion
from proxy.creation.replication.interface import Pending, replicas_digest
from proxy.creation.replication.reassignments import (
    KnownReplicas,
    Reassignment,
    ReassignmentsRefused,
)
from proxy.wire.metadata import Broker
from proxy.wire.partition_states import PartitionState

Partition = tuple[str, int]
LONG_AGO_MS = 1_000
TWO = {1: "a", 2: "b"}
THREE = {**TWO, 3: "c"}
NOW_MS = 1_000_000
SETTLE_S = 20.0


@dataclass
class ModelPartition:
    """Its replicas and the ones in sync; during a move, also the old and the target replicas."""

    replicas: list[int]
    isr: list[int]
    before: list[int] | None = None
    target: list[int] = field(default_factory=list)


class ModelBrokers:
    """The brokers, and their controller. A new replica is in sync after `sync`."""

    def __init__(self, racks: Mapping[int, str | None]) -> None:
        self.racks = dict(racks)
        self.racks_seen: dict[int, str] = {}
        self.hidden: set[str] = set()
        """Topics that the proxy's principal may not describe."""
        self.connections = 0
        self.topics: dict[str, tuple[bytes, dict[int, ModelPartition]]] = {}
        self.asked: list[dict[Partition, tuple[int, ...]]] = []
        """Requests of AlterPartitionReassignments, call by call."""
        self.listed = 0
        self.rights = True
        self.reachable = True
        self.hanging: set[int] = set()
        self.unaware: set[str] = set()
        """Topics that the broker which is asked first does not know."""
        self.refuses: dict[Partition, tuple[int, str]] = {}

    @property
    def cluster(self) -> Any:
        """Return the cluster as completion sees it."""
        brokers = self

        class _Cluster:
            service = "any"

            @property
            def view(self) -> ClusterView:
                brokers.racks_seen |= {node: rack for node, rack in brokers.racks.items() if rack}
                return ClusterView({node: Broker(node, "", 0, rack) for node, rack in brokers.racks.items()})

            @property
            def racks_seen(self) -> dict[int, str]:
                return brokers.racks_seen

            def connection_to(self, node_id: int) -> Any:
                brokers.connections += 1
                return SimpleNamespace(node_id=node_id, close=lambda: None)

        return _Cluster()

    def make(self, name: str, *replicas: Sequence[int], topic_id: bytes | None = None) -> bytes:
        """Create a topic whose partitions have these replicas, all in sync; return its ID."""
        made = topic_id or name.encode().ljust(16, b".")
        self.topics[name] = (
            made,
            {number: ModelPartition(list(nodes), list(nodes)) for number, nodes in enumerate(replicas)},
        )
        return made

    def replicas(self, name: str) -> list[list[int]]:
        return [partition.replicas for _, partition in sorted(self.topics[name][1].items())]

    def partition(self, name: str, number: int = 0) -> ModelPartition:
        return self.topics[name][1][number]

    def move(self, name: str, number: int, target: Sequence[int]) -> None:
        """Begin to."""
        partition = self.partition(name, number)
        partition.before = partition.before or list(partition.replicas)
        partition.target = list(target)
        partition.replicas = [*target, *(node for node in partition.before if node not in target)]
        if set(target) <= set(partition.isr):
            self._end(partition)

    def sync(self) -> None:
        """Let all live replicas catch up."""
        for _, partitions in self.topics.values():
            for partition in partitions.values():
                partition.isr = [node for node in partition.replicas if node in self.racks]
                if partition.before is not None and set(partition.target) <= set(partition.isr):
                    self._end(partition)

    def _end(self, partition: ModelPartition) -> None:
        partition.replicas, partition.before = partition.target, None
        partition.isr = [node for node in partition.isr if node in partition.replicas]

    # Requests of completion

    async def ask_replicas(self, connection: Any, topics: Sequence[str | bytes] | None) -> KnownReplicas:
        if not self.reachable or getattr(connection, "node_id", None) in self.hanging:
            raise BrokerUnreachable("away")
        found, denied, hidden = [], set(), set()
        for asked in topics or ():
            named = [(name, entry) for name, entry in self.topics.items() if asked in (name, entry[0])]
            if not named or (connection == "any" and named[0][0] in self.unaware):
                denied.add(asked)
                continue
            if named[0][0] in self.hidden:
                hidden.add(asked)
                continue
            name, (topic_id, partitions) = named[0]
            found.append(
                ClassicTopic(
                    name,
                    topic_id,
                    {
                        number: PartitionState(one.isr[0] if one.isr else -1, 0, tuple(one.replicas), tuple(one.isr))
                        for number, one in partitions.items()
                    },
                )
            )
        return KnownReplicas(tuple(found), frozenset(denied), frozenset(hidden))

    async def list_reassignments(self, _: Any, partitions: Iterable[Partition]) -> dict[Partition, Reassignment]:
        self.listed += 1
        if not self.rights:
            raise ReassignmentsRefused("no", rights=True)
        return {
            (name, number): Reassignment(tuple(one.replicas), tuple(set(one.target) - set(one.before)))
            for name, number in partitions
            if name in self.topics and (one := self.partition(name, number)).before is not None
        }

    async def reassign(self, _: Any, targets: Mapping[Partition, Sequence[int]]) -> dict[Partition, tuple[int, str]]:
        if not self.rights:
            raise ReassignmentsRefused("no", rights=True)
        self.asked.append({partition: tuple(replicas) for partition, replicas in targets.items()})
        for (name, number), replicas in targets.items():
            if (name, number) not in self.refuses and name in self.topics:
                self.move(name, number, replicas)
        return {partition: error for partition, error in self.refuses.items() if partition in targets}


class MemoryPending:
    """`PendingTopics`, in memory."""

    def __init__(self) -> None:
        self.wishes: dict[str, Pending] = {}

    async def remember(self, wishes: Sequence[Pending]) -> None:
        self.wishes |= {wish.pending_id: wish for wish in wishes}

    async def bind(self, pending: Pending, topic_id: bytes) -> Pending:
        from dataclasses import replace

        bound = replace(pending, topic_id=topic_id)
        self.wishes[pending.pending_id] = bound
        return bound

    async def change(self, was: Pending, to: Pending) -> bool:
        if self.wishes.get(was.pending_id) != was:
            return False
        self.wishes[was.pending_id] = to
        return True

    async def all(self) -> tuple[Pending, ...]:
        return tuple(sorted(self.wishes.values(), key=lambda wish: (wish.since_ms, wish.pending_id)))

    async def forget(self, wishes: Sequence[Pending]) -> None:
        for wish in wishes:
            self.wishes.pop(wish.pending_id, None)


class House:
    """Brokers, store, and a proxy that completes."""

    def __init__(self, monkeypatch: Any, racks: Mapping[int, str | None], **options: Any) -> None:
        self.brokers = ModelBrokers(racks)
        self.store = MemoryPending()
        self.owners: set[str] = set()
        self.now_ms = NOW_MS
        for name in ("ask_replicas", "list_reassignments", "reassign"):
            monkeypatch.setattr(module, name, getattr(self.brokers, name))
        self.completion = self.another(**options)

    def another(self, store: Any = None, *, confirm_s: float = 0.0, partitions_at_once: int = 100) -> Completion:
        """Another proxy."""
        return Completion(
            self.brokers.cluster,
            store or self.store,
            owners=lambda: self.owners,
            now_ms=lambda: self.now_ms,
            confirm_s=confirm_s,
            settle_s=SETTLE_S,
            partitions_at_once=partitions_at_once,
        )

    def wish(
        self,
        name: str,
        wanted: int | Sequence[Sequence[int]],
        *,
        made: int = 2,
        topic_id: bytes = NO_TOPIC_ID,
        since_ms: int = LONG_AGO_MS,
        owner: str = "",
        first_partition: int = 0,
        made_as: Sequence[Sequence[int]] = (),
    ) -> Pending:
        """Remember one; an intent knows its topic by `made_as`."""
        exact = () if isinstance(wanted, int) else tuple(map(tuple, wanted))
        wish = Pending(
            f"{name}/{len(self.store.wishes)}",
            name,
            wanted if isinstance(wanted, int) else 0,
            made,
            since_ms,
            topic_id,
            exact,
            first_partition,
            owner=owner,
            made_as=replicas_digest(made_as),
        )
        self.store.wishes[wish.pending_id] = wish
        return wish

    async def rounds(self, count: int = 1, between: Callable[[], Collection[int] | None] | None = None) -> None:
        for _ in range(count):
            await self.completion.complete()
            if between is not None:
                between()

    @property
    def wished(self) -> list[str]:
        return [wish.name for wish in self.store.wishes.values()]


def come(house: House, *nodes: tuple[int, str | None]) -> None:
    """Add brokers with their racks; the third one by default."""
    house.brokers.racks |= dict(nodes or [(3, "c")])
