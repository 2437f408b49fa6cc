"""Transactional producers without records, connected to the brokers: they add partitions and end transactions."""

from __future__ import annotations

from typing import Any

from tests.support.questions import ask
from tests.support.waiting import wait_for

FIND_COORDINATOR, INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, END_TXN = 10, 22, 24, 26
NONE, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR = 0, 14, 15, 16
CONCURRENT_TRANSACTIONS = 51
_RETRIED = (COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT_TRANSACTIONS)
_COORDINATES_TRANSACTIONS = 1


class MarkerProducer:
    """A producer whose transactions leave nothing but markers in the brokers' logs."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self._bootstrap = bootstrap
        self.sequence = 0
        self.producer_id, self.epoch = self.begin_session()

    def begin_session(self) -> tuple[int, int]:
        """Return a producer ID and an epoch that fences earlier ones (InitProducerId)."""
        asked = {"transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
        answer = self._retried(INIT_PRODUCER_ID, 4, lambda found: found["error_code"], **asked)
        assert answer["error_code"] == NONE, answer
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
