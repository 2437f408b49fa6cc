"""The source of each classic partition of a Fetch on a foreign listener: a near replica, or the leader.

A client requests the same partitions again and again, so the choices are cached with its connection. The choices of a
topic hold until its knowledge changes. All choices hold until there is a change of the near brokers, the shunned ones,
those behind, or the topics that are read from their leaders.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from proxy.brokers.states import ClassicTopic
from proxy.client.rights import ANY_ID, READ, rights_of
from proxy.client.session import SessionKey
from proxy.fetching.asked import Key, only
from proxy.fetching.leader import LeaderSilence
from proxy.fetching.watermarks import Watermarks
from proxy.protocol.errors import NONE
from proxy.replicas.choice import Choice, LeaderReason, equals, near_replica
from proxy.replicas.near import Near
from proxy.routing.racks import client_key
from proxy.wire.fetch import CONSUMER_REPLICA_ID, FIRST_RACK, FetchRequest, TopicFetch

if TYPE_CHECKING:
    from proxy.client.client import Client
    from proxy.client.request import Request

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


NOWHERE_NEAR = Route({}, [], {}, {})
"""On listeners that are not foreign."""


class _TopicChoices(NamedTuple):
    known: ClassicTopic
    of_partition: dict[int, Choice]


class Router:
    """Chooses for one connection, and caches the high watermarks that its client got."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._context = client.context
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

    async def learn(self, request: Request, topics: list[TopicFetch]) -> None:
        """Ask for missing knowledge of the topics, and whether the client may read them, for a bounded time.

        Raises BrokerUnreachable and ProtocolError.
        """
        unknown = self._unknown(topics)
        if unknown:
            await self._context.replicas.know(unknown)
        unasked = self._unasked(topics)
        if unasked:
            self._rights_again_s = self._context.now() + _RIGHTS_AGAIN_S
            with suppress(TimeoutError):
                async with asyncio.timeout(_RIGHTS_WAIT_S):
                    await rights_of(self._client).ask(self._client, request, unasked)
                    self._rights_again_s = float("-inf")

    def route(self, topics: list[TopicFetch], client_id: str | None) -> Route:
        """Choose a replica for each partition from cached metadata; no I/O."""
        self._forget_old()
        near, reasons = dict[int, set[Key]](), dict[Key, LeaderReason]()
        known_topics = dict[str | bytes, ClassicTopic]()
        key = client_key(self._client.session.host, client_id)
        for asked in topics:
            topic = asked.topic
            known = self._context.replicas.topic(topic)
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
        topic_of = self._context.replicas.topic
        return [asked.topic for asked in topics if topic_of(asked.topic) is None]

    def _unasked(self, topics: list[TopicFetch]) -> dict[str, bytes]:
        """Return the topics whose rights are unknown; none if all clients are the same principal to the brokers."""
        if not self._context.settings.brokers.with_sasl or self._context.now() < self._rights_again_s:
            return {}
        found = (self._context.replicas.topic(asked.topic) for asked in topics)
        return rights_of(self._client).unasked({known.name: ANY_ID for known in found if known is not None})

    def _forget_old(self) -> None:
        context = self._context
        read_from_leaders = context.settings.fetch.leader_read_topics
        made_from = context.near_brokers.now(), context.shunned.version, context.log_ends.version, read_from_leaders
        if made_from != self._made_from or len(self._choices) > _MAX_TOPICS:
            self._choices.clear()
            self._made_from = made_from

    def _may_read(self, topic: str) -> bool:
        """Return whether the client may, and the proxy."""
        if self._context.shunned.is_refused(topic):
            return False
        if not self._context.settings.brokers.with_sasl:
            return True
        rights, grace_ms = rights_of(self._client), self._context.settings.fetch.replica_rights_grace_ms
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
        if any(re.fullmatch(pattern, known.name) for pattern in self._context.settings.fetch.leader_read_topics):
            choice = _BY_SETTING
        else:
            near, shunned = self._context.near_brokers.now(), self._context.shunned.of(known.name, partition)
            log_ends = self._context.log_ends
            if equals(state, near.live):
                log_ends.watch(known.name, partition)
            behind = log_ends.behind(known.name, partition)
            choice = near_replica(state, near.live, shunned, key, known.name, partition, down=near.down, behind=behind)
        choices[partition] = choice
        return choice


ROUTER = SessionKey[Router]("router")


def router_of(client: Client) -> Router:
    """Return the router of a connection."""
    router = client.session.get(ROUTER)
    if router is None:
        router = client.session[ROUTER] = Router(client)
    return router


def is_routed(client: Client, parsed: FetchRequest) -> bool:
    """Whether classic partitions of this Fetch may be read from near replicas instead of the client's own broker.

    It may not if that broker is near, or if the proxy's rack has no broker at all. It may not if the client names its
    rack and the brokers redirect it (plain KIP-392), or if the client says that it is a replica itself.
    """
    context = client.context
    if not context.settings.fetch.read_near_replicas or not context.near_brokers.is_foreign(client.session.node_id):
        return False
    if parsed.replica_id != CONSUMER_REPLICA_ID or not any(context.near_brokers.now()):
        return False
    if parsed.version < FIRST_RACK or not parsed.rack_id or context.racks.is_alias(parsed.rack_id):
        return True  # brokers would redirect nobody for a rack that they don't know
    return not context.replica_selector.redirects


def never_near(client: Client) -> LeaderReason | None:
    """Why no Fetch on a foreign listener is read from near replicas; None if some are."""
    context = client.context
    if not context.near_brokers.is_foreign(client.session.node_id):
        return None
    if not context.settings.fetch.read_near_replicas:
        return LeaderReason.SWITCHED_OFF
    return None if any(context.near_brokers.now()) else LeaderReason.NO_NEAR_REPLICA
