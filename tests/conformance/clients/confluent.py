"""confluent-kafka: the current librdkafka."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.conformance.model import (
    EARLIEST,
    HEARTBEAT_MS,
    LATEST,
    MAX_TIMESTAMP,
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
    partitions_of,
)
from tests.support.records import Sample

SPECIAL = {EARLIEST: OffsetSpec.earliest(), LATEST: OffsetSpec.latest(), MAX_TIMESTAMP: OffsetSpec.max_timestamp()}
REPLICAS = 3
PATIENCE = {"topic.metadata.propagation.max.ms": 3000, "topic.metadata.refresh.fast.interval.ms": 50}
"""Short limits, so that an unknown topic is reported soon, and a new one is known soon."""


class Confluent(Base):
    """All abilities of librdkafka."""

    name = "confluent-kafka"
    abilities = frozenset(Ability)

    def produce(
        self, bootstrap: str, topic: str, records: Mapping[int, Sequence[Sample]], how: Producing
    ) -> dict[int, list[Sent]]:
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "linger.ms": 5,
            "compression.type": how.compression,
            "acks": how.acks,
            "enable.idempotence": how.idempotent or bool(how.transaction),
            "message.max.bytes": how.max_message_bytes,
            "delivery.timeout.ms": int(TIMEOUT_SECONDS * 1000),
            **PATIENCE,
        }
        if how.transaction:
            settings["transactional.id"] = how.transaction
        client = Producer(settings)
        outcomes: dict[int, dict[int, Sent]] = {partition: {} for partition in records}
        try:
            if how.transaction:
                client.init_transactions(TIMEOUT_SECONDS)
                client.begin_transaction()
            for place, turn in enumerate(zip_longest(*records.values())):
                for partition, sample in zip(records, turn, strict=True):
                    if sample is not None:
                        _send(client, topic, partition, place, sample, outcomes)
            client.flush(TIMEOUT_SECONDS)
            if how.transaction and how.commit:
                client.commit_transaction(TIMEOUT_SECONDS)
            elif how.transaction:
                client.abort_transaction(TIMEOUT_SECONDS)
        except KafkaException as error:
            raise ClientError(error.args[0].name()) from error
        return {partition: [sent[place] for place in sorted(sent)] for partition, sent in outcomes.items()}

    def consume(self, bootstrap: str, what: Consuming) -> Iterator[Event]:
        offset = what.start if isinstance(what.start, int) else {"earliest": -2, "latest": -1}[what.start]
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": what.group or "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": what.reset,
            "isolation.level": "read_committed" if what.read_committed else "read_uncommitted",
            "group.protocol": "consumer" if what.kip_848 else "classic",
            "check.crcs": True,
            **({} if what.kip_848 else {"heartbeat.interval.ms": HEARTBEAT_MS}),
            **PATIENCE,
        }
        client = Consumer(settings)
        taken: dict[tuple[str, int], int] = {}
        try:
            changes: list[Assigned] = []
            have: set[tuple[str, int]] = set()
            if what.group:
                on_assign, on_revoke = _assign(have, changes), _revoke(have, changes, taken)
                client.subscribe([what.topic], on_assign=on_assign, on_revoke=on_revoke)
            else:
                client.assign([TopicPartition(what.topic, what.partition, offset)])
            while True:
                message = client.poll(0.1)
                while changes:
                    yield changes.pop(0)
                if message is None:
                    yield None
                    continue
                if message.error() is not None:
                    raise ClientError(message.error().name())
                taken[message.topic(), message.partition()] = message.offset() + 1
                yield _received(message)
        finally:
            _commit(client, taken if what.group else {})
            client.close()

    def list_offsets(self, bootstrap: str, topic: str, partition: int, timestamp: int) -> int:
        spec = SPECIAL.get(timestamp) or OffsetSpec.for_timestamp(timestamp)
        asked = TopicPartition(topic, partition)
        return int(_result(_admin(bootstrap), "list_offsets", {asked: spec})[asked].offset)

    def create_topic(self, bootstrap: str, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        new = NewTopic(topic, partitions, REPLICAS, config=dict(configs))
        _result(_admin(bootstrap), "create_topics", [new])

    def describe_topic(self, bootstrap: str, topic: str) -> list[dict[str, Any]]:
        found = _result(_admin(bootstrap), "describe_topics", TopicCollection([topic]))[topic]
        return partitions_of(
            [(one.id, one.leader.id, [replica.id for replica in one.replicas]) for one in found.partitions]
        )

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        _result(_admin(bootstrap), "delete_topics", [topic])

    def describe_configs(self, bootstrap: str, topic: str) -> dict[str, str]:
        asked = ConfigResource(ResourceType.TOPIC, topic)
        found = _result(_admin(bootstrap), "describe_configs", [asked])[asked]
        set_on_topic = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {name: entry.value for name, entry in found.items() if entry.source == set_on_topic}

    def alter_configs(self, bootstrap: str, topic: str, configs: Mapping[str, str]) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in configs.items()
        ]
        changes = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        _result(_admin(bootstrap), "incremental_alter_configs", [changes])

    def group_offsets(self, bootstrap: str, group: str, topic: str) -> dict[int, int]:
        asked = ConsumerGroupTopicPartitions(group)
        found = _result(_admin(bootstrap), "list_consumer_group_offsets", [asked])[group]
        return {one.partition: one.offset for one in found.topic_partitions if one.topic == topic}

    def delete_group(self, bootstrap: str, group: str) -> None:
        _result(_admin(bootstrap), "delete_consumer_groups", [group])


def _admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def _result(client: AdminClient, operation: str, *arguments: Any) -> dict[Any, Any]:
    """Return the results of an operation, or raise the first error of any of them."""
    try:
        futures = getattr(client, operation)(*arguments, request_timeout=TIMEOUT_SECONDS)
        return {asked: future.result(TIMEOUT_SECONDS) for asked, future in futures.items()}
    except KafkaException as error:
        raise ClientError(error.args[0].name()) from error


def _send(
    client: Producer, topic: str, partition: int, place: int, sample: Sample, outcomes: dict[int, dict[int, Sent]]
) -> None:
    def learn(error: KafkaError | None, message: Message) -> None:
        if error is None:
            offset = message.offset()
            outcomes[partition][place] = Sent(message.partition(), -1 if offset is None or offset < 0 else offset)
        else:
            outcomes[partition][place] = Sent(partition, -1, error.name())

    headers = list(sample.headers)
    client.produce(
        topic, sample.value, sample.key, partition, timestamp=sample.timestamp_ms, headers=headers, on_delivery=learn
    )


def _assign(have: set[tuple[str, int]], changes: list[Assigned]) -> Any:
    def on_assign(_: Consumer, partitions: list[TopicPartition]) -> None:
        have.update((one.topic, one.partition) for one in partitions)
        changes.append(Assigned(frozenset(have)))

    return on_assign


def _revoke(have: set[tuple[str, int]], changes: list[Assigned], taken: dict[tuple[str, int], int]) -> Any:
    def on_revoke(client: Consumer, partitions: list[TopicPartition]) -> None:
        _commit(client, taken)
        taken.clear()
        have.difference_update((one.topic, one.partition) for one in partitions)
        changes.append(Assigned(frozenset(have)))

    return on_revoke


def _commit(client: Consumer, taken: dict[tuple[str, int], int]) -> None:
    if taken:
        client.commit(offsets=[TopicPartition(*place, end) for place, end in taken.items()], asynchronous=False)


def _received(message: Message) -> Received:
    kind, timestamp_ms = message.timestamp()
    return Received(
        message.topic(),
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
        timestamp_ms,
        "append" if kind == TIMESTAMP_LOG_APPEND_TIME else "create",
    )
