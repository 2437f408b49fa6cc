"""ShareFetch and ShareAcknowledge (API keys 78, 79, KIP-932): of classic topics only, and with the proxies' addresses.

Behaviour: share groups read what is on the brokers, and the records of a diskless topic are not. The member's next
heartbeat reports that (`group_heartbeat`). Until then its partitions are taken out of the request, so that the broker's
share session never has them, and answered UNKNOWN_TOPIC_ID. For other errors Java's consumer throws
IllegalStateException, or blames the client's rights. An acknowledgement is answered INVALID_TOPIC_EXCEPTION, which
reaches the application.

A broker answers a fetch of a session without partitions at once, and the client would ask again without a pause. So on
a connection where partitions were taken out an empty answer waits for what is left of `max_wait`.

Version notes: v1 and v2 have the same arrays of topics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import fields, replace
from typing import Any, get_type_hints

from kio.index import load_response_schema
from kio.schema.errors import ErrorCode

from proxy.client.client import Client
from proxy.client.request import Request
from proxy.client.rights import READ, ClientRights
from proxy.client.session import SessionKey
from proxy.client.slots import Slot
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.process.turns import Turns
from proxy.protocol.api_keys import SHARE_FETCH
from proxy.protocol.errors import INVALID_TOPIC_EXCEPTION, NONE, UNKNOWN_TOPIC_ID
from proxy.routing.addresses import Addresses
from proxy.telemetry.throttled_log import NAMES_SHOWN, ThrottledLog
from proxy.topics.topics import Topics
from proxy.wire.cold import encode, nested, read_request
from proxy.wire.endpoints import rewrite_share_endpoints
from proxy.wire.primitives import Buffer
from proxy.wire.share import add_share_topics, share_error_and_topics
from proxy.wire.steps import Rewrite

NOT_FOR_SHARE_GROUPS = "The records of a diskless topic are not on the brokers: share groups can't read it."
_NO_LEADER = -1

Mine = list[tuple[Any, DisklessTopic]]
"""Diskless topics of a request, each with its entry in the registry."""


_SHARE_SESSION = SessionKey[bool]("share session")
"""True if partitions of a share session of the client were taken out."""


class ShareFetch:
    """Handlers of ShareFetch and ShareAcknowledge."""

    def __init__(
        self,
        *,
        topics: Topics,
        rights: ClientRights,
        addresses: Addresses,
        turns: Turns,
        throttled_log: ThrottledLog,
        now: Callable[[], float],
    ) -> None:
        """`now`: monotonic seconds."""
        self._topics = topics
        self._rights = rights
        self._addresses = addresses
        self._turns = turns
        self._throttled_log = throttled_log
        self._now = now

    def share_fetch(self, client: Client, request: Request) -> Coroutine[Any, Any, None] | None:
        """ShareFetch (API key 78)."""
        topics = self._topics
        if not topics.all() and _SHARE_SESSION not in client.session:
            self._forward(client, request)
            return None
        asked = read_request(request.api_key, request.api_version, request.body)
        mine = _mine(asked, topics)
        forgotten = tuple(one for one in asked.forgotten_topics_data if _find(one, topics) is None)
        if mine:
            client.session[_SHARE_SESSION] = True
        elif _SHARE_SESSION not in client.session and len(forgotten) == len(asked.forgotten_topics_data):
            self._forward(client, request)
            return None
        theirs = replace(asked, topics=_theirs(asked, topics), forgotten_topics_data=forgotten)
        max_wait_s = asked.max_wait.total_seconds()
        return self._answer(client, request, client.open_slot(request), theirs, mine, max_wait_s)

    def share_acknowledge(self, client: Client, request: Request) -> Coroutine[Any, Any, None] | None:
        """ShareAcknowledge (API key 79)."""
        topics = self._topics
        if not topics.all():
            self._forward(client, request)
            return None
        asked = read_request(request.api_key, request.api_version, request.body)
        mine = _mine(asked, topics)
        if not mine:
            self._forward(client, request)
            return None
        theirs = replace(asked, topics=_theirs(asked, topics))
        return self._answer(client, request, client.open_slot(request), theirs, mine, 0.0)

    def with_addresses(self, client: Client, request: Request) -> Rewrite:
        """Return the rewrite of the broker's answer: new leaders come with their addresses (KIP-951)."""
        return lambda body: rewrite_share_endpoints.steps(
            request.api_key, body, request.api_version, self._addresses.of(client.session, request.client_id)
        )

    def _forward(self, client: Client, request: Request) -> None:
        client.forward(request, self.with_addresses(client, request))

    async def _answer(
        self, client: Client, request: Request, slot: Slot, theirs: Any, mine: Mine, max_wait_s: float
    ) -> None:
        """The broker's half, then what was taken out. Raises BrokerUnreachable and ProtocolError."""
        began_s = self._now()
        refused = await self._refused(client, request, mine)
        body: Buffer = await client.ask(request, request.api_key, request.api_version, encode(theirs))
        error_code, topic_count = share_error_and_topics(request.api_key, body, request.api_version)
        if error_code == NONE and mine:
            topic_type = nested(load_response_schema(request.api_key, request.api_version), "responses")
            added = [encode(_topic(topic_type, topic, refused[entry.name])) for topic, entry in mine]
            body = add_share_topics(request.api_key, body, request.api_version, added)
        elif error_code == NONE and topic_count <= 0:
            await asyncio.sleep(max(0.0, began_s + max_wait_s - self._now()))
        rewrite = self.with_addresses(client, request)
        slot.fill(await self._turns.rewritten(rewrite(memoryview(body))))

    async def _refused(self, client: Client, request: Request, mine: Mine) -> dict[str, int]:
        """Return Kafka's error codes by topic; a client without the right to read a topic gets that error."""
        rights = self._rights.of(client.session)
        unasked = rights.unasked({entry.name: entry.topic_id for _, entry in mine})
        if unasked:
            await rights.ask(client, request, unasked)
        refused = {entry.name: rights.error(entry.name, READ) or INVALID_TOPIC_EXCEPTION for _, entry in mine}
        named = [name for name, error_code in refused.items() if error_code == INVALID_TOPIC_EXCEPTION]
        if named:
            self._throttled_log.warning(
                "share_fetch_refused",
                topics=named[:NAMES_SHOWN],
                client=client.session.host,
                client_id=request.client_id,
                reason="share groups can't read diskless topics",
                remedy="read them with a consumer group, or let the share group subscribe to classic topics only",
            )
        return refused


