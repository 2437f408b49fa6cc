"""The count of one topic's records on one connection, with everything that decides where they are counted cached.

The same as `Accounts.classic` with each request, which looks up racks and names again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.routing.racks import borders

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxy.brokers.cluster import Cluster
    from proxy.client.session import Session
    from proxy.routing.racks import Racks
    from proxy.telemetry.stats import RecordKey, Stats
    from proxy.wire.topic_walk import CountTopic


class TopicCount:
    """Counts the records of a classic topic between a client and the broker of its listener.

    `classic` is `Accounts.classic` for the client: it counts as long as the brokers have not confirmed the topic.
    """

    __slots__ = (
        "_classic",
        "_client_id",
        "_cluster",
        "_direction",
        "_key",
        "_own_rack",
        "_racks",
        "_racks_state",
        "_session",
        "_stats",
        "_times",
        "_topic",
    )

    def __init__(
        self,
        classic: Callable[[], CountTopic],
        session: Session,
        client_id: str | None,
        direction: str,
        topic: str | bytes,
        *,
        own_rack: str,
        cluster: Cluster,
        racks: Racks,
        stats: Stats,
    ) -> None:
        self._classic = classic
        self._session = session
        self._client_id = client_id
        self._direction = direction
        self._topic = topic
        self._own_rack = own_rack
        self._cluster = cluster
        self._racks = racks
        self._stats = stats
        self._racks_state: object = None
        self._key: RecordKey | None = None
        self._times = 0

    def add(self, size: int) -> None:
        """Count `size` bytes of records."""
        state = self._racks.state()
        if state is not self._racks_state or self._key is None:
            name = self._stats.settled_name(self._topic)
            if name is None:
                self._classic()(self._topic, size)
                return
            client_rack = self._racks.counted(self._session, self._client_id)
            serving_rack = self._cluster.rack_of(self._session.node_id)
            self._racks_state = state
            self._key = ("classic", self._direction, client_rack, serving_rack, name)
            self._times = borders(client_rack, self._own_rack, serving_rack)
        self._stats.record_bytes[self._key] += size
        if self._times:
            self._session.crossed_bytes += self._times * size
