"""Transactional producers of tests: confluent-kafka, and raw requests that no client library would send."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatch
from confluent_kafka import Producer, TopicPartition

from proxy.wire.header import response_header_length
from tests.batches import make_batch
from tests.support.confluent import consumer, take
from tests.support.questions import ask, filled
from tests.support.raw import Raw, request
from tests.support.waiting import wait_for
from tests.unit.wire.trees import decode, encode, request_type, response_type

PRODUCE, FETCH, LIST_OFFSETS = 0, 1, 2
FIND_COORDINATOR, INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, END_TXN = 10, 22, 24, 26
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
NONE, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR = 0, 14, 15, 16
CONCURRENT_TRANSACTIONS = 51
_RETRIED = (COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT_TRANSACTIONS)
_COORDINATES_TRANSACTIONS = 1
_LATEST = -1
_PRODUCE_VERSION = 9
_PRODUCE_VERSIONS, _END_VERSIONS = {1: _PRODUCE_VERSION, 2: 12}, {1: 3, 2: 5}
"""Versions of the requests, by transaction version."""
_BATCH_START, _LENGTH = 12, slice(8, 12)
"""Bytes before those that a batch's length counts, and the place of the length."""
TIMEOUT_SECONDS = 60.0


def transactional(bootstrap: str, transactional_id: str, **configs: Any) -> Producer:
    """Return a producer that may begin a transaction; `_` in option names stands for a dot."""
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, **settings})
    producer.init_transactions(TIMEOUT_SECONDS)
    return producer


def send(producer: Producer, topic: str, *values: bytes, partition: int = 0) -> None:
    """Send values in one batch, and wait for it."""
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(TIMEOUT_SECONDS) == 0


