"""Read over JMX how much the brokers themselves have served (the stack's option `broker_jmx`)."""

from __future__ import annotations

from proxy.demo.stack import Stack
from tests.support.java_tools import JavaTools

BYTES_OUT = "kafka.server:type=BrokerTopicMetrics,name=BytesOutPerSec,topic={topic}"
"""Bytes of record batches that a broker sent to consumers. Bytes for followers are counted elsewhere."""


def bytes_out(stack: Stack, tools: JavaTools, topic: str) -> dict[str, int]:
    """Return, by rack, the bytes that the rack's broker has sent to consumers of the topic since the broker started."""
    racks = {stack.ports.broker_jmx(node): rack for node, rack in stack.kafka.racks.items()}
    printed = tools.check("JmxCounts", BYTES_OUT.format(topic=topic), *map(str, racks))
    counts = dict.fromkeys(racks.values(), 0)  # a broker that has sent nothing yet has no meter
    for line in printed.splitlines():
        port, _, count = line.split()
        counts[racks[int(port)]] = int(count)
    return counts


class Served:
    """Measures what the brokers have served of a topic since this object was created."""

    def __init__(self, stack: Stack, tools: JavaTools, topic: str) -> None:
        self._stack, self._tools, self._topic = stack, tools, topic
        self._before = bytes_out(stack, tools, topic)

    def by_rack(self) -> dict[str, int]:
        """Return record bytes by the rack of the broker that served them. Racks that served none are left out."""
        now = bytes_out(self._stack, self._tools, self._topic)
        return {rack: count - self._before[rack] for rack, count in now.items() if count > self._before[rack]}
