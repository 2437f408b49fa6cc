"""Topics that the brokers reject for lack of brokers: the repeated request, the stored wish, and their order."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.create_topics.v7.response import CreatableTopicResult, CreateTopicsResponse
from kio.schema.errors import ErrorCode

from proxy.brokers.broker_defaults import DefaultsRefused
from proxy.brokers.cluster import ClusterView
from proxy.brokers.upstream import BrokerUnreachable
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.creation.replication import creation, unmade
from proxy.creation.replication.creation import UnderReplicatedTopics
from proxy.creation.replication.interface import Pending, replicas_digest
from proxy.routing.fleet import LeaseLapsed
from proxy.wire.cold import at_version, encode, milliseconds, nested, read_request, read_response
from proxy.wire.metadata import Broker
from tests.unit.creation.replication.model_brokers import MemoryPending

CREATE_TOPICS = 19
NONE, TIMED_OUT, NOT_LEADER_OF_CONTROLLERS, POLICY_VIOLATION = 0, 7, 41, 44
ALREADY_EXISTS, THROTTLING = 36, 89
FORBIDDEN, TOO_MANY_REPLICAS, BAD_ASSIGNMENT = 29, 38, 39
FIRST_STRICT = 6
"""First version with strict throttling; older versions are throttled, but never rejected for it (KIP-599)."""
DEFAULTS = {"default.replication.factor": "3", "min.insync.replicas": "2", "num.partitions": "1"}


class Brokers:
    """Two live brokers, one of which is the client's: they do not know broker 3, and a test sets their second
    answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, enabled: bool = True) -> None:
        self.store: Any = MemoryPending()
        self.defaults: dict[str, str | None] | None = dict(DEFAULTS)
        self.made: dict[str, uuid.UUID] = {}
        self.placed: dict[str, list[tuple[int, ...]]] = {}
        """Assignments of the last request."""
        self.throttled_ms = 0.0
        """Last throttle time in the client's answer."""
        self.again = NONE
        """Answer to a repeated request; -2 closes the connection."""
        self.throttles_ms = [0, 0, 0]
        """Throttle time of each answer."""
        self.asked: list[tuple[list[str], bool, list[Pending]]] = []
        """Each request: the topics, whether it validates only, and the stored wishes at that moment."""
        brokers = {node: Broker(node, "127.0.0.1", 9092, "ab"[node - 1]) for node in (1, 2)}
        settings: Any = SimpleNamespace(
            enable_under_replicated_topic_creation=enabled,
            all_listeners=(SimpleNamespace(node_ids=(1, 2)), SimpleNamespace(node_ids=(2, 3))),
        )
        self.reachable = True
        self.cluster: Any = SimpleNamespace(view=ClusterView(brokers), refresh=self._refresh)
        self.topics = UnderReplicatedTopics(settings, self.store, self.cluster, "this proxy", lambda: 12345)
        monkeypatch.setattr(unmade, "_AGAIN_S", 0)
        monkeypatch.setattr(creation, "broker_configs", self._configs)

    async def _refresh(self) -> None:
        if not self.reachable:
            raise BrokerUnreachable("no broker is alive")

    async def _configs(self, cluster: object, names: tuple[str, ...]) -> dict[str, str | None]:
        if self.defaults is None:
            raise DefaultsRefused("not allowed")
        return self.defaults

    async def ask(self, request: Any, api_key: int, version: int, body: Any, *, check: Any = None) -> memoryview:
        if check is not None:
            check()
        parsed: Any = read_request(api_key, version, b"".join(body) if isinstance(body, list) else body)
        topics = [str(topic.name) for topic in parsed.topics]
        self.asked.append((topics, parsed.validate_only, list(await self.store.all())))
        again = len(self.asked) > 1 and (self.again != THROTTLING or version >= FIRST_STRICT)
        if again and self.again == -2:
            raise BrokerUnreachable("the broker closed the connection")
        newest = at_version(parsed, 7, response=False)
        results = tuple(self._result(topic, again, parsed.validate_only) for topic in newest.topics)
        throttle = milliseconds(self.throttles_ms[len(self.asked) - 1])
        response = CreateTopicsResponse(throttle_time=throttle, topics=results)
        return memoryview(encode(at_version(response, version, response=True)))

    def _result(self, topic: Any, again: bool, validate_only: bool) -> Any:
        name = str(topic.name)
        self.placed[name] = [tuple(map(int, one.broker_ids)) for one in topic.assignments]
        named = {node for one in self.placed[name] for node in one}
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
        self.throttled_ms = response.throttle_time.total_seconds() * 1000
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
async def test_a_rejected_topic_is_created_on_live_brokers_after_its_wish_is_stored(
    brokers: Brokers, version: int
) -> None:
    topic = (await brokers.create("a", version=version))["a"]
    assert topic.error_code.value == NONE
    if version >= 5:
        assert (topic.num_partitions, topic.replication_factor) == (2, 2)
    (_, _, first), (topics, _, intents) = brokers.asked
    assert (first, topics) == ([], ["a"])
    (intent,) = intents
    assert intent.is_intent
    (pending,) = await brokers.store.all()
    assert pending.topic_id == brokers.made["a"].bytes
    assert (pending.name, pending.replication_factor, pending.made_replicas) == ("a", 3, 2)
    assert (pending.owner, pending.since_ms, pending.shadow) == ("this proxy", 12345, False)


