"""ConsumerGroupHeartbeat, ShareGroupHeartbeat, StreamsGroupHeartbeat (API keys 68, 76, 88): a member says its rack.

Behaviour: the request goes on as it came, and the brokers' answer streams through. The rack is that of KIP-848 and
KIP-881 (`client.rack`); it comes with the member's first heartbeat, and null says that it has not changed.

A streams group's first heartbeat (KIP-1071) tells its topology, of which the brokers make the internal topics by
themselves. These are classic; the log says so of those whose names would make them diskless.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from proxy.seldom import NAMES_TOLD
from proxy.topic_configs import diskless_by_name
from proxy.wire.cold import read_request
from proxy.wire.errors import ProtocolError
from proxy.wire.group_heartbeat import heartbeat_rack

if TYPE_CHECKING:
    from proxy.connection import ClientConnection
    from proxy.request import Request


_STREAMS_GROUP_HEARTBEAT = 88


def group_heartbeat(connection: ClientConnection, request: Request) -> None:
    """Learn and forward; what can't be read is the broker's to refuse."""
    try:
        rack = heartbeat_rack(request.api_key, request.body)
    except ProtocolError:
        rack = None
    connection.context.racks.learn(connection, request.client_id, rack)
    patterns = connection.context.settings.default_diskless_topics
    if patterns and request.api_key == _STREAMS_GROUP_HEARTBEAT:
        _tell_of_classic_topics(connection, request, patterns)
    connection.forward(request)


def _tell_of_classic_topics(connection: ClientConnection, request: Request, patterns: tuple[str, ...]) -> None:
    try:
        asked: Any = read_request(request.api_key, request.api_version, request.body)
    except ProtocolError:
        return
    names = [name for name in internal_topics(asked.topology) if diskless_by_name(name, patterns)]
    if names:
        connection.context.log_seldom.warning(
            "streams_topics_are_classic",
            topics=names[:NAMES_TOLD],
            group=asked.group_id,
            reason="the brokers make them by themselves, past the proxy",
            remedy="create them before the application, or let no pattern of default_diskless_topics match them",
        )


def internal_topics(topology: Any) -> list[str]:
    """The topics of a topology that brokers make where they are missing: repartition topics.

    Changelogs are compacted, and so classic by default anyway.
    """
    if topology is None:
        return []
    found = (topic.name for one in topology.subtopologies for topic in one.repartition_source_topics)
    return sorted({str(name) for name in found})
