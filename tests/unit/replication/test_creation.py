"""Topics that the brokers refuse for lack of brokers: what is asked again, what is remembered, and in which order."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.create_topics.v7.response import CreatableTopicResult, CreateTopicsResponse
from kio.schema.errors import ErrorCode

from proxy.cluster import ClusterView
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.housekeeping.broker_defaults import DefaultsRefused
from proxy.replication import creation
from proxy.replication.creation import UnderReplicatedTopics
from proxy.replication.interface import Pending
from proxy.upstream import BrokerUnreachable
from proxy.wire.cold import at_version, encode, milliseconds, nested, read_request, read_response
from proxy.wire.metadata import Broker
from tests.unit.replication.model_brokers import MemoryPending

CREATE_TOPICS = 19
NONE, TIMED_OUT, NOT_LEADER_OF_CONTROLLERS, POLICY_VIOLATION = 0, 7, 41, 44
FORBIDDEN, TOO_MANY_REPLICAS, BAD_ASSIGNMENT = 29, 38, 39
DEFAULTS = {"default.replication.factor": "3", "min.insync.replicas": "2", "num.partitions": "1"}


class Brokers:
    """Two live brokers, one of which is the client's: they know no broker 3, and answer again what a test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, enabled: bool = True) -> None:
        self.store: Any = MemoryPending()
        self.defaults: dict[str, str | None] | None = dict(DEFAULTS)
        self.made: dict[str, uuid.UUID] = {}
        self.again = NONE
        """What they answer to what is asked again; -2 for the end of the connection."""
        self.asked: list[tuple[list[str], bool, list[Pending]]] = []
        """Each request: the topics, whether it validates only, and what was remembered when it came."""
        brokers = {node: Broker(node, "127.0.0.1", 9092, "ab"[node - 1]) for node in (1, 2)}
        settings = SimpleNamespace(enable_under_replicated_topic_creation=enabled)
        self.context: Any = SimpleNamespace(
            settings=settings,
            cluster=SimpleNamespace(view=ClusterView(brokers), refresh=self._refresh),
            fleet=SimpleNamespace(identity="this proxy"),
            pending_topics=self.store,
            wall_clock_ms=lambda: 12345,
        )
        self.reachable = True
        self.topics = UnderReplicatedTopics(self.context)
        monkeypatch.setattr(creation, "broker_configs", self._configs)

    async def _refresh(self) -> None:
        if not self.reachable:
            raise BrokerUnreachable("no broker is alive")

    async def _configs(self, cluster: object, names: tuple[str, ...]) -> dict[str, str | None]:
        if self.defaults is None:
            raise DefaultsRefused("not allowed")
        return self.defaults

    async def ask(self, request: Any, api_key: int, version: int, body: Any) -> memoryview:
        parsed: Any = read_request(api_key, version, b"".join(body) if isinstance(body, list) else body)
        topics = [str(topic.name) for topic in parsed.topics]
        self.asked.append((topics, parsed.validate_only, list(await self.store.all())))
        again = len(self.asked) > 1
        if again and self.again == -2:
            raise BrokerUnreachable("the broker closed the connection")
        newest = at_version(parsed, 7, response=False)
        results = tuple(self._result(topic, again, parsed.validate_only) for topic in newest.topics)
        response = CreateTopicsResponse(throttle_time=milliseconds(0), topics=results)
        return memoryview(encode(at_version(response, version, response=True)))

    def _result(self, topic: Any, again: bool, validate_only: bool) -> Any:
        name = str(topic.name)
        named = {int(node) for one in topic.assignments for node in one.broker_ids}
        error_code = (
            BAD_ASSIGNMENT if named - {1, 2} else TOO_MANY_REPLICAS if topic.replication_factor in (-1, 3) else 0
        )
        error_code = NONE if named and not named - {1, 2} else error_code
        error_code = FORBIDDEN if name.startswith("forbidden") else error_code
        if again and self.again:
            error_code = self.again
        if not error_code and not validate_only:
            self.made[name] = uuid.uuid5(uuid.NAMESPACE_DNS, name)
        made: Any = CreatableTopicResult
        return made(
            name=name,
            topic_id=self.made.get(name),
            error_code=ErrorCode(error_code),
            error_message=f"message {error_code}" if error_code else None,
            configs=(),
            num_partitions=-1 if error_code else len(topic.assignments),
            replication_factor=-1 if error_code else len(topic.assignments[0].broker_ids) if topic.assignments else 2,
        )

    async def create(
        self, *names: str, version: int = 7, validate_only: bool = False, replicas: int = 3, assignment: Any = ()
    ) -> dict[str, Any]:
        """The results as the client gets them."""
        asked = request(*names, version=version, validate_only=validate_only, replicas=replicas, assignment=assignment)
        this: Any = self
        come: Any = SimpleNamespace(api_key=CREATE_TOPICS, api_version=version, body=encode(asked), client_id="a")
        answer = await self.topics.create(this, come, asked)
        response: Any = read_response(CREATE_TOPICS, version, memoryview(answer))
        assert [str(one.name) for one in response.topics] == list(names)
        return {str(one.name): one for one in response.topics}