class RawProducer:
    """A transactional producer of raw requests: it does what no client library lets a zombie do."""

    def __init__(
        self, bootstrap: str, transactional_id: str, *, timeout_ms: int = 60_000, transaction_version: int = 1
    ) -> None:
        """`timeout_ms`: `transaction.timeout.ms`. With transaction version 2, Produce adds the partitions."""
        self.transactional_id = transactional_id
        self.transaction_version = transaction_version
        self._bootstrap = bootstrap
        self._timeout_ms = timeout_ms
        self._sequences: dict[tuple[str, int], int] = {}
        """The next sequence of each partition."""
        self.producer_id, self.epoch = self.begin_session()

    def begin_session(self) -> tuple[int, int]:
        """Return a producer ID and an epoch that fences earlier ones (InitProducerId)."""
        asked = {"transaction_timeout": self._timeout_ms, "producer_id": -1, "producer_epoch": -1}
        answer = self._retried(INIT_PRODUCER_ID, 4, lambda found: found["error_code"], **asked)
        assert answer["error_code"] == NONE, answer
        return answer["producer_id"], answer["producer_epoch"]

    def add(self, topic: str, partition: int = 0) -> int:
        """Add a partition to the transaction, and return its error."""
        return self.add_all({topic: [partition]})[topic, partition]

    def add_all(self, partitions: dict[str, list[int]]) -> dict[tuple[str, int], int]:
        """Add partitions to the transaction, and return their errors."""

        def errors(answer: dict[str, Any]) -> dict[tuple[str, int], int]:
            return {
                (topic["name"], one["partition_index"]): one["partition_error_code"]
                for topic in answer["results_by_topic_v3_and_below"]
                for one in topic["results_by_partition"]
            }

        asked: dict[str, Any] = {
            "v3_and_below_producer_id": self.producer_id,
            "v3_and_below_producer_epoch": self.epoch,
            "v3_and_below_topics": [{"name": name, "partitions": indexes} for name, indexes in partitions.items()],
            "v3_and_below_transactional_id": self.transactional_id,
        }
        answer = self._retried(ADD_PARTITIONS_TO_TXN, 3, lambda found: next(iter(errors(found).values())), **asked)
        return errors(answer)

    def produce(
        self,
        topic: str,
        *values: bytes,
        partition: int = 0,
        version: int = 0,
        transactional_id: str | None = "",
        address: str = "",
    ) -> int:
        """Send a batch, and return its error; without one, the next batch has the next sequence.

        `address`: the partition's leader, or any proxy of a diskless topic; the bootstrap address if empty. `version`:
        of Produce; 0 for one of the transaction version.
        """
        version = version or _PRODUCE_VERSIONS[self.transaction_version]
        body = self.body(topic, values, partition, version=version, transactional_id=transactional_id)
        with Raw(address or self._bootstrap) as raw:
            (error_code,) = sent_together(raw, [body], version)
        if error_code == NONE:
            self.took(topic, partition, len(values))
        return error_code

    def begin(self, topic: str, *values: bytes) -> int:
        """Send the first batch of a transaction of version 2, and return its error. It is sent again while the
        coordinator is still ending the transaction before."""
        errors: list[int] = []

        def is_final() -> bool:
            errors.append(self.produce(topic, *values))
            return errors[-1] != CONCURRENT_TRANSACTIONS

        wait_for(is_final, "the transaction before has not ended")
        return errors[-1]

    def sequence(self, topic: str, partition: int = 0) -> int:
        """Return the sequence of the next batch."""
        return self._sequences.get((topic, partition), 0)

    def took(self, topic: str, partition: int, count: int) -> None:
        """Count records of a batch that was accepted."""
        self._sequences[topic, partition] = self.sequence(topic, partition) + count

    def body(
        self,
        topic: str,
        values: Sequence[bytes],
        partition: int = 0,
        *,
        version: int = _PRODUCE_VERSION,
        transactional_id: str | None = "",
        **batch: Any,
    ) -> bytes:
        """Return the body of a Produce request; send it by `sent_together`, and call `took` if it was accepted."""
        records = make_batch(
            values,
            transactional=True,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence(topic, partition),
            **batch,
        )
        of = self.transactional_id if transactional_id == "" else transactional_id
        return produce_body(topic, bytes(records), partition=partition, version=version, transactional_id=of)

    def end(self, *, commit: bool) -> int:
        """End the transaction, and return the error. With transaction version 2, the next one has another epoch."""
        asked = {"producer_id": self.producer_id, "producer_epoch": self.epoch, "committed": commit}
        version = _END_VERSIONS[self.transaction_version]
        answer = self._retried(END_TXN, version, lambda found: found["error_code"], **asked)
        if self.transaction_version > 1 and answer["error_code"] == NONE:
            self.producer_id, self.epoch = answer["producer_id"], answer["producer_epoch"]
            self._sequences.clear()
        return int(answer["error_code"])

    def _retried(self, api_key: int, version: int, error: Any, **asked: Any) -> dict[str, Any]:
        """Return the transaction coordinator's answer, when it is no error that clients retry."""
        answers: list[dict[str, Any]] = []

        def is_final() -> bool:
            found = ask(
                self._bootstrap, FIND_COORDINATOR, 1, key=self.transactional_id, key_type=_COORDINATES_TRANSACTIONS
            )
            if found["error_code"] != NONE:
                return False
            address = f"{found['host']}:{found['port']}"
            fields = {"transactional_id": self.transactional_id, **asked}
            answers.append(ask(address, api_key, version, **fields))
            return error(answers[-1]) not in _RETRIED

        wait_for(is_final, f"the answer to API key {api_key}")
        return answers[-1]


def produce_body(
    topic: str,
    records: bytes,
    *,
    partition: int = 0,
    version: int = _PRODUCE_VERSION,
    transactional_id: str | None = None,
) -> bytes:
    """Return the body of a Produce request with one batch."""
    entity = request_type(PRODUCE, version)
    partitions = [{"index": partition, "records": records}]
    asked: dict[str, Any] = {"transactional_id": transactional_id, "acks": -1, "timeout": 30_000}
    return encode(entity, filled(entity, {"topic_data": [{"name": topic, "partition_data": partitions}], **asked}))


def sent_together(raw: Raw, bodies: Sequence[bytes], version: int = _PRODUCE_VERSION) -> list[int]:
    """Send Produce requests of one batch each on one connection, before any is answered; return their errors."""
    errors = []
    raw.send(b"".join(request(PRODUCE, version, body) for body in bodies))
    for _ in bodies:
        frame = raw.answer()
        assert frame is not None, "the connection ended"
        head = response_header_length(PRODUCE, version, frame)
        tree: Any = decode(response_type(PRODUCE, version), frame[head:])
        errors.append(int(tree["responses"][0]["partition_responses"][0]["error_code"]))
    return errors


