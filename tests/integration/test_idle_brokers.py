"""Brokers close connections that are idle (`connections.max.idle.ms`): a consumer that reads from a near replica reads
on.

Its own broker, the leader, hears nothing of its Fetches.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic

from proxy.demo.security import ADMIN, SERVICE
from proxy.demo.stack import Stack
from tests.support.acls import Acls
from tests.support.metrics import Metrics
from tests.support.routed import LEADER, LEADER_READS, NEAR, RACK, RACK_OF_LEADER

IDLE_MS = 6_000
RIGHTS_MS = 1_000
"""`authorization_cache_ms`. The proxy can't connect again for a client that has authenticated. Its questions for the
client's rights keep that connection open, and come well within `IDLE_MS`."""
READ_S = 3.5 * IDLE_MS / 1000
"""Brokers look for idle connections rarely: they end them within twice that time."""

pytestmark = pytest.mark.timeout(240)


class Reader:
    """An unmodified consumer of one partition in the rack of the near replica."""

    def __init__(self, stack: Stack, topic: str, settings: dict[str, str]) -> None:
        self.offsets: list[int] = []
        self._disconnects = 0
        self._counted_s = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": stack.bootstrap(RACK),
                "group.id": "unused",
                "enable.auto.commit": False,
                "log_level": 0,
                "statistics.interval.ms": 200,
                # A client that bootstraps again forgets how often its connections ended.
                "metadata.recovery.strategy": "none",
                "stats_cb": self._count,
                **settings,
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, 0)])

    def read(self) -> None:
        """Take the records of a moment."""
        for message in self._consumer.consume(100, 0.1):
            assert message.error() is None, message.error()
            self.offsets.append(message.offset())

    def pause(self, seconds: float) -> None:
        """Fetch nothing for that long."""
        assigned = self._consumer.assignment()
        self._consumer.pause(assigned)
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            assert not self._consumer.consume(100, 0.1)
        self._consumer.resume(assigned)

    def disconnects(self) -> int:
        """Return the number of times that the leader's listener ended the connection.

        While there are messages, librdkafka queues its statistics.
        """
        asked_s = time.time()
        while self._counted_s <= asked_s:
            assert self._consumer.poll(0.1) is None
        return self._disconnects

    def close(self) -> None:
        self._consumer.close()

    def _count(self, statistics: str) -> None:
        counted = json.loads(statistics)
        self._counted_s = counted["time"]
        brokers = counted["brokers"].values()
        self._disconnects = sum(broker["disconnects"] for broker in brokers if broker["nodeid"] == LEADER)


@pytest.mark.parametrize("security", ["plaintext", "sasl_plaintext"])
def test_a_consumer_reads_near_for_longer_than_its_own_broker_waits(
    new_stack: Callable[..., Stack], security: str
) -> None:
    stack = new_stack(
        racks=(RACK, RACK_OF_LEADER),
        security=security,
        broker_properties={"connections.max.idle.ms": str(IDLE_MS)},
        overrides={"authorization_cache_ms": RIGHTS_MS},
    )
    settings = stack.security.client_settings(ADMIN) if security != "plaintext" else {}
    topic = f"idle-{uuid.uuid4().hex[:6]}"
    direct = {"bootstrap.servers": stack.direct_bootstrap, **settings}
    client = AdminClient(direct)  # it must live until the result is there
    client.create_topics([NewTopic(topic, 1, replica_assignment=[[LEADER, NEAR]])])[topic].result(40)
    if security != "plaintext":
        Acls(stack).allow(SERVICE, AclOperation.READ, topic)
    producer, acknowledged = Producer({**direct, "linger.ms": 0, "log_level": 0}), []

    def take(error: object, message: Message) -> None:
        assert error is None, error
        acknowledged.append(message.offset())

    def write() -> None:
        producer.produce(topic, b"x", on_delivery=take)
        producer.poll(0)

    write()
    assert not producer.flush(60)
    before = Metrics(stack, RACK).value(LEADER_READS)
    reader = Reader(stack, topic, settings)
    try:
        while len(reader.offsets) < 1:
            reader.read()
        began_s = time.monotonic()
        while time.monotonic() < began_s + READ_S:
            write()
            reader.read()
        if security == "plaintext":
            reader.pause(2.5 * IDLE_MS / 1000)
        write()
        assert not producer.flush(60)
        until_s = time.monotonic() + 30
        while len(reader.offsets) < len(acknowledged) and time.monotonic() < until_s:
            reader.read()
        disconnects = reader.disconnects()
    finally:
        reader.close()
    assert reader.offsets == sorted(acknowledged)
    assert disconnects == 0, Metrics(stack, RACK).samples("diskless_proxy_connections_ended_total")
    after = Metrics(stack, RACK).value(LEADER_READS)
    print(f"{len(reader.offsets)} records, {after - before:g} reads by the leader")
