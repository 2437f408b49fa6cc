"""CreateTopics (API key 19): what concerns diskless topics is created by the proxy, as the client.

Behaviour: `creation/creator.py`. What is all classic is forwarded; while fewer brokers are live than a topic needs, the
proxy creates it with the live ones (KIP-409, `creation/replication/creation.py`).

Version notes: the brokers are asked with v7 for the sake of the topic ID; the answer is given in the client's version.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from proxy.topics.topic_configs import DISKLESS_ENABLE, diskless_by_name
from proxy.wire.cold import at_version, encode, read_request
from proxy.wire.errors import ProtocolError, TooManyElements

if TYPE_CHECKING:
    from proxy.client.client import Client
    from proxy.client.request import Request
    from proxy.client.slots import Slot


def create_topics(client: Client, request: Request) -> Coroutine[Any, Any, None] | None:
    """Forward what is all classic and needs no more brokers than are live."""
    try:
        parsed = read_request(request.api_key, request.api_version, request.body)
    except TooManyElements:
        raise
    except ProtocolError:
        if DISKLESS_ENABLE.encode() in bytes(request.body):
            raise
        client.forward(request)
        return None
    topics, patterns = client.context.topics, client.context.settings.default_diskless_topics
    concerned = any(
        any(config.name == DISKLESS_ENABLE for config in topic.configs)
        or diskless_by_name(str(topic.name), patterns)
        or topics.find(str(topic.name)) is not None
        for topic in parsed.topics
    )
    under_replicated = client.context.under_replicated
    if not concerned and under_replicated.enabled and any(map(under_replicated.may_be_refused, parsed.topics)):
        return _create_classic(client, request, client.open_slot(request), parsed)
    if not concerned:
        made = under_replicated.enabled and not parsed.validate_only
        client.forward(request, under_replicated.looking_at(request) if made else None)
        return None
    return _create(client, request, client.open_slot(request), parsed)


async def _create_classic(client: Client, request: Request, slot: Slot, parsed: Any) -> None:
    """Raises BrokerUnreachable."""
    slot.fill([await client.context.under_replicated.create(client, request, parsed)])


async def _create(client: Client, request: Request, slot: Slot, parsed: Any) -> None:
    """Raises BrokerUnreachable."""
    response = await client.context.topic_creator.create(client, request, parsed)
    slot.fill([encode(at_version(response, request.api_version, response=True))])
