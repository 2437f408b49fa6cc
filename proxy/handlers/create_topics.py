"""CreateTopics (API key 19): what concerns diskless topics is created by the proxy, as the client.

Behaviour: `creation/creator.py`. What is all classic is forwarded; while fewer brokers are live than a topic needs, the
proxy creates it with the live ones (KIP-409, `creation/replication/creation.py`).

Version notes: the brokers are asked with v7 for the sake of the topic ID; the answer is given in the client's version.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from proxy.client.client import Client
from proxy.client.request import Request
from proxy.client.slots import Slot
from proxy.config import Settings
from proxy.creation.creator import TopicCreator
from proxy.creation.replication.creation import UnderReplicatedTopics
from proxy.topics.topic_configs import DISKLESS_ENABLE, diskless_by_name
from proxy.topics.topics import Topics
from proxy.wire.cold import at_version, encode, read_request
from proxy.wire.errors import ProtocolError, TooManyElements


class CreateTopics:
    """Handler of CreateTopics."""

    def __init__(
        self, settings: Settings, *, topics: Topics, under_replicated: UnderReplicatedTopics, creator: TopicCreator
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._under_replicated = under_replicated
        self._creator = creator

    def create_topics(self, client: Client, request: Request) -> Coroutine[Any, Any, None] | None:
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
        topics, patterns = self._topics, self._settings.default_diskless_topics
        concerned = any(
            any(config.name == DISKLESS_ENABLE for config in topic.configs)
            or diskless_by_name(str(topic.name), patterns)
            or topics.find(str(topic.name)) is not None
            for topic in parsed.topics
        )
        under_replicated = self._under_replicated
        if not concerned and under_replicated.enabled and any(map(under_replicated.may_be_refused, parsed.topics)):
            return self._create_classic(client, request, client.open_slot(request), parsed)
        if not concerned:
            made = under_replicated.enabled and not parsed.validate_only
            client.forward(request, under_replicated.looking_at(request) if made else None)
            return None
        return self._create(client, request, client.open_slot(request), parsed)

    async def _create_classic(self, client: Client, request: Request, slot: Slot, parsed: Any) -> None:
        """Raises BrokerUnreachable."""
        slot.fill([await self._under_replicated.create(client, request, parsed)])

    async def _create(self, client: Client, request: Request, slot: Slot, parsed: Any) -> None:
        """Raises BrokerUnreachable."""
        response = await self._creator.create(client, request, parsed)
        slot.fill([encode(at_version(response, request.api_version, response=True))])
