"""Additions of partitions to transactions of version 2: who is asked, in which order, and what clients are answered."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import structlog

from proxy.brokers.cluster import ClusterView
from proxy.brokers.upstream import BrokerUnreachable
from proxy.config.transactions import Transactions
from proxy.coordinator.interface_transactions import NO_MARKERS
from proxy.protocol.errors import (
    CLUSTER_AUTHORIZATION_FAILED,
    CONCURRENT_TRANSACTIONS,
    COORDINATOR_NOT_AVAILABLE,
    INVALID_PRODUCER_EPOCH,
    INVALID_TXN_STATE,
    NONE,
    NOT_COORDINATOR,
    NOT_ENOUGH_REPLICAS,
    OPERATION_NOT_ATTEMPTED,
    PRODUCER_FENCED,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from proxy.telemetry.throttled_log import ThrottledLog
from proxy.transactions import additions as module
from proxy.transactions.additions import Additions, ProducerIn
from proxy.transactions.client_version import ClientVersion
from proxy.transactions.coordinators import TransactionCoordinators
from proxy.transactions.enlistments import AddedPartitions
from tests.support.questions import filled
from tests.unit.client_double import ClientDouble, request_of
from tests.unit.wire.trees import decode, encode, request_type, response_type

PRODUCE, FIND_COORDINATOR, ADD_PARTITIONS = 0, 10, 24
TOPIC, PRODUCER, EPOCH = b"t" * 16, 70, 3
ASKED = AddedPartitions("orders", PRODUCER, EPOCH, {("diskless", 0): TOPIC, ("diskless", 1): TOPIC})
LOGS = [(TOPIC, 0), (TOPIC, 1)]


class Cluster:
    """Knows which brokers are alive."""

    def __init__(self) -> None:
        self.view = ClusterView(dict.fromkeys((1, 2)))  # type: ignore[arg-type]


class Ends:
    """The ends of the placeholder topic's logs."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self.ends = {("diskless", 0): 5, ("diskless", 1): 7}

    async def read(self, ask: Any, logs: Any, ends: dict[tuple[str, int], int]) -> None:
        self._brokers.asked.append(("ends", ask.__self__.node_id))
        ends.update({one: self.ends[one] for one in logs if one in self.ends})
        if logs.keys() - ends.keys():
            await asyncio.Event().wait()  # a partition without a leader


class Brokers:
    """The brokers. `coordinators`: the node IDs that FindCoordinator answers, the last one again and again; `answers`:
    the errors of each partition, of one question after the other, NONE after them."""

    def __init__(self) -> None:
        self.coordinators: list[int] = [1]
        self.names = {"orders"}
        self.find_errors: list[int] = []
        self.answers: list[dict[int, int]] = []
        self.top_error = NONE
        self.asked: list[tuple[str, int]] = []
        self.added: list[dict[str, Any]] = []
        self.unreachable = False
        self.held: asyncio.Event | None = None
        """Lets answers through when it is set."""

    def find(self, api_key: int, version: int, body: bytes) -> bytes:
        """Answer the client's own connection."""
        assert api_key == FIND_COORDINATOR
        asked = decode(request_type(api_key, version), body)
        (name,) = asked["coordinator_keys"]
        assert (asked["key_type"], name in self.names) == (1, True)
        error_code = self.find_errors.pop(0) if self.find_errors else NONE
        node_id = self.coordinators.pop(0) if len(self.coordinators) > 1 else self.coordinators[0]
        self.asked.append(("find", node_id))
        found = {"key": name, "node_id": -1 if error_code else node_id, "error_code": error_code}
        entity = response_type(api_key, version)
        return encode(entity, filled(entity, {"coordinators": [found]}))


