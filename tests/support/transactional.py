"""Transactional producers of tests: confluent-kafka, and raw requests that no client library would send."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Producer

from tests.batches import make_batch
from tests.support.questions import ask
from tests.support.waiting import wait_for

PRODUCE, FETCH, LIST_OFFSETS = 0, 1, 2
FIND_COORDINATOR, INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, END_TXN = 10, 22, 24, 26
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
NONE, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT_TRANSACTIONS = 0, 15, 16, 51
_RETRIED = (COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT_TRANSACTIONS)
_COORDINATES_TRANSACTIONS = 1
_LATEST = -1
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

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self._bootstrap = bootstrap
        self.sequence = 0
        self.producer_id, self.epoch = self.begin_session()

    def begin_session(self) -> tuple[int, int]:
        """Return a producer ID and an epoch that fences earlier ones (InitProducerId)."""
        asked = {"transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
        answer = self._retried(INIT_PRODUCER_ID, 4, lambda found: found["error_code"], **asked)
        return answer["producer_id"], answer["producer_epoch"]

    def add(self, topic: str, partition: int = 0) -> int:
        """Add a partition to the transaction, and return its error."""

        def error(answer: dict[str, Any]) -> int:
            (result,) = answer["results_by_topic_v3_and_below"][0]["results_by_partition"]
            return int(result["partition_error_code"])

        topics = [{"name": topic, "partitions": [partition]}]
        ids = {"producer_id": self.producer_id, "producer_epoch": self.epoch}
        asked: dict[str, Any] = {f"v3_and_below_{name}": value for name, value in (ids | {"topics": topics}).items()}
        asked["v3_and_below_transactional_id"] = self.transactional_id
        return error(self._retried(ADD_PARTITIONS_TO_TXN, 3, error, **asked))

    def produce(self, topic: str, *values: bytes, version: int = 9, transactional_id: str | None = "") -> int:
        """Send a batch to partition 0, and return its error; without one, the next batch has the next sequence."""
        batch = make_batch(
            values,
            transactional=True,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
        )
        of = self.transactional_id if transactional_id == "" else transactional_id
        partitions = [{"index": 0, "records": bytes(batch)}]
        asked: dict[str, Any] = {"transactional_id": of, "acks": -1, "timeout": 30_000}
        answer = ask(
            self._bootstrap, PRODUCE, version, topic_data=[{"name": topic, "partition_data": partitions}], **asked
        )
        error_code = int(answer["responses"][0]["partition_responses"][0]["error_code"])
        if error_code == NONE:
            self.sequence += len(values)
        return error_code

    def end(self, *, commit: bool) -> int:
        """End the transaction, and return the error."""
        asked = {"producer_id": self.producer_id, "producer_epoch": self.epoch, "committed": commit}
        return int(self._retried(END_TXN, 3, lambda found: found["error_code"], **asked)["error_code"])

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


def fetched(address: str, topic: str, offset: int, isolation: int, *, max_wait_ms: int = 0) -> dict[str, Any]:
    """Return a broker's answer for partition 0 from an offset on."""
    asked = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1 << 20,
    }
    limits: dict[str, Any] = {
        "max_wait": max_wait_ms,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "replica_id": -1,
        "session_epoch": -1,
    }
    topics = [{"topic": topic, "partitions": [asked]}]
    answer = ask(address, FETCH, 12, topics=topics, isolation_level=isolation, **limits)
    found: dict[str, Any] = answer["responses"][0]["partitions"][0]
    return found


def end_offset(address: str, topic: str, isolation: int) -> int:
    """Return the latest offset of partition 0 (ListOffsets)."""
    asked = [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": _LATEST}]
    topics = [{"name": topic, "partitions": asked}]
    answer = ask(address, LIST_OFFSETS, 5, replica_id=-1, isolation_level=isolation, topics=topics)
    return int(answer["topics"][0]["partitions"][0]["offset"])


def wait_until_stable(address: str, topic: str, end: int) -> None:
    """Wait until the last stable offset is `end`: EndTxn is answered before the last marker is written."""
    wait_for(lambda: end_offset(address, topic, READ_COMMITTED) == end, f"the last stable offset {end} of {topic}")
