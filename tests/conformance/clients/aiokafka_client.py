"""aiokafka."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, for_code

from tests.conformance.model import (
    EARLIEST,
    HEARTBEAT_MS,
    LATEST,
    TIMEOUT_SECONDS,
    Ability,
    Assigned,
    Base,
    ClientError,
    Consuming,
    Event,
    Producing,
    Received,
    Sent,
)
from tests.support.records import Sample

REPLICAS = 3
POLL_MS = 100


class Aiokafka(Base):
    """All abilities of aiokafka."""

    name = "aiokafka"
    abilities = frozenset(Ability) - {
        Ability.KIP_848,
        Ability.MAX_TIMESTAMP,
        Ability.GROUP_ADMIN,
        Ability.CONFIGS,
        Ability.DESCRIBE,  # it asks in a way that creates the topic
    }

    def express(self, wanted: Sequence[Sample]) -> list[Sample]:
        """Leave out headers without a value, and records with neither key nor value."""
        return [
            Sample(
                sample.key,
                b"value" if sample.key is None and sample.value is None else sample.value,
                tuple((name, value) for name, value in sample.headers if value is not None),
                sample.timestamp_ms,
            )
            for sample in wanted
        ]

    def produce(
        self, bootstrap: str, topic: str, records: Mapping[int, Sequence[Sample]], how: Producing
    ) -> dict[int, list[Sent]]:
        return asyncio.run(_named(_produce(bootstrap, topic, records, how)))

    def consume(self, bootstrap: str, what: Consuming) -> Iterator[Event]:
        with asyncio.Runner() as runner:
            changes: list[Assigned] = []
            taken: dict[TopicPartition, int] = {}
            client = runner.run(_named(_consumer(bootstrap, what, changes, taken)))
            try:
                while True:
                    got = runner.run(_named(client.getmany(timeout_ms=POLL_MS, max_records=100)))
                    while changes:
                        yield changes.pop(0)
                    for partition, messages in got.items():
                        for message in messages:
                            taken[partition] = message.offset + 1
                            yield _received(message)
                    if not got:
                        yield None
            finally:
                if what.group and taken:
                    runner.run(_named(client.commit(taken)))
                runner.run(client.stop())

    def list_offsets(self, bootstrap: str, topic: str, partition: int, timestamp: int) -> int:
        async def ask() -> int:
            asked = TopicPartition(topic, partition)
            async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as client:
                if timestamp == EARLIEST:
                    return int((await client.beginning_offsets([asked]))[asked])
                if timestamp == LATEST:
                    return int((await client.end_offsets([asked]))[asked])
                found = (await client.offsets_for_times({asked: timestamp}))[asked]
                return -1 if found is None else int(found.offset)

        return asyncio.run(_named(ask()))

    def create_topic(self, bootstrap: str, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        async def ask() -> None:
            async with _admin(bootstrap) as client:
                answer = await client.create_topics([NewTopic(topic, partitions, REPLICAS, topic_configs=configs)])
                _check([error[1] for error in answer.topic_errors])

        asyncio.run(_named(ask()))

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        async def ask() -> None:
            async with _admin(bootstrap) as client:
                _check([error[1] for error in (await client.delete_topics([topic])).topic_error_codes])

        asyncio.run(_named(ask()))


async def _named(work: Awaitable[Any]) -> Any:
    """Return the result; raise errors by their names."""
    try:
        return await work
    except KafkaError as error:
        raise ClientError(type(error).__name__) from error


async def _produce(
    bootstrap: str, topic: str, records: Mapping[int, Sequence[Sample]], how: Producing
) -> dict[int, list[Sent]]:
    client = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        acks=how.acks if how.acks == "all" else int(how.acks),
        compression_type=None if how.compression == "none" else how.compression,
        enable_idempotence=how.idempotent or bool(how.transaction),
        transactional_id=how.transaction or None,
        max_request_size=how.max_message_bytes,
        max_batch_size=min(how.max_message_bytes, 16_384),
        linger_ms=5,
        request_timeout_ms=int(TIMEOUT_SECONDS * 1000) if how.acks else 3000,
    )
    await client.start()
    try:
        if how.transaction:
            await client.begin_transaction()
        waiting: dict[int, list[Any]] = {}
        for partition, samples in records.items():
            waiting[partition] = [
                await client.send(
                    topic,
                    sample.value,
                    sample.key,
                    partition,
                    sample.timestamp_ms or None,
                    headers=[*sample.headers],
                )
                for sample in samples
            ]
        results = {
            partition: [await _sent(partition, one) for one in futures] for partition, futures in waiting.items()
        }
        if how.transaction:
            await (client.commit_transaction() if how.commit else client.abort_transaction())
    finally:
        await client.stop()
    return results


async def _sent(partition: int, future: Awaitable[Any]) -> Sent:
    try:
        metadata = await future
    except KafkaError as error:
        return Sent(partition, -1, type(error).__name__)
    return Sent(partition, -1 if metadata is None else metadata.offset)


async def _consumer(
    bootstrap: str, what: Consuming, changes: list[Assigned], taken: dict[TopicPartition, int]
) -> AIOKafkaConsumer:
    client = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=what.group or None,
        auto_offset_reset="none" if what.reset == "error" else what.reset,
        enable_auto_commit=False,
        heartbeat_interval_ms=HEARTBEAT_MS,
        isolation_level="read_committed" if what.read_committed else "read_uncommitted",
    )
    if what.group:
        client.subscribe([what.topic], listener=_Listener(client, changes, taken))
        await client.start()
        return client
    await client.start()
    partition = TopicPartition(what.topic, what.partition)
    client.assign([partition])
    if what.start == "latest":
        await client.seek_to_end(partition)
    elif what.start == "earliest":
        await client.seek_to_beginning(partition)
    else:
        client.seek(partition, int(what.start))
    return client


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, client: AIOKafkaConsumer, changes: list[Assigned], taken: dict[TopicPartition, int]) -> None:
        self._client = client
        self._changes = changes
        self._taken = taken

    async def on_partitions_revoked(self, _: Any) -> None:
        if self._taken:
            await self._client.commit(self._taken)
            self._taken.clear()
        self._changes.append(Assigned(frozenset()))

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._changes.append(Assigned(frozenset((one.topic, one.partition) for one in assigned)))


@asynccontextmanager
async def _admin(bootstrap: str) -> Any:
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


def _check(codes: Sequence[int]) -> None:
    for code in codes:
        if code:
            raise for_code(code)


def _received(message: Any) -> Received:
    return Received(
        message.topic,
        message.partition,
        message.offset,
        message.key,
        message.value,
        tuple(message.headers),
        message.timestamp,
        {0: "create", 1: "append"}.get(message.timestamp_type, ""),
    )
