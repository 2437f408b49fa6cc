"""DescribeShareGroupOffsets and AlterShareGroupOffsets (API keys 90, 91, KIP-932) where they name diskless topics.

Behaviour: share groups can't read diskless topics (`share_fetch.py`), so an offset to start from is refused with
INVALID_TOPIC_EXCEPTION and a message, for that topic only. Offsets that a group has all the same, as its coordinator
makes them when the group subscribes, are described, without a lag: the broker would count it by the shadow's log. They
can be deleted (DeleteShareGroupOffsets passes).

Version notes: DescribeShareGroupOffsets v1 has the lag (KIP-1226).
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from kio.index import load_response_schema
from kio.schema.errors import ErrorCode

from proxy.client.client import Client
from proxy.client.request import Request
from proxy.client.rights import ANY_ID, READ, ClientRights
from proxy.client.slots import Slot
from proxy.handlers.share_fetch import NOT_FOR_SHARE_GROUPS
from proxy.protocol.errors import INVALID_TOPIC_EXCEPTION, NONE
from proxy.topics.topics import Topics
from proxy.wire.cold import encode, milliseconds, nested, read_request, read_response
from proxy.wire.share import without_lag

_WITH_LAG = 1


class ShareGroupOffsets:
    """Handlers of DescribeShareGroupOffsets and AlterShareGroupOffsets."""

    def __init__(self, *, topics: Topics, rights: ClientRights) -> None:
        self._topics = topics
        self._rights = rights

    def describe(self, client: Client, request: Request) -> None:
        """Rewrite the answer."""
        topics = self._topics
        if request.api_version < _WITH_LAG or not topics.all():
            client.forward(request)
            return
        client.forward(request, lambda body: without_lag.steps(body, lambda name: topics.find(name) is not None))

    def alter(self, client: Client, request: Request) -> Coroutine[Any, Any, None] | None:
        """Forward what is about no diskless topic."""
        topics = self._topics
        if not topics.all():
            client.forward(request)
            return None
        asked = read_request(request.api_key, request.api_version, request.body)
        mine = [topic for topic in asked.topics if topics.find(str(topic.topic_name)) is not None]
        if not mine:
            client.forward(request)
            return None
        theirs = replace(asked, topics=tuple(one for one in asked.topics if topics.find(str(one.topic_name)) is None))
        return self._alter(client, request, client.open_slot(request), theirs, mine)

    async def _alter(self, client: Client, request: Request, slot: Slot, theirs: Any, mine: list[Any]) -> None:
        """The broker's half, then what is refused. Raises BrokerUnreachable and ProtocolError."""
        rights = self._rights.of(client.session)
        unasked = rights.unasked(dict.fromkeys((str(topic.topic_name) for topic in mine), ANY_ID))
        if unasked:
            await rights.ask(client, request, unasked)
        response_type: Any = load_response_schema(request.api_key, request.api_version)
        refused = tuple(
            _refused(nested(response_type, "responses"), topic, rights.error(str(topic.topic_name), READ))
            for topic in mine
        )
        if theirs.topics:
            body = await client.ask(request, request.api_key, request.api_version, encode(theirs))
            response = read_response(request.api_key, request.api_version, body)
            response = replace(response, responses=(*response.responses, *refused))
        else:
            response = response_type(
                throttle_time=milliseconds(0), error_code=ErrorCode(NONE), error_message=None, responses=refused
            )
        slot.fill([encode(response)])


def _refused(topic_type: Any, asked: Any, unauthorized: int) -> Any:
    partition_type = nested(topic_type, "partitions")
    error_code = unauthorized or INVALID_TOPIC_EXCEPTION
    message = NOT_FOR_SHARE_GROUPS if not unauthorized else None
    return topic_type(
        topic_name=asked.topic_name,
        topic_id=None,
        partitions=tuple(
            partition_type(partition_index=one.partition_index, error_code=ErrorCode(error_code), error_message=message)
            for one in asked.partitions
        ),
    )
