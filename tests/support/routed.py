"""Send the same Fetch twice: to the leader, and to its listener in a proxy of another rack.

A *foreign listener* stands for a broker of another rack than the proxy's. The proxy must read the partitions of a
foreign listener from replicas of its own rack, and no client may notice this from the answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import pytest

from proxy.demo.stack import Stack
from tests.support.metrics import Metrics
from tests.support.questions import ask
from tests.support.raw import Raw
from tests.support.waiting import wait_for

PRODUCE, FETCH, METADATA, DELETE_RECORDS, ELECT_LEADERS, REASSIGN = 0, 1, 3, 21, 43, 45
FIRST_ID_VERSION, HIGHEST_VERSION = 13, 18
ON_A_REPLICA = 11
"""First version of Fetch that a follower answers."""
LEADER, NEAR = 2, 1
"""Node IDs of the leader, in RACK_OF_LEADER, and of the replica in the proxy's rack."""
RACK, RACK_OF_LEADER = "rack-a", "rack-b"
NOT_LEADER_OR_FOLLOWER = 6
CLOSED = "the connection is closed"
NO_ID = bytes(16)
LEADER_READS = "leader_reads_total"

Answer = dict[str, Any] | str


class Asked(NamedTuple):
    """One partition's part of a Fetch request."""

    topic: str | bytes
    """Topic name, sent as its ID if the version needs one, or an ID that does not exist."""
    partition: int
    offset: int
    max_bytes: int = 1 << 20
    epoch: int = -1
    last_epoch: int = -1


@dataclass(slots=True)
class Twins:
    """A connection to the leader, and one to its listener at the proxy of another rack, as a context."""

    stack: Stack
    ids: dict[str, bytes]
    rack: str = RACK
    client_id: str = "twins"
    _connections: dict[str, Raw] = field(default_factory=dict)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections.values():
            connection.close()

    def fetch(self, version: int, *asked: Asked, **values: Any) -> tuple[Answer, Answer]:
        """Return both answers, as trees of plain values in the same form."""
        reported = self.directly(version, *asked, **values), self.routed(version, *asked, **values)
        return self._comparable(reported[0]), self._comparable(reported[1])

    def directly(self, version: int, *asked: Asked, **values: Any) -> Answer:
        """Return the leader's own answer."""
        return self._ask(broker_address(self.stack, LEADER), version, asked, values)

    def routed(self, version: int, *asked: Asked, **values: Any) -> Answer:
        """Return the proxy's answer at the leader's listener."""
        answer = self._ask(listener(self.stack, LEADER, self.rack), version, asked, values)
        if isinstance(answer, dict):
            self._check_own(answer)
        return answer

    def _ask(self, address: str, version: int, asked: Sequence[Asked], values: dict[str, Any]) -> Answer:
        if address not in self._connections:
            self._connections[address] = Raw(address)
        try:
            return fetch(self._connections[address], version, asked, self.ids, self.client_id, **values)
        except ConnectionError:
            self._connections.pop(address).close()
            return CLOSED

    def _check_own(self, answer: dict[str, Any]) -> None:
        """Check the rules that only a proxy's answer must meet."""
        assert answer.get("session_id", 0) == 0, "the proxy keeps no sessions"
        brokers = {self.stack.ports.broker(node) for node in self.stack.kafka.racks}
        for endpoint in answer.get("node_endpoints", ()):
            assert endpoint["port"] not in brokers, f"the answer contains a broker's own address: {endpoint}"
        for one in partitions(answer):
            assert one.get("preferred_read_replica", -1) == -1, "the client is sent elsewhere"

    def _comparable(self, answer: Answer) -> Answer:
        if isinstance(answer, str):
            return answer
        reported = {name: value for name, value in answer.items() if name not in ("session_id", "node_endpoints")}
        reported["nodes"] = [endpoint["node_id"] for endpoint in answer.get("node_endpoints", ())]
        return reported


