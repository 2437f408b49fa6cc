"""The brokers of the proxy's own rack, and which listeners stand for brokers of another one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from proxy.brokers.cluster import Cluster, ClusterView


class Near(NamedTuple):
    """Node IDs of the proxy's rack; the same object as long as nothing has changed."""

    live: frozenset[int]
    down: frozenset[int]
    """Seen in this rack, and not alive now."""


class NearBrokers:
    """The brokers of the proxy's rack, also those that are down."""

    def __init__(self, rack: str, cluster: Cluster) -> None:
        """`rack` is the proxy's own."""
        self._rack = rack
        self._cluster = cluster
        self._seen: ClusterView | None = None
        self._near = Near(frozenset(), frozenset())

    def now(self) -> Near:
        """Return the brokers of the proxy's rack. Cheap: made again only when the live brokers have changed."""
        view = self._cluster.view
        if view is not self._seen:
            self._learn(view)
        return self._near

    def is_foreign(self, node_id: int | None) -> bool:
        """Return whether a listener (None: bootstrap) stands for a broker that is known to be of another rack.

        Also one that is down: who is connected to it still reads.
        """
        return (self._cluster.rack_of(node_id) or self._rack) != self._rack

    def _learn(self, view: ClusterView) -> None:
        self._seen = view
        of_rack = frozenset(node for node, rack in self._cluster.racks_seen.items() if rack == self._rack)
        near = Near(of_rack & view.brokers.keys(), of_rack - view.brokers.keys())
        if near != self._near:
            self._near = near
