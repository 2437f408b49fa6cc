"""ConsumerGroupHeartbeat, ShareGroupHeartbeat, StreamsGroupHeartbeat (API keys 68, 76, 88): a member says its rack.

Behaviour: the request goes on as it came, and the brokers' answer streams through. The rack is that of KIP-848 and
KIP-881 (`client.rack`); it comes with the member's first heartbeat, and null says that it has not changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.wire.errors import ProtocolError
from proxy.wire.group_heartbeat import heartbeat_rack

if TYPE_CHECKING:
    from proxy.connection import ClientConnection
    from proxy.request import Request


def group_heartbeat(connection: ClientConnection, request: Request) -> None:
    """Learn and forward; what can't be read is the broker's to refuse."""
    try:
        rack = heartbeat_rack(request.api_key, request.body)
    except ProtocolError:
        rack = None
    connection.context.racks.learn(connection, request.client_id, rack)
    connection.forward(request)