def _find(topic: Any, topics: Topics) -> DisklessTopic | None:
    return topics.find(topic.topic_id.bytes) if topic.topic_id is not None else None


def _mine(asked: Any, topics: Topics) -> Mine:
    return [(topic, entry) for topic in asked.topics if (entry := _find(topic, topics)) is not None]


def _theirs(asked: Any, topics: Topics) -> tuple[Any, ...]:
    return tuple(topic for topic in asked.topics if _find(topic, topics) is None)


def is_not_diskless(topics: Topics, topic_id: str | bytes) -> bool:
    """Return whether a topic is not in the registry."""
    return topics.find(topic_id) is None


def _topic(topic_type: Any, asked: Any, error_code: int) -> Any:
    """A topic of the response, all of whose partitions have failed."""
    partition_type = nested(topic_type, "partitions")
    is_unreadable = error_code == INVALID_TOPIC_EXCEPTION
    message = NOT_FOR_SHARE_GROUPS if is_unreadable else None
    fetched = UNKNOWN_TOPIC_ID if is_unreadable and topic_type.__api_key__ == SHARE_FETCH else error_code
    return topic_type(
        topic_id=asked.topic_id,
        partitions=tuple(_partition(partition_type, one, fetched, error_code, message) for one in asked.partitions),
    )


def _partition(
    partition_type: Any, asked: Any, error_code: int, acknowledge_error_code: int, message: str | None
) -> Any:
    leader_type = get_type_hints(partition_type)["current_leader"]
    values = {
        "partition_index": asked.partition_index,
        "error_code": ErrorCode(error_code),
        "error_message": message,
        "acknowledge_error_code": acknowledge_error_code if asked.acknowledgement_batches else NONE,
        "acknowledge_error_message": message if asked.acknowledgement_batches else None,
        "current_leader": leader_type(leader_id=_NO_LEADER, leader_epoch=_NO_LEADER),
        "records": b"",
        "acquired_records": (),
    }
    return partition_type(**{one.name: values[one.name] for one in fields(partition_type)})
