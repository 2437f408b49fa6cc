"""What the client may do with a topic, as its own brokers say: no second ACL system.

The proxy asks Metadata with the topics' authorized operations on the client's own broker connection, thus as the
client's principal (KIP-430), and remembers the answer for a short time per connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from proxy.api_keys import METADATA
from proxy.errors import NONE, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION
from proxy.wire.errors import ProtocolError
from proxy.wire.metadata import build_metadata_request, metadata_topics

if TYPE_CHECKING:
    from proxy.connection import ClientConnection
    from proxy.request import Request

READ = 1 << 3
WRITE = 1 << 4
DELETE = 1 << 6
DESCRIBE = 1 << 8
"""Bits of the authorized operations: `AclOperation` codes."""

_VERSION = 9
_NEVER = (0.0, NONE, 0)
_MAX_KNOWN = 10_000
_COUNTED_ON_S = 60.0
"""An answer whose time is over is remembered for so long, as requests may wait for the brokers that count on it."""
_HEARD_OF_WITHIN_S = 1.0
_HEARD_OF_POLL_S = 0.05


class Rights:
    """What one connection's client may do, by topic name."""

    def __init__(self, kept_s: float, now: Callable[[], float]) -> None:
        self._kept_s = kept_s
        self._now = now
        self._known: dict[str, tuple[float, int, int]] = {}
        self._limit = _MAX_KNOWN

    def unasked(self, topics: Iterable[str]) -> list[str]:
        """Those of the topics about which the brokers must be asked (again)."""
        now_s = self._now()
        return [topic for topic in topics if now_s >= self._known.get(topic, _NEVER)[0]]

    def error(self, topic: str, operation: int) -> int:
        """NONE where the operation is allowed, else Kafka's error; what was never asked is not allowed."""
        _, error_code, operations = self._known.get(topic, _NEVER)
        if error_code != NONE:
            return error_code
        return NONE if operations & operation else TOPIC_AUTHORIZATION_FAILED

    def is_outdated(self, topic: str, for_s: float) -> bool:
        """Whether the brokers should have been asked again so long ago."""
        return self._now() >= self._known.get(topic, _NEVER)[0] + for_s

    async def ask(self, connection: ClientConnection, request: Request, topics: Iterable[str]) -> None:
        """Let the brokers say it. Raises BrokerUnreachable and ProtocolError.

        The client's broker may be the last one to hear of a topic that has just been created. It is given a moment:
        what is sent with acks 0 comes but once.
        """
        self._forget_old()
        names = list(topics)
        until_s = self._now() + _HEARD_OF_WITHIN_S
        while True:
            await self._ask(connection, request, names)
            names = [name for name in names if self._known[name][1] == UNKNOWN_TOPIC_OR_PARTITION]
            if not names or self._now() >= until_s:
                return
            await asyncio.sleep(_HEARD_OF_POLL_S)

    async def _ask(self, connection: ClientConnection, request: Request, names: list[str]) -> None:
        body = build_metadata_request(_VERSION, names, topic_authorized_operations=True)
        answer = await connection.ask(request, METADATA, _VERSION, body)
        now_s = self._now()
        self._known.update(dict.fromkeys(names, (now_s, UNKNOWN_TOPIC_OR_PARTITION, 0)))
        for topic in metadata_topics(answer, _VERSION):
            if topic.name is not None:
                # An error may be over soon (a topic that this broker has not heard of yet): it is not kept.
                until_s = now_s + self._kept_s if topic.error_code == NONE else now_s
                self._known[topic.name] = (until_s, topic.error_code, topic.authorized_operations)

    def _forget_old(self) -> None:
        """Where many are known, all that no request counts on; before asking, as the answers are needed afterwards."""
        if len(self._known) <= self._limit:
            return
        ended_s = self._now() - _COUNTED_ON_S
        self._known = {topic: known for topic, known in self._known.items() if known[0] > ended_s}
        # Looking at all of them pays only when there may be as many again.
        self._limit = max(_MAX_KNOWN, 2 * len(self._known))


async def confirmed(connection: ClientConnection, request: Request, topic: str, operation: int) -> bool:
    """Ask the brokers now, also about a topic that they don't have; True if they confirm the right.

    Brokers tell the operations of every name that the client may describe, whether there is such a topic or not
    (`KafkaApis.handleTopicMetadataRequest`). Raises BrokerUnreachable.
    """
    body = build_metadata_request(_VERSION, [topic], topic_authorized_operations=True)
    answer = await connection.ask(request, METADATA, _VERSION, body)
    try:
        return any(
            one.name == topic and one.authorized_operations & operation for one in metadata_topics(answer, _VERSION)
        )
    except ProtocolError:
        return False


def rights_of(connection: ClientConnection) -> Rights:
    """The rights that a connection remembers."""
    rights = connection.remembered.get(Rights)
    if rights is None:
        context = connection.context
        rights = Rights(context.settings.authorization_cache_ms / 1000, context.now)
        connection.remembered[Rights] = rights
    assert isinstance(rights, Rights)
    return rights
