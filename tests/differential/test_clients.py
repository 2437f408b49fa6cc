"""Send the same requests to a classic and to a diskless topic: answers and stored records must be equal."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaError, Message, Producer, TopicPartition

from proxy.demo.stack import Stack
from tests.support.confluent import consumer, produce_to, read_partitions
from tests.support.records import COMPRESSIONS, Sample, samples
from tests.support.topics import CLASSIC, DISKLESS, new_topic, offsets

PARTITIONS = 3
HOUR_MS = 3_600_000
Answer = TypeVar("Answer")


def test_both_kinds_return_and_store_the_same(stack: Stack) -> None:
    topics = [
        new_topic(stack, "differential", kind, PARTITIONS, configs={"max.message.bytes": "60000"})
        for kind in (CLASSIC, DISKLESS)
    ]

    def both(act: Callable[[str], Answer]) -> Answer:
        """Apply it to both topics; return the result, which must be the same."""
        classic, diskless = (act(topic) for topic in topics)
        assert classic == diskless
        return classic

    racks = [stack.bootstrap(rack) for rack in stack.proxies]
    for place, compression in enumerate(COMPRESSIONS):
        sent = {partition: samples(6 * partition + place + 1, compression) for partition in range(PARTITIONS)}
        configs = {
            "compression_type": compression,
            "batch_num_messages": 4,
            "enable_idempotence": place % 2 == 0,
            "acks": -1 if place % 2 == 0 else 1,
        }
        both(lambda topic: produce_to(racks[place % 3], topic, sent, **configs))  # noqa: B023

    now_ms = int(time.time() * 1000)
    too_large = Sample(b"key", b"x" * 80_000, (), now_ms)
    from_the_future = Sample(b"key", b"value", (), now_ms + 2 * HOUR_MS)
    assert both(lambda topic: refusal(racks[1], topic, too_large)) == "MSG_SIZE_TOO_LARGE"
    assert both(lambda topic: refusal(racks[1], topic, from_the_future)) == "INVALID_TIMESTAMP"
    assert both(lambda topic: beyond_the_end(racks[2], topic)) == "_AUTO_OFFSET_RESET"

    assert both(lambda topic: offsets(stack, topic, 2, "rack-b")) == (0, 6 * 2 * 5 + 15)
    for rack in racks:
        kept = both(lambda topic: read_partitions(rack, topic, PARTITIONS))  # noqa: B023
        assert [len(partition) for partition in kept] == [15, 45, 75]


def refusal(bootstrap: str, topic: str, sample: Sample) -> str:
    """Return the name of the broker side's error for a record that the client itself accepts."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    refused: list[str] = []

    def learn(error: KafkaError | None, _: Message) -> None:
        refused.append("" if error is None else error.name())

    producer.produce(topic, sample.value, sample.key, partition=0, timestamp=sample.timestamp_ms, on_delivery=learn)
    producer.flush(30)
    return refused[0]


def beyond_the_end(bootstrap: str, topic: str) -> str:
    """Return the error name of a consumer that begins at an offset beyond the end."""
    with consumer(bootstrap, auto_offset_reset="error") as client:
        client.assign([TopicPartition(topic, 0, 1_000_000)])
        message = client.poll(30)
        assert message is not None
        return str(message.error().name())
