"""The topic that a client means: names and IDs that clients send are confirmed by the brokers, in the background.

Anybody can make up names and IDs. Only topics that brokers know take a place in the metrics (`stats.py`), where IDs
need a name, too (Produce and Fetch v13, KIP-516), and in the cache of classic topics (`topics/classic.py`). Neither
waits. The IDs of cached names are read again, too: while the proxy has no lease, a name with another ID is not sure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from proxy.brokers.broker_metadata import Ask, named_topics
from proxy.brokers.upstream import BrokerUnreachable
from proxy.process.turns import Turns
from proxy.process.waiting import wait_at_most
from proxy.protocol.errors import NONE, UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION
from proxy.telemetry.stats import Stats
from proxy.topics.classic import TopicReference
from proxy.topics.topics import Topics
from proxy.wire.errors import ProtocolError
from proxy.wire.metadata import MetadataTopic

_EVERY_S = 1.0
_PAUSE_S = 0.1
_GIVE_UP_S = 10.0
"""Brokers hear of a new topic one after the other: what they don't know for so long is no topic, or hidden."""
_TOPICS_PER_STEP = 100
_CONFIRMED_AT_A_TIME = 1_000
_READ_AGAIN_AT_A_TIME = 100
"""Cached names whose IDs are read again in each round; while the proxy has no lease, all that are in use."""
_MISSING = (UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, 17)
"""17 is INVALID_TOPIC_EXCEPTION: a name that no topic can have."""


class TopicNames:
    """Confirms the topics that `stats` has counted and `topics` has seen; `now` returns monotonic seconds."""

    def __init__(self, stats: Stats, topics: Topics, ask: Ask, now: Callable[[], float], turns: Turns) -> None:
        self._stats = stats
        self._topics = topics
        self._ask = ask
        self._turns = turns
        self._now = now
        self._missing_since_s: dict[TopicReference, float] = {}

    async def follow(self) -> None:
        """Confirm topics regularly, forever."""
        stale = self._topics.classic.stale
        while True:
            await wait_at_most(stale, _EVERY_S)
            stale.clear()
            await self.confirm()
            await asyncio.sleep(_PAUSE_S)

    async def confirm(self) -> None:
        """Ask for what is not confirmed; what the brokers don't answer now is asked again. Never raises."""
        classic, is_current = self._topics.classic, self._topics.is_current
        seen = classic.unconfirmed(_CONFIRMED_AT_A_TIME) if is_current else []
        due = classic.due(_READ_AGAIN_AT_A_TIME, is_current=is_current)
        references = list(dict.fromkeys((*due, *self._stats.unsettled_bytes, *seen)))
        for by_name in (True, False):
            kind = [one for one in references if isinstance(one, str) is by_name]
            for start in range(0, len(kind), _TOPICS_PER_STEP):
                asked_s = classic.now()
                try:
                    self._take(await self._found(kind[start : start + _TOPICS_PER_STEP]), asked_s)
                except (BrokerUnreachable, ProtocolError):
                    return
        self._missing_since_s = {
            topic: since_s for topic, since_s in self._missing_since_s.items() if topic in self._stats.unsettled_bytes
        }

    async def _found(self, references: Sequence[TopicReference]) -> dict[TopicReference, MetadataTopic]:
        """Return what the brokers know of each. Raises BrokerUnreachable and ProtocolError."""
        by_name = isinstance(references[0], str)
        answered = await named_topics(self._ask, references, self._turns)
        found = {one.name if by_name else one.topic_id: one for one in answered}
        return {one: found[one] for one in references if one in found}

    def _take(self, found: dict[TopicReference, MetadataTopic], asked_s: float) -> None:
        is_current = self._topics.is_current
        for topic, (error_code, name, topic_id, *_) in found.items():
            exists = error_code == NONE and name is not None
            self._topics.classic.confirm(topic, topic_id if exists else None, asked_s=asked_s, is_current=is_current)
            if topic not in self._stats.unsettled_bytes:
                continue
            if exists:
                self._stats.settle(topic, name)
            elif isinstance(topic, str) and error_code not in _MISSING:
                self._stats.settle(topic, topic)  # hidden from the proxy: nobody here can say
            elif self._now() - self._missing_since_s.setdefault(topic, self._now()) >= _GIVE_UP_S:
                self._stats.settle(topic, None)