async def test_only_topics_that_were_rejected_for_this_reason_are_repeated(brokers: Brokers) -> None:
    topics = await brokers.create("forbidden", "a", "b")
    assert {name: one.error_code.value for name, one in topics.items()} == {
        "forbidden": FORBIDDEN,
        "a": NONE,
        "b": NONE,
    }
    assert brokers.asked[1][0] == ["a", "b"]
    assert {wish.name for wish in await brokers.store.all()} == {"a", "b"}


async def test_more_replicas_than_possible_brokers_get_the_brokers_error(brokers: Brokers) -> None:
    topic = (await brokers.create("a", assignment=[(1, 2, 4)]))["a"]
    assert (topic.error_code.value, topic.error_message) == (BAD_ASSIGNMENT, "message 39")
    assert len(brokers.asked) == 1
    assert await brokers.store.all() == ()


async def test_topics_that_the_brokers_create_are_answered_unchanged(brokers: Brokers) -> None:
    assert (await brokers.create("a", replicas=2))["a"].error_code.value == NONE
    assert (await brokers.create("forbidden"))["forbidden"].error_message == "message 29"
    assert await brokers.store.all() == ()


async def test_an_exact_assignment_is_stored_with_the_number(brokers: Brokers) -> None:
    """Partitions that are added meanwhile must get as many replicas."""
    assert (await brokers.create("a", assignment=[(3, 1, 2), (2, 3, 1)]))["a"].error_code.value == NONE
    number, exact = sorted(await brokers.store.all(), key=lambda wish: wish.assignment)
    assert (number.replication_factor, number.assignment) == (3, ())
    assert (exact.replication_factor, exact.assignment) == (0, ((3, 1, 2), (2, 3, 1)))
    assert number.topic_id == exact.topic_id == brokers.made["a"].bytes


async def test_a_topic_that_could_be_created_validates_and_stores_nothing(brokers: Brokers) -> None:
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
    topic = (await brokers.create("a"))["a"]
    assert (topic.error_code.value, topic.error_message) == (TOO_MANY_REPLICAS, "message 38")
    assert len(brokers.asked) == 1
    assert await brokers.store.all() == ()


@pytest.mark.parametrize("again", [TOO_MANY_REPLICAS, BAD_ASSIGNMENT])
async def test_a_second_rejection_of_the_same_kind_is_not_returned(brokers: Brokers, again: int) -> None:
    brokers.again = again
    topic = (await brokers.create("a"))["a"]
    assert (topic.error_code.value, topic.error_message) == (TOO_MANY_REPLICAS, "message 38")
    assert await brokers.store.all() == ()