class Broker:
    """A connection of the proxy to one broker."""

    def __init__(self, brokers: Brokers, node_id: int) -> None:
        self._of = brokers
        self.node_id = node_id

    async def ask(self, api_key: int, version: int, body: bytes) -> memoryview:
        of = self._of
        assert (api_key, version) == (ADD_PARTITIONS, 5)
        if of.unreachable:
            raise BrokerUnreachable("no route")
        of.asked.append(("add", self.node_id))
        transactions = decode(request_type(api_key, version), body)["transactions"]
        of.added += transactions
        if of.held is not None:
            await of.held.wait()
        errors = of.answers.pop(0) if of.answers else {}
        by_transaction = [] if of.top_error else [_result(asked, errors) for asked in transactions]
        entity = response_type(api_key, version)
        answer = {"error_code": of.top_error, "results_by_transaction": by_transaction}
        return memoryview(encode(entity, filled(entity, answer)))

    def close(self) -> None:
        pass


def _result(asked: dict[str, Any], errors: dict[int, int]) -> dict[str, Any]:
    """Return the answer for one transaction."""
    topics = [
        {
            "name": topic["name"],
            "results_by_partition": [
                {"partition_index": index, "partition_error_code": errors.get(index, NONE)}
                for index in topic["partitions"]
            ],
        }
        for topic in asked["topics"]
    ]
    return {"transactional_id": asked["transactional_id"], "topic_results": topics}


class Adding:
    """Additions at these brokers."""

    def __init__(self, timeout_s: float = 5.0) -> None:
        self.brokers = Brokers()
        self.ends = Ends(self.brokers)
        cluster: Any = Cluster()
        ends: Any = self.ends
        connect: Any = lambda node_id: Broker(self.brokers, node_id)  # noqa: E731
        self.caught_up: list[set[tuple[bytes, int]]] = []
        self.additions = Additions(
            TransactionCoordinators(cluster, connect),
            ends,
            self._catch_up,
            ThrottledLog(lambda: 0.0),
            timeout_s=timeout_s,
        )

    async def _catch_up(self, logs: Any) -> None:
        self.caught_up.append(set(logs))

    async def add(self, asked: AddedPartitions = ASKED) -> dict[tuple[str, int], int]:
        client: Any = ClientDouble(self.brokers.find)
        return dict(await self.additions.add(client, request_of(PRODUCE, 12, b""), asked))

    def known(self, epoch: int = EPOCH, transactional_id: str = "orders") -> list[int | None]:
        producer = ProducerIn(transactional_id, PRODUCER, epoch)
        return [self.additions.markers_from(log, producer) for log in LOGS]


async def test_the_ends_are_read_after_the_partitions_were_added() -> None:
    adding = Adding()
    adding.brokers.coordinators = [2]
    assert adding.known() == [None, None]
    assert await adding.add() == {}
    assert adding.known() == [5, 7]
    assert adding.brokers.asked == [("find", 2), ("add", 2), ("ends", 2)]
    (added,) = adding.brokers.added
    assert (added["producer_id"], added["producer_epoch"], added["verify_only"]) == (PRODUCER, EPOCH, False)
    assert added["topics"] == [{"name": "diskless", "partitions": [0, 1]}]


async def test_what_is_known_is_of_one_epoch() -> None:
    adding = Adding()
    await adding.add()
    assert adding.known(EPOCH + 1) == [None, None]
    adding.ends.ends = {("diskless", 0): 6, ("diskless", 1): 8}
    await adding.add(ASKED._replace(producer_epoch=EPOCH + 1))
    assert (adding.known(), adding.known(EPOCH + 1)) == ([None, None], [6, 8])
    assert adding.known(EPOCH + 1, "another") == [None, None]


async def test_before_it_asks_again_markers_are_caught_up_with() -> None:
    """The shadow's log may have been truncated, which the tail notices if it reads."""
    adding = Adding()
    await adding.add()
    adding.additions.forget(LOGS[0], PRODUCER)
    assert adding.known() == [None, 7]
    await adding.add(ASKED._replace(logs={("diskless", 0): TOPIC}))
    assert (adding.caught_up, adding.known()) == ([{LOGS[0]}], [5, 7])


