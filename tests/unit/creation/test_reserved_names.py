"""A reserved name, while a client of the brokers that does not know it creates a topic of that name."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.create_topics.v7.response import CreatableTopicResult, CreateTopicsResponse
from kio.schema.errors import ErrorCode

from proxy.brokers.upstream import BrokerUnreachable
from proxy.client.request import Request
from proxy.creation.creator import TopicCreator
from proxy.creation.reservations import Reservations
from proxy.protocol.api_keys import CREATE_TOPICS
from proxy.protocol.errors import (
    INVALID_REPLICATION_FACTOR,
    NONE,
    NOT_CONTROLLER,
    REQUEST_TIMED_OUT,
    TOPIC_ALREADY_EXISTS,
)
from proxy.routing.fleet import LeaseLapsed
from proxy.topics.topics import Topics
from proxy.wire.cold import encode, milliseconds, read_request
from proxy.wire.metadata import MetadataTopic
from tests.registry_model import ModelTopicRegistry
from tests.unit.creation.made import creator_of, reservations_of

STRANGER = uuid.UUID(int=99)
REQUEST = Request(CREATE_TOPICS, 7, 1, "a", memoryview(b""), memoryview(b""))


class Brokers:
    """A client's connection to brokers that look at names, then at replicas, as KRaft controllers do."""

    creator: TopicCreator

    def __init__(self) -> None:
        self.topics: dict[str, uuid.UUID] = {}
        self.asked: list[bool] = []
        """For each CreateTopics, whether it validates only."""
        self.second_answer = NONE
        """Answer to the second request in place of the normal one; -2 closes the connection."""

    async def ask(self, request: Request, api_key: int, version: int, body: bytes, *, check: Any = None) -> memoryview:
        if check is not None:
            check()
        assert api_key == CREATE_TOPICS, "a shadow was made that must be deleted again"
        asked: Any = read_request(api_key, version, memoryview(body))
        self.asked.append(asked.validate_only)
        error_code = self.second_answer if len(self.asked) == 2 else NONE
        if error_code == -2:
            raise BrokerUnreachable("the broker closed the connection")
        results = tuple(self._result(topic, error_code, asked.validate_only) for topic in asked.topics)
        return memoryview(encode(CreateTopicsResponse(throttle_time=milliseconds(0), topics=results)))

    def _result(self, topic: Any, error_code: int, validate_only: bool) -> CreatableTopicResult:
        if topic.name in self.topics:
            error_code = error_code or TOPIC_ALREADY_EXISTS
        elif not topic.replication_factor:
            error_code = error_code or INVALID_REPLICATION_FACTOR
        elif not validate_only:
            self.topics[str(topic.name)] = uuid.uuid5(uuid.NAMESPACE_DNS, str(topic.name))
        return CreatableTopicResult(
            name=topic.name,
            topic_id=self.topics.get(str(topic.name)),
            error_code=ErrorCode(error_code),
            error_message=None,
            configs=None,
            num_partitions=topic.num_partitions,
        )


class Looking(Reservations):
    """Asks the model."""

    brokers: Brokers

    async def shadow(self, name: str, connection: Any = None) -> MetadataTopic | None:
        topic_id = self.brokers.topics.get(name)
        return None if topic_id is None else MetadataTopic(0, name, topic_id.bytes, 2, -1)


