"""Enlistments: the ends of shadows are read at their leaders, and nothing is enlisted that is in doubt."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import structlog

from proxy.brokers.cluster import ClusterView
from proxy.brokers.upstream import BrokerUnreachable
from proxy.coordinator.interface_transactions import Marker, MarkersRead
from proxy.protocol.errors import FENCED_LEADER_EPOCH, NONE, OFFSET_NOT_AVAILABLE
from proxy.telemetry.throttled_log import ThrottledLog
from proxy.transactions.enlistments import AddedPartitions, Enlistments
from proxy.transactions.shadow_ends import ShadowEnds
from tests.coordinator_model import ModelCoordinator
from tests.support.questions import filled
from tests.unit.client_double import ClientDouble, request_of
from tests.unit.wire.trees import decode, encode, request_type, response_type

METADATA, LIST_OFFSETS, ADD_PARTITIONS, DESCRIBE = 3, 2, 24, 65
TOPIC, PRODUCER = b"t" * 16, 70
EXPECTED = AddedPartitions("orders", PRODUCER, 0, {("diskless", 0): TOPIC, ("diskless", 1): TOPIC})


class Cluster:
    """Knows which brokers are alive."""

    def __init__(self) -> None:
        self.view = ClusterView(dict.fromkeys((1, 2)))  # type: ignore[arg-type]


class Broker:
    """Leads partitions, in `epochs`, whose shadows' logs end at `ends`."""

    def __init__(self, brokers: Brokers, node_id: int) -> None:
        self._of = brokers
        self._node_id = node_id
        self.closed = False

    async def ask(self, api_key: int, version: int, body: bytes) -> memoryview:
        assert api_key == LIST_OFFSETS
        self._of.asked.append(LIST_OFFSETS)
        if self._node_id == self._of.hanging:
            await asyncio.Event().wait()
        asked = decode(request_type(api_key, version), body)
        assert (asked["replica_id"], asked["isolation_level"]) == (-1, 0)
        topics = [
            {
                "name": topic["name"],
                "partitions": [self._end(one["partition_index"], one) for one in topic["partitions"]],
            }
            for topic in asked["topics"]
        ]
        entity = response_type(api_key, version)
        return memoryview(encode(entity, filled(entity, {"topics": topics})))

    def _end(self, index: int, asked: dict[str, int]) -> dict[str, int]:
        of = self._of
        error_code = of.errors.pop() if of.errors else NONE
        former_end = of.former_ends.get((self._node_id, index))
        if asked["current_leader_epoch"] != of.epochs[index] and former_end is None:
            error_code = FENCED_LEADER_EPOCH
        offset = -1 if error_code else of.ends[index] if former_end is None else former_end
        return {"partition_index": index, "error_code": error_code, "offset": offset}

    def close(self) -> None:
        self.closed = True


class Brokers:
    """The brokers, as the client's connection and the proxy's own connections see them."""

    def __init__(self) -> None:
        self.ends = {0: 0, 1: 0}
        self.epochs = {0: 5, 1: 7}
        self.leaders = {0: 1, 1: 2}
        self.former_ends: dict[tuple[int, int], int] = {}
        """Ends of brokers that do not know yet that another one leads, by node ID and partition."""
        self.hanging: int | None = None
        self.errors: list[int] = []
        self.topic_id = TOPIC
        self.state: dict[str, Any] = {
            "transactional_id": "orders",
            "transaction_state": "Ongoing",
            "producer_id": PRODUCER,
            "producer_epoch": 0,
            "topics": [{"topic": "diskless", "partitions": [0, 1]}],
        }
        self.asked: list[int] = []

    def answer(self, api_key: int, version: int, body: bytes) -> bytes:
        self.asked.append(api_key)
        entity = response_type(api_key, version)
        if api_key == DESCRIBE:
            return encode(entity, filled(entity, {"transaction_states": [self.state]}))
        assert api_key == METADATA
        partitions = [
            {"partition_index": index, "leader_id": self.leaders[index], "leader_epoch": epoch}
            for index, epoch in self.epochs.items()
        ]
        topic = {"name": "diskless", "topic_id": self.topic_id, "partitions": partitions}
        return encode(entity, filled(entity, {"brokers": [], "topics": [topic]}))


