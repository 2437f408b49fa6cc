"""The leaders of the journal's partitions, from Metadata."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from proxy.brokers.cluster import Cluster
from proxy.brokers.service import ServiceConnection
from proxy.brokers.upstream import BrokerUnreachable
from proxy.journal.connections import Connections
from proxy.journal.errors import described
from proxy.journal.messages import METADATA_VERSION, Topic, metadata_request
from proxy.protocol.api_keys import METADATA
from proxy.protocol.errors import NONE
from proxy.wire.errors import ProtocolError
from proxy.wire.metadata import metadata_brokers
from proxy.wire.partition_states import read_partitions, split_topics


class Leader(NamedTuple):
    """The leader of a partition."""

    node_id: int
    """-1 if the partition has no leader."""
    epoch: int


class Leaders:
    """Knows the leaders of one topic.

    A broker that is cut off from the others answers with old leaders. So each request goes to another broker, and a
    leader is never replaced by one of an earlier epoch.
    """

    def __init__(self, topic: Topic, cluster: Cluster, connections: Connections) -> None:
        self._topic = topic
        self._cluster = cluster
        self._connections = connections
        self._leaders: dict[int, Leader] = {}
        self._turn = 0
        self._refreshing = asyncio.Lock()
        self.version = 0
        """Number of answers so far."""

    def of(self, partition: int) -> Leader | None:
        """Return the leader of a partition; None if none is known."""
        leader = self._leaders.get(partition)
        return leader if leader is not None and leader.node_id >= 0 else None

    async def refresh(self, seen_version: int) -> None:
        """Request the leaders, unless there was an answer after `seen_version`.

        Raises BrokerUnreachable if no broker answers, or if the topic is unknown.
        """
        async with self._refreshing:
            if self.version != seen_version:
                return
            failures = []
            for connection in self._candidates():
                try:
                    self.take(await connection.ask(METADATA, METADATA_VERSION, metadata_request(self._topic.topic_id)))
                    return
                except (BrokerUnreachable, ProtocolError) as error:
                    failures.append(str(error))
            raise BrokerUnreachable("; ".join(dict.fromkeys(failures)))

    def take(self, body: memoryview) -> None:
        """Learn from an answer. Raises BrokerUnreachable if the topic is unknown, and ProtocolError."""
        for topic in split_topics(body):
            if topic.topic_id != self._topic.topic_id:
                continue
            if topic.error_code != NONE:
                raise BrokerUnreachable(f"the topic {self._topic.name}: {described(topic.error_code)}")
            for partition, state in read_partitions(topic.encoded).items():
                known = self._leaders.get(partition)
                if known is None or state.leader_epoch >= known.epoch:
                    self._leaders[partition] = Leader(state.leader, state.leader_epoch)
        self.version += 1
        self._cluster.learn(metadata_brokers(body, METADATA_VERSION))
        self._connections.keep_only(frozenset(self._cluster.view.brokers))

    def _candidates(self) -> list[ServiceConnection]:
        """Return connections to all live brokers, beginning with the next one's, and one to any address."""
        nodes = sorted(self._cluster.view.brokers, key=self._cluster.distance)
        first = self._turn % len(nodes) if nodes else 0
        self._turn += 1
        in_turn = nodes[first:] + nodes[:first]
        return [*(self._connections.for_reads(node_id) for node_id in in_turn), self._connections.to_any]
