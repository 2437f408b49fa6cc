"""One of the two topics, and the listeners to ask about it."""

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
    """Something did not come about that had to."""


@dataclass(slots=True)
class Side:
    """A topic of one kind. `addresses` are `host:port`, each with a connection of its own."""

    kind: str
    addresses: tuple[str, ...]
    topic: str
    began_ms: int
    """When the case began, in ms since 1970: the times of its records are counted from then."""
    topic_id: bytes = NO_ID
    former_id: bytes = NO_ID
    """Before the topic was created anew."""
    partitions: int = 0
    rewritten: bool = False
    """The brokers may have compressed batches anew, to other bytes than the proxies did."""
    _connections: dict[str, Raw] = field(default_factory=dict)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def connection(self, at: int) -> Raw:
        """To one of the addresses, whatever the number."""
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
        """The answer as a tree; CLOSED where there is none."""
        try:
            return ask(self.connection(at), api_key, version, **values)
        except ConnectionError:
            self.drop(at)
            return CLOSED

    def send(self, at: int, api_key: int, version: int, **values: Any) -> None:
        """Send what is not answered, or not yet."""
        entity = request_type(api_key, version)
        self.connection(at).send(request(api_key, version, encode(entity, filled(entity, values))))

    def answer(self, at: int, api_key: int, version: int) -> dict[str, Any] | str:
        """The answer to what was sent."""
        frame = self.connection(at).answer()
        if frame is None:
            self.drop(at)
            return CLOSED
        body = frame[response_header_length(api_key, version, frame) :]
        tree: dict[str, Any] = decode(response_type(api_key, version), body)
        return tree

    def names(self, version: int, first_id_version: int, former: bool) -> dict[str, Any]:
        """How a request of that version names the topic."""
        if version >= first_id_version:
            return {"topic_id": self.former_id if former else self.topic_id}
        return {"name": self.topic, "topic": self.topic}

    # Life of the topic

    def create(self, partitions: int, configs: dict[str, str]) -> int:
        """Create it, and wait until every address serves it; Kafka's error code."""
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
        """Delete it, and wait until no address knows it; Kafka's error code."""
        answer = ask(self.connection(0), DELETE_TOPICS, 5, topic_names=[self.topic], timeout=30_000)["responses"][0]
        if answer["error_code"] == 0:
            for at in range(len(self.addresses)):
                self.wait(lambda at=at: self._metadata(at)["error_code"] == 3, "gone")  # type: ignore[misc]
                for index in range(self.partitions):
                    self.wait(lambda at=at, index=index: self.offsets(at, [index]) is None, "gone")  # type: ignore[misc]
        return int(answer["error_code"])

    def wait_served(self, partitions: int) -> None:
        """Until every address serves all of the partitions of the topic as it is now."""
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
        """The latest offsets of partitions that are there."""
        found: list[list[int]] = []

        def told() -> bool:
            ends = self.offsets(at, partitions)
            found[:] = [] if ends is None else [ends]
            return ends is not None

        self.wait(told, "telling its latest offsets")
        return found[0]

    def offsets(self, at: int, partitions: Iterable[int], special: int = LATEST) -> list[int] | None:
        """The latest or earliest offsets, by partition; None where there is an error."""
        asked = [{"partition_index": index, "current_leader_epoch": -1, "timestamp": special} for index in partitions]
        topics = [{"name": self.topic, "partitions": asked}]
        answer = ask(self.connection(at), LIST_OFFSETS, 5, replica_id=-1, topics=topics)
        told = sorted(answer["topics"][0]["partitions"], key=lambda one: one["partition_index"])
        return None if any(one["error_code"] for one in told) else [one["offset"] for one in told]

    def wait(self, condition: Callable[[], bool], what: str, seconds: float = SETTLE_SECONDS) -> None:
        """Raises Unsettled when time is up."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise Unsettled(f"the {self.kind} topic {self.topic} is not {what} after {seconds:g} s")
            time.sleep(POLL_SECONDS)