class Enlisting:
    """Enlistments on the model of the coordinator."""

    def __init__(self) -> None:
        self.brokers = Brokers()
        self.coordinator = ModelCoordinator()
        self.caught_up: list[set[tuple[bytes, int]]] = []
        cluster: Any = Cluster()
        connect: Any = lambda node_id: Broker(self.brokers, node_id)  # noqa: E731
        self.ends = ShadowEnds(cluster, connect)
        self.enlistments = Enlistments(
            self.coordinator.transactions,
            self.ends,
            self._catch_up,
            ThrottledLog(lambda: 0.0),
            timeout_s=1.0,
        )

    async def enlist(self, added: AddedPartitions = EXPECTED) -> bool:
        client: Any = ClientDouble(self.brokers.answer)
        return await self.enlistments.enlist(client, request_of(ADD_PARTITIONS, 3, b""), added)

    async def mark(self, partition: int, end: int, *markers: Marker) -> None:
        """Apply the markers of a shadow up to an end."""
        at = self.coordinator.logs[TOPIC, partition].shadow.next_offset
        await self.coordinator.transactions.apply_markers([MarkersRead(TOPIC, partition, at, end, 0, markers)])

    async def _catch_up(self, logs: Any) -> None:
        self.caught_up.append(set(logs))
        for topic_id, partition in logs:
            assert topic_id == TOPIC
            await self.mark(partition, self.brokers.ends[partition])

    def from_offset(self, partition: int) -> int | None:
        """Return from which offset on a marker may end the producer's transaction; None if it is not enlisted."""
        known = self.coordinator.logs[TOPIC, partition].transactions.get(PRODUCER)
        return None if known is None else known.markers_from


@pytest.fixture
async def enlisting() -> Enlisting:
    made = Enlisting()
    await made.coordinator.create_logs(TOPIC, [0, 1])
    return made


async def test_partitions_are_enlisted_from_the_ends_of_their_shadows(enlisting: Enlisting) -> None:
    enlisting.brokers.ends = {0: 4, 1: 0}
    await enlisting.mark(0, 4)
    assert await enlisting.enlist()
    assert (enlisting.from_offset(0), enlisting.from_offset(1)) == (4, 0)
    asked = [METADATA, LIST_OFFSETS, LIST_OFFSETS, DESCRIBE]
    assert enlisting.brokers.asked == asked, "the state is asked for after the ends were read"
    assert enlisting.caught_up == []


async def test_the_next_ends_are_read_while_the_coordinator_names_the_leaders(enlisting: Enlisting) -> None:
    assert await enlisting.enlist()
    del enlisting.brokers.asked[:]
    enlisting.brokers.ends = {0: 4, 1: 0}
    assert await enlisting.enlist()
    assert enlisting.from_offset(0) == 4
    assert sorted(enlisting.brokers.asked) == [LIST_OFFSETS, LIST_OFFSETS, METADATA, DESCRIBE], "each leader once"


async def test_the_end_of_a_former_leader_does_not_count(enlisting: Enlisting) -> None:
    assert await enlisting.enlist()
    enlisting.brokers.leaders[0], enlisting.brokers.epochs[0] = 2, 6
    enlisting.brokers.former_ends[1, 0] = 0
    enlisting.brokers.ends = {0: 4, 1: 0}
    assert await enlisting.enlist()
    assert enlisting.from_offset(0) == 4


async def test_it_does_not_count_if_it_comes_before_the_coordinator_answers(enlisting: Enlisting) -> None:
    async def ask(api_key: int, version: int, body: bytes) -> memoryview:
        await asyncio.sleep(0.01)
        return memoryview(enlisting.brokers.answer(api_key, version, body))

    assert await enlisting.enlist()
    enlisting.brokers.leaders[0], enlisting.brokers.epochs[0] = 2, 6
    enlisting.brokers.former_ends[1, 0] = 0
    enlisting.brokers.ends = {0: 4, 1: 2}
    ends: dict[tuple[str, int], int] = {}
    await enlisting.ends.read(ask, EXPECTED.logs, ends)
    assert ends == {("diskless", 0): 4, ("diskless", 1): 2}


async def test_a_former_leader_that_hangs_is_not_waited_for(enlisting: Enlisting) -> None:
    assert await enlisting.enlist()
    enlisting.brokers.leaders[0], enlisting.brokers.epochs[0] = 2, 6
    enlisting.brokers.hanging = 1
    assert await enlisting.enlist()


