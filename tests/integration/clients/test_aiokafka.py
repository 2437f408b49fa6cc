"""aiokafka, unmodified, on both kinds of topics and through every rack's proxy."""

from __future__ import annotations

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from proxy.demo.stack import Stack
from tests.support.records import COMPRESSIONS, Sample, Stored, samples, stored
from tests.support.topics import KINDS, new_topic

COUNT = 40


async def send(bootstrap: str, topic: str, compression: str, sent: list[Sample]) -> list[int]:
    codec = None if compression == "none" else compression
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, compression_type=codec, enable_idempotence=True) as client:
        waiting = [
            await client.send(topic, sample.value, sample.key, 0, sample.timestamp_ms, headers=[*sample.headers])
            for sample in sent
        ]
        return [(await future).offset for future in waiting]


async def take(client: AIOKafkaConsumer, count: int) -> list[Stored]:
    got: list[Stored] = []
    while len(got) < count:
        for messages in (await client.getmany(timeout_ms=1000, max_records=count - len(got))).values():
            got += [
                Stored(message.offset, message.key, message.value, tuple(message.headers), message.timestamp)
                for message in messages
            ]
    return got


@pytest.mark.parametrize("kind", KINDS)
async def test_every_compression_reads_the_same_in_every_rack(stack: Stack, kind: str) -> None:
    topic = new_topic(stack, "aiokafka", kind)
    sent: list[Sample] = []
    for compression in COMPRESSIONS:
        batch = samples(COUNT, compression, plain=True)
        offsets = await send(stack.bootstrap("rack-b"), topic, compression, batch)
        assert offsets == list(range(len(sent), len(sent) + COUNT))
        sent += batch
    partition = TopicPartition(topic, 0)
    for rack in stack.proxies:
        async with AIOKafkaConsumer(bootstrap_servers=stack.bootstrap(rack), auto_offset_reset="earliest") as client:
            client.assign([partition])
            assert await client.end_offsets([partition]) == {partition: len(sent)}
            assert await take(client, len(sent)) == stored(sent)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_group_continues_in_another_rack_from_its_committed_offset(stack: Stack, kind: str) -> None:
    topic = new_topic(stack, "aiokafka-group", kind)
    sent = samples(COUNT, "group", plain=True)
    await send(stack.bootstrap("rack-a"), topic, "none", sent)
    got: list[Stored] = []
    for rack, count in (("rack-b", 15), ("rack-c", COUNT - 15)):
        async with AIOKafkaConsumer(
            topic,
            bootstrap_servers=stack.bootstrap(rack),
            group_id=f"{topic}-readers",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as client:
            got += await take(client, count)
            await client.commit({TopicPartition(topic, 0): len(got)})
    assert got == stored(sent)
