"""Short forms of what tests do with confluent-kafka (librdkafka)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.support.records import Sample, Stored

TIMEOUT_SECONDS = 60.0


def produce(bootstrap: str, topic: str, sent: Sequence[Sample], partition: int = 0, **configs: Any) -> list[int]:
    """Send all and wait for every acknowledgement; the offsets that the producer was told. Dots are written as `_`."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **_dotted(configs)})
    acknowledged: list[int] = []

    def acknowledge(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        acknowledged.append(message.offset())

    for sample in sent:
        producer.produce(
            topic,
            key=sample.key,
            value=sample.value,
            headers=list(sample.headers),
            timestamp=sample.timestamp_ms,
            partition=partition,
            on_delivery=acknowledge,
        )
    left = producer.flush(TIMEOUT_SECONDS)
    assert not left, f"{left} of {len(sent)} records are not acknowledged"
    return acknowledged


@contextmanager
def consumer(bootstrap: str, **configs: Any) -> Iterator[Consumer]:
    """A consumer that checks every batch's CRC."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "unused",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "check.crcs": True,
        **_dotted(configs),
    }
    client = Consumer(settings)
    try:
        yield client
    finally:
        client.close()


def take(client: Consumer, count: int, timeout_seconds: float = TIMEOUT_SECONDS) -> list[Message]:
    """The next `count` messages of a consumer that has its partitions; an error of any of them is raised."""
    messages: list[Message] = []
    deadline = time.monotonic() + timeout_seconds
    while len(messages) < count:
        assert time.monotonic() < deadline, f"only {len(messages)} of {count} records came"
        for message in client.consume(count - len(messages), 0.5):
            assert message.error() is None, message.error()
            messages.append(message)
    return messages


def read(bootstrap: str, topic: str, partition: int = 0, **configs: Any) -> list[Stored]:
    """Everything in the partition, from its log start to its high watermark."""
    with consumer(bootstrap, **configs) as client:
        low, high = client.get_watermark_offsets(TopicPartition(topic, partition), timeout=TIMEOUT_SECONDS)
        client.assign([TopicPartition(topic, partition, low)])
        return [as_stored(message) for message in take(client, high - low)]


def as_stored(message: Message) -> Stored:
    """A message in comparable form."""
    _, timestamp_ms = message.timestamp()
    headers = tuple(message.headers() or ())
    return Stored(message.offset(), message.key(), message.value(), headers, timestamp_ms)


def _dotted(configs: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in configs.items()}
