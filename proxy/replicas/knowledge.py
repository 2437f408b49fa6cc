"""The replicas of the classic topics that clients read: leader, replicas and ISR, read from the brokers.

One task sends all requests (`follow`), so that a question is never under way twice. First come the topics that a Fetch
waits for, then the topics whose knowledge an answer showed to be old, then, one step at a time, everything in use. A
topic that nobody has read for some rounds is dropped.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

import structlog

from proxy.brokers.states import ClassicTopic
from proxy.brokers.upstream import BrokerUnreachable
from proxy.process.waiting import wait_at_most
from proxy.protocol.api_keys import METADATA
from proxy.protocol.errors import NONE
from proxy.telemetry.outage import Outage
from proxy.wire.errors import ProtocolError
from proxy.wire.metadata import MetadataRequest, MetadataRequestTopic, encode_metadata_request
from proxy.wire.partition_states import VERSION, TopicPartitions, read_partitions, split_topics
from proxy.wire.primitives import ZERO_UUID, Buffer

log = structlog.get_logger()

Key = str | bytes
"""A topic's name or its ID."""
Ask = Callable[[int, int, "list[Buffer] | bytes"], Awaitable[memoryview]]
"""`ServiceConnection.ask`."""

_WAIT_S = 1.0
"""Longest time that a Fetch waits for missing knowledge."""
_STALE_AGAIN_S = 0.1
"""Between two questions that errors of replicas ask for: in an election all partitions of a broker have them."""
_FAILED_AGAIN_S = 1.0
"""Pause before the topics of a failed request are requested again."""
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
"""Legal topic names (`Topic.validate`). For some illegal ones brokers end the connection."""
_ROUNDS_UNUSED = 10
_TOPICS_PER_STEP = 100
_MOST_WANTED_BY_ONE = 1_000
"""Topics that one Fetch may have asked for; it comes again for the others."""
_MOST_WANTED = 5_000
"""Maximum number of topics that wait for the same answer."""
_PARTITIONS_PER_STEP = 500
"""Maximum number of changed partitions that are read without yielding."""


class _Known:
    """A topic in use."""

    __slots__ = ("encoded", "topic", "used")

    def __init__(self, topic: ClassicTopic, encoded: bytes, used: int) -> None:
        self.topic = topic
        self.encoded = encoded
        """Encoded partitions, as the brokers last had them."""
        self.used = used
        """The last round in which somebody looked."""


class _Wanted(NamedTuple):
    """Topics to request next, and the future of those that wait."""

    topics: set[Key]
    asked: asyncio.Future[None]


