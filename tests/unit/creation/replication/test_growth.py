"""New partitions that the brokers reject: reassignments that are reduced, stored and repeated, and the state after a
failure."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode

from proxy.brokers.cluster import ClusterView
from proxy.brokers.upstream import BrokerUnreachable
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.creation.replication import growth
from proxy.creation.replication.creation import UnderReplicatedTopics
from proxy.creation.replication.growth import PartitionGrowth
from proxy.creation.replication.interface import Pending
from proxy.creation.replication.reassignments import KnownReplicas, ReassignmentsRefused
from proxy.wire.cold import encode, milliseconds, nested, read_request, read_response
from proxy.wire.metadata import Broker
from tests.unit.creation.replication.model_brokers import MemoryPending, ModelBrokers

CREATE_PARTITIONS, DESCRIBE_CONFIGS, DESCRIBE_CLUSTER = 37, 32, 60
NONE, TIMED_OUT, POLICY_VIOLATION, FORBIDDEN, TOO_MANY_REPLICAS, BAD_ASSIGNMENT = 0, 7, 44, 29, 38, 39
WHOLE = ([3, 1, 2], [1, 2, 3])
SHORT = ([1, 2], [2, 1])


class Cluster:
    """Brokers 1 and 2 are live, 3 is not registered any more. The controller accepts partitions like KRaft's does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *replicas: Sequence[int], **world: Any) -> None:
        self.model = ModelBrokers({1: "a", 2: "b", 3: "c"})
        self.topic_id = self.model.make("t", *replicas)
        self.registered: set[int] | None = world.get("registered", {1, 2})
        self.least = world.get("least", "2")
        self.may_describe = world.get("may_describe", ("service",))
        self.may_alter = world.get("may_alter", True)
        self.again = NONE
        self.throttles_ms = [0, 0]
        """Throttle time of each answer to CreatePartitions."""
        self.throttled_ms = 0.0
        self.store: Any = MemoryPending()
        self.order: list[str] = []
        brokers = {node: Broker(node, "127.0.0.1", 9092, rack) for node, rack in ((1, "a"), (2, "b"))}
        service = SimpleNamespace(ask=lambda key, version, body: self._told("service", key, version, body))
        settings: Any = SimpleNamespace(
            enable_under_replicated_topic_creation=world.get("enabled", True),
            all_listeners=(SimpleNamespace(node_ids=(1, 2, 3)),),
        )
        cluster: Any = SimpleNamespace(
            view=ClusterView(brokers),
            refresh=self._refresh,
            service=service,
            connection_to=lambda node: SimpleNamespace(ask=service.ask, close=lambda: None),
        )
        topics: Any = SimpleNamespace(find=lambda name: None)
        self.under_replicated = UnderReplicatedTopics(settings, self.store, cluster, "this proxy", lambda: 12345)
        self.growth = PartitionGrowth(self.under_replicated, self.store, cluster, topics)
        monkeypatch.setattr(growth, "ask_replicas", self._ask_replicas)
        monkeypatch.setattr(growth, "list_reassignments", self._list)
        monkeypatch.setattr(growth, "alter_reassignments", self._alter)

    async def _refresh(self) -> None:
        return None

    async def _ask_replicas(self, connection: Any, topics: Sequence[str | bytes] | None) -> KnownReplicas:
        return await self.model.ask_replicas(connection, topics)

    async def _list(self, connection: Any, partitions: Any) -> Any:
        return await self.model.list_reassignments(connection, partitions)

    async def _alter(self, connection: Any, targets: Any) -> dict[tuple[str, int], tuple[int, str]]:
        if not self.may_alter:
            raise ReassignmentsRefused("not allowed", rights=True)
        assert await self.store.all(), "nothing was remembered before"
        self.order.append("alter")
        for (name, number), replicas in targets.items():
            self.model.partition(name, number).replicas = list(replicas)
        return {}

    async def ask(self, request: Any, api_key: int, version: int, body: Any) -> memoryview:
        return await self._told("client", api_key, version, b"".join(body) if isinstance(body, list) else body)

    async def _told(self, who: str, api_key: int, version: int, body: bytes) -> memoryview:
        response_type: Any = load_response_schema(api_key, version)
        if api_key == DESCRIBE_CLUSTER:
            if self.registered is None:
                raise BrokerUnreachable("the broker closed the connection")
            broker_type = nested(response_type, "brokers")
            brokers = tuple(
                broker_type(broker_id=node, host="h", port=1, rack=None, is_fenced=node > 2) for node in self.registered
            )
            throttle = milliseconds(0)
            answer = response_type(
                throttle_time=throttle,
                error_code=ErrorCode(0),
                error_message=None,
                cluster_id="c",
                controller_id=1,
                brokers=brokers,
            )
            return memoryview(encode(answer))
        if api_key == DESCRIBE_CONFIGS:
            result_type = nested(response_type, "results")
            config = nested(result_type, "configs")(
                name="min.insync.replicas",
                value=self.least,
                read_only=False,
                config_source=5,
                is_sensitive=False,
                synonyms=(),
                config_type=3,
                documentation=None,
            )
            allowed = who in self.may_describe
            result = result_type(
                error_code=ErrorCode(NONE if allowed else FORBIDDEN),
                error_message=None,
                resource_type=2,
                resource_name="t",
                configs=(config,) if allowed else (),
            )
            return memoryview(encode(response_type(throttle_time=milliseconds(0), results=(result,))))
        assert (who, api_key) == ("client", CREATE_PARTITIONS)
        return memoryview(encode(self._create(read_request(api_key, version, memoryview(body)), version)))

    def _create(self, asked: Any, version: int) -> Any:
        """Answer like ReplicationControlManager: any other number of replicas than the others have is rejected."""
        (topic,) = asked.topics
        now = self.model.replicas("t")
        replicas = [tuple(one.broker_ids) for one in topic.assignments or ()]
        error_code = NONE
        if topic.assignments is None and len(now[0]) > len(self.registered or (1, 2)):
            error_code = TOO_MANY_REPLICAS
        elif any(len(one) != len(other) or set(one) - {1, 2} for one in replicas for other in now):
            error_code = BAD_ASSIGNMENT
        elif self.order or self.again:
            error_code = self.again
        if not asked.validate_only and error_code == NONE:
            self.order.append("create")
            self.model.make("t", *now, *replicas, topic_id=self.topic_id)
        response_type: Any = load_response_schema(CREATE_PARTITIONS, version)
        result = nested(response_type, "results")(
            name="t", error_code=ErrorCode(error_code), error_message=f"message {error_code}" if error_code else None
        )
        return response_type(throttle_time=milliseconds(self.throttles_ms.pop(0)), results=(result,))

    async def grow(
        self,
        count: int,
        assignment: Sequence[Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
        version: int = 3,
    ) -> tuple[int, str | None]:
        """Error code and message as the client gets them."""
        request_type: Any = load_request_schema(CREATE_PARTITIONS, version)
        topic_type = nested(request_type, "topics")
        assignment_type = nested(topic_type, "assignments")
        assignments = (
            None if assignment is None else tuple(assignment_type(broker_ids=tuple(one)) for one in assignment)
        )
        topic = topic_type(name="t", count=count, assignments=assignments)
        asked = request_type(topics=(topic,), timeout=milliseconds(1_000), validate_only=validate_only)
        this: Any = self
        request: Any = SimpleNamespace(api_key=CREATE_PARTITIONS, api_version=version, client_id="a")
        body = await self.ask(request, CREATE_PARTITIONS, version, encode(asked))
        rejected: Any = read_response(CREATE_PARTITIONS, version, body)
        answered = await self.growth.make(this, request, asked, rejected)
        self.throttled_ms = answered.throttle_time.total_seconds() * 1000
        (result,) = answered.results
        return result.error_code.value, result.error_message

    @property
    def now(self) -> list[list[int]]:
        """Replicas of all partitions."""
        return [list(one) for one in self.model.replicas("t")]


@pytest.mark.parametrize("version", range(4))
async def test_replicas_that_nobody_holds_are_let_go_of_after_it_was_remembered(
    monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    cluster = Cluster(monkeypatch, *WHOLE)
    assert await cluster.grow(4, version=version) == (NONE, None)
    assert cluster.order == ["alter", "create"]
    assert cluster.now[:2] == [[1, 2], [1, 2]]
    assert [set(one) for one in cluster.now[2:]] == [{1, 2}, {1, 2}]
    (wish,) = await cluster.store.all()
    assert (wish.topic_id, wish.replication_factor, wish.made_replicas) == (cluster.topic_id, 3, 2)


async def test_exact_ones_are_remembered_with_the_number_that_all_are_to_have(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, *WHOLE)
    assert await cluster.grow(3, [[2, 3, 1]]) == (NONE, None)
    assert cluster.now == [[1, 2], [1, 2], [2, 1]]
    number, exact = sorted(await cluster.store.all(), key=lambda wish: wish.assignment)
    assert (number.replication_factor, number.wanted(0)) == (3, 3)
    assert (exact.wanted(2), exact.wanted(1)) == ((2, 3, 1), None)


async def test_no_replica_is_dropped_if_the_other_partitions_lack_replicas_too(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, *SHORT)
    await cluster.store.remember([Pending("1", "t", 3, 2, 1, cluster.topic_id)])
    assert await cluster.grow(3, [[3, 2, 1]]) == (NONE, None)
    assert cluster.order == ["create"]
    assert cluster.now == [*map(list, SHORT), [2, 1]]
    assert len(await cluster.store.all()) == 3


async def test_an_older_wish_does_not_take_it_for_made_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, *WHOLE)
    await cluster.store.remember([Pending("1", "t", 4, 3, 1, cluster.topic_id), Pending("2", "t", 4, 3, 1, b"2" * 16)])
    assert await cluster.grow(3) == (NONE, None)
    wishes = {wish.pending_id: wish for wish in await cluster.store.all()}
    assert (wishes.pop("1").made_replicas, wishes.pop("2").made_replicas) == (2, 3)
    assert [(wish.replication_factor, wish.made_replicas) for wish in wishes.values()] == [(4, 2)]


async def test_older_wishes_are_as_they_were_where_nothing_is_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, *WHOLE, may_alter=False)
    older = Pending("1", "t", 4, 3, 1, cluster.topic_id)
    await cluster.store.remember([older])
    assert (await cluster.grow(3))[0] == TOO_MANY_REPLICAS
    assert await cluster.store.all() == (older,)


