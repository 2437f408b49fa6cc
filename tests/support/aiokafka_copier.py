"""The program of `copier.py` with aiokafka: it reads a diskless topic, and writes each record to other topics, once.

python -m tests.support.aiokafka_copier BOOTSTRAP NAME INPUT OUTPUT…
"""

from __future__ import annotations

import asyncio
import random
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from tests.support.copier import ABORTED, RECORDS_PER_ROUND, ROUND_SECONDS, TRANSACTION_TIMEOUT_MS


async def copy(bootstrap: str, name: str, source: str, outputs: list[str]) -> None:
    """Copy until an error comes. Raises KafkaError, TimeoutError, and LookupError if no committed offset came."""
    servers = bootstrap.split(",")
    admin = AIOKafkaAdminClient(bootstrap_servers=servers, client_id=name)
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
        await admin.start()
        found = None
        while not found:
            cluster = await consumer._client.fetch_all_metadata()
            found = cluster.partitions_for_topic(source)
    assigned = [TopicPartition(source, partition) for partition in found]
    consumer.assign(assigned)
    await rewind(consumer, assigned, admin, name)
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
                await rewind(consumer, assigned, admin, name)
            else:
                await producer.commit_transaction()


async def rewind(
    consumer: AIOKafkaConsumer, assigned: list[TopicPartition], admin: AIOKafkaAdminClient, group_id: str
) -> None:
    """Continue at the offsets that are committed.

    The consumer is not asked: aiokafka 0.14 takes a refusal by a broker that is no longer the coordinator for "nothing
    committed", and asks that broker forever. The admin client returns an offset (-1 if none is committed) or nothing.
    """
    committed = await admin.list_consumer_group_offsets(group_id, partitions=assigned)
    for one in assigned:
        consumer.seek(one, max(committed[one].offset, 0))


if __name__ == "__main__":
    _, address, transactional_id, read_topic, *written_topics = sys.argv
    asyncio.run(copy(address, transactional_id, read_topic, written_topics))