def request(
    *names: str, version: int = 7, validate_only: bool = False, replicas: int = 3, assignment: Sequence[Any] = ()
) -> Any:
    request_type: Any = load_request_schema(CREATE_TOPICS, version)
    topic_type = nested(request_type, "topics")
    assignment_type = nested(topic_type, "assignments")
    topics = tuple(
        topic_type(
            name=name,
            num_partitions=-1 if assignment else 2,
            replication_factor=-1 if assignment else replicas,
            assignments=tuple(assignment_type(partition_index=i, broker_ids=one) for i, one in enumerate(assignment)),
            configs=(),
        )
        for name in names
    )
    return request_type(topics=topics, timeout=milliseconds(1_000), validate_only=validate_only)


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    return Brokers(monkeypatch)


@pytest.mark.parametrize("version", range(2, 8))
async def test_a_refused_topic_is_made_with_those_that_live_and_remembered_before(
    brokers: Brokers, version: int
) -> None:
    told = (await brokers.create("a", version=version))["a"]
    assert told.error_code.value == NONE
    if version >= 5:
        assert (told.num_partitions, told.replication_factor) == (2, 2)
    (_, _, first), (topics, _, intents) = brokers.asked
    assert (first, topics) == ([], ["a"])
    (intent,) = intents
    assert intent.is_intent
    (pending,) = await brokers.store.all()
    assert pending.topic_id == brokers.made["a"].bytes
    assert (pending.name, pending.replication_factor, pending.made_replicas) == ("a", 3, 2)
    assert (pending.owner, pending.since_ms, pending.shadow) == ("this proxy", 12345, False)


async def test_only_what_was_refused_for_that_is_asked_again(brokers: Brokers) -> None:
    told = await brokers.create("forbidden", "a", "b")
    assert {name: one.error_code.value for name, one in told.items()} == {"forbidden": FORBIDDEN, "a": NONE, "b": NONE}
    assert brokers.asked[1][0] == ["a", "b"]
    assert {wish.name for wish in await brokers.store.all()} == {"a", "b"}


async def test_what_the_brokers_make_is_answered_as_it_came(brokers: Brokers) -> None:
    assert (await brokers.create("a", replicas=2))["a"].error_code.value == NONE
    assert (await brokers.create("forbidden"))["forbidden"].error_message == "message 29"
    assert await brokers.store.all() == ()


async def test_an_exact_assignment_is_remembered_beside_the_number(brokers: Brokers) -> None:
    """Partitions that are added meanwhile are to have as many replicas."""
    assert (await brokers.create("a", assignment=[(3, 1, 2), (2, 3, 1)]))["a"].error_code.value == NONE
    number, exact = sorted(await brokers.store.all(), key=lambda wish: wish.assignment)
    assert (number.replication_factor, number.assignment) == (3, ())
    assert (exact.replication_factor, exact.assignment) == (0, ((3, 1, 2), (2, 3, 1)))
    assert number.topic_id == exact.topic_id == brokers.made["a"].bytes


async def test_what_could_be_made_validates_and_nothing_is_remembered(brokers: Brokers) -> None:
    assert (await brokers.create("a", validate_only=True))["a"].error_code.value == NONE
    assert [only for _, only, _ in brokers.asked] == [True, True]
    assert await brokers.store.all() == ()


