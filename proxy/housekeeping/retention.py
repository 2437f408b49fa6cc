"""Retention of diskless topics by time and by size: log starts move up, rows before them are freed.

Follows Kafka's `retention.ms` and `retention.bytes`, with the brokers' own defaults for topics that set none; a row of
the index takes the place of a log segment. What is freed becomes garbage (`garbage.py`) when its last row is gone.
"""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from proxy.brokers.broker_defaults import RetentionDefaults
from proxy.coordinator.interface import Coordinator, RetainRequest
from proxy.protocol.cleanup_policy import CLEANUP_POLICY, is_deleted_from
from proxy.topics.topics import Topics

log = structlog.get_logger()

PARTITIONS_PER_STEP = 1_000

UNKNOWN = RetentionDefaults(-1, -1, cleanup_policy="")
"""Defaults until brokers have answered: a topic without its own `cleanup.policy` may be a compacted one."""


class Retention:
    """Applies every live topic's retention."""

    def __init__(self, coordinator: Coordinator, topics: Topics) -> None:
        self._coordinator = coordinator
        self._topics = topics

    async def sweep(self, defaults: RetentionDefaults) -> None:
        """All topics, once. Raises CoordinatorUnavailable; what was done by then stays."""
        requests = [
            request
            for topic in self._topics.all()
            if topic.state == "live"
            for request in requests_of(topic.topic_id, topic.partitions, topic.configs, defaults)
        ]
        for start in range(0, len(requests), PARTITIONS_PER_STEP):
            await self._coordinator.retain(requests[start : start + PARTITIONS_PER_STEP])


def requests_of(
    topic_id: bytes, partitions: int, configs: Mapping[str, str], defaults: RetentionDefaults
) -> list[RetainRequest]:
    """Return the requests to the coordinator for one topic; none if it has no bound, or nothing is to be deleted from
    it."""
    if not is_deleted_from({CLEANUP_POLICY: defaults.cleanup_policy, **configs}):
        return []
    retention_ms = int(configs.get("retention.ms", defaults.retention_ms))
    retention_bytes = int(configs.get("retention.bytes", defaults.retention_bytes))
    if retention_ms < 0 and retention_bytes < 0:
        return []
    by_append_time = configs.get("message.timestamp.type") == "LogAppendTime"
    return [
        RetainRequest(topic_id, partition, retention_ms, retention_bytes, by_append_time)
        for partition in range(partitions)
    ]
