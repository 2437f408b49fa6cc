"""The ends of the logs of shadows, as they are after a partition was added to a transaction.

The client's own broker says who leads, because it is the transaction coordinator: it has written the markers of the
earlier transactions, so it knows the leaders that have them, or later ones. The leader is asked with its epoch, so a
broker that is not the leader any more does not answer with an earlier end (KIP-320). Nor does a leader that does not
know its own high watermark yet (KIP-207).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping

from proxy.brokers.broker_metadata import PARTITIONS_PER_STEP, Partition, list_offsets
from proxy.brokers.cluster import Cluster
from proxy.brokers.service import ServiceConnection
from proxy.client.client import Client
from proxy.client.request import Request
from proxy.coordinator.interface import LATEST_TIMESTAMP
from proxy.protocol.api_keys import METADATA
from proxy.protocol.errors import NONE
from proxy.wire.metadata import build_metadata_request
from proxy.wire.partition_states import VERSION, read_partitions, split_topics

Logs = Mapping[Partition, bytes]
"""Topic IDs of partitions."""
_Leaders = dict[int, dict[Partition, int]]
"""Epochs of the partitions that a broker leads, by node ID."""


class ShadowEnds:
    """Asks for high watermarks at the leaders of shadows."""

    def __init__(self, cluster: Cluster, connect: Callable[[int], ServiceConnection]) -> None:
        """Take `connect`, which returns a connection of the caller's own to a broker."""
        self._cluster = cluster
        self._connect = connect
        self._connections: dict[int, ServiceConnection] = {}

    async def read(self, client: Client, request: Request, logs: Logs) -> dict[Partition, int]:
        """Return the ends of those partitions whose leader has said it; another attempt may have the others.

        Raises BrokerUnreachable and ProtocolError.
        """
        leaders = await self._leaders(client, request, logs)
        answers = await asyncio.gather(*(self._ends(node_id, epochs) for node_id, epochs in leaders.items()))
        return {partition: end for ends in answers for partition, end in ends.items()}

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()

    async def _leaders(self, client: Client, request: Request, logs: Logs) -> _Leaders:
        body = build_metadata_request(VERSION, sorted({name for name, _ in logs}))
        leaders: _Leaders = defaultdict(dict)
        for topic in split_topics(await client.ask(request, METADATA, VERSION, body)):
            if topic.error_code != NONE or topic.name is None:
                continue
            for index, state in read_partitions(topic.encoded).items():
                # A topic of another ID was created under the same name; its log has other offsets.
                if logs.get((topic.name, index)) == topic.topic_id and state.leader >= 0:
                    leaders[state.leader][topic.name, index] = state.leader_epoch
        return leaders

    async def _ends(self, node_id: int, epochs: Mapping[Partition, int]) -> dict[Partition, int]:
        for gone in self._connections.keys() - self._cluster.view.brokers.keys():
            self._connections.pop(gone).close()
        connection = self._connections.get(node_id)
        if connection is None:
            connection = self._connections[node_id] = self._connect(node_id)
        ends: dict[Partition, int] = {}
        partitions = list(epochs)
        for start in range(0, len(partitions), PARTITIONS_PER_STEP):
            some = partitions[start : start + PARTITIONS_PER_STEP]
            ends |= await list_offsets(connection, some, LATEST_TIMESTAMP, leader_epochs=epochs)
        return ends