async def test_another_rejection_is_returned_and_its_wish_removed(brokers: Brokers) -> None:
    brokers.again = POLICY_VIOLATION
    assert (await brokers.create("a"))["a"].error_code.value == POLICY_VIOLATION
    assert await brokers.store.all() == ()


@pytest.mark.parametrize("again", [TIMED_OUT, NOT_LEADER_OF_CONTROLLERS])
async def test_the_intent_stays_if_the_outcome_is_unknown(brokers: Brokers, again: int) -> None:
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


class Lossy(MemoryPending):
    """A store whose answers are lost, although some of its writes take effect."""

    def __init__(self, lost: str, failures: int, error: type[BaseException] = CoordinatorUnavailable) -> None:
        super().__init__()
        self.lost, self.failures, self.error = lost, failures, error

    def _fail(self, call: str) -> None:
        if call == self.lost and self.failures:
            self.failures -= 1
            raise self.error("lost")

    async def remember(self, wishes: Sequence[Pending]) -> None:
        await super().remember(wishes)
        self._fail("remember")

    async def forget(self, wishes: Sequence[Pending]) -> None:
        self._fail("forget")
        await super().forget(wishes)


def lose(brokers: Brokers, *operations: Any) -> None:
    brokers.store = brokers.topics._pending = brokers.topics.unmade._store = Lossy(*operations)


async def kept(brokers: Brokers) -> list[Pending]:
    """Return the stored wishes after all outdated ones are removed."""
    work = asyncio.create_task(brokers.topics.unmade.keep_forgetting())
    for _ in range(100):
        await asyncio.sleep(0)
    assert not work.done()
    work.cancel()
    return list(await brokers.store.all())


async def test_a_wish_that_can_t_be_forgotten_changes_no_answer_and_is_forgotten_later(brokers: Brokers) -> None:
    lose(brokers, "forget", 5)
    brokers.again = POLICY_VIOLATION
    assert (await brokers.create("a"))["a"].error_code.value == POLICY_VIOLATION
    assert [wish.name for wish in await brokers.store.all()] == ["a"]
    assert await kept(brokers) == []


async def test_a_wish_that_was_stored_without_an_answer_is_removed(brokers: Brokers) -> None:
    """The client got the error to create it with fewer replicas, and must not get more later."""
    lose(brokers, "remember", 1)
    assert (await brokers.create("a"))["a"].error_code.value == TOO_MANY_REPLICAS
    assert [wish.name for wish in await brokers.store.all()] == ["a"]
    assert await kept(brokers) == []


async def test_a_client_that_disconnects_during_the_write_leaves_nothing(brokers: Brokers) -> None:
    lose(brokers, "remember", 1, asyncio.CancelledError)
    with pytest.raises(asyncio.CancelledError):
        await brokers.create("a")
    assert await kept(brokers) == []


@pytest.mark.parametrize("how", ["first ask", "second ask", "looked at"])
async def test_an_older_intent_has_nothing_to_do_with_a_topic_that_is_made_now(brokers: Brokers, how: str) -> None:
    old = [Pending("old", "a", 3, 2, 12344), Pending("other", "b", 3, 2, 1), Pending("bound", "a", 3, 2, 1, b"1" * 16)]
    await brokers.store.remember([*old, Pending("newer", "a", 3, 2, 99999)])
    if how == "looked at":
        result = brokers._result(request("a", replicas=2).topics[0], again=False, validate_only=False)
        response: Any = CreateTopicsResponse(throttle_time=milliseconds(0), topics=(result,))
        body = memoryview(encode(at_version(response, 5, response=True)))
        come: Any = SimpleNamespace(api_key=CREATE_TOPICS, api_version=5)
        assert brokers.topics.looking_at(come)(body) == [body]
    else:
        assert (await brokers.create("a", replicas=2 if how == "first ask" else 3))["a"].error_code.value == NONE
    left = {wish.pending_id for wish in await kept(brokers)}
    assert {"other", "bound", "newer"} <= left
    assert "old" not in left
    assert len(left) == 3 + (how == "second ask")


