"""The leaders of shadows' partitions, from Metadata. Topics are named by ID: a recreated topic is another one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

from proxy.protocol.api_keys import METADATA
from proxy.protocol.errors import NONE
from proxy.wire.metadata import MetadataRequest, MetadataRequestTopic, encode_metadata_request
from proxy.wire.partition_states import VERSION, read_partitions, split_topics
from proxy.wire.primitives import Buffer

Log = tuple[bytes, int]
"""Topic ID and partition."""
Ask = Callable[[int, int, "list[Buffer] | bytes"], Awaitable[memoryview]]
"""`ServiceConnection.ask`."""

_TOPICS_PER_REQUEST = 100


class Leader(NamedTuple):
    """The leader of a shadow's partition."""

    topic: str
    """Name of the topic."""
    node_id: int
    epoch: int


class ShadowLeaders:
    """Knows the leaders that somebody has asked for. `ask` is on a connection to any broker.

    A broker that is cut off from the others answers with old leaders, so a leader is never replaced by one of an
    earlier epoch.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._leaders: dict[Log, Leader] = {}
        self._stale: set[Log] = set()
        self._asking = asyncio.Lock()

    def of(self, log: Log) -> Leader | None:
        """Return the leader of a partition; None if it has none, or if it is not known."""
        leader = self._leaders.get(log)
        return leader if leader is not None and leader.node_id >= 0 else None

    def stale(self, log: Log) -> None:
        """Let the next `know` request the leader again: an answer has shown that it is old."""
        self._stale.add(log)

    async def know(self, logs: Iterable[Log]) -> None:
        """Request the leaders that are unknown or stale. Raises BrokerUnreachable and ProtocolError."""
        logs = list(logs)
        if not self._missing(logs):
            return
        async with self._asking:
            topic_ids = list(dict.fromkeys(topic_id for topic_id, _ in self._missing(logs)))
            for start in range(0, len(topic_ids), _TOPICS_PER_REQUEST):
                await self._request(topic_ids[start : start + _TOPICS_PER_REQUEST])

    def _missing(self, logs: Iterable[Log]) -> list[Log]:
        return [log for log in logs if log in self._stale or self.of(log) is None]

    async def _request(self, topic_ids: list[bytes]) -> None:
        topics = [MetadataRequestTopic(None, topic_id) for topic_id in topic_ids]
        request = encode_metadata_request(MetadataRequest(VERSION, topics, allow_auto_topic_creation=False))
        for topic in split_topics(await self._ask(METADATA, VERSION, request)):
            if topic.error_code != NONE or topic.name is None:
                # Deleted, or not known to that broker yet: the leader is requested again when it is needed.
                self._leaders = {log: leader for log, leader in self._leaders.items() if log[0] != topic.topic_id}
                continue
            for partition, state in read_partitions(topic.encoded).items():
                log = topic.topic_id, partition
                known = self._leaders.get(log)
                if known is None or state.leader_epoch >= known.epoch:
                    self._leaders[log] = Leader(topic.name, state.leader, state.leader_epoch)
                self._stale.discard(log)
