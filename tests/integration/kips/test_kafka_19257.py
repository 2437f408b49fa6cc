"""The test plan of KAFKA-19257 (rack-aware metadata for diskless topics), row by row."""

from __future__ import annotations

import uuid
import warnings
from contextlib import closing

import pytest

from proxy.demo.stack import Stack
from tests.support.confluent import produce, read, read_partitions
from tests.support.records import samples, stored
from tests.support.routes import Route
from tests.support.topics import CLASSIC, DISKLESS, KINDS, create_topic, new_topic, offsets

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

PARTITIONS = (0, 1, 2)
LEADERS = {0: 1, 1: 2, 2: 3}


def hint(rack: str, name: str = "client") -> str:
    """Return a client ID that names the client's rack."""
    return f"{name},diskless_rack_id={rack}"


def listener(stack: Stack, rack: str, node: int) -> str:
    """Return the address where the proxy of the rack stands for the broker."""
    index = list(stack.proxies).index(rack)
    return f"127.0.0.1:{stack.ports.broker_port_start(index) + node}"


def test_classic_produce_goes_to_the_partition_leader_whatever_the_rack(stack: Stack) -> None:
    topic = f"kafka-19257-classic-{uuid.uuid4().hex[:6]}"
    create_topic(stack, topic, CLASSIC, assignment=[[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    for partition in LEADERS:
        offsets(stack, topic, partition)
    for rack in stack.proxies:
        for client_id, listener_rack in (("client", rack), (hint("rack-c"), "rack-c")):
            with Route(stack.bootstrap(rack), client_id) as route:
                for partition, leader in LEADERS.items():
                    assert route.send(topic, [partition]) == {leader: listener(stack, listener_rack, leader)}


def test_diskless_produce_goes_to_a_broker_in_the_clients_rack(stack: Stack) -> None:
    topic = new_topic(stack, "kafka-19257", DISKLESS, len(PARTITIONS))
    for node, rack in stack.kafka.racks.items():
        for proxy in stack.proxies:
            with Route(stack.bootstrap(proxy), "client" if proxy == rack else hint(rack)) as route:
                assert route.send(topic, PARTITIONS) == {node: listener(stack, rack, node)}


def test_unknown_rack_uses_one_of_the_brokers(stack: Stack) -> None:
    topic = new_topic(stack, "kafka-19257-unknown", DISKLESS, len(PARTITIONS))
    chosen = []
    for number in range(6):
        with Route(stack.bootstrap("rack-b"), hint("rack-nowhere", f"client-{number}")) as route:
            (went,) = route.send(topic, PARTITIONS).items()  # one broker leads all diskless partitions of a response
        assert went in {(node, listener(stack, "rack-b", node)) for node in stack.kafka.racks}
        chosen.append(went)
    assert len(set(chosen)) > 1, "six clients of an unknown rack all went to the same broker"


@pytest.mark.timeout(300)
def test_if_the_preferred_racks_brokers_stop_the_producer_continues_elsewhere(stack: Stack) -> None:
    topic = new_topic(stack, "kafka-19257-stopped", DISKLESS, len(PARTITIONS))
    with Route(stack.bootstrap("rack-b"), enable_idempotence=True) as route:
        assert route.send(topic, PARTITIONS).keys() == {2}
        stack.stop_broker(2)
        assert route.send(topic, PARTITIONS)  # another broker may stand in at the listener that the producer knows
        with Route(stack.bootstrap("rack-b")) as newcomer:
            (elsewhere,) = newcomer.send(topic, PARTITIONS).items()
            assert elsewhere in {(node, listener(stack, "rack-b", node)) for node in (1, 3)}
        stack.start_broker(2)
        with Route(stack.bootstrap("rack-b")) as newcomer:
            assert newcomer.send(topic, PARTITIONS).keys() == {2}
        assert route.send(topic, PARTITIONS)
    kept = read_partitions(stack.bootstrap("rack-a"), topic, len(PARTITIONS))
    assert [len(partition) for partition in kept] == [5, 5, 5]


@pytest.mark.parametrize("kind", KINDS)
def test_older_producer_both_kinds_of_topics(stack: Stack, kind: str) -> None:
    topic = new_topic(stack, "kafka-19257-older", kind)
    sent = samples(20, "older", plain=True)
    # Produce v3, Fetch v4 and about Metadata v2: from the time before clients relied on ApiVersions.
    old = {"api_version_request": False, "broker_version_fallback": "0.11.0"}
    assert produce(stack.bootstrap("rack-a"), topic, sent, **old) == list(range(20))
    pinned = {"bootstrap_servers": stack.bootstrap("rack-b"), "api_version": (0, 11)}
    with closing(KafkaProducer(**pinned, enable_idempotence=False, compression_type="gzip")) as producer:
        waiting = [
            producer.send(topic, sample.value, sample.key, [*sample.headers], 0, sample.timestamp_ms) for sample in sent
        ]
        assert [future.get(60).offset for future in waiting] == list(range(20, 40))
    for rack in stack.proxies:
        assert read(stack.bootstrap(rack), topic, **old) == stored(sent + sent)
    with closing(KafkaConsumer(**pinned, auto_offset_reset="earliest")) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        values: list[bytes] = []
        while len(values) < 40:
            values += [message.value for batch in consumer.poll(1000).values() for message in batch]
    assert values == [sample.value for sample in sent + sent]
