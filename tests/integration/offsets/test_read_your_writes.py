"""After an acknowledgement, every proxy's next answer has the record; after a deletion, no proxy's has it.

The requests are single and never retried: a polling client would hide a stale answer.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from proxy.demo.stack import Stack
from tests.batches import make_batch
from tests.support.questions import ask
from tests.support.raw import Raw
from tests.support.topics import DISKLESS, new_topic, offsets

PRODUCE, FETCH, LIST_OFFSETS, DELETE_RECORDS = 0, 1, 2, 21
LATEST, EARLIEST = -1, -2
ROUNDS = 4
"""Rounds for each pair of a writing and a reading proxy, including the same one; a round takes a commit interval."""
OFFSET_OUT_OF_RANGE = 1


class At:
    """A proxy, through one connection."""

    def __init__(self, raw: Raw, topic: str) -> None:
        self._raw = raw
        self._topic = topic

    def produce(self) -> int:
        """Return the offset of one more record."""
        data = [{"name": self._topic, "partition_data": [{"index": 0, "records": bytes(make_batch())}]}]
        answer = ask(self._raw, PRODUCE, 9, acks=-1, timeout=30_000, topic_data=data)["responses"][0]
        (one,) = answer["partition_responses"]
        assert one["error_code"] == 0, one
        return int(one["base_offset"])

    def offset(self, timestamp: int) -> int:
        partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
        asked = [{"name": self._topic, "partitions": [partition]}]
        (one,) = ask(self._raw, LIST_OFFSETS, 7, replica_id=-1, topics=asked)["topics"][0]["partitions"]
        assert one["error_code"] == 0, one
        return int(one["offset"])

    def fetch(self, offset: int) -> dict[str, Any]:
        partition = {
            "partition": 0,
            "current_leader_epoch": -1,
            "fetch_offset": offset,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": 1 << 20,
        }
        asked = [{"topic": self._topic, "partitions": [partition]}]
        answer = ask(self._raw, FETCH, 12, replica_id=-1, max_bytes=1 << 20, session_epoch=-1, topics=asked)
        (one,) = answer["responses"][0]["partitions"]
        return dict(one)

    def delete_before(self, offset: int) -> None:
        asked = [{"name": self._topic, "partitions": [{"partition_index": 0, "offset": offset}]}]
        (one,) = ask(self._raw, DELETE_RECORDS, 2, topics=asked, timeout_ms=30_000)["topics"][0]["partitions"]
        assert one["error_code"] == 0, one


@pytest.fixture
def proxies(stack: Stack) -> Any:
    """Connect to the proxy of each rack."""
    topic = new_topic(stack, "own-writes", DISKLESS)
    offsets(stack, topic)
    connections = {rack: Raw(stack.bootstrap(rack)) for rack in stack.proxies}
    yield {rack: At(raw, topic) for rack, raw in connections.items()}
    for raw in connections.values():
        raw.close()


def test_every_proxy_serves_what_any_has_acknowledged(proxies: dict[str, At]) -> None:
    end = 0
    for writer, reader in itertools.product(proxies, repeat=2):
        for _ in range(ROUNDS):
            assert proxies[writer].produce() == end
            end += 1
            seen = f"written at {writer}, read at {reader}"
            fetched = proxies[reader].fetch(end - 1)
            assert (fetched["error_code"], bool(fetched["records"])) == (0, True), seen
            assert fetched["high_watermark"] == end, seen
            assert proxies[reader].offset(LATEST) == end, seen


def test_no_proxy_serves_the_start_that_another_has_moved(proxies: dict[str, At]) -> None:
    """The coordinator decides the first readable offset for every proxy."""
    for _ in range(len(proxies) + 1):
        next(iter(proxies.values())).produce()
    for start, (deleter, reader) in enumerate(zip(proxies, [*list(proxies)[1:], *proxies], strict=False), 1):
        proxies[deleter].delete_before(start)
        seen = f"deleted at {deleter}, read at {reader}"
        assert proxies[reader].offset(EARLIEST) == start, seen
        assert proxies[deleter].fetch(start - 1)["error_code"] == OFFSET_OUT_OF_RANGE, seen
        assert proxies[reader].fetch(start)["records"], seen