@pytest.mark.parametrize("trouble", ["off", "store", "brokers", "defaults", "minimum"])
async def test_the_refusal_stands_word_for_word(monkeypatch: pytest.MonkeyPatch, trouble: str) -> None:
    brokers = Brokers(monkeypatch, enabled=trouble != "off")
    if trouble == "store":

        async def remember(wishes: Sequence[Pending]) -> None:
            raise CoordinatorUnavailable("away")

        brokers.store.remember = remember
    brokers.reachable = trouble != "brokers"
    if trouble == "defaults":
        brokers.defaults = None
    elif trouble == "minimum":
        brokers.defaults = DEFAULTS | {"min.insync.replicas": "3"}
    told = (await brokers.create("a"))["a"]
    assert (told.error_code.value, told.error_message) == (TOO_MANY_REPLICAS, "message 38")
    assert len(brokers.asked) == 1
    assert await brokers.store.all() == ()


@pytest.mark.parametrize("again", [TOO_MANY_REPLICAS, BAD_ASSIGNMENT])
async def test_a_second_refusal_of_the_kind_is_not_told(brokers: Brokers, again: int) -> None:
    brokers.again = again
    told = (await brokers.create("a"))["a"]
    assert (told.error_code.value, told.error_message) == (TOO_MANY_REPLICAS, "message 38")
    assert await brokers.store.all() == ()


async def test_what_else_is_refused_is_told_and_forgotten(brokers: Brokers) -> None:
    brokers.again = POLICY_VIOLATION
    assert (await brokers.create("a"))["a"].error_code.value == POLICY_VIOLATION
    assert await brokers.store.all() == ()


@pytest.mark.parametrize("again", [TIMED_OUT, NOT_LEADER_OF_CONTROLLERS])
async def test_where_nobody_knows_the_intent_stays(brokers: Brokers, again: int) -> None:
    brokers.again = again
    assert (await brokers.create("a"))["a"].error_code.value == again
    assert [wish.is_intent for wish in await brokers.store.all()] == [True]


async def test_a_lost_connection_leaves_the_intent(brokers: Brokers) -> None:
    brokers.again = -2
    with pytest.raises(BrokerUnreachable):
        await brokers.create("a")
    assert [wish.is_intent for wish in await brokers.store.all()] == [True]


async def test_a_topic_that_can_t_be_bound_is_made_all_the_same(brokers: Brokers) -> None:
    """Its intent is remembered, and housekeeping finds it by its name."""

    async def bind(pending: Pending, topic_id: bytes) -> Pending:
        raise CoordinatorUnavailable("away")

    brokers.store.bind = bind
    assert (await brokers.create("a"))["a"].error_code.value == NONE
    assert [wish.is_intent for wish in await brokers.store.all()] == [True]


async def test_a_wish_that_can_t_be_forgotten_changes_no_answer(brokers: Brokers) -> None:
    async def forget(wishes: Sequence[Pending]) -> None:
        raise CoordinatorUnavailable("away")

    brokers.store.forget = forget
    brokers.again = POLICY_VIOLATION
    assert (await brokers.create("a"))["a"].error_code.value == POLICY_VIOLATION


async def test_shadows_are_remembered_as_such(brokers: Brokers) -> None:
    asked = request("a", "b")
    this: Any = brokers
    come: Any = SimpleNamespace(client_id="a")
    refused = {str(topic.name): brokers._result(topic, again=False, validate_only=False) for topic in asked.topics}
    brokers.asked.append(([], False, []))
    made = await brokers.topics.make(this, come, asked, refused, shadows={"b"})
    assert [one.error_code.value for one in made.values()] == [NONE, NONE]
    assert {wish.name: wish.shadow for wish in await brokers.store.all()} == {"a": False, "b": True}


@pytest.mark.parametrize(
    ("replicas", "assignment", "expected"),
    [(2, (), False), (3, (), True), (-1, (), True), (2, [(1, 2)], False), (2, [(1, 2), (1, 3)], True)],
)
def test_only_requests_that_may_need_more_brokers_are_looked_at(
    brokers: Brokers, replicas: int, assignment: Any, expected: bool
) -> None:
    (topic,) = request("a", replicas=replicas, assignment=assignment).topics
    assert brokers.topics.may_be_refused(topic) is expected
