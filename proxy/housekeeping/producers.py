"""Forget idempotent producers that have expired, every `producer.id.expiration.check.interval.ms` as brokers do.

Commits ignore a producer that has expired, and leave its removal to this.
"""

from __future__ import annotations

import structlog

from proxy.coordinator.interface import Coordinator
from proxy.topics.topics import Topics

log = structlog.get_logger()

PARTITIONS_PER_STEP = 1_000


class ProducerExpiry:
    """Forgets the expired producers of all live topics."""

    def __init__(self, coordinator: Coordinator, topics: Topics) -> None:
        self._coordinator = coordinator
        self._topics = topics

    async def sweep(self) -> int:
        """All topics, once; of how many producers. Raises CoordinatorUnavailable; what was done by then stays."""
        logs = self._topics.live_logs()
        forgotten = 0
        for start in range(0, len(logs), PARTITIONS_PER_STEP):
            forgotten += await self._coordinator.forget_producers(logs[start : start + PARTITIONS_PER_STEP])
        if forgotten:
            log.debug("producers_expired", count=forgotten)
        return forgotten
