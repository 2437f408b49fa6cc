"""The source of each classic partition of a Fetch on a foreign listener: a near replica, or the leader.

A client requests the same partitions again and again, so the choices are cached with its connection. The choices of a
topic hold until its knowledge changes. All choices hold until there is a change of the near brokers, the shunned ones,
those behind, or the topics that are read from their leaders.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from proxy.brokers.states import ClassicTopic
from proxy.client.client import Client
from proxy.client.request import Request
from proxy.client.rights import ANY_ID, READ, ClientRights
from proxy.client.session import Session, SessionKey
from proxy.config import Settings
from proxy.fetching.asked import Key, only
from proxy.fetching.leader import LeaderSilence
from proxy.fetching.watermarks import Watermarks
from proxy.protocol.errors import NONE
from proxy.replicas.choice import Choice, LeaderReason, equals, near_replica
from proxy.replicas.knowledge import Replicas
from proxy.replicas.log_ends import LogEnds
from proxy.replicas.near import Near, NearBrokers
from proxy.replicas.selector import ReplicaSelector
from proxy.replicas.shunned import Shunned
from proxy.routing.racks import Racks, client_key
from proxy.wire.fetch import CONSUMER_REPLICA_ID, FIRST_RACK, FetchRequest, TopicFetch
from proxy.wire.steps import Pace, Steps, in_slices

_MAX_TOPICS = 10_000
_NOT_KNOWN = Choice(None, LeaderReason.NOT_KNOWN)
_BY_SETTING = Choice(None, LeaderReason.BY_SETTING)
_RIGHTS_WAIT_S = 1.0
"""Longest wait for the client's own broker to say what the client may read. After it, the Fetch itself goes there."""
_RIGHTS_AGAIN_S = 5.0
"""Time after a missing answer in which no Fetch waits for it."""


class Route(NamedTuple):
    """The topics and partitions of each source, in the request's order, with no partition twice."""

    near: dict[int, list[TopicFetch]]
    """Topics by the broker that has the replica."""
    leader: list[TopicFetch]
    reasons: dict[Key, LeaderReason]
    """Reasons of the partitions that go to the leader."""
    known: dict[str | bytes, ClassicTopic]
    """Topics on which the choices are based."""


def too_many(topics: list[TopicFetch]) -> Steps[dict[Key, LeaderReason]]:
    """Return the reasons of partitions that are too many to be read near."""
    reasons, pace = dict[Key, LeaderReason](), Pace()
    for asked in topics:
        for some in in_slices(asked.partitions):
            reasons |= dict.fromkeys(((asked.topic, one.index) for one in some), LeaderReason.TOO_MANY)
            if pace.pauses(len(some)):
                yield
    return reasons


NOWHERE_NEAR = Route({}, [], {}, {})
"""On listeners that are not foreign."""


class _TopicChoices(NamedTuple):
    known: ClassicTopic
    of_partition: dict[int, Choice]


