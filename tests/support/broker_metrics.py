"""What the brokers themselves say that they have served, read over JMX (the stack's option `broker_jmx`)."""

from __future__ import annotations

from proxy.demo.stack import Stack
from tests.support.java_tools import JavaTools

BYTES_OUT = "kafka.server:type=BrokerTopicMetrics,name=BytesOutPerSec,topic={topic}"
"""Bytes of record batches that a broker gave to consumers; what followers take is counted elsewhere."""


def bytes_out(stack: Stack, tools: JavaTools, topic: str) -> dict[str, int]:
    """By rack: what its broker has given to consumers of the topic since the broker's start."""
    racks = {stack.ports.broker_jmx(node): rack for node, rack in stack.kafka.racks.items()}
    told = tools.check("JmxCounts", BYTES_OUT.format(topic=topic), *map(str, racks))
    counts = dict.fromkeys(racks.values(), 0)  # a broker that gave nothing yet has no meter
    for line in told.splitlines():
        port, _, count = line.split()
        counts[racks[int(port)]] = int(count)
    return counts


class Served:
    """What was served of a topic since this was made."""

    def __init__(self, stack: Stack, tools: JavaTools, topic: str) -> None:
        self._stack, self._tools, self._topic = stack, tools, topic
        self._before = bytes_out(stack, tools, topic)

    def by_rack(self) -> dict[str, int]:
        """Record bytes by the rack of the broker that gave them; racks that gave none are left out."""
        now = bytes_out(self._stack, self._tools, self._topic)
        return {rack: count - self._before[rack] for rack, count in now.items() if count > self._before[rack]}
