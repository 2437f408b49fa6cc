"""kafka-python, unmodified, on both kinds of topics and through every rack's proxy."""

from __future__ import annotations

import warnings
from contextlib import closing

import pytest

from proxy.demo.stack import Stack
from tests.support.confluent import read
from tests.support.records import COMPRESSIONS, Sample, Stored, samples, stored
from tests.support.topics import KINDS, new_topic

with warnings.catch_warnings():
    # Its import raises warnings that are not ours to fix.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition, codec

COUNT = 40
HERE = [name for name in COMPRESSIONS if name == "none" or getattr(codec, f"has_{name}")()]
"""Codecs that it supports with the installed packages."""


def send(bootstrap: str, topic: str, compression: str, sent: list[Sample]) -> list[int]:
    named = None if compression == "none" else compression
    with closing(KafkaProducer(bootstrap_servers=bootstrap, compression_type=named, linger_ms=5)) as client:
        waiting = [
            client.send(topic, sample.value, sample.key, [*sample.headers], 0, sample.timestamp_ms) for sample in sent
        ]
        client.flush(timeout=60)
        return [future.get(60).offset for future in waiting]


def take(client: KafkaConsumer, count: int) -> list[Stored]:
    got: list[Stored] = []
    while len(got) < count:
        for messages in client.poll(timeout_ms=1000, max_records=count - len(got)).values():
            got += [
                Stored(message.offset, message.key, message.value, tuple(message.headers), message.timestamp)
                for message in messages
            ]
    return got


@pytest.mark.parametrize("kind", KINDS)
def test_every_compression_reads_the_same_in_every_rack(stack: Stack, kind: str) -> None:
    topic = new_topic(stack, "kafka-python", kind)
    sent: list[Sample] = []
    for compression in HERE:
        batch = samples(COUNT, compression, plain=True)
        offsets = send(stack.bootstrap("rack-c"), topic, compression, batch)
        assert offsets == list(range(len(sent), len(sent) + COUNT))
        sent += batch
    partition = TopicPartition(topic, 0)
    for rack in stack.proxies:
        with closing(KafkaConsumer(bootstrap_servers=stack.bootstrap(rack), auto_offset_reset="earliest")) as client:
            client.assign([partition])
            assert client.end_offsets([partition]) == {partition: len(sent)}
            assert take(client, len(sent)) == stored(sent)
    assert read(stack.bootstrap("rack-a"), topic) == stored(sent)


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_continues_in_another_rack_from_its_committed_offset(stack: Stack, kind: str) -> None:
    topic = new_topic(stack, "kafka-python-group", kind)
    sent = samples(COUNT, "group", plain=True)
    send(stack.bootstrap("rack-a"), topic, "gzip", sent)
    got: list[Stored] = []
    for rack, count in (("rack-b", 15), ("rack-c", COUNT - 15)):
        client = KafkaConsumer(
            topic,
            bootstrap_servers=stack.bootstrap(rack),
            group_id=f"{topic}-readers",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        with closing(client):
            got += take(client, count)
            client.commit()
    assert got == stored(sent)