class Registry(ModelTopicRegistry):
    """Does something first before a name is reserved."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Callable[[], None] = lambda: None

    async def reserve(self, name: str, partitions: int, configs: dict[str, str], owner: str) -> int:
        self.before()
        return await super().reserve(name, partitions, configs, owner)


def proxied(registry: Registry) -> Brokers:
    """A client of a proxy that makes every topic diskless."""

    async def make(_: object, __: object, ___: object, results: dict[str, Any], **____: object) -> tuple[Any, Any]:
        return results, milliseconds(0)

    async def acknowledged(version: int) -> bool:
        return True

    topics = Topics(registry, lease_runs=lambda: True)
    fleet = SimpleNamespace(
        identity="owner", acknowledged=acknowledged, lease_number=1, check_lease=lambda number: None
    )
    settings = SimpleNamespace(
        default_diskless_topics=(".*",),
        diskless_system_enable=True,
        fleet=SimpleNamespace(create_topic_timeout_ms=1_000),
    )
    looking = reservations_of(Looking, registry, topics=topics, fleet=fleet)
    looking.brokers = brokers = Brokers()
    under_replicated = SimpleNamespace(make=make)
    brokers.creator = creator_of(settings, looking, topics=topics, fleet=fleet, under_replicated=under_replicated)
    return brokers


async def create(brokers: Brokers, *names: str) -> dict[str, int]:
    connection: Any = brokers
    results = await brokers.creator.create_by_name(connection, REQUEST, names, partitions=2, replication_factor=1)
    return {name: result.error_code.value for name, result in results.items()}


def states(registry: Registry) -> dict[str, tuple[str, bytes]]:
    return {topic.name: (topic.state, topic.topic_id) for topic in registry.topics.values()}


@pytest.mark.parametrize("moment", ["before it is reserved", "before everyone knows"])
async def test_a_name_that_another_topic_has_got_meanwhile_is_given_up(moment: str) -> None:
    registry = Registry()
    brokers = proxied(registry)

    def come() -> bool:
        brokers.topics["a"] = STRANGER
        return True

    if moment == "before it is reserved":
        registry.before = come  # type: ignore[assignment]
    else:

        async def acknowledged(version: int) -> bool:
            return come()

        brokers.creator.fleet.acknowledged = acknowledged  # type: ignore[method-assign]
    assert await create(brokers, "a", "b") == {"a": TOPIC_ALREADY_EXISTS, "b": NONE}
    assert brokers.topics["a"] == STRANGER
    assert states(registry) == {"b": ("live", brokers.topics["b"].bytes)}
    assert brokers.creator.topics.find("a") is None
    assert brokers.asked == [True, True, False]


@pytest.mark.parametrize("error_code", [REQUEST_TIMED_OUT, NOT_CONTROLLER, -1, -2])
async def test_nothing_is_created_or_kept_if_brokers_do_not_report_whether_a_name_is_free(error_code: int) -> None:
    registry = Registry()
    brokers = proxied(registry)
    brokers.second_answer = error_code
    if error_code == -2:
        with pytest.raises(BrokerUnreachable):
            await create(brokers, "a", "b")
    else:
        assert await create(brokers, "a", "b") == dict.fromkeys("ab", error_code)
    assert (brokers.topics, states(registry), brokers.asked) == ({}, {}, [True, True])
    assert await create(brokers, "a") == {"a": NONE}
    assert states(registry) == {"a": ("live", brokers.topics["a"].bytes)}


async def test_a_classic_topic_is_not_made_under_a_name_that_was_reserved_while_the_fleet_was_waited_for() -> None:
    """The owner of the reservation waits for the same proxy, looks the name up first, and takes a later topic for its
    own."""
    registry = Registry()
    brokers = proxied(registry)
    brokers.creator.settings.default_diskless_topics = ("diskless",)

    async def acknowledged(version: int) -> bool:
        await ModelTopicRegistry.reserve(registry, "classic", 1, {}, "somebody else")
        await brokers.creator.topics.load()
        return True

    brokers.creator.fleet.acknowledged = acknowledged  # type: ignore[method-assign]
    assert await create(brokers, "diskless", "classic") == {"diskless": NONE, "classic": TOPIC_ALREADY_EXISTS}
    assert "classic" not in brokers.topics
    assert states(registry)["classic"][0] == "reserved"


async def test_no_placeholder_is_created_after_the_lease_expired() -> None:
    """Other proxies then undo the reservation, and no proxy would know that the topic should be diskless."""
    registry = Registry()
    brokers = proxied(registry)
    brokers.creator.settings.default_diskless_topics = ("diskless",)
    fleet: Any = brokers.creator.fleet

    def check_lease(number: int) -> None:
        if number != fleet.lease_number:
            raise LeaseLapsed("out of the fleet")

    fleet.check_lease = check_lease
    ask = brokers.ask

    async def ask_slowly(*question: Any, **more: Any) -> memoryview:
        body = await ask(*question, **more)
        if len(brokers.asked) == 2:  # the last check of the name, before the creation
            await registry.remove("diskless")
            fleet.lease_number += 1
        return body

    brokers.ask = ask_slowly  # type: ignore[method-assign]
    assert await create(brokers, "diskless", "classic") == {"diskless": REQUEST_TIMED_OUT, "classic": NONE}
    assert list(brokers.topics) == ["classic"]
    assert states(registry) == {}
    assert await create(brokers, "diskless") == {"diskless": NONE}