class Router:
    """Chooses for one connection, and caches the high watermarks that its client got."""

    def __init__(self, of: Routes, session: Session) -> None:
        self._of = of
        self._session = session
        self.watermarks = Watermarks()
        self.leader_silence = LeaderSilence()
        self.idle = False
        """Whether the last Fetch of several sources found nothing until its time was up."""
        self._made_from: tuple[Near, int, int, tuple[str, ...]] | None = None
        self._choices: dict[str | bytes, _TopicChoices] = {}
        self._rights_again_s = float("-inf")

    def knows(self, topics: list[TopicFetch]) -> bool:
        """Return whether nothing must be asked first."""
        return not self._unknown(topics) and not self._unasked(topics)

    async def learn(self, client: Client, request: Request, topics: list[TopicFetch]) -> None:
        """Ask for missing knowledge of the topics, and whether the client may read them, for a bounded time.

        Raises BrokerUnreachable and ProtocolError.
        """
        of = self._of
        unknown = self._unknown(topics)
        if unknown:
            await of.replicas.know(unknown)
        unasked = self._unasked(topics)
        if unasked:
            self._rights_again_s = of.now() + _RIGHTS_AGAIN_S
            with suppress(TimeoutError):
                async with asyncio.timeout(_RIGHTS_WAIT_S):
                    await of.rights.of(self._session).ask(client, request, unasked)
                    self._rights_again_s = float("-inf")

    def route(self, topics: list[TopicFetch], client_id: str | None) -> Route:
        """Choose a replica for each partition from cached metadata; no I/O."""
        self._forget_old()
        near, reasons = dict[int, set[Key]](), dict[Key, LeaderReason]()
        known_topics = dict[str | bytes, ClassicTopic]()
        key = client_key(self._session.host, client_id)
        for asked in topics:
            topic = asked.topic
            known = self._of.replicas.topic(topic)
            if known is None or not self._may_read(known.name):
                reason = LeaderReason.NOT_KNOWN if known is None else LeaderReason.NOT_ALLOWED
                reasons |= dict.fromkeys(((topic, partition.index) for partition in asked.partitions), reason)
                continue
            known_topics[topic] = known
            choices = self._choices_of(topic, known)
            for partition in asked.partitions:
                index = partition.index
                choice = choices.get(index) or self._choose(known, index, key, choices)
                if choice.broker is not None:
                    near.setdefault(choice.broker, set()).add((topic, index))
                else:
                    reasons[topic, index] = choice.reason or LeaderReason.NOT_KNOWN
        if len(near) == 1 and not reasons:
            return Route(dict.fromkeys(near, topics), [], reasons, known_topics)
        parts = {broker: only(topics, keys) for broker, keys in near.items()}
        return Route(parts, only(topics, reasons) if near else topics, reasons, known_topics)

    def _unknown(self, topics: list[TopicFetch]) -> list[str | bytes]:
        topic_of = self._of.replicas.topic
        return [asked.topic for asked in topics if topic_of(asked.topic) is None]

    def _unasked(self, topics: list[TopicFetch]) -> dict[str, bytes]:
        """Return the topics whose rights are unknown; none if all clients are the same principal to the brokers."""
        if not self._of.settings.brokers.with_sasl or self._of.now() < self._rights_again_s:
            return {}
        found = (self._of.replicas.topic(asked.topic) for asked in topics)
        return self._of.rights.of(self._session).unasked({known.name: ANY_ID for known in found if known is not None})

    def _forget_old(self) -> None:
        of = self._of
        read_from_leaders = of.settings.fetch.leader_read_topics
        made_from = of.near_brokers.now(), of.shunned.version, of.log_ends.version, read_from_leaders
        if made_from != self._made_from or len(self._choices) > _MAX_TOPICS:
            self._choices.clear()
            self._made_from = made_from

    def _may_read(self, topic: str) -> bool:
        """Return whether the client may, and the proxy."""
        if self._of.shunned.is_refused(topic):
            return False
        if not self._of.settings.brokers.with_sasl:
            return True
        rights, grace_ms = self._of.rights.of(self._session), self._of.settings.fetch.replica_rights_grace_ms
        return rights.error(topic, READ) == NONE and not rights.is_outdated(topic, grace_ms / 1000)

    def _choices_of(self, topic: str | bytes, known: ClassicTopic) -> dict[int, Choice]:
        choices = self._choices.get(topic)
        if choices is None or choices.known is not known:
            choices = self._choices[topic] = _TopicChoices(known, {})
        return choices.of_partition

    def _choose(self, known: ClassicTopic, partition: int, key: str, choices: dict[int, Choice]) -> Choice:
        state = known.partitions.get(partition)
        if state is None:
            return _NOT_KNOWN
        if any(re.fullmatch(pattern, known.name) for pattern in self._of.settings.fetch.leader_read_topics):
            choice = _BY_SETTING
        else:
            near, shunned = self._of.near_brokers.now(), self._of.shunned.of(known.name, partition)
            log_ends = self._of.log_ends
            if equals(state, near.live):
                log_ends.watch(known.name, partition)
            behind = log_ends.behind(known.name, partition)
            choice = near_replica(state, near.live, shunned, key, known.name, partition, down=near.down, behind=behind)
        choices[partition] = choice
        return choice


ROUTER = SessionKey[Router]("router")


class Routes:
    """Chooses between near replicas and leaders, for all clients."""

    def __init__(
        self,
        settings: Settings,
        *,
        near_brokers: NearBrokers,
        shunned: Shunned,
        log_ends: LogEnds,
        replicas: Replicas,
        replica_selector: ReplicaSelector,
        racks: Racks,
        rights: ClientRights,
        now: Callable[[], float],
    ) -> None:
        """`now`: monotonic seconds."""
        self.settings = settings
        self.near_brokers = near_brokers
        self.shunned = shunned
        self.log_ends = log_ends
        self.replicas = replicas
        self.replica_selector = replica_selector
        self.racks = racks
        self.rights = rights
        self.now = now

    def of(self, session: Session) -> Router:
        """Return the router of one client."""
        router = session.get(ROUTER)
        if router is None:
            router = session[ROUTER] = Router(self, session)
        return router

    def is_routed(self, session: Session, parsed: FetchRequest) -> bool:
        """Return whether classic partitions of this Fetch may be read from near replicas, not from the client's broker.

        They may not if that broker is near, or if the proxy's rack has no broker at all. They may not if the client
        names its rack and the brokers redirect it (plain KIP-392), or if the client says that it is a replica itself.
        """
        if not self.settings.fetch.read_near_replicas or not self.near_brokers.is_foreign(session.node_id):
            return False
        if parsed.replica_id != CONSUMER_REPLICA_ID or not any(self.near_brokers.now()):
            return False
        if parsed.version < FIRST_RACK or not parsed.rack_id or self.racks.is_alias(parsed.rack_id):
            return True  # brokers would redirect nobody for a rack that they don't know
        return not self.replica_selector.redirects

    def never_near(self, session: Session) -> LeaderReason | None:
        """Return why no Fetch on a foreign listener is read from near replicas; None if some are."""
        if not self.near_brokers.is_foreign(session.node_id):
            return None
        if not self.settings.fetch.read_near_replicas:
            return LeaderReason.SWITCHED_OFF
        return None if any(self.near_brokers.now()) else LeaderReason.NO_NEAR_REPLICA
