"""The brokers of a cluster, as parts of the proxy see them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from proxy.brokers.cluster import ClusterView
from proxy.wire.metadata import Broker

Answer = Callable[[int, bytes], bytes]
"""Answers version and body."""


class Brokers:
    """A cluster, and its service connection: `answers` by API key."""

    def __init__(self, brokers: Mapping[int, Broker], answers: Mapping[int, Answer] | None = None) -> None:
        self.view = ClusterView(dict(brokers))
        self.racks_seen = {node: broker.rack for node, broker in brokers.items()}
        self.cluster_id = "cluster"
        self.service = self
        self.learned = 0
        self._answers = answers or {}

    def rack_of(self, node_id: int | None) -> str:
        return (self.racks_seen.get(node_id) if node_id is not None else None) or ""

    def learn(self, brokers: object) -> None:
        self.learned += 1

    async def ask(self, api_key: int, version: int, body: bytes) -> memoryview:
        return memoryview(self._answers[api_key](version, body))
