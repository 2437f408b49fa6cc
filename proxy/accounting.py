"""Who is told of the record bytes that pass: one call per topic, with kind, direction and racks filled in."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from proxy.connection import ClientConnection
    from proxy.wire.topic_walk import CountTopic

Direction = Literal["produce", "fetch"]


def count_classic(connection: ClientConnection, client_id: str | None, direction: Direction) -> CountTopic:
    """Counts records of classic topics that go between a client and the broker that its listener stands for."""
    context = connection.context
    client_rack = context.racks.counted(connection, client_id)
    serving_rack = context.cluster.rack_of(connection.node_id)
    return partial(context.stats.count_records, "classic", direction, client_rack, serving_rack)


def count_diskless(connection: ClientConnection, client_id: str | None, direction: Direction) -> CountTopic:
    """Counts records of diskless topics: this proxy's rack serves them."""
    context = connection.context
    client_rack = context.racks.counted(connection, client_id)
    return partial(context.stats.count_records, "diskless", direction, client_rack, context.settings.rack)
