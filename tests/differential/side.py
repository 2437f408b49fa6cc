"""One of the two topics, and the listeners that serve it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from proxy.wire.header import response_header_length
from tests.support.questions import ask, filled
from tests.support.raw import Raw, request
from tests.unit.wire.trees import decode, encode, request_type, response_type

CLASSIC, DISKLESS = "classic", "diskless"
NO_ID = bytes(16)
NODE = 1
CLOSED = "the connection is closed"
SETTLE_SECONDS = 30.0
POLL_SECONDS = 0.01
PRODUCE, LIST_OFFSETS, METADATA, CREATE_TOPICS, DELETE_TOPICS = 0, 2, 3, 19, 20
UNKNOWN_TOPIC_OR_PARTITION = 3
LATEST, EARLIEST = -1, -2


class Unsettled(Exception):
    """Raised when an expected state did not come about in time."""


@dataclass(slots=True)
class Side:
    """A topic of one kind. `addresses` are `host:port`, each with its own connection."""

    kind: str
    addresses: tuple[str, ...]
    topic: str
    began_ms: int
    """Beginning of the case in ms since 1970; the times of its records are relative to it."""
    topic_id: bytes = NO_ID
    former_id: bytes = NO_ID
    """Topic ID before the topic was recreated."""
    partitions: int = 0
    rewritten: bool = False
    """True if the brokers may have recompressed batches to other bytes than the proxies."""
    _connections: dict[str, Raw] = field(default_factory=dict)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def connection(self, at: int) -> Raw:
        """Return the connection to one of the addresses; any number is valid."""
        address = self.addresses[at % len(self.addresses)]
        if address not in self._connections:
            self._connections[address] = Raw(address)
        return self._connections[address]

    def drop(self, at: int) -> None:
        """Forget a connection that has ended."""
        connection = self._connections.pop(self.addresses[at % len(self.addresses)], None)
        if connection is not None:
            connection.close()

    def ask(self, at: int, api_key: int, version: int, **values: Any) -> dict[str, Any] | str:
        """Return the answer as a tree; CLOSED if there is no answer."""
        try:
            return ask(self.connection(at), api_key, version, **values)
        except ConnectionError:
            self.drop(at)
            return CLOSED

    def send(self, at: int, api_key: int, version: int, **values: Any) -> None:
        """Send a request that gets no answer, or none yet."""
        entity = request_type(api_key, version)
        self.connection(at).send(request(api_key, version, encode(entity, filled(entity, values))))

    def answer(self, at: int, api_key: int, version: int) -> dict[str, Any] | str:
        """Read the answer to an earlier request."""
        frame = self.connection(at).answer()
        if frame is None:
            self.drop(at)
            return CLOSED
        body = frame[response_header_length(api_key, version, frame) :]
        tree: dict[str, Any] = decode(response_type(api_key, version), body)
        return tree

    def names(self, version: int, first_id_version: int, former: bool) -> dict[str, Any]:
        """Return the fields that name the topic in a request of that version."""
        if version >= first_id_version:
            return {"topic_id": self.former_id if former else self.topic_id}
        return {"name": self.topic, "topic": self.topic}

    # Life of the topic

    def create(self, partitions: int, configs: dict[str, str]) -> int:
        """Create the topic, and wait until every address serves it; return Kafka's error code."""
        if self.kind == DISKLESS:
            configs = configs | {"diskless.enable": "true"}
        topic = {
            "name": self.topic,
            "num_partitions": partitions,
            "replication_factor": 1,
            "assignments": [],
            "configs": [{"name": name, "value": value} for name, value in configs.items()],
        }
        answer = ask(self.connection(0), CREATE_TOPICS, 7, topics=[topic], timeout=30_000)["topics"][0]
        if answer["error_code"] == 0:
            self.former_id, self.topic_id = self.topic_id, answer["topic_id"]
            self.rewritten = False
            self.wait_served(partitions)
        return int(answer["error_code"])

    def delete(self) -> int:
        """Delete the topic, and wait until no address knows it; return Kafka's error code."""
        answer = ask(self.connection(0), DELETE_TOPICS, 5, topic_names=[self.topic], timeout=30_000)["responses"][0]
        if answer["error_code"] == 0:
            for at in range(len(self.addresses)):
                self.wait(lambda at=at: self._metadata(at)["error_code"] == 3, "gone")  # type: ignore[misc]
                for index in range(self.partitions):
                    self.wait(lambda at=at, index=index: self.offsets(at, [index]) is None, "gone")  # type: ignore[misc]
        return int(answer["error_code"])

    def wait_served(self, partitions: int) -> None:
        """Wait until every address serves all partitions of the current topic."""
        for at in range(len(self.addresses)):

            def served(at: int = at) -> bool:
                known = self._metadata(at)
                return (
                    known["error_code"] == 0
                    and known["topic_id"] == self.topic_id
                    and len(known["partitions"]) == partitions
                    and self.offsets(at, range(partitions)) is not None
                )

            self.wait(served, f"served with {partitions} partitions")
        self.partitions = partitions

    def _metadata(self, at: int) -> dict[str, Any]:
        asked = [{"name": self.topic, "topic_id": NO_ID}]
        answer = ask(self.connection(at), METADATA, 12, topics=asked, allow_auto_topic_creation=False)
        topic: dict[str, Any] = answer["topics"][0]
        return topic

    def ends(self, at: int, partitions: list[int]) -> list[int]:
        """Return the latest offsets of existing partitions."""
        found: list[list[int]] = []

        def has_offsets() -> bool:
            ends = self.offsets(at, partitions)
            found[:] = [] if ends is None else [ends]
            return ends is not None

        self.wait(has_offsets, "returning its latest offsets")
        return found[0]

    def offsets(self, at: int, partitions: Iterable[int], special: int = LATEST) -> list[int] | None:
        """Return the latest or earliest offsets, by partition; None after an error."""
        asked = [{"partition_index": index, "current_leader_epoch": -1, "timestamp": special} for index in partitions]
        topics = [{"name": self.topic, "partitions": asked}]
        answer = ask(self.connection(at), LIST_OFFSETS, 5, replica_id=-1, topics=topics)
        found = sorted(answer["topics"][0]["partitions"], key=lambda one: one["partition_index"])
        return None if any(one["error_code"] for one in found) else [one["offset"] for one in found]

    def wait(self, condition: Callable[[], bool], what: str, seconds: float = SETTLE_SECONDS) -> None:
        """Wait for a condition. Raises Unsettled when time is up."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise Unsettled(f"the {self.kind} topic {self.topic} is not {what} after {seconds:g} s")
            time.sleep(POLL_SECONDS)
