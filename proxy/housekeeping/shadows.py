"""Bring diskless topics in line with their shadows, where whoever changed one could not see it through.

A shadow that has more partitions than its topic (a proxy died behind CreatePartitions, or somebody went past the
proxies) makes the topic grow. A deletion that was begun, its shadow being gone, is finished.
"""

from __future__ import annotations

import structlog

from proxy.cluster import METADATA, Cluster
from proxy.coordinator.interface import Coordinator
from proxy.errors import NONE
from proxy.reservations import Reservations
from proxy.topics import Topics
from proxy.wire.metadata import build_metadata_request, metadata_topics

log = structlog.get_logger()

TOPICS_PER_STEP = 500
_METADATA_VERSION = 12


class Shadows:
    """Compares what the registry and the brokers know."""

    def __init__(self, cluster: Cluster, topics: Topics, reservations: Reservations, coordinator: Coordinator) -> None:
        self._cluster = cluster
        self._topics = topics
        self._reservations = reservations
        self._coordinator = coordinator

    async def compare(self) -> None:
        """All topics, once. Raises CoordinatorUnavailable, BrokerUnreachable and ProtocolError; what was done stays."""
        live = {topic.name: topic for topic in self._topics.all() if topic.state == "live"}
        deleting = [topic for topic in self._topics.all() if topic.state == "deleting"]
        names = sorted(live)
        for start in range(0, len(names), TOPICS_PER_STEP):
            asked = build_metadata_request(_METADATA_VERSION, names[start : start + TOPICS_PER_STEP])
            body = await self._cluster.service.ask(METADATA, _METADATA_VERSION, asked)
            for shadow in metadata_topics(body, _METADATA_VERSION):
                topic = live.get(shadow.name or "")
                if topic is None or shadow.error_code != NONE or shadow.topic_id != topic.topic_id:
                    continue
                if shadow.partition_count > topic.partitions:
                    await self._reservations.open(topic.name, topic.topic_id, shadow.partition_count)
                    log.info("diskless_topic_grown", topic=topic.name, partitions=shadow.partition_count)
        for topic in deleting:
            await self._coordinator.delete_logs(topic.topic_id, range(topic.partitions))
            await self._topics.registry.remove(topic.name, topic.topic_id)
            log.info("diskless_topic_deleted", topic=topic.name, reason="whoever began it did not end it")
