"""Compare how far the near replicas of a partition are, so that clients read from the most caught-up one (KIP-392).

A replica that lags stays in the ISR for up to `replica.lag.time.max.ms` (30 s), and its readers lag with it. So near
brokers are asked for the ends of their logs, but only for partitions with several readable near replicas of which none
is the leader.

Ends of growing logs are never equal, because they are not read at the same moment. A replica is *behind* if it has not
yet reached the farthest end that any of them had at the previous check. All others are equally caught up.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping

import structlog

from proxy.brokers.broker_metadata import ANY_REPLICA, PARTITIONS_PER_STEP, Partition, list_offsets
from proxy.brokers.service import ServiceConnection
from proxy.brokers.states import ClassicTopic
from proxy.brokers.upstream import BrokerUnreachable
from proxy.coordinator.interface import LATEST_TIMESTAMP
from proxy.replicas.choice import NOBODY, equals
from proxy.replicas.near import NearBrokers
from proxy.telemetry.outage import Outage
from proxy.wire.errors import ProtocolError

log = structlog.get_logger()

_Ends = dict[Partition, int]


class LogEnds:
    """Looks at the log ends of watched partitions, again and again."""

    def __init__(
        self,
        connect: Callable[[int], ServiceConnection],
        topic: Callable[[str], ClassicTopic | None],
        near: NearBrokers,
        *,
        interval_s: float,
        max_partitions: int,
    ) -> None:
        """Take `connect`, which connects to a broker, and `topic`, which returns a topic in use, None when nobody reads
        it."""
        self.version = 0
        """Changes whenever the answer of `behind` changes for any partition."""
        self.interval_s = interval_s
        self._connect = connect
        self._topic = topic
        self._near = near
        self.max_partitions = max_partitions
        self._farthest: dict[Partition, int] = {}
        """Watched partitions, with the farthest end at the look before; -1 before the first look."""
        self._behind: dict[Partition, frozenset[int]] = {}
        self._connections: dict[int, ServiceConnection] = {}
        self._outage = Outage()

    def __len__(self) -> int:
        """Return the number of watched partitions."""
        return len(self._farthest)

    def behind(self, topic: str, partition: int) -> frozenset[int]:
        """Return the brokers whose replica is behind another near one; none if the partition is not watched."""
        return self._behind.get((topic, partition), NOBODY)

    def watch(self, topic: str, partition: int) -> None:
        """Compare the near replicas of a partition from the next look on, unless too many partitions are watched."""
        if len(self._farthest) < self.max_partitions:
            self._farthest.setdefault((topic, partition), -1)

    async def follow(self) -> None:
        """Look forever. Cancelled, the connections are closed."""
        try:
            while True:
                await asyncio.sleep(self.interval_s)
                if self._farthest:
                    await self.look()
        finally:
            for connection in self._connections.values():
                connection.close()

    async def look(self) -> None:
        """Ask each near broker once. A broker that does not answer keeps its state."""
        asked = self._watched()
        for broker in self._connections.keys() - asked.keys():
            self._connections.pop(broker).close()
        for broker in asked.keys() - self._connections.keys():
            self._connections[broker] = self._connect(broker)
        answers = await asyncio.gather(*(self._ends(broker, partitions) for broker, partitions in asked.items()))
        self._compare(dict(zip(asked, answers, strict=True)))

    def _watched(self) -> dict[int, list[Partition]]:
        """Return the watched partitions of each broker. Forget those that have no equal near replicas any more."""
        found: defaultdict[int, list[Partition]] = defaultdict(list)
        near = self._near.now().live
        for partition in list(self._farthest):
            topic = self._topic(partition[0])
            state = None if topic is None else topic.partitions.get(partition[1])
            candidates = () if state is None else equals(state, near)
            if not candidates:
                del self._farthest[partition]
                if self._behind.pop(partition, None):
                    self.version += 1
            for broker in candidates:
                found[broker].append(partition)
        return found

    async def _ends(self, broker: int, partitions: list[Partition]) -> _Ends:
        """Return the ends that the broker answers; none after a failure, which is logged once until it ends."""
        ends: _Ends = {}
        try:
            for start in range(0, len(partitions), PARTITIONS_PER_STEP):
                some = partitions[start : start + PARTITIONS_PER_STEP]
                ends |= await list_offsets(self._connections[broker], some, LATEST_TIMESTAMP, replica_id=ANY_REPLICA)
        except (BrokerUnreachable, ProtocolError) as error:
            if self._outage.begins(broker):
                log.warning(
                    "log_ends_unknown",
                    broker=broker,
                    reason=str(error),
                    effect="clients may read from a replica that lags behind another one of the rack",
                    remedy="check that the broker can be reached",
                )
            return ends
        self._outage.ends(broker)
        return ends

    def _compare(self, answers: Mapping[int, _Ends]) -> None:
        by_partition: defaultdict[Partition, dict[int, int]] = defaultdict(dict)
        for broker, ends in answers.items():
            for partition, end in ends.items():
                by_partition[partition][broker] = end
        for partition, by_broker in by_partition.items():
            farthest = max(by_broker.values())
            # A log that was truncated, or recreated, is shorter than before.
            wanted = min(self._farthest[partition], farthest)
            old = self._behind.get(partition, NOBODY)
            behind = frozenset(broker for broker, end in by_broker.items() if end < wanted) | (old - by_broker.keys())
            self._farthest[partition] = farthest
            if behind != old:
                self._behind[partition] = behind
                self.version += 1