async def test_a_partition_without_leader_fails_alone() -> None:
    adding = Adding(timeout_s=0.1)
    del adding.ends.ends["diskless", 0]
    with structlog.testing.capture_logs() as logged:
        assert await adding.add() == {("diskless", 0): NOT_ENOUGH_REPLICAS}
    assert (adding.known(), len(logged)) == ([None, 7], 1)


async def test_transactions_go_together_while_a_request_is_under_way() -> None:
    adding = Adding()
    adding.brokers.held = asyncio.Event()
    asked = [ASKED._replace(transactional_id=f"orders-{number}", producer_id=number) for number in range(4)]
    adding.brokers.names = {one.transactional_id for one in asked}
    work = [asyncio.ensure_future(adding.add(asked[0]))]
    await asyncio.sleep(0.02)
    work += [asyncio.ensure_future(adding.add(one)) for one in asked[1:]]
    await asyncio.sleep(0.02)
    adding.brokers.held.set()
    assert await asyncio.gather(*work) == [{}] * 4
    assert [what for what, _ in adding.brokers.asked if what == "add"] == ["add"] * 2
    assert len(adding.brokers.added) == 4


async def test_the_coordinator_is_looked_for_again_if_it_has_moved() -> None:
    adding = Adding()
    adding.brokers.coordinators = [1, 2]
    adding.brokers.find_errors = [COORDINATOR_NOT_AVAILABLE]
    adding.brokers.answers = [dict.fromkeys((0, 1), NOT_COORDINATOR)]
    assert await adding.add() == {}
    assert adding.brokers.asked[-2:] == [("add", 2), ("ends", 2)]


async def test_the_coordinator_of_the_last_transaction_is_asked_first() -> None:
    adding = Adding()
    for epoch in (EPOCH, EPOCH + 1):
        assert await adding.add(ASKED._replace(producer_epoch=epoch)) == {}
    assert adding.brokers.asked == [("find", 1), ("add", 1), ("ends", 1), ("add", 1), ("ends", 1)]
    adding.brokers.coordinators = [2]
    adding.brokers.answers = [dict.fromkeys((0, 1), NOT_COORDINATOR)]
    assert await adding.add(ASKED._replace(producer_epoch=EPOCH + 2)) == {}
    assert adding.brokers.asked[5:] == [("add", 1), ("find", 2), ("add", 2), ("ends", 2)]


async def test_a_coordinator_that_does_not_answer_is_not_asked_first_again() -> None:
    adding = Adding()
    await adding.add()
    adding.brokers.unreachable = True
    assert await adding.add(ASKED._replace(producer_epoch=EPOCH + 1)) == dict.fromkeys(ASKED.logs, NOT_ENOUGH_REPLICAS)
    adding.brokers.unreachable, adding.brokers.coordinators = False, [2]
    assert await adding.add(ASKED._replace(producer_epoch=EPOCH + 1)) == {}
    assert adding.brokers.asked[-3:] == [("find", 2), ("add", 2), ("ends", 2)]


async def test_markers_of_the_last_transaction_are_waited_for() -> None:
    """Only the partitions that were not added are asked for again."""
    adding = Adding()
    adding.brokers.answers = [{1: CONCURRENT_TRANSACTIONS}] * 3
    assert await adding.add() == {}
    assert [added["topics"][0]["partitions"] for added in adding.brokers.added] == [[0, 1], [1], [1], [1]]
    assert adding.known() == [5, 7]


async def test_they_are_not_waited_for_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CONCURRENT_S", 0.05)
    adding = Adding()
    adding.brokers.answers = [{1: CONCURRENT_TRANSACTIONS}] * 1_000
    assert await adding.add() == {("diskless", 1): CONCURRENT_TRANSACTIONS}
    assert adding.known() == [5, None]


