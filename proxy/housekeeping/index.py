"""Keep the coordinator's index small: rows of batch coordinates that have grown old are packed.

Young rows are left as they are: they are asked for most, and many of them go soon where retention is short.
"""

from __future__ import annotations

from proxy.coordinator.interface import Coordinator
from proxy.topics.topics import Topics

PARTITIONS_PER_STEP = 1_000


class IndexPacker:
    """Packs the rows of all live topics that were appended at least `age_ms` ago."""

    def __init__(self, coordinator: Coordinator, topics: Topics, *, age_ms: int) -> None:
        self._coordinator = coordinator
        self._topics = topics
        self._age_ms = age_ms

    async def sweep(self) -> None:
        """All topics, once. Raises CoordinatorUnavailable; what was done by then stays."""
        logs = self._topics.live_logs()
        for start in range(0, len(logs), PARTITIONS_PER_STEP):
            await self._coordinator.pack_rows(logs[start : start + PARTITIONS_PER_STEP], self._age_ms)