def fetched(
    address: str | Raw, topic: str, offset: int, isolation: int, *, max_wait_ms: int = 0, max_bytes: int = 1 << 20
) -> dict[str, Any]:
    """Return a broker's answer for partition 0 from an offset on."""
    asked = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": max_bytes,
    }
    limits: dict[str, Any] = {
        "max_wait": max_wait_ms,
        "min_bytes": 1,
        "max_bytes": max_bytes,
        "replica_id": -1,
        "session_epoch": -1,
    }
    topics = [{"topic": topic, "partitions": [asked]}]
    answer = ask(address, FETCH, 12, topics=topics, isolation_level=isolation, **limits)
    found: dict[str, Any] = answer["responses"][0]["partitions"][0]
    return found


@dataclass
class ReadToEnd:
    """The answers for an offset and, as a consumer does it, for the offset after each answer, up to an empty one."""

    bounds: tuple[int, ...]
    """Error, high watermark, last stable offset, log start offset and preferred replica of the first answer."""
    batches: list[tuple[Any, ...]]
    """Fields of each batch that do not depend on the time of a marker."""
    aborted: list[tuple[int, int]] | None
    """First offset and producer ID of the aborted transactions in any answer that begin before the end of the batches.
    A broker may list later ones, up to an entry of its index."""
    answers: int
    """Number of answers with batches."""


def read_to_end(address: Raw, topic: str, offset: int, isolation: int) -> ReadToEnd:
    """Read partition 0 from an offset on. Brokers and proxies may answer with a part of the records that there are."""
    first = answer = fetched(address, topic, offset, isolation)
    bounds = ("error_code", "high_watermark", "last_stable_offset", "log_start_offset", "preferred_read_replica")
    batches: list[tuple[Any, ...]] = []
    aborted: set[tuple[int, int]] = set()
    answers = 0
    while data := bytes(answer["records"] or b""):
        answers += 1
        aborted |= {(one["first_offset"], one["producer_id"]) for one in answer["aborted_transactions"] or ()}
        while data:
            size = _BATCH_START + int.from_bytes(data[_LENGTH], "big")
            batch = DefaultRecordBatch(data[:size])
            assert batch.validate_crc()
            records = [(one.offset, one.key, None if batch.is_control_batch else one.value) for one in batch]
            producer = (batch.producer_id, batch.producer_epoch, batch.base_sequence)
            batches.append((batch.base_offset, batch.is_control_batch, batch.is_transactional, *producer, records))
            offset = batch.next_offset
            data = data[size:]
        answer = fetched(address, topic, offset, isolation)
    is_listed = first["aborted_transactions"] is not None
    listed = sorted(one for one in aborted if one[0] < offset) if is_listed else None
    return ReadToEnd(tuple(first[name] for name in bounds), batches, listed, answers)


def end_offset(address: str | Raw, topic: str, isolation: int, partition: int = 0) -> int:
    """Return the latest offset of a partition (ListOffsets)."""
    asked = [{"partition_index": partition, "current_leader_epoch": -1, "timestamp": _LATEST}]
    topics = [{"name": topic, "partitions": asked}]
    answer = ask(address, LIST_OFFSETS, 5, replica_id=-1, isolation_level=isolation, topics=topics)
    return int(answer["topics"][0]["partitions"][0]["offset"])


def committed_values(near: str, topic: str, count: int) -> list[bytes | None]:
    """Return the first values of partition 0 that a reader of committed records gets."""
    with consumer(near, isolation_level="read_committed") as client:
        client.assign([TopicPartition(topic, 0, 0)])
        return [message.value() for message in take(client, count)]


def wait_until_stable(address: str, topic: str, end: int) -> None:
    """Wait until the last stable offset is `end`: EndTxn is answered before the last marker is written."""
    wait_for(lambda: end_offset(address, topic, READ_COMMITTED) == end, f"the last stable offset {end} of {topic}")
