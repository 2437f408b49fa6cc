"""Count the record bytes that pass: one call per topic, with kind, direction and racks filled in.

Bytes that cross racks are also counted on the session, so that an operator can find the client that causes them.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

from proxy.accounting.topic_count import TopicCount
from proxy.brokers.cluster import Cluster
from proxy.client.session import Session
from proxy.routing.racks import Racks, borders
from proxy.telemetry.stats import Stats
from proxy.wire.topic_walk import CountTopic

Kind = Literal["classic", "diskless"]
Direction = Literal["produce", "fetch"]


class Accounts:
    """The record bytes of all clients. `own_rack` is the proxy's."""

    def __init__(self, own_rack: str, *, cluster: Cluster, racks: Racks, stats: Stats) -> None:
        self._own_rack = own_rack
        self._cluster = cluster
        self._racks = racks
        self._stats = stats

    def classic(self, session: Session, client_id: str | None, direction: Direction) -> CountTopic:
        """Count records of classic topics that go between a client and the broker that its listener stands for."""
        return self._count(session, client_id, "classic", direction, self._cluster.rack_of(session.node_id))

    def classic_topic(
        self, session: Session, client_id: str | None, direction: Direction, topic: str | bytes
    ) -> TopicCount:
        """Return a counter that does `classic` for one topic, and may be kept as long as the client's connection."""
        return TopicCount(
            partial(self.classic, session, client_id, direction),
            session,
            client_id,
            direction,
            topic,
            own_rack=self._own_rack,
            cluster=self._cluster,
            racks=self._racks,
            stats=self._stats,
        )

    def diskless(self, session: Session, client_id: str | None, direction: Direction) -> CountTopic:
        """Count records of diskless topics: this proxy's rack serves them."""
        return self._count(session, client_id, "diskless", direction, self._own_rack)

    def fetched(self, session: Session, client_id: str | None, kind: Kind, serving_rack: str) -> CountTopic:
        """Count records of an answer that the proxy has put together; `serving_rack` is where they came from."""
        return self._count(session, client_id, kind, "fetch", serving_rack)

    def _count(
        self, session: Session, client_id: str | None, kind: Kind, direction: Direction, serving_rack: str
    ) -> CountTopic:
        client_rack, own_rack = self._racks.counted(session, client_id), self._own_rack
        count = partial(self._stats.count_records, kind, direction, client_rack, serving_rack)
        if client_rack == serving_rack == own_rack:
            return count
        times = borders(client_rack, own_rack, serving_rack)
        if not times:
            return count

        def counted(topic: str | bytes, size: int) -> None:
            session.crossed_bytes += times * size
            count(topic, size)

        return counted
