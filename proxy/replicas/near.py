"""The brokers of the proxy's own rack, and which listeners stand for brokers of another one."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from proxy.cluster import ClusterView

_MAX_REMEMBERED = 10_000


class Near(NamedTuple):
    """Node IDs of the proxy's rack; the same object as long as nothing has changed."""

    live: frozenset[int]
    down: frozenset[int]
    """Seen in this rack, and not alive now."""


class NearBrokers:
    """Reads racks off the live brokers, and remembers those of brokers that are down."""

    def __init__(self, rack: str, view: Callable[[], ClusterView]) -> None:
        """`rack` is the proxy's own."""
        self._rack = rack
        self._view = view
        self._seen: ClusterView | None = None
        self._racks: dict[int, str] = {}
        self._near = Near(frozenset(), frozenset())

    def now(self) -> Near:
        """The brokers of the proxy's rack. Cheap: made anew only when the live brokers have changed."""
        view = self._view()
        if view is not self._seen:
            self._learn(view)
        return self._near

    def is_foreign(self, node_id: int | None) -> bool:
        """Whether a listener (None: bootstrap) stands for a broker that is known to be of another rack.

        Also one that is down: who is connected to it still reads.
        """
        if node_id is None:
            return False
        self.now()
        return self._racks.get(node_id, self._rack) != self._rack

    def _learn(self, view: ClusterView) -> None:
        self._seen = view
        for node, broker in view.brokers.items():
            self._racks.pop(node, None)
            if broker.rack:
                self._racks[node] = broker.rack
        while len(self._racks) > _MAX_REMEMBERED:
            del self._racks[next(iter(self._racks))]
        of_rack = frozenset(node for node, rack in self._racks.items() if rack == self._rack)
        near = Near(of_rack & view.brokers.keys(), of_rack - view.brokers.keys())
        if near != self._near:
            self._near = near