def fetch(
    connection: Raw | str,
    version: int,
    asked: Sequence[Asked],
    ids: dict[str, bytes],
    client_id: str = "twins",
    **values: Any,
) -> dict[str, Any]:
    """Return the answer as a tree; by default the broker does not wait. Raises ConnectionError if there is no
    answer."""
    topics: list[dict[str, Any]] = []
    for one in asked:
        named = one.topic if isinstance(one.topic, bytes) else ids.get(one.topic, NO_ID)
        name = {"topic_id": named} if version >= FIRST_ID_VERSION else {"topic": one.topic}
        if not topics or {key: topics[-1][key] for key in name} != name:
            topics.append({**name, "partitions": []})
        topics[-1]["partitions"].append(
            {
                "partition": one.partition,
                "current_leader_epoch": one.epoch,
                "fetch_offset": one.offset,
                "last_fetched_epoch": one.last_epoch,
                "log_start_offset": -1,
                "partition_max_bytes": one.max_bytes,
            }
        )
    request = {"replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 24, "session_epoch": -1}
    return ask(connection, FETCH, version, client_id, **{**request, "topics": topics, **values})


def partitions(answer: Answer) -> list[dict[str, Any]]:
    """Return the partitions of all topics, in order."""
    assert isinstance(answer, dict), answer
    return [one for topic in answer["responses"] for one in topic["partitions"]]


def records_of(answer: Answer) -> list[bytes]:
    """Return the records of each partition, in order."""
    return [one["records"] or b"" for one in partitions(answer)]


def broker_address(stack: Stack, node: int) -> str:
    """Return the address of a broker itself."""
    return f"127.0.0.1:{stack.ports.broker(node)}"


def listener(stack: Stack, node: int, rack: str) -> str:
    """Return the address where a rack's proxy stands for a broker."""
    return f"127.0.0.1:{stack.ports.broker_port_start(list(stack.proxies).index(rack)) + node}"


def topic_id(stack: Stack, topic: str) -> bytes:
    """Return the ID of a topic, once its leader's broker knows it."""
    found = NO_ID

    def heard_of() -> bool:
        nonlocal found
        asked = [{"name": topic, "topic_id": NO_ID}]
        answer = ask(broker_address(stack, LEADER), METADATA, 12, topics=asked, allow_auto_topic_creation=False)
        found = answer["topics"][0]["topic_id"]
        return found != NO_ID

    wait_for(heard_of, f"broker {LEADER} has heard of {topic}")
    return found


def produce(stack: Stack, topic: str, partition: int, batch: bytes, *, acks: int = -1) -> int:
    """Send a batch to the broker that leads the partition; return its first offset."""
    data = [{"name": topic, "partition_data": [{"index": partition, "records": bytes(batch)}]}]
    reported: dict[str, Any] = {}

    def taken() -> bool:
        node = leader_of(stack, topic, partition)
        try:
            answer = ask(broker_address(stack, node), PRODUCE, 9, acks=acks, timeout=30_000, topic_data=data)
        except TimeoutError:
            pytest.fail(f"broker {node}, which leads {topic}-{partition}, does not answer a Produce")
        reported.update(answer["responses"][0]["partition_responses"][0])
        # On a very busy machine, a leader may just have moved.
        return bool(reported["error_code"] != NOT_LEADER_OR_FOLLOWER)

    wait_for(taken, f"{topic}-{partition} has a leader")
    assert reported["error_code"] == 0, reported
    return int(reported["base_offset"])


def leader_of(stack: Stack, topic: str, partition: int, node: int = LEADER) -> int:
    """Return the leader that a broker knows; the broker itself if there is no leader."""
    asked = [{"name": topic, "topic_id": NO_ID}]
    known = ask(broker_address(stack, node), METADATA, 12, topics=asked, allow_auto_topic_creation=False)["topics"][0]
    reported = {one["partition_index"]: one["leader_id"] for one in known["partitions"]}
    leader = int(reported.get(partition, -1))
    return leader if leader >= 0 else node


def all_see_leader(stack: Stack, topic: str, partition: int, replicas: Sequence[int]) -> bool:
    """Return whether all replicas know the first of them as the leader."""
    return all(leader_of(stack, topic, partition, node) == replicas[0] for node in replicas)


def lead(stack: Stack, topic: str, partition: int, replicas: Sequence[int]) -> None:
    """Make the first of the replicas the leader of the partition. The replicas stay the same, in another order."""
    address = broker_address(stack, LEADER)
    moves = [{"name": topic, "partitions": [{"partition_index": partition, "replicas": list(replicas)}]}]
    answer = ask(address, REASSIGN, 0, timeout=30_000, topics=moves)
    assert answer["error_code"] == 0, answer
    elected = [{"topic": topic, "partitions": [partition]}]

    def leads() -> bool:
        ask(address, ELECT_LEADERS, 1, election_type=0, topic_partitions=elected, timeout=30_000)
        return all_see_leader(stack, topic, partition, replicas)

    wait_for(leads, f"broker {replicas[0]} leads {topic}-{partition}")


def delete_records(stack: Stack, topic: str, partition: int, before: int) -> None:
    """Move the log start; return when the live replicas have moved it."""
    asked = [{"name": topic, "partitions": [{"partition_index": partition, "offset": before}]}]
    answer = ask(broker_address(stack, LEADER), DELETE_RECORDS, 1, topics=asked, timeout=30_000)
    assert answer["topics"][0]["partitions"][0]["error_code"] == 0, answer


def settle(stack: Stack, ids: dict[str, bytes], *asked: Asked) -> None:
    """Wait until the near replica reports the same records, watermarks and log start as the leader."""

    def reported(node: int) -> list[dict[str, Any]]:
        return partitions(fetch(broker_address(stack, node), ON_A_REPLICA, asked, ids))

    wait_for(lambda: reported(LEADER) == reported(NEAR), "the replica is as far as the leader")


class Served(NamedTuple):
    """Measures which classic reads the proxy has counted since `began`."""

    stack: Stack
    before: Metrics

    @classmethod
    def begin(cls, stack: Stack) -> Served:
        """Start to count from now on."""
        return cls(stack, Metrics(stack, RACK))

    def record_bytes(self) -> dict[str, float]:
        """Return bytes of classic records that the proxy fetched, by the rack that served them."""
        now = Metrics(self.stack, RACK)
        asked = {"kind": "classic", "direction": "fetch"}
        moved = {
            rack: now.value("record_bytes_total", serving_rack=rack, **asked)
            - self.before.value("record_bytes_total", serving_rack=rack, **asked)
            for rack in self.stack.options.racks
        }
        return {rack: size for rack, size in moved.items() if size}

    def leader_reads(self) -> dict[str, float]:
        """Return the number of partitions that were read from a leader of another rack, by the reason."""
        now = Metrics(self.stack, RACK)
        counted = {
            reason: now.value(LEADER_READS, reason=reason) - self.before.value(LEADER_READS, reason=reason)
            for reason in now.labels(f"diskless_proxy_{LEADER_READS}", "reason")
        }
        return {reason: count for reason, count in counted.items() if count}


def requests(stack: Stack) -> float:
    """Return the number of Fetch requests that the proxy has received so far."""
    return Metrics(stack, RACK).value("requests_total", api="Fetch")


def warm_up(stack: Stack, ids: dict[str, bytes], *asked: Asked) -> None:
    """Wait until the proxy reads all requested partitions in its own rack: it learns about a topic when clients use
    it."""

    def is_near() -> bool:
        served = Served.begin(stack)
        fetch(listener(stack, LEADER, RACK), ON_A_REPLICA, asked, ids)
        return set(served.record_bytes()) == {RACK}

    wait_for(is_near, "what is asked for is read in the proxy's own rack")