class Replicas:
    """The knowledge of the topics in use. `now` returns monotonic seconds."""

    def __init__(self, ask: Ask, now: Callable[[], float], *, interval_s: float, max_topics: int) -> None:
        """`interval_s`: how often topics in use are asked for; of at most `max_topics` something is known."""
        self.version = 0
        """Another number whenever anything that is known has changed: for who remembers what followed from it."""
        self._ask = ask
        self._now = now
        self.interval_s = interval_s
        self.max_topics = max_topics
        self._known: dict[Key, _Known] = {}
        """Each topic twice: by name and by ID."""
        self._unknown: dict[Key, float] = {}
        """Topics that were not found, and the time until which they are not requested again."""
        self._round = 0
        self._wanted: _Wanted | None = None
        self._stale: set[Key] = set()
        self._stale_asked_s = now() - _STALE_AGAIN_S
        self._due: list[str] = []
        """Topics in use that this round has not asked for yet."""
        self._woken = asyncio.Event()
        self._outage = Outage()
        self._full = False

    def __len__(self) -> int:
        """Return how many topics are known."""
        return len(self._known) // 2

    def topic(self, topic: Key) -> ClassicTopic | None:
        """Return the cached topic by name or ID; None if unknown. No I/O; notes that the topic is in use."""
        known = self._known.get(topic)
        if known is None:
            return None
        known.used = self._round
        return known.topic

    def peek(self, topic: Key) -> ClassicTopic | None:
        """Return the same as `topic` for an observer: the topic does not count as in use."""
        known = self._known.get(topic)
        return None if known is None else known.topic

    async def know(self, topics: Iterable[Key]) -> None:
        """Request the topics that are unknown, and wait for the answer, at most a second.

        Concurrent callers share one request. Afterwards `topic` returns the topics, or still None: if nobody answered,
        if the brokers don't know the topic or don't let the proxy see it, or if too many topics were requested at once,
        because clients may name any number of topics that don't exist. Never raises.
        """
        missing = [
            topic
            for topic in topics
            if topic not in self._known and not self._is_unknown(topic) and _may_be_called(topic)
        ]
        if not missing:
            return
        if self._wanted is None:
            self._wanted = _Wanted(set(), asyncio.get_running_loop().create_future())
        room = _MOST_WANTED - len(self._wanted.topics)
        self._wanted.topics.update(missing[: min(room, _MOST_WANTED_BY_ONE)])
        self._woken.set()
        await asyncio.wait([self._wanted.asked], timeout=_WAIT_S)

    def stale(self, topics: Iterable[Key]) -> None:
        """Note that the knowledge of the topics is old: request it again soon, in the background."""
        self._stale.update(topic for topic in topics if topic in self._known)
        if self._stale:
            self._woken.set()

    async def follow(self) -> None:
        """Send requests forever: for wanted topics at once, for topics in use now and again."""
        next_round_s = self._now() + self.interval_s
        while True:
            await self._wait(next_round_s)
            if self._wanted is not None:
                await self._ask_wanted()
            # What follows has its turn also where something is wanted all the time.
            if self._stale and self._now() >= self._stale_asked_s + _STALE_AGAIN_S:
                stale, self._stale = self._stale, set()
                self._stale_asked_s = self._now()
                await self._ask_known(stale)
            elif self._now() >= next_round_s:
                next_round_s = self._now() + self.interval_s
                self._begin_round()
            elif self._due:
                step, self._due = self._due[:_TOPICS_PER_STEP], self._due[_TOPICS_PER_STEP:]
                await self._ask_known(step)

    async def _wait(self, next_round_s: float) -> None:
        """Until there is something to ask, or time for the next round."""
        self._woken.clear()
        if self._wanted is not None or self._due:
            # Of a long round's steps each may keep the loop busy for a while.
            await asyncio.sleep(0)
            return
        until_s = next_round_s
        if self._stale:
            until_s = min(until_s, self._stale_asked_s + _STALE_AGAIN_S)
        wait_s = until_s - self._now()
        if wait_s > 0:
            await wait_at_most(self._woken, wait_s)

    def _begin_round(self) -> None:
        self._round += 1
        oldest = self._round - _ROUNDS_UNUSED
        for known in [known for key, known in self._known.items() if isinstance(key, str) and known.used < oldest]:
            self._forget(known)
        self._due = [key for key in self._known if isinstance(key, str)]
        now_s = self._now()
        self._unknown = {key: until_s for key, until_s in self._unknown.items() if until_s > now_s}

    async def _ask_wanted(self) -> None:
        """Request the topics that Fetches wait for; at the end the Fetches continue, whatever the outcome."""
        wanted, self._wanted = self._wanted, None
        assert wanted is not None
        try:
            topics = [topic for topic in wanted.topics if topic not in self._known]
            for start in range(0, len(topics), _TOPICS_PER_STEP):
                step = topics[start : start + _TOPICS_PER_STEP]
                answered = await self._ask_known(step)
                again_s = self.interval_s if answered else min(self.interval_s, _FAILED_AGAIN_S)
                until_s = self._now() + again_s
                self._unknown.update((topic, until_s) for topic in step if topic not in self._known)
            while len(self._unknown) > self.max_topics:
                del self._unknown[next(iter(self._unknown))]
        finally:
            if not wanted.asked.done():
                wanted.asked.set_result(None)

    async def _ask_known(self, topics: Iterable[Key]) -> bool:
        """Request some topics and take over the answers; topics without one stay as they were.

        Return whether all came.
        """
        names = [MetadataRequestTopic(topic) for topic in topics if isinstance(topic, str)]
        topic_ids = [MetadataRequestTopic(None, topic) for topic in topics if isinstance(topic, bytes)]
        try:
            # A broker looks at the names of a question only where there are no IDs in it.
            for asked in (names, topic_ids):
                if asked:
                    request = MetadataRequest(VERSION, asked, allow_auto_topic_creation=False)
                    answer = await self._ask(METADATA, VERSION, encode_metadata_request(request))
                    await self._learn(split_topics(answer))
        except (BrokerUnreachable, ProtocolError) as error:
            if self._outage.begins():
                log.warning(
                    "replicas_unknown",
                    reason=str(error),
                    effect="classic topics are read by the last known replicas, or from their leaders",
                    remedy="check that the brokers can be reached",
                )
            return False
        self._outage.ends()
        return True

    async def _learn(self, topics: list[TopicPartitions]) -> None:
        read = 0
        for one in topics:
            if read > _PARTITIONS_PER_STEP:
                read = 0
                await asyncio.sleep(0)
            known = self._known.get(one.topic_id if one.name is None else one.name)
            if one.error_code != NONE or one.name is None or one.topic_id == ZERO_UUID:
                # Deleted, or hidden. While it is neither, a broker that lags may say so: it is asked for again.
                if known is not None:
                    self._forget(known)
                continue
            if known is not None and known.encoded == one.encoded and known.topic.topic_id == one.topic_id:
                continue
            if known is not None:
                self._forget(known)
            elif not self._make_room():
                continue
            topic = ClassicTopic(one.name, one.topic_id, read_partitions(one.encoded))
            known = _Known(topic, one.encoded, self._round if known is None else known.used)
            self._known[one.name] = self._known[one.topic_id] = known
            self.version += 1
            read += len(topic.partitions)

    def _forget(self, known: _Known) -> None:
        for key in (known.topic.name, known.topic.topic_id):
            if self._known.get(key) is known:
                del self._known[key]
        self.version += 1

    def _make_room(self) -> bool:
        """Return whether one more topic fits: a topic that was not read in this round or the last one makes room."""
        if len(self) < self.max_topics:
            return True
        unused = [known for key, known in self._known.items() if isinstance(key, str) and known.used < self._round - 1]
        for known in unused:
            self._forget(known)
        if not unused and not self._full:
            self._full = True
            log.warning(
                "replicas_forgotten",
                reason=f"more than {self.max_topics} classic topics are being read",
                effect="further ones are read from their leaders",
                remedy="raise fetch.replica_topics_remembered",
            )
        return bool(unused)

    def _is_unknown(self, topic: Key) -> bool:
        until_s = self._unknown.get(topic)
        return until_s is not None and self._now() < until_s


def _may_be_called(topic: Key) -> bool:
    """Return whether there can be a topic of that name or ID."""
    return topic != ZERO_UUID if isinstance(topic, bytes) else _LEGAL_NAME.fullmatch(topic) is not None
