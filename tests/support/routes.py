"""Find out which broker a producer sends to, from librdkafka's own request counts."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Self

from confluent_kafka import KafkaError, Producer


class Route:
    """A producer that reports where its records went, as a context."""

    def __init__(self, bootstrap: str, client_id: str = "rdkafka", **configs: Any) -> None:
        self._last: dict[tuple[int, str], int] = {}
        self._requests: Counter[tuple[int, str]] = Counter()
        settings = {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "linger.ms": 0,
            "statistics.interval.ms": 50,
            "stats_cb": self._learn,
            **{name.replace("_", "."): value for name, value in configs.items()},
        }
        self._producer = Producer(settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        del self._producer

    def send(self, topic: str, partitions: Sequence[int]) -> dict[int, str]:
        """Send a record to each of the partitions; return the node IDs and `host:port` that got Produce requests for
        them."""
        errors: list[KafkaError | None] = []
        for partition in partitions:
            self._producer.produce(
                topic, b"to whom?", partition=partition, on_delivery=lambda error, _: errors.append(error)
            )
        assert not self._producer.flush(60), "not acknowledged"
        assert errors == [None] * len(partitions)
        deadline = time.monotonic() + 30
        while self._requests.total() < len(partitions):
            assert time.monotonic() < deadline, f"the client has counted these requests only: {self._requests}"
            self._producer.poll(0.1)
        went, self._requests = self._requests, Counter()
        return dict(went.keys())

    def _learn(self, statistics: str) -> None:
        for broker in json.loads(statistics)["brokers"].values():
            key, count = (broker["nodeid"], broker["nodename"]), broker["req"].get("Produce", 0)
            # A broker that was gone starts to count from zero.
            more = count - self._last.get(key, 0) if count >= self._last.get(key, 0) else count
            self._last[key] = count
            if more:
                self._requests[key] += more