@pytest.mark.parametrize(
    ("answered", "expected"),
    [
        (PRODUCER_FENCED, INVALID_PRODUCER_EPOCH),
        (INVALID_TXN_STATE, INVALID_TXN_STATE),
        (UNKNOWN_TOPIC_OR_PARTITION, NOT_ENOUGH_REPLICAS),
        (OPERATION_NOT_ATTEMPTED, NOT_ENOUGH_REPLICAS),
    ],
)
async def test_errors_are_those_of_a_produce(answered: int, expected: int) -> None:
    adding = Adding()
    adding.brokers.answers = [{0: answered}]
    assert await adding.add() == {("diskless", 0): expected}
    assert adding.known() == [None, 7]


async def test_without_the_right_batches_are_taken_as_those_of_version_1() -> None:
    """Clients that have added their partitions themselves go on; others get INVALID_TXN_STATE from the coordinator."""
    adding = Adding()
    adding.brokers.top_error = CLUSTER_AUTHORIZATION_FAILED
    with structlog.testing.capture_logs() as logged:
        assert await adding.add() == {}
    assert ("ClusterAction" in logged[0]["reason"], adding.known()) == (True, [NO_MARKERS, NO_MARKERS])


@pytest.mark.parametrize("break_it", ["unreachable", "slow"])
async def test_in_doubt_the_client_retries(break_it: str) -> None:
    adding = Adding(timeout_s=0.1)
    adding.brokers.unreachable = break_it == "unreachable"
    if break_it == "slow":
        adding.brokers.answers = [dict.fromkeys((0, 1), NOT_COORDINATOR)] * 1_000
    with structlog.testing.capture_logs() as logged:
        assert await adding.add() == dict.fromkeys(ASKED.logs, NOT_ENOUGH_REPLICAS)
    assert [line["event"] for line in logged] == ["partitions_not_added"]
    assert adding.known() == [None, None]


class Probed:
    """A version for clients, as brokers answer."""

    def __init__(self, **settings: Any) -> None:
        self.brokers = Brokers()
        self.now_s = 1_000.0
        self.version = ClientVersion(Transactions(**settings), Broker(self.brokers, 1).ask, lambda: self.now_s)

    async def learn(self, brokers_version: int = 2) -> bool:
        await self.version.learn(brokers_version)
        return self.version.is_1


async def test_clients_are_held_at_version_1_until_the_brokers_allow_more() -> None:
    probed = Probed()
    assert (probed.version.is_known, probed.version.is_1) == (False, True)
    assert not await probed.learn()
    assert probed.version.is_known
    (asked,) = probed.brokers.added
    assert (asked["verify_only"], asked["topics"]) == (True, [])


async def test_all_wait_for_the_first_answer() -> None:
    """A client that got version 1 in between would keep it."""
    probed = Probed()
    probed.brokers.held = asyncio.Event()
    work = [asyncio.ensure_future(probed.learn()) for _ in range(3)]
    await asyncio.sleep(0.01)
    assert not probed.version.is_known
    probed.brokers.held.set()
    assert await asyncio.gather(*work) == [False] * 3
    assert len(probed.brokers.added) == 1


async def test_a_right_that_is_lost_is_noticed() -> None:
    probed = Probed()
    assert not await probed.learn()
    probed.now_s += 61
    assert not probed.version.is_known
    probed.brokers.top_error = CLUSTER_AUTHORIZATION_FAILED
    with structlog.testing.capture_logs() as logged:
        assert await probed.learn()
        assert await probed.learn()
    assert [line["event"] for line in logged] == ["transaction_version_1"]


async def test_if_no_broker_answers_what_was_known_stays_for_a_moment() -> None:
    probed = Probed()
    assert not await probed.learn()
    probed.brokers.unreachable = True
    assert not await probed.learn()
    probed.now_s += 6
    assert not probed.version.is_known


async def test_brokers_of_version_1_are_not_asked() -> None:
    probed = Probed()
    assert await probed.learn(1)
    assert (probed.brokers.added, probed.version.is_known) == ([], True)


async def test_a_setting_holds_clients_at_version_1() -> None:
    probed = Probed(client_version=1)
    assert (probed.version.is_known, probed.version.is_1) == (True, True)