async def test_older_wishes_stay_where_the_store_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The new one may have been written; it alone is forgotten."""
    cluster = Cluster(monkeypatch, *WHOLE)
    await cluster.store.remember([Pending("1", "t", 4, 3, 1, cluster.topic_id)])
    written = cluster.store.remember

    async def remember(wishes: Sequence[Pending]) -> None:
        await written(wishes)
        raise CoordinatorUnavailable("away")

    cluster.store.remember = remember
    assert await cluster.grow(3) == (TOO_MANY_REPLICAS, "message 38")
    work = asyncio.create_task(cluster.under_replicated.unmade.keep_forgetting())
    for _ in range(100):
        await asyncio.sleep(0)
    work.cancel()
    assert [wish.pending_id for wish in await cluster.store.all()] == ["1"]


async def test_the_longest_throttle_time_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, *SHORT)
    await cluster.store.remember([Pending("1", "t", 3, 2, 1, cluster.topic_id)])
    cluster.throttles_ms = [10, 5_000]
    assert await cluster.grow(3, [[3, 2, 1]]) == (NONE, None)
    assert cluster.throttled_ms == 5_000


@pytest.mark.parametrize("assignment", [None, [[3, 1, 2]]])
async def test_validating_changes_nothing(monkeypatch: pytest.MonkeyPatch, assignment: list[list[int]] | None) -> None:
    cluster = Cluster(monkeypatch, *WHOLE)
    assert await cluster.grow(3, assignment, validate_only=True) == (NONE, None)
    assert (cluster.order, cluster.now, await cluster.store.all()) == ([], [*map(list, WHOLE)], ())


@pytest.mark.parametrize(
    "world",
    [
        {"enabled": False},
        {"registered": None},
        {"least": "3"},
        {"may_describe": ()},
        {"may_alter": False},
    ],
)
async def test_the_refusal_stands_word_for_word(monkeypatch: pytest.MonkeyPatch, world: dict[str, Any]) -> None:
    cluster = Cluster(monkeypatch, *WHOLE, **world)
    assert await cluster.grow(3) == (TOO_MANY_REPLICAS, "message 38")
    assert (cluster.order, cluster.now, await cluster.store.all()) == ([], [*map(list, WHOLE)], ())


async def test_the_clients_right_to_describe_configs_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, *WHOLE, may_describe=("client",))
    assert await cluster.grow(3) == (NONE, None)


async def test_without_the_store_nothing_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, *WHOLE)

    async def remember(wishes: Sequence[Pending]) -> None:
        raise CoordinatorUnavailable("away")

    cluster.store.remember = remember
    assert await cluster.grow(3) == (TOO_MANY_REPLICAS, "message 38")
    assert (cluster.order, cluster.now) == ([], [*map(list, WHOLE)])


async def test_a_partition_that_is_being_reassigned_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, *WHOLE)
    cluster.model.move("t", 1, [2, 1, 3, 4])
    before = cluster.now
    assert await cluster.grow(3) == (TOO_MANY_REPLICAS, "message 38")
    assert (cluster.order, cluster.now, await cluster.store.all()) == ([], before, ())


@pytest.mark.parametrize(
    ("again", "assignment", "left"),
    [
        (POLICY_VIOLATION, None, 1),
        (POLICY_VIOLATION, [[3, 1, 2]], 1),
        (TIMED_OUT, [[3, 1, 2]], 2),
    ],
)
async def test_dropped_replicas_are_wished_back_whatever_happens_to_the_new_partitions(
    monkeypatch: pytest.MonkeyPatch, again: int, assignment: list[list[int]] | None, left: int
) -> None:
    cluster = Cluster(monkeypatch, *WHOLE)
    cluster.again = again
    assert (await cluster.grow(3, assignment))[0] == again
    assert cluster.now == [[1, 2], [1, 2]]
    wishes = await cluster.store.all()
    assert len(wishes) == left
    assert any(wish.wanted(0) == 3 for wish in wishes)


async def test_another_rejection_leaves_no_wish(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, *SHORT)
    earlier = Pending("1", "t", 3, 2, 1, cluster.topic_id)
    await cluster.store.remember([earlier])
    cluster.again = POLICY_VIOLATION
    assert (await cluster.grow(3, [[3, 2, 1]]))[0] == POLICY_VIOLATION
    assert await cluster.store.all() == (earlier,)
