"""The program of `copier.py` with aiokafka: it reads a diskless topic, and writes each record to other topics, once.

python -m tests.support.aiokafka_copier BOOTSTRAP NAME INPUT OUTPUT…
"""

from __future__ import annotations

import asyncio
import random
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.support.copier import ABORTED, RECORDS_PER_ROUND, ROUND_SECONDS, TRANSACTION_TIMEOUT_MS


async def copy(bootstrap: str, name: str, source: str, outputs: list[str]) -> None:
    """Copy until an error comes. Raises KafkaError and TimeoutError."""
    servers = bootstrap.split(",")
    producer = AIOKafkaProducer(
        bootstrap_servers=servers,
        client_id=name,
        transactional_id=name,
        transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
    )
    consumer = AIOKafkaConsumer(
        bootstrap_servers=servers,
        client_id=name,
        group_id=name,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    async with asyncio.timeout(ROUND_SECONDS):
        await producer.start()
        await consumer.start()
        found = None
        while not found:
            cluster = await consumer._client.fetch_all_metadata()
            found = cluster.partitions_for_topic(source)
    assigned = [TopicPartition(source, partition) for partition in found]
    consumer.assign(assigned)
    await rewind(consumer, assigned)
    while True:
        fetched = await consumer.getmany(timeout_ms=500, max_records=RECORDS_PER_ROUND)
        if not fetched:
            continue
        async with asyncio.timeout(ROUND_SECONDS):
            await producer.begin_transaction()
            sent = [
                await producer.send(topic, message.value, partition=message.partition)
                for messages in fetched.values()
                for message in messages
                for topic in outputs
            ]
            await producer.send_offsets_to_transaction(
                {one: some[-1].offset + 1 for one, some in fetched.items()}, name
            )
            await asyncio.gather(*sent)
            if random.random() < ABORTED:
                await producer.abort_transaction()
                await rewind(consumer, assigned)
            else:
                await producer.commit_transaction()


async def rewind(consumer: AIOKafkaConsumer, assigned: list[TopicPartition]) -> None:
    """Continue at the offsets that are committed."""
    for one in assigned:
        consumer.seek(one, await consumer.committed(one) or 0)


if __name__ == "__main__":
    _, address, transactional_id, read_topic, *written_topics = sys.argv
    asyncio.run(copy(address, transactional_id, read_topic, written_topics))
