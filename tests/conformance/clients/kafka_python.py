"""kafka-python."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

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
from tests.support.records import COMPRESSIONS, Sample

with warnings.catch_warnings():
    # Its import raises warnings that are not ours to fix.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition, codec
    from kafka.admin import ConfigResource, ConfigResourceType
    from kafka.errors import KafkaError, for_code
    from kafka.structs import OffsetAndMetadata

REPLICAS = 3
POLL_MS = 100


class KafkaPython(Base):
    """The client as it is, or behaving like a client of an old Kafka release."""

    def __init__(self, release: str = "") -> None:
        self.name = f"kafka-python as {release}" if release else "kafka-python"
        self._common: dict[str, Any] = {}
        if release:
            self._common["api_version"] = tuple(int(part) for part in release.split(".")[:2])
        lacking = {Ability.KIP_848}
        if release:
            lacking |= {Ability.MAX_TIMESTAMP, Ability.CONFIGS, Ability.GROUP_ADMIN}
        self.abilities = frozenset(Ability) - lacking
        self.compressions = tuple(
            name
            for name in COMPRESSIONS
            if name == "none" or (getattr(codec, f"has_{name}")() and not (release and name == "zstd"))
        )

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
        settings = {
            "bootstrap_servers": bootstrap,
            "acks": how.acks if how.acks == "all" else int(how.acks),
            "compression_type": None if how.compression == "none" else how.compression,
            "enable_idempotence": how.idempotent or bool(how.transaction),
            "max_request_size": how.max_message_bytes,
            "linger_ms": 5,
            "max_block_ms": 5000,
            **({"transactional_id": how.transaction} if how.transaction else {}),
            **self._common,
        }
        with _named(), closing(KafkaProducer(**settings)) as client:
            if how.transaction:
                client.init_transactions()
                client.begin_transaction()
            waiting = {
                partition: [
                    client.send(
                        topic, sample.value, sample.key, [*sample.headers], partition, sample.timestamp_ms or None
                    )
                    for sample in samples
                ]
                for partition, samples in records.items()
            }
            client.flush(timeout=TIMEOUT_SECONDS)
            if how.transaction and how.commit:
                client.commit_transaction()
            elif how.transaction:
                client.abort_transaction()
            return {partition: [_sent(partition, one) for one in futures] for partition, futures in waiting.items()}

    def consume(self, bootstrap: str, what: Consuming) -> Iterator[Event]:
        settings = {
            "bootstrap_servers": bootstrap,
            "group_id": what.group or None,
            "auto_offset_reset": "none" if what.reset == "error" else what.reset,
            "enable_auto_commit": False,
            "heartbeat_interval_ms": HEARTBEAT_MS,
            "isolation_level": "read_committed" if what.read_committed else "read_uncommitted",
            "check_crcs": True,
            **self._common,
        }
        taken: dict[TopicPartition, int] = {}
        changes: list[Assigned] = []
        with _named(), closing(KafkaConsumer(**settings)) as client:
            _begin(client, what, changes)
            try:
                while True:
                    got = client.poll(timeout_ms=POLL_MS, max_records=100)
                    while changes:
                        yield changes.pop(0)
                    for partition, messages in got.items():
                        for message in messages:
                            taken[partition] = message.offset + 1
                            yield _received(message)
                    if not got:
                        yield None
                    # Not when partitions are revoked: a listener must not wait for an answer.
                    _commit(client, taken if what.group else {})
                    taken.clear()
            finally:
                _commit(client, taken if what.group else {})

    def list_offsets(self, bootstrap: str, topic: str, partition: int, timestamp: int) -> int:
        asked = TopicPartition(topic, partition)
        if timestamp == MAX_TIMESTAMP:
            with self._admin(bootstrap) as admin:
                return int(admin.list_partition_offsets({asked: MAX_TIMESTAMP})[asked].offset)
        with _named(), closing(KafkaConsumer(bootstrap_servers=bootstrap, **self._common)) as client:
            if timestamp == EARLIEST:
                return int(client.beginning_offsets([asked])[asked])
            if timestamp == LATEST:
                return int(client.end_offsets([asked])[asked])
            found = client.offsets_for_times({asked: timestamp})[asked]
            return -1 if found is None else int(found.offset)

    def create_topic(self, bootstrap: str, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        with self._admin(bootstrap) as admin:
            wanted = {"num_partitions": partitions, "replication_factor": REPLICAS, "configs": dict(configs)}
            admin.create_topics({topic: wanted})

    def describe_topic(self, bootstrap: str, topic: str) -> list[dict[str, Any]]:
        with self._admin(bootstrap) as admin:
            (found,) = admin.describe_topics([topic])
            if found["error_code"]:
                raise for_code(found["error_code"])
            return partitions_of(
                [(one["partition_index"], one["leader_id"], one["replica_nodes"]) for one in found["partitions"]]
            )

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        with self._admin(bootstrap) as admin:
            admin.delete_topics([topic])

    def describe_configs(self, bootstrap: str, topic: str) -> dict[str, str]:
        with self._admin(bootstrap) as admin:
            found = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
            return {name: entry["value"] for name, entry in found["topic"][topic].items()}

    def alter_configs(self, bootstrap: str, topic: str, configs: Mapping[str, str]) -> None:
        with self._admin(bootstrap) as admin:
            admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, dict(configs))])

    def group_offsets(self, bootstrap: str, group: str, topic: str) -> dict[int, int]:
        with self._admin(bootstrap) as admin:
            found = admin.list_group_offsets({group: None})[group]
            return {place.partition: one.offset for place, one in found.items() if place.topic == topic}

    def delete_group(self, bootstrap: str, group: str) -> None:
        with self._admin(bootstrap) as admin:
            answer = admin.delete_groups([group])[group]
        if answer != "OK":
            raise ClientError(answer)

    @contextmanager
    def _admin(self, bootstrap: str) -> Iterator[Any]:
        with _named(), closing(KafkaAdminClient(bootstrap_servers=bootstrap, **self._common)) as admin:
            yield admin


@contextmanager
def _named() -> Iterator[None]:
    """Raise errors by their names."""
    try:
        yield
    except KafkaError as error:
        raise ClientError(type(error).__name__) from error


def _sent(partition: int, future: Any) -> Sent:
    try:
        return Sent(partition, int(future.get(TIMEOUT_SECONDS).offset))
    except KafkaError as error:
        return Sent(partition, -1, type(error).__name__)


def _commit(client: Any, taken: dict[TopicPartition, int]) -> None:
    if taken:
        client.commit({place: OffsetAndMetadata(offset, "", -1) for place, offset in taken.items()})


def _begin(client: Any, what: Consuming, changes: list[Assigned]) -> None:
    if what.group:
        client.subscribe([what.topic], listener=_Listener(changes))
        return
    partition = TopicPartition(what.topic, what.partition)
    client.assign([partition])
    if what.start == "latest":
        client.seek_to_end(partition)
    elif what.start == "earliest":
        client.seek_to_beginning(partition)
    else:
        client.seek(partition, int(what.start))


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, changes: list[Assigned]) -> None:
        self._changes = changes

    def on_partitions_revoked(self, _: Any) -> None:
        self._changes.append(Assigned(frozenset()))

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._changes.append(Assigned(frozenset((one.topic, one.partition) for one in assigned)))


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