async def test_a_failed_or_validated_creation_removes_no_intent(brokers: Brokers) -> None:
    await brokers.store.remember([Pending("old", "forbidden", 3, 2, 1), Pending("older", "a", 3, 2, 1)])
    await brokers.create("forbidden")
    await brokers.create("a", validate_only=True, replicas=2)
    assert len(await kept(brokers)) == 2


async def test_an_intent_says_exactly_what_is_made(brokers: Brokers) -> None:
    brokers.again = ALREADY_EXISTS
    assert (await brokers.create("a"))["a"].error_code.value == ALREADY_EXISTS
    (wish,) = await brokers.store.all()
    made = brokers.placed["a"]
    assert len(made) == 2
    assert wish.made_as == replicas_digest(made) != replicas_digest(made[:1])


async def test_the_exact_one_of_two_wishes_is_bound_first(brokers: Brokers) -> None:
    """With the other one alone somebody might give the topic other replicas."""
    bound: list[Pending] = []

    async def bind(pending: Pending, topic_id: bytes) -> Pending:
        if bound:
            raise CoordinatorUnavailable("away")
        bound.append(pending)
        return pending

    brokers.store.bind = bind
    assert (await brokers.create("a", assignment=[(3, 1, 2)]))["a"].error_code.value == NONE
    assert [wish.assignment for wish in bound] == [((3, 1, 2),)]


@pytest.mark.parametrize("version", range(2, 8))
async def test_clients_of_old_versions_are_throttled_as_by_the_brokers(brokers: Brokers, version: int) -> None:
    brokers.again, brokers.throttles_ms = THROTTLING, [10, 5_000, 3_000]
    code = (await brokers.create("a", version=version))["a"].error_code.value
    assert code == (THROTTLING if version >= FIRST_STRICT else NONE)
    assert brokers.throttled_ms == 5_000
    wishes = await brokers.store.all()
    assert [wish.is_intent for wish in wishes] == ([] if code else [True]), "older versions do not return the ID"


async def test_placeholders_are_stored_as_such(brokers: Brokers) -> None:
    asked = request("a", "b")
    this: Any = brokers
    come: Any = SimpleNamespace(client_id="a", api_version=7)
    refused = {str(topic.name): brokers._result(topic, again=False, validate_only=False) for topic in asked.topics}
    brokers.asked.append(([], False, []))
    made, _ = await brokers.topics.make(this, come, asked, refused, shadows={"b"})
    assert [one.error_code.value for one in made.values()] == [NONE, NONE]
    assert {wish.name: wish.shadow for wish in await brokers.store.all()} == {"a": False, "b": True}


async def test_a_placeholder_is_not_created_on_live_brokers_after_the_lease_expired(brokers: Brokers) -> None:
    asked = request("a")
    this: Any = brokers
    come: Any = SimpleNamespace(client_id="a", api_version=7)
    refused = {"a": brokers._result(asked.topics[0], again=False, validate_only=False)}

    def check() -> None:
        raise LeaseLapsed("out of the fleet")

    made, _ = await brokers.topics.make(this, come, asked, refused, shadows={"a"}, check=check)
    assert made["a"].error_code.value == TOO_MANY_REPLICAS
    assert (brokers.made, list(await brokers.store.all())) == ({}, [])


@pytest.mark.parametrize(
    ("replicas", "assignment", "expected"),
    [(2, (), False), (3, (), True), (-1, (), True), (2, [(1, 2)], False), (2, [(1, 2), (1, 3)], True)],
)
def test_only_requests_that_may_need_more_brokers_are_looked_at(
    brokers: Brokers, replicas: int, assignment: Any, expected: bool
) -> None:
    (topic,) = request("a", replicas=replicas, assignment=assignment).topics
    assert brokers.topics.may_be_refused(topic) is expected
