"""Read all records of a topic with a Kafka consumer through a proxy."""

from __future__ import annotations

import time

from confluent_kafka import KafkaError, TopicPartition

from tests.pipeline_under_load.books import Read, as_read
from tests.support.confluent import consumer

READ_SECONDS = 300.0


def log_start(bootstrap: str, topic: str, partition: int) -> int:
    """Return the first offset of the log."""
    with consumer(bootstrap) as client:
        offsets = client.get_watermark_offsets(TopicPartition(topic, partition), READ_SECONDS, cached=False)
        assert offsets is not None
        return offsets[0]


def read_topic(run: bytes, bootstrap: str, topic: str, partitions: int) -> list[list[Read]]:
    """Return the records by partition, in the order in which they arrived, up to the end of each partition."""
    found: list[list[Read]] = [[] for _ in range(partitions)]
    left = set(range(partitions))
    deadline = time.monotonic() + READ_SECONDS
    with consumer(bootstrap, enable_partition_eof=True) as client:
        client.assign([TopicPartition(topic, partition, -2) for partition in range(partitions)])
        while left:
            assert time.monotonic() < deadline, f"{topic}: partitions {sorted(left)} have not come to their ends"
            for message in client.consume(1_000, 0.5):
                partition, error = message.partition(), message.error()
                assert partition is not None
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    left.discard(partition)
                    continue
                offset = message.offset()
                assert offset is not None
                _, timestamp_ms = message.timestamp()
                headers = list(message.headers() or ())
                found[partition].append(as_read(run, offset, message.key(), message.value(), headers, timestamp_ms))
    return found
