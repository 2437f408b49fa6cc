"""The client's rights to topics, as its own brokers report them: there is no second ACL system.

The proxy asks Metadata with the topics' authorized operations on the client's own broker connection, thus as the
client's principal (KIP-430), and remembers the answer for a short time per connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from proxy.client.session import Session, SessionKey
from proxy.config import Settings
from proxy.coordinator.interface_registry import NO_TOPIC_ID
from proxy.protocol.api_keys import METADATA
from proxy.protocol.errors import NONE, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION
from proxy.wire.errors import ProtocolError
from proxy.wire.metadata import build_metadata_request, metadata_topics

if TYPE_CHECKING:
    from proxy.client.client import Client
    from proxy.client.request import Request

READ = 1 << 3
WRITE = 1 << 4
DELETE = 1 << 6
DESCRIBE = 1 << 8
"""Bits of the authorized operations: `AclOperation` codes."""

ANY_ID = NO_TOPIC_ID
"""Stands for a topic ID: whichever topic has the name."""

_VERSION = 12
_MAX_KNOWN = 10_000
_COUNTED_ON_S = 60.0
"""An answer whose time is over is remembered for so long, as requests may wait for the brokers that count on it."""
_HEARD_OF_WITHIN_S = 1.0
_HEARD_OF_POLL_S = 0.05
"""The first pause; each further pause is twice as long."""
_MISSING_KEPT_S = 1.0
"""Time for which a topic that brokers did not hear of within `_HEARD_OF_WITHIN_S` is not asked for again."""


class _Known(NamedTuple):
    """Answer of the brokers about a topic."""

    until_s: float
    error_code: int
    operations: int
    topic_id: bytes
    """ANY_ID if the brokers report no ID. With UNKNOWN_TOPIC_OR_PARTITION, the requested ID."""

    def is_of(self, topic_id: bytes) -> bool:
        """True if it was said of the topic with that ID."""
        return self.topic_id == topic_id or ANY_ID in (self.topic_id, topic_id)


_NEVER = _Known(float("-inf"), NONE, 0, ANY_ID)


class Rights:
    """Rights of one connection's client, by topic name.

    Brokers give rights by name. A name may belong to another topic than the one that this proxy knows: the topic was
    deleted and recreated, and the proxy has not heard of it, as it is cut off from the coordinator. So the ID that
    brokers have for the name is compared, and another one is UNKNOWN_TOPIC_OR_PARTITION.
    """

    def __init__(self, kept_s: float, now: Callable[[], float]) -> None:
        self._kept_s = kept_s
        self._now = now
        self._known: dict[str, _Known] = {}
        self._limit = _MAX_KNOWN

    def unasked(self, topics: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return the topics, IDs by name, about which the brokers must be asked (again)."""
        now_s, known = self._now(), self._known
        return {
            name: topic_id
            for name, topic_id in topics.items()
            if now_s >= (of_name := known.get(name, _NEVER)).until_s or not of_name.is_of(topic_id)
        }

    def error(self, topic: str, operation: int, topic_id: bytes = ANY_ID) -> int:
        """NONE where the operation is allowed, else Kafka's error; what was never asked is not allowed."""
        known = self._known.get(topic, _NEVER)
        if known.error_code != NONE:
            return known.error_code
        if not known.is_of(topic_id):
            return UNKNOWN_TOPIC_OR_PARTITION
        return NONE if known.operations & operation else TOPIC_AUTHORIZATION_FAILED

    def is_outdated(self, topic: str, for_s: float) -> bool:
        """Whether the brokers should have been asked again so long ago."""
        return self._now() >= self._known.get(topic, _NEVER).until_s + for_s

    async def ask(self, client: Client, request: Request, topics: Mapping[str, bytes]) -> None:
        """Let the brokers say it of topics, IDs by name. Raises BrokerUnreachable and ProtocolError.

        The client's broker may be the last one to hear of a topic that has just been created. It is given a moment:
        what is sent with acks 0 comes but once.
        """
        self._forget_old()
        until_s, pause_s = self._now() + _HEARD_OF_WITHIN_S, _HEARD_OF_POLL_S
        missing = dict(topics)
        while True:
            await self._ask(client, request, missing)
            missing = {name: topic_id for name, topic_id in missing.items() if self._is_missing(name, topic_id)}
            now_s = self._now()
            if not missing or now_s >= until_s:
                break
            await asyncio.sleep(pause_s)
            pause_s *= 2
        for name, topic_id in missing.items():
            self._known[name] = _Known(now_s + _MISSING_KEPT_S, UNKNOWN_TOPIC_OR_PARTITION, 0, topic_id)

    async def _ask(self, client: Client, request: Request, topics: Mapping[str, bytes]) -> None:
        body = build_metadata_request(_VERSION, list(topics), topic_authorized_operations=True)
        answer = await client.ask(request, METADATA, _VERSION, body)
        now_s = self._now()
        for name, topic_id in topics.items():
            self._known[name] = _Known(now_s, UNKNOWN_TOPIC_OR_PARTITION, 0, topic_id)
        for topic in metadata_topics(answer, _VERSION):
            if topic.name is not None:
                # An error may be over soon (a topic that this broker has not heard of yet): it is not kept.
                until_s = now_s + self._kept_s if topic.error_code == NONE else now_s
                self._known[topic.name] = _Known(
                    until_s, topic.error_code, topic.authorized_operations, topic.topic_id or ANY_ID
                )

    def _is_missing(self, name: str, topic_id: bytes) -> bool:
        known = self._known[name]
        return known.error_code == UNKNOWN_TOPIC_OR_PARTITION or not known.is_of(topic_id)

    def _forget_old(self) -> None:
        """Drop answers that no request relies on, if many are cached; before asking, because new answers are needed
        after it."""
        if len(self._known) <= self._limit:
            return
        ended_s = self._now() - _COUNTED_ON_S
        self._known = {topic: known for topic, known in self._known.items() if known.until_s > ended_s}
        # Looking at all of them pays only when there may be as many again.
        self._limit = max(_MAX_KNOWN, 2 * len(self._known))


async def confirmed(client: Client, request: Request, topic: str, operation: int) -> bool:
    """Ask the brokers now, also about a topic that they don't have; True if they confirm the right.

    Brokers report the operations of every name that the client may describe, whether the topic exists or not
    (`KafkaApis.handleTopicMetadataRequest`). Raises BrokerUnreachable.
    """
    body = build_metadata_request(_VERSION, [topic], topic_authorized_operations=True)
    answer = await client.ask(request, METADATA, _VERSION, body)
    try:
        return any(
            one.name == topic and one.authorized_operations & operation for one in metadata_topics(answer, _VERSION)
        )
    except ProtocolError:
        return False


RIGHTS = SessionKey[Rights]("rights")


class ClientRights:
    """The rights of all clients, each kept in the client's session."""

    def __init__(self, settings: Settings, now: Callable[[], float]) -> None:
        """`now`: monotonic seconds."""
        self._settings = settings
        self._now = now

    def of(self, session: Session) -> Rights:
        """Return the rights of one client."""
        rights = session.get(RIGHTS)
        if rights is None:
            rights = session[RIGHTS] = Rights(self._settings.authorization_cache_ms / 1000, self._now)
        return rights
