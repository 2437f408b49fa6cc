"""CreatePartitions (API key 37): the shadow grows first, with the client's rights, then the diskless topic's logs.

Behaviour: as a broker's, which decides and answers. A proxy that dies in between leaves a shadow with more partitions
than the topic has; the fleet's housekeeping brings that in line. Partitions that the brokers refuse because too few are
registered, of classic topics or shadows, are made with those that live (KIP-409, `replication/growth.py`).
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import structlog
from kio.schema.errors import ErrorCode

from proxy.client.client import Client
from proxy.client.request import Request
from proxy.client.slots import Slot
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_registry import DisklessTopic, TopicNotReserved
from proxy.creation.replication.growth import PartitionGrowth
from proxy.creation.reservations import Reservations
from proxy.protocol.errors import NONE, REQUEST_TIMED_OUT, UNKNOWN_TOPIC_OR_PARTITION
from proxy.topics.topics import Topics
from proxy.wire.cold import encode, read_request, read_response
from proxy.wire.errors import ProtocolError

log = structlog.get_logger()


class CreatePartitions:
    """Handler of CreatePartitions."""

    def __init__(self, *, topics: Topics, reservations: Reservations, growth: PartitionGrowth) -> None:
        self._topics = topics
        self._reservations = reservations
        self._growth = growth

    def create_partitions(self, client: Client, request: Request) -> Coroutine[Any, Any, None] | None:
        """Forward requests without diskless topics, unless partitions may be made with fewer replicas (KIP-409)."""
        topics, may_lack_replicas = self._topics, self._growth.under_replicated.enabled
        if not topics.all() and not may_lack_replicas:
            client.forward(request)
            return None
        try:
            asked = read_request(request.api_key, request.api_version, request.body)
        except ProtocolError:
            if topics.all():
                raise
            client.forward(request)
            return None
        if not _diskless(asked, topics) and not may_lack_replicas:
            client.forward(request)
            return None
        return self._grow(client, request, client.open_slot(request), asked)

    async def _grow(self, client: Client, request: Request, slot: Slot, asked: Any) -> None:
        """Raises BrokerUnreachable and ProtocolError."""
        topics = self._topics
        diskless = _diskless(asked, topics)
        if any(entry.state != "live" for entry in diskless.values()):
            await topics.look_again()  # another proxy may have answered the creation already
            diskless = _diskless(asked, topics)
        diskless = {name: entry for name, entry in diskless.items() if entry.state == "live"}
        body = await client.ask(request, request.api_key, request.api_version, [request.body])
        try:
            answered = read_response(request.api_key, request.api_version, body)
        except ProtocolError:
            if diskless:
                raise
            slot.fill([body])
            return
        response = await self._growth.make(client, request, asked, answered)
        if not diskless and response is answered:
            slot.fill([body])
            return
        counts = {str(topic.name): int(topic.count) for topic in asked.topics}
        results = []
        for result in response.results:
            entry = diskless.get(str(result.name))
            if entry is not None and result.error_code.value == NONE:
                try:
                    await self._reservations.open(entry.name, entry.topic_id, counts[entry.name])
                    log.info("diskless_topic_grown", topic=entry.name, partitions=counts[entry.name])
                except TopicNotReserved as error:  # deleted meanwhile
                    result = replace(result, error_code=ErrorCode(UNKNOWN_TOPIC_OR_PARTITION), error_message=str(error))
                except CoordinatorUnavailable as error:
                    self._reservations.leave(entry.name)
                    log.error(
                        "diskless_topic_not_grown", topic=entry.name, reason=str(error), remedy="none: it is later"
                    )
                    result = replace(result, error_code=ErrorCode(REQUEST_TIMED_OUT), error_message=str(error))
            results.append(result)
        slot.fill([encode(replace(response, results=tuple(results)))])


def _diskless(asked: Any, topics: Topics) -> dict[str, DisklessTopic]:
    """Return which of the topics that are to grow are diskless, by name: live ones, and ones that may change."""
    found = (topics.find(str(topic.name)) for topic in asked.topics if not asked.validate_only)
    return {entry.name: entry for entry in found if entry is not None and entry.state != "deleting"}
