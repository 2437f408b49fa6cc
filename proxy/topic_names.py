"""Names of topics whose record bytes were counted by topic ID (Produce and Fetch v13, KIP-516).

Beside `proxy.accounting`, which counts for whoever moves records: it serves classic and diskless topics alike. Counting
does not wait for a name: the brokers are asked for it here, in the background, once for each topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from proxy.replicas.knowledge import Replicas
from proxy.stats import UNKNOWN_TOPIC, Stats

_EVERY_S = 1.0
_GIVE_UP_S = 300.0
"""A topic that brokers don't know for so long, or don't let the proxy see, is counted as unknown."""


class TopicNames:
    """Names what `stats` has counted; `now` tells monotonic seconds."""

    def __init__(self, stats: Stats, replicas: Replicas, now: Callable[[], float]) -> None:
        self._stats = stats
        self._replicas = replicas
        self._now = now
        self._tried_since_s: dict[bytes, float] = {}

    async def follow(self) -> None:
        """Look for ever."""
        while True:
            await asyncio.sleep(_EVERY_S)
            if self._stats.unnamed_topics:
                await self.name()

    async def name(self) -> None:
        """Ask for the names that are missing."""
        stats, now_s = self._stats, self._now()
        unnamed = list(stats.unnamed_topics)
        await self._replicas.know(unnamed)
        for topic_id in unnamed:
            topic = self._replicas.topic(topic_id)
            since_s = self._tried_since_s.setdefault(topic_id, now_s)
            if topic is None and self._now() < since_s + _GIVE_UP_S:
                continue
            stats.topic_names[topic_id] = UNKNOWN_TOPIC if topic is None else topic.name
            stats.unnamed_topics.discard(topic_id)
            del self._tried_since_s[topic_id]
