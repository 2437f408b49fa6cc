"""Count the record bytes that pass: one call per topic, with kind, direction and racks filled in.

Bytes that cross racks are also counted on the connection, so that an operator can find the client that causes them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

from proxy.routing.racks import borders

if TYPE_CHECKING:
    from proxy.client.client import Client
    from proxy.wire.topic_walk import CountTopic

Kind = Literal["classic", "diskless"]
Direction = Literal["produce", "fetch"]


def count_classic(client: Client, client_id: str | None, direction: Direction) -> CountTopic:
    """Counts records of classic topics that go between a client and the broker that its listener stands for."""
    serving_rack = client.context.cluster.rack_of(client.session.node_id)
    return _count(client, client_id, "classic", direction, serving_rack)


def count_diskless(client: Client, client_id: str | None, direction: Direction) -> CountTopic:
    """Counts records of diskless topics: this proxy's rack serves them."""
    return _count(client, client_id, "diskless", direction, client.context.settings.rack)


def count_fetched(client: Client, client_id: str | None, kind: Kind, serving_rack: str) -> CountTopic:
    """Counts records of an answer that the proxy has put together; `serving_rack` is where it had them from."""
    return _count(client, client_id, kind, "fetch", serving_rack)


def _count(client: Client, client_id: str | None, kind: Kind, direction: Direction, serving_rack: str) -> CountTopic:
    context = client.context
    client_rack = context.racks.counted(client.session, client_id)
    count = partial(context.stats.count_records, kind, direction, client_rack, serving_rack)
    own_rack = context.settings.rack
    if client_rack == serving_rack == own_rack:
        return count
    times = borders(client_rack, own_rack, serving_rack)
    if not times:
        return count

    def counted(topic: str | bytes, size: int) -> None:
        client.session.crossed_bytes += times * size
        count(topic, size)

    return counted
