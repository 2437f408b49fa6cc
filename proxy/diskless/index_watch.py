"""The size of the coordinator's indexes, and the shards that accept no more rows (`redis.max_index_bytes`).

The coordinator itself rejects commits over the limit. This module looks ahead, so that batches that would be rejected
are not even uploaded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from proxy import config
from proxy.coordinator.interface import Coordinator, CoordinatorUnavailable, IndexSize
from proxy.coordinator.shards import partition_key, shard_of

log = structlog.get_logger()

LOOK_INTERVAL_S = 5.0
FULL_LOOK_INTERVAL_S = 1.0
"""While a shard is full, so that producers soon go on when there is room again."""
FULL_THROTTLE_MS = 1_000
"""Throttle time that producers get with a retriable error; they retry after it."""
FULL_MESSAGE = "the index of this partition's shard has reached redis.max_index_bytes"


class IndexWatch:
    """The sizes as they were looked at last."""

    def __init__(self, coordinator: Coordinator, settings: config.Redis) -> None:
        self.sizes: Sequence[IndexSize] = ()
        """Sizes by shard; empty before the first look."""
        self._coordinator = coordinator
        self._settings = settings
        self._full: frozenset[int] = frozenset()

    def is_full(self, topic_id: bytes, partition: int) -> bool:
        """Return whether a commit to the partition would be rejected for lack of room."""
        return bool(self._full) and shard_of(partition_key(topic_id, partition), self._settings.shards) in self._full

    async def keep_watching(self) -> None:
        """Look, forever."""
        while True:
            try:
                await self.look()
            except CoordinatorUnavailable:
                pass  # the fleet's heartbeats say it in the log
            await asyncio.sleep(FULL_LOOK_INTERVAL_S if self._full else LOOK_INTERVAL_S)

    async def look(self) -> None:
        """Once. Raises CoordinatorUnavailable."""
        self.sizes = await self._coordinator.index_sizes()
        limit = self._settings.max_index_bytes
        full = frozenset(shard for shard, size in enumerate(self.sizes) if 0 < limit <= size.size_bytes)
        for shard in sorted(full - self._full):
            log.error(
                "index_full",
                shard=shard,
                rows=self.sizes[shard].rows,
                index_bytes=self.sizes[shard].size_bytes,
                limit_bytes=limit,
                effect="produces to its diskless partitions are throttled",
                remedy="shorten retention or delete topics, or give the store memory and raise redis.max_index_bytes",
            )
        for shard in sorted(self._full - full):
            log.info("index_has_room", shard=shard, index_bytes=self.sizes[shard].size_bytes, limit_bytes=limit)
        self._full = full
