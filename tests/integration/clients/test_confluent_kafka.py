"""confluent-kafka (librdkafka), unmodified, on both kinds of topics and through every rack's proxy."""

from __future__ import annotations

import pytest
from confluent_kafka import TopicPartition

from proxy.demo.stack import Stack
from tests.support.confluent import as_stored, consumer, produce, read, take
from tests.support.records import COMPRESSIONS, samples, stored
from tests.support.topics import DISKLESS, KINDS, create_topic, delete_topic, new_topic, offsets

COUNT = 60


@pytest.mark.parametrize("kind", KINDS)
def test_every_compression_reads_the_same_in_every_rack(stack: Stack, kind: str) -> None:
    topic = new_topic(stack, "confluent", kind)
    sent = []
    for compression in COMPRESSIONS:
        batch = samples(COUNT, compression)
        offsets = produce(
            stack.bootstrap("rack-a"), topic, batch, compression_type=compression, enable_idempotence=compression > "l"
        )
        assert offsets == list(range(len(sent), len(sent) + COUNT))
        sent += batch
    for rack in stack.proxies:
        assert read(stack.bootstrap(rack), topic) == stored(sent)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_continues_in_another_rack_from_its_committed_offset(stack: Stack, protocol: str) -> None:
    topic = new_topic(stack, f"group-{protocol}", DISKLESS)
    sent = samples(COUNT, "group")
    produce(stack.bootstrap("rack-a"), topic, sent)
    group = {"group_id": f"{topic}-readers", "group_protocol": protocol}
    with consumer(stack.bootstrap("rack-b"), **group) as client:
        client.subscribe([topic])
        first = take(client, 25)
        client.commit(message=first[-1], asynchronous=False)
    with consumer(stack.bootstrap("rack-c"), **group) as client:
        client.subscribe([topic])
        rest = take(client, COUNT - 25)
        assert client.committed([TopicPartition(topic, 0)], timeout=30)[0].offset == 25
    assert [as_stored(message) for message in first + rest] == stored(sent)


def test_a_deleted_and_recreated_diskless_topic_starts_empty(stack: Stack) -> None:
    topic = new_topic(stack, "recreated", DISKLESS, partitions=2)
    produce(stack.bootstrap("rack-a"), topic, samples(9, "before"))
    with consumer(stack.bootstrap("rack-b")) as client:
        client.assign([TopicPartition(topic, 0, 0)])
        take(client, 9)
    delete_topic(stack, topic, rack="rack-b")
    create_topic(stack, topic, DISKLESS, rack="rack-c")
    for rack in stack.proxies:
        assert offsets(stack, topic, rack=rack) == (0, 0)
        assert read(stack.bootstrap(rack), topic) == []
    sent = samples(4, "after")
    assert produce(stack.bootstrap("rack-b"), topic, sent) == [0, 1, 2, 3]
    for rack in stack.proxies:
        assert read(stack.bootstrap(rack), topic) == stored(sent)
