"""The ends of the logs of shadows, as they are after a partition was added to a transaction.

The transaction coordinator says who leads: it has written the markers of the earlier transactions, so it knows the
leaders that have them, or later ones. The leader is asked with its epoch, so a broker that is not the leader any more
does not answer with an earlier end (KIP-320). Nor does a leader that does not know its own high watermark yet
(KIP-207).

The leader of last time is asked at the same time as the coordinator. Its answer counts if the coordinator names it, in
the same epoch: both were asked after the partition was added.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import NamedTuple

import structlog

from proxy.brokers.broker_metadata import PARTITIONS_PER_STEP, Ask, Partition, list_offsets
from proxy.brokers.cluster import Cluster
from proxy.brokers.service import ServiceConnection
from proxy.brokers.upstream import BrokerUnreachable
from proxy.coordinator.interface import LATEST_TIMESTAMP
from proxy.process.newest import Newest
from proxy.protocol.api_keys import METADATA
from proxy.protocol.errors import NONE
from proxy.wire.errors import ProtocolError
from proxy.wire.metadata import build_metadata_request
from proxy.wire.partition_states import VERSION, read_partitions, split_topics

log = structlog.get_logger()

Logs = Mapping[Partition, bytes]
"""Topic IDs of partitions."""
_FIRST_PAUSE_S = 0.005
_LONGEST_PAUSE_S = 0.1
_MAX_KNOWN = 100_000


class _Leader(NamedTuple):
    node_id: int
    epoch: int


_Leaders = dict[Partition, _Leader]


class ShadowEnds:
    """Asks for high watermarks at the leaders of shadows."""

    def __init__(self, cluster: Cluster, connect: Callable[[int], ServiceConnection]) -> None:
        """Take `connect`, which returns a connection of the caller's own to a broker."""
        self._cluster = cluster
        self._connect = connect
        self._connections: dict[int, ServiceConnection] = {}
        self._known: Newest[tuple[bytes, int], _Leader] = Newest(_MAX_KNOWN)
        """Leaders as the coordinator named them last, by topic ID and partition."""

    async def read(self, ask: Ask, logs: Logs, ends: dict[Partition, int]) -> None:
        """Read the ends of all partitions into `ends`; asks until each leader has said it. `ask` asks the transaction
        coordinator.

        Raises BrokerUnreachable and ProtocolError, if that one does not answer.
        """
        pause_s = _FIRST_PAUSE_S
        while True:
            left = {partition: topic_id for partition, topic_id in logs.items() if partition not in ends}
            known = self._known_leaders(left)
            early: dict[Partition, int] = {}
            leaders: _Leaders = {}
            asking = asyncio.ensure_future(self._read_all(known, early))
            try:
                leaders = await self._leaders(ask, left)
                if known.items() <= leaders.items():
                    await asking
            finally:
                asking.cancel()  # one of the known leaders may hang; what the others have said counts
                ends.update((one, end) for one, end in early.items() if known[one] == leaders.get(one))
            await self._read_all({one: leader for one, leader in leaders.items() if one not in ends}, ends)
            if logs.keys() <= ends.keys():
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()

    def _known_leaders(self, logs: Logs) -> _Leaders:
        return {
            partition: leader
            for partition, topic_id in logs.items()
            if (leader := self._known.get((topic_id, partition[1]))) is not None
        }

    async def _leaders(self, ask: Ask, logs: Logs) -> _Leaders:
        body = build_metadata_request(VERSION, sorted({name for name, _ in logs}))
        leaders: _Leaders = {}
        for topic in split_topics(await ask(METADATA, VERSION, body)):
            if topic.error_code != NONE or topic.name is None:
                continue
            for index, state in read_partitions(topic.encoded).items():
                # A topic of another ID was created under the same name; its log has other offsets.
                if logs.get((topic.name, index)) == topic.topic_id and state.leader >= 0:
                    leader = leaders[topic.name, index] = _Leader(state.leader, state.leader_epoch)
                    self._known.note((topic.topic_id, index), leader)
        return leaders

    async def _read_all(self, leaders: _Leaders, ends: dict[Partition, int]) -> None:
        """Read the ends at these leaders, each as soon as it answers."""
        epochs: defaultdict[int, dict[Partition, int]] = defaultdict(dict)
        for partition, leader in leaders.items():
            epochs[leader.node_id][partition] = leader.epoch
        await asyncio.gather(*(self._read_at(node_id, some, ends) for node_id, some in epochs.items()))

    async def _read_at(self, node_id: int, epochs: Mapping[Partition, int], ends: dict[Partition, int]) -> None:
        """Read the ends at one leader. If it does not answer, another one may lead soon."""
        for gone in self._connections.keys() - self._cluster.view.brokers.keys():
            self._connections.pop(gone).close()
        connection = self._connections.get(node_id)
        if connection is None:
            connection = self._connections[node_id] = self._connect(node_id)
        partitions = list(epochs)
        for start in range(0, len(partitions), PARTITIONS_PER_STEP):
            some = partitions[start : start + PARTITIONS_PER_STEP]
            try:
                ends.update(await list_offsets(connection, some, LATEST_TIMESTAMP, leader_epochs=epochs))
            except (BrokerUnreachable, ProtocolError) as error:
                log.debug("end_not_read", broker=node_id, reason=str(error))
                return
