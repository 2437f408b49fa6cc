"""The same requests to a classic and to a diskless topic: the same is answered, and the same is read back."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec

from proxy.demo.stack import Stack
from tests.support.confluent import consumer, produce, read
from tests.support.records import COMPRESSIONS, Sample, Stored, samples
from tests.support.topics import CLASSIC, DISKLESS, admin, new_topic

PARTITIONS = 3
HOUR_MS = 3_600_000


def both(act: Callable[[str], Any], topics: dict[str, str]) -> Any:
    """Do it to both topics; what came of it, which has to be the same."""
    classic, diskless = (act(topics[kind]) for kind in (CLASSIC, DISKLESS))
    assert classic == diskless
    return classic


def test_both_kinds_answer_and_keep_the_same(stack: Stack) -> None:
    topics = {
        kind: new_topic(stack, "differential", kind, PARTITIONS, configs={"max.message.bytes": "60000"})
        for kind in (CLASSIC, DISKLESS)
    }
    for place, compression in enumerate(COMPRESSIONS):
        rack = list(stack.proxies)[place % len(stack.proxies)]
        for partition in range(PARTITIONS):
            sent = samples(10 * partition + place + 1, f"{compression}-{partition}")

            def send(topic: str, rack: str = rack, partition: int = partition, sent: list[Sample] = sent) -> list[int]:
                return produce(
                    stack.bootstrap(rack),
                    topic,
                    sent,
                    partition,
                    compression_type=compression,  # noqa: B023
                    acks=-1 if partition else 1,
                    batch_num_messages=4,
                    enable_idempotence=bool(partition),
                )

            both(send, topics)

    now_ms = int(time.time() * 1000)
    too_large = Sample(b"key", b"x" * 80_000, (), now_ms)
    from_the_future = Sample(b"key", b"value", (), now_ms + 2 * HOUR_MS)
    assert both(lambda topic: refusal(stack, topic, too_large), topics) == "MSG_SIZE_TOO_LARGE"
    assert both(lambda topic: refusal(stack, topic, from_the_future), topics) == "INVALID_TIMESTAMP"

    for partition in range(PARTITIONS):
        for rack in stack.proxies:

            def look(topic: str, rack: str = rack, partition: int = partition) -> list[Stored]:
                return read(stack.bootstrap(rack), topic, partition)

            kept = both(look, topics)
            assert len(kept) == sum(10 * partition + place + 1 for place in range(len(COMPRESSIONS)))
        both(lambda topic, partition=partition: ends(stack, topic, partition), topics)
    assert both(lambda topic: beyond_the_end(stack, topic), topics) == "_AUTO_OFFSET_RESET"


def refusal(stack: Stack, topic: str, sample: Sample) -> str:
    """The name of the error that a record gets; the client itself lets it pass."""
    producer = Producer({"bootstrap.servers": stack.bootstrap("rack-b"), "message.max.bytes": 1_000_000})
    refused: list[str] = []

    def learn(error: KafkaError | None, _: Message) -> None:
        refused.append("" if error is None else error.name())

    producer.produce(topic, sample.value, sample.key, partition=0, timestamp=sample.timestamp_ms, on_delivery=learn)
    producer.flush(30)
    return refused[0]


def ends(stack: Stack, topic: str, partition: int) -> list[int]:
    """What ListOffsets tells for each special timestamp that clients know."""
    client, asked = admin(stack, "rack-c"), TopicPartition(topic, partition)
    specs = (OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.max_timestamp())
    return [client.list_offsets({asked: spec})[asked].result(30).offset for spec in specs]


def beyond_the_end(stack: Stack, topic: str) -> str:
    """The name of the error of a consumer that begins where no offset is yet."""
    with consumer(stack.bootstrap("rack-c"), auto_offset_reset="error") as client:
        client.assign([TopicPartition(topic, 0, 1_000_000)])
        return first_error(client)


def first_error(client: Consumer) -> str:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        message = client.poll(1.0)
        if message is not None and message.error() is not None:
            return str(message.error().name())
    return "nothing"
