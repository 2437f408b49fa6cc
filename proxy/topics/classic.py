"""The topics that were seen to be classic, for the time in which this proxy has no lease.

While the lease runs, a name that is not in the copy of the registry is classic. Afterwards other proxies may delete a
classic topic and recreate it as a diskless one, and this proxy does not hear of that. A topic ID never becomes another
topic's. So an ID that was seen counts as long as it is cached. A name counts while the brokers have that ID for it
which they had while the lease ran, and only for a limited time after they were last asked. Topics that clients use
without having been seen are wanted: the journal may prove that they are classic (`classic_proof.py`).
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from collections.abc import Callable

TopicReference = str | bytes
"""A name, or a 16-byte topic ID."""

_MAX_SEEN_CLASSIC = 100_000
_MAX_UNCONFIRMED = 10_000
_LONGEST_NAME = 249
_ASKED_PER_AGE = 4
"""The brokers are asked this many times while their answer counts."""
_NEVER = float("-inf")


class ClassicTopics:
    """Caches topics that brokers know, and that clients have used while they were classic."""

    def __init__(self, now: Callable[[], float], *, max_age_s: float) -> None:
        """`now`: monotonic seconds; `max_age_s`: how long a name counts after the lease or the brokers' last answer."""
        self.now = now
        self._max_age_s = max_age_s
        self._seen: OrderedDict[TopicReference, bytes] = OrderedDict()
        """Topics that brokers know, with their IDs."""
        self._unconfirmed: OrderedDict[TopicReference, bool] = OrderedDict()
        """The same of names and IDs that clients have sent and brokers have not confirmed; whether they were asked.
        Anybody can make up any number of them: they have a room of their own, and drive out no real topic."""
        self._noted_s = _NEVER
        """Last time at which the lease is known to have run."""
        self._confirmed_s: dict[str, float] = {}
        """Times at which the brokers still had the ID of a name, since the lease ended."""
        self._in_use: dict[str, None] = {}
        """Names that were used since the lease ended."""
        self._wanted: OrderedDict[TopicReference, None] = OrderedDict()
        """Topics that clients have used since the lease ended, and that nothing is known of."""
        self.stale = asyncio.Event()
        """Set when a name was used whose ID the brokers are to be asked for at once."""
        self.unknown = asyncio.Event()
        """Set when a topic was used that nothing is known of."""
        self._round: list[str] = []
        """Names whose IDs this round has not read again yet."""

    def note(self, topic: TopicReference) -> None:
        """Cache a topic as classic (LRU), while the lease runs. Names longer than Kafka allows are ignored."""
        now, seen = self.now, self._seen
        self._noted_s = now()
        if topic in seen:
            seen.move_to_end(topic)
            return
        if isinstance(topic, str) and len(topic) > _LONGEST_NAME:
            return
        self._unconfirmed.setdefault(topic, False)
        self._unconfirmed.move_to_end(topic)
        if len(self._unconfirmed) > _MAX_UNCONFIRMED:
            self._unconfirmed.popitem(last=False)

    def forget(self, topic: TopicReference) -> None:
        """Drop a topic that is diskless."""
        self._seen.pop(topic, None)
        self._unconfirmed.pop(topic, None)

    def was_noted(self, topic: TopicReference) -> bool:
        """Return whether a name or ID is cached, confirmed or not."""
        return topic in self._seen or topic in self._unconfirmed

    def holds(self, topic: TopicReference) -> bool:
        """Return whether a topic still counts as classic although the lease does not run."""
        if isinstance(topic, bytes) and self.was_noted(topic):
            return True
        if topic not in self._seen or isinstance(topic, bytes):
            self._want(topic)
            return False
        self._in_use[topic] = None
        if self.now() - max(self._noted_s, self._confirmed_s.get(topic, _NEVER)) <= self._max_age_s:
            return True
        self.stale.set()
        return False

    def _want(self, topic: TopicReference) -> None:
        if isinstance(topic, str) and len(topic) > _LONGEST_NAME:
            return
        self._wanted[topic] = None
        if len(self._wanted) > _MAX_UNCONFIRMED:
            self._wanted.popitem(last=False)
        self.unknown.set()

    def wanted(self, count: int) -> list[TopicReference]:
        """Take up to `count` topics that clients have used since the lease ended, and that nothing is known of."""
        return [self._wanted.popitem(last=False)[0] for _ in range(min(count, len(self._wanted)))]

    def prove(self, topic: TopicReference, topic_id: bytes, *, asked_s: float) -> None:
        """Cache a topic that is proved to be classic; `asked_s`: when the brokers had that ID for it, or later."""
        self._see(topic, topic_id)
        if isinstance(topic, str):
            self._confirmed_s[topic] = asked_s

    def id_of(self, name: str) -> bytes | None:
        """Return the ID that the brokers had for a name while the lease ran; None if it is not known."""
        return self._seen.get(name)

    def unconfirmed(self, count: int) -> list[TopicReference]:
        """Return up to `count` names and IDs, at random, that no broker has been asked about yet."""
        unasked = [topic for topic, asked in self._unconfirmed.items() if not asked]
        return random.sample(unasked, min(count, len(unasked)))

    def due(self, count: int, *, is_current: bool) -> list[str]:
        """Return names whose IDs are to be read again: `count` of all in turn, or all in use if the lease is out."""
        if not is_current:
            fresh_s = self.now() - self._max_age_s / _ASKED_PER_AGE
            return [name for name in self._in_use if self._confirmed_s.get(name, _NEVER) < fresh_s]
        self._noted_s = self.now()
        self._in_use.clear()
        self._wanted.clear()
        self._confirmed_s.clear()
        if not self._round:
            self._round = [topic for topic in self._seen if isinstance(topic, str)]
        some, self._round = self._round[-count:], self._round[:-count]
        return some

    def confirm(self, topic: TopicReference, topic_id: bytes | None, *, asked_s: float, is_current: bool) -> None:
        """Take the brokers' answer: the topic's ID, or None if they do not know it or do not show it to the proxy.

        An ID that they have while the lease does not run may be that of a diskless topic's placeholder topic.
        """
        known = self._seen.get(topic)
        if not is_current:
            if known is not None and topic_id == known and isinstance(topic, str):
                self._confirmed_s[topic] = asked_s
            elif known is not None and topic_id is not None:
                del self._seen[topic]
                self._in_use.pop(str(topic), None)
            return
        if topic_id is None:
            if topic in self._unconfirmed:
                self._unconfirmed[topic] = True
        elif known is not None or self._unconfirmed.pop(topic, None) is not None:
            self._see(topic, topic_id)

    def _see(self, topic: TopicReference, topic_id: bytes) -> None:
        self._seen[topic] = topic_id
        if len(self._seen) > _MAX_SEEN_CLASSIC:
            self._seen.popitem(last=False)
