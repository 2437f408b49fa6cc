"""Short forms of common steps with confluent-kafka (librdkafka)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.support.records import Sample, Stored

TIMEOUT_SECONDS = 60.0


def produce(bootstrap: str, topic: str, sent: Sequence[Sample], partition: int = 0, **configs: Any) -> list[int]:
    """Send all values, wait for every acknowledgement, and return the offsets. `_` in option names stands for a dot."""
    return produce_to(bootstrap, topic, {partition: sent}, **configs)[partition]


def produce_to(
    bootstrap: str, topic: str, sent: Mapping[int, Sequence[Sample]], **configs: Any
) -> dict[int, list[int]]:
    """Send values to several partitions in turns; otherwise like `produce`."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **_dotted(configs)})
    acknowledged: dict[int, list[int]] = {partition: [] for partition in sent}
    failures: list[KafkaError] = []

    # Of errors that callbacks raise, the library keeps all but one for good, and with them their frames' clients. Such
    # a client would ask the next stack with the same ports for its topics, and so create them.
    def acknowledge(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(error)
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        acknowledged[partition].append(offset)

    for turn in zip_longest(*sent.values()):
        for partition, sample in zip(sent, turn, strict=True):
            if sample is not None:
                producer.produce(
                    topic,
                    key=sample.key,
                    value=sample.value,
                    headers=list(sample.headers),
                    timestamp=sample.timestamp_ms,
                    partition=partition,
                    on_delivery=acknowledge,
                )
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while (left := producer.flush(0.1)) and not failures and time.monotonic() < deadline:
        pass
    assert not failures, failures[0]
    assert not left, f"{left} records are not acknowledged"
    return acknowledged


@contextmanager
def consumer(bootstrap: str, **configs: Any) -> Iterator[Consumer]:
    """Create a consumer that checks every batch's CRC."""
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


def to_end(client: Consumer) -> Iterator[Message]:
    """Yield the messages up to the end of the only assigned partition. The consumer has `enable_partition_eof`."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        for message in client.consume(100, 0.5):
            if message.error() is not None:
                return
            yield message
    raise AssertionError("the end of the partition did not come")


def take(client: Consumer, count: int, timeout_seconds: float = TIMEOUT_SECONDS) -> list[Message]:
    """Return the next `count` messages of a consumer with assigned partitions; raise the first error among them."""
    messages: list[Message] = []
    deadline = time.monotonic() + timeout_seconds
    while len(messages) < count:
        assert time.monotonic() < deadline, f"only {len(messages)} of {count} records came"
        for message in client.consume(count - len(messages), 0.5):
            assert message.error() is None, message.error()
            messages.append(message)
    return messages


def read(bootstrap: str, topic: str, **configs: Any) -> list[Stored]:
    """Return all of partition 0, from its log start to its high watermark."""
    return read_partitions(bootstrap, topic, 1, **configs)[0]


def read_partitions(bootstrap: str, topic: str, partitions: int, **configs: Any) -> list[list[Stored]]:
    """Return all of the first `partitions` partitions, each in the order in which it arrived."""
    with consumer(bootstrap, **configs) as client:
        asked = [TopicPartition(topic, partition) for partition in range(partitions)]
        ends = [client.get_watermark_offsets(partition, timeout=TIMEOUT_SECONDS) for partition in asked]
        client.assign([TopicPartition(topic, one.partition, low) for one, (low, _) in zip(asked, ends, strict=True)])
        messages = take(client, sum(high - low for low, high in ends))
        return [[as_stored(message) for message in messages if message.partition() == one.partition] for one in asked]


def as_stored(message: Any) -> Stored:
    """Return a message in comparable form."""
    _, timestamp_ms = message.timestamp()
    headers = tuple(message.headers() or ())
    return Stored(message.offset(), message.key(), message.value(), headers, timestamp_ms)


def _dotted(configs: dict[str, Any]) -> dict[str, Any]:
    return {name if name.endswith("_cb") else name.replace("_", "."): value for name, value in configs.items()}