@pytest.mark.parametrize("is_known", [False, True])
async def test_a_leader_that_hangs_does_not_cost_the_ends_of_others(enlisting: Enlisting, is_known: bool) -> None:
    async def ask(api_key: int, version: int, body: bytes) -> memoryview:
        return memoryview(enlisting.brokers.answer(api_key, version, body))

    if is_known:
        assert await enlisting.enlist()
    enlisting.brokers.hanging = 1
    enlisting.brokers.ends = {0: 4, 1: 2}
    ends: dict[tuple[str, int], int] = {}
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await enlisting.ends.read(ask, EXPECTED.logs, ends)
    assert ends == {("diskless", 1): 2}


async def test_the_leader_of_an_earlier_topic_of_the_name_is_not_asked(enlisting: Enlisting) -> None:
    assert await enlisting.enlist()
    del enlisting.brokers.asked[:]
    enlisting.brokers.topic_id = b"u" * 16
    other = EXPECTED._replace(logs=dict.fromkeys(EXPECTED.logs, enlisting.brokers.topic_id))
    await enlisting.enlist(other)
    assert enlisting.brokers.asked[:3] == [METADATA, LIST_OFFSETS, LIST_OFFSETS]
    assert enlisting.brokers.asked[3] == DESCRIBE


async def test_markers_that_nobody_applies_are_applied_here(enlisting: Enlisting) -> None:
    enlisting.brokers.ends = {0: 4, 1: 0}
    assert await enlisting.enlist()
    assert enlisting.caught_up == [{(TOPIC, 0)}]
    assert (enlisting.from_offset(0), enlisting.from_offset(1)) == (4, 0)


@pytest.mark.parametrize(
    "other",
    [
        {"transaction_state": "PrepareCommit"},
        {"transaction_state": "CompleteAbort", "topics": []},
        {"producer_id": PRODUCER + 1},
        {"producer_epoch": 1},
        {"topics": [{"topic": "diskless", "partitions": [1]}]},
        {"error_code": 16, "transaction_state": "", "topics": []},
        {"transactional_id": "another"},
    ],
)
async def test_a_transaction_that_is_not_ongoing_is_not_enlisted(enlisting: Enlisting, other: dict[str, Any]) -> None:
    enlisting.brokers.state |= other
    with structlog.testing.capture_logs() as logged:
        assert not await enlisting.enlist()
    assert enlisting.from_offset(0) is None
    assert [line["event"] for line in logged] == ["partitions_not_enlisted"]


async def test_a_transaction_that_ended_meanwhile_is_not_enlisted(enlisting: Enlisting) -> None:
    await enlisting.mark(1, 1, Marker(0, PRODUCER, 0, 0, False, 1_000))
    assert not await enlisting.enlist()


async def test_a_fenced_producer_is_not_enlisted(enlisting: Enlisting) -> None:
    enlisting.brokers.ends = {0: 1, 1: 0}
    await enlisting.mark(0, 1, Marker(0, PRODUCER, 1, 0, False, 1_000))
    assert not await enlisting.enlist()


async def test_a_new_leader_is_asked_until_it_knows_its_high_watermark(enlisting: Enlisting) -> None:
    enlisting.brokers.errors = [OFFSET_NOT_AVAILABLE] * 3
    assert await enlisting.enlist()
    assert enlisting.brokers.asked.count(METADATA) >= 2


async def test_an_end_of_another_topic_of_the_same_name_does_not_count(enlisting: Enlisting) -> None:
    enlisting.brokers.topic_id = b"u" * 16
    assert not await enlisting.enlist()
    assert enlisting.from_offset(0) is None


async def test_a_topic_that_is_gone_is_not_enlisted(enlisting: Enlisting) -> None:
    await enlisting.coordinator.delete_logs(TOPIC, [1])
    assert not await enlisting.enlist()


async def test_without_the_markers_the_client_has_to_retry(enlisting: Enlisting) -> None:
    async def unreachable(logs: Any) -> None:
        raise BrokerUnreachable("no leader")

    enlisting.enlistments._catch_up = unreachable
    enlisting.brokers.ends = {0: 4, 1: 0}
    with structlog.testing.capture_logs() as logged:
        assert not await enlisting.enlist()
    assert logged[0]["reason"] == "no leader"
    assert enlisting.from_offset(0) is None
