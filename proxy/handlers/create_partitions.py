"""CreatePartitions (API key 37): the shadow grows first, with the client's rights, then the diskless topic's logs.

Behaviour: as a broker's, which decides and answers. A proxy that dies in between leaves a shadow with more partitions
than the topic has; the fleet's housekeeping brings that in line.
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog
from kio.schema.errors import ErrorCode

from proxy.coordinator.interface import CoordinatorUnavailable, DisklessTopic
from proxy.errors import NONE, REQUEST_TIMED_OUT
from proxy.wire.cold import encode, read_request, read_response

if TYPE_CHECKING:
    from proxy.connection import ClientConnection
    from proxy.request import Request
    from proxy.slots import Slot

log = structlog.get_logger()


def create_partitions(connection: ClientConnection, request: Request) -> Coroutine[Any, Any, None] | None:
    """Forward what is about no diskless topic."""
    topics = connection.context.topics
    if not topics.all():
        connection.forward(request)
        return None
    asked = read_request(request.api_key, request.api_version, request.body)
    counts = {str(topic.name): int(topic.count) for topic in asked.topics}
    diskless = {name: entry for name in counts if (entry := topics.find(name)) is not None and entry.state == "live"}
    if not diskless or asked.validate_only:
        connection.forward(request)
        return None
    return _grow(connection, request, connection.open_slot(request), diskless, counts)


async def _grow(
    connection: ClientConnection,
    request: Request,
    slot: Slot,
    diskless: dict[str, DisklessTopic],
    counts: dict[str, int],
) -> None:
    """Raises BrokerUnreachable and ProtocolError."""
    body = await connection.ask(request, request.api_key, request.api_version, [request.body])
    response = read_response(request.api_key, request.api_version, body)
    results = []
    for result in response.results:
        entry = diskless.get(str(result.name))
        if entry is not None and result.error_code.value == NONE:
            try:
                await connection.context.reservations.open(entry.name, entry.topic_id, counts[entry.name])
                log.info("diskless_topic_grown", topic=entry.name, partitions=counts[entry.name])
            except CoordinatorUnavailable as error:
                connection.context.reservations.leave(entry.name)
                log.error("diskless_topic_not_grown", topic=entry.name, reason=str(error), remedy="none: it is later")
                result = replace(result, error_code=ErrorCode(REQUEST_TIMED_OUT), error_message=str(error))
        results.append(result)
    slot.fill([encode(replace(response, results=tuple(results)))])
