"""The client's rights according to its broker; brokers learn of a new topic one after the other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v12.response import MetadataResponse, MetadataResponseBroker, MetadataResponseTopic
from kio.schema.types import TopicName

from proxy.client import rights as rights_module
from proxy.client.rights import ANY_ID, READ, WRITE, Rights, confirmed
from proxy.protocol.api_keys import METADATA
from proxy.protocol.errors import NONE, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION
from proxy.wire.cold import encode, milliseconds, read_request

OLD, NEW = b"1" * 16, b"2" * 16
REQUEST: Any = SimpleNamespace(client_id="client")


def metadata(topic_id: bytes | None = None, **errors: int) -> memoryview:
    """Build Metadata v12 with these topics, all with that ID; topics without an error may be written to."""
    broker = MetadataResponseBroker(node_id=1, host="broker", port=9092, rack=None)
    topics = tuple(
        MetadataResponseTopic(
            error_code=ErrorCode(error),
            name=TopicName(name),
            topic_id=None if topic_id is None else UUID(bytes=topic_id),
            partitions=(),
            topic_authorized_operations=0 if error else WRITE,
        )
        for name, error in errors.items()
    )
    response = MetadataResponse(throttle_time=milliseconds(0), brokers=(broker,), controller_id=1, topics=topics)
    return memoryview(encode(response))


def of_any_id(*names: str) -> dict[str, bytes]:
    return dict.fromkeys(names, ANY_ID)


class Broker:
    """A client's connection whose broker gives these answers, the last one forever."""

    def __init__(self, *answers: memoryview) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def ask(self, request: Any, api_key: int, api_version: int, body: Any) -> memoryview:
        self.asked += 1
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def made(monkeypatch) -> Rights:
    monkeypatch.setattr(rights_module, "_HEARD_OF_POLL_S", 0.001)
    now_s = iter(range(1000))
    monkeypatch.setattr(rights_module, "_HEARD_OF_WITHIN_S", 20.0)
    return Rights(1000.0, lambda: float(next(now_s)))


async def test_the_proxy_retries_a_topic_that_the_broker_does_not_know_yet(monkeypatch):
    rights = made(monkeypatch)
    broker: Any = Broker(metadata(old=0, new=3), metadata(new=3), metadata(new=0))
    await rights.ask(broker, REQUEST, of_any_id("old", "new"))
    assert broker.asked == 3
    assert [rights.error(name, WRITE) for name in ("old", "new")] == [NONE, NONE]
    assert rights.error("new", READ) == TOPIC_AUTHORIZATION_FAILED


async def test_a_missing_topic_is_unknown_after_a_moment(monkeypatch):
    rights = made(monkeypatch)
    broker: Any = Broker(metadata(gone=3))
    await rights.ask(broker, REQUEST, of_any_id("gone"))
    assert 1 < broker.asked < 30
    assert rights.error("gone", WRITE) == UNKNOWN_TOPIC_OR_PARTITION


async def test_a_forbidden_topic_is_requested_once(monkeypatch):
    rights = made(monkeypatch)
    broker: Any = Broker(metadata(secret=29))
    await rights.ask(broker, REQUEST, of_any_id("secret"))
    assert broker.asked == 1
    assert rights.error("secret", WRITE) == TOPIC_AUTHORIZATION_FAILED


async def test_a_name_is_unknown_until_proxy_and_broker_know_the_same_topic(monkeypatch):
    """A proxy that is cut off from the coordinator knows a deleted topic, while the brokers know a newer one of its
    name."""
    rights = made(monkeypatch)
    broker: Any = Broker(metadata(NEW, a=0))
    await rights.ask(broker, REQUEST, {"a": OLD})
    assert broker.asked > 1, "the broker may be the one that has not heard of the other yet"
    assert rights.error("a", WRITE, OLD) == UNKNOWN_TOPIC_OR_PARTITION
    assert rights.unasked({"a": NEW}) == {"a": NEW}, "the proxy has heard of it: what was said of the old one is over"
    await rights.ask(broker, REQUEST, {"a": NEW})
    assert rights.error("a", WRITE, NEW) == NONE
    assert rights.error("a", WRITE) == NONE
    assert rights.error("a", WRITE, OLD) == UNKNOWN_TOPIC_OR_PARTITION
    assert rights.unasked({"a": OLD}) == {"a": OLD}


async def test_a_missing_topic_is_not_requested_all_the_time(monkeypatch):
    """While its placeholder is missing, each request that names the topic, on each connection, would trigger a
    request."""
    now_s = 0.0
    asked_at = []

    async def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    class Counting(Broker):
        async def ask(self, *question: Any) -> memoryview:
            asked_at.append(now_s)
            return await super().ask(*question)

    monkeypatch.setattr(rights_module.asyncio, "sleep", sleep)
    rights = Rights(5.0, lambda: now_s)
    broker: Any = Counting(metadata(gone=3))
    while now_s < 10.0:
        if rights.unasked({"gone": OLD}):
            await rights.ask(broker, REQUEST, {"gone": OLD})
        assert rights.error("gone", WRITE, OLD) == UNKNOWN_TOPIC_OR_PARTITION
        now_s += 0.001
    assert len(asked_at) <= 30
    assert rights.unasked({"gone": NEW}) == {"gone": NEW}, "another topic of that name is asked for at once"


@pytest.mark.parametrize(("answer", "may"), [(metadata(a=0), True), (metadata(a=3), False), (metadata(b=0), False)])
async def test_a_right_is_confirmed_by_name(answer: memoryview, may: bool) -> None:
    broker: Any = Broker(answer)
    assert await confirmed(broker, REQUEST, "a", WRITE) is may


class AnyTopics:
    """A client's connection whose broker knows every topic, `late` from the second request on."""

    def __init__(self, late: str = "") -> None:
        self.late = {late: 3}

    async def ask(self, request: Any, api_key: int, api_version: int, body: Any) -> memoryview:
        asked: Any = read_request(METADATA, api_version, memoryview(body))
        errors, self.late = self.late, {}
        return metadata(**{str(topic.name): errors.get(str(topic.name), 0) for topic in asked.topics})


async def test_asking_for_one_more_topic_forgets_none_that_the_request_needs() -> None:
    now_s = 0.0
    rights = Rights(5.0, lambda: now_s)
    broker: Any = AnyTopics()
    many = [f"t{number}" for number in range(10_001)]
    await rights.ask(broker, REQUEST, of_any_id(*many))
    now_s = 4.9
    assert list(rights.unasked(of_any_id(*many, "new"))) == ["new"]
    now_s = 30.0  # the broker took its time for earlier requests
    await rights.ask(broker, REQUEST, of_any_id("new"))
    assert {rights.error(name, WRITE) for name in [*many, "new"]} == {NONE}


async def test_asking_again_for_one_of_many_topics_forgets_none_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    rights = made(monkeypatch)
    many = [f"t{number}" for number in range(10_002)]
    broker: Any = AnyTopics(late="t7")
    await rights.ask(broker, REQUEST, of_any_id(*many))
    assert broker.late == {}
    assert {rights.error(name, WRITE) for name in many} == {NONE}


async def test_results_that_no_request_needs_are_dropped() -> None:
    now_s = 0.0
    rights = Rights(5.0, lambda: now_s)
    broker: Any = AnyTopics()
    for generation in range(20):
        await rights.ask(broker, REQUEST, of_any_id(*(f"{generation}-{number}" for number in range(4_000))))
        assert len(rights._known) <= 20_000
        now_s += 40.0
    assert rights.error("0-0", WRITE) == TOPIC_AUTHORIZATION_FAILED
    assert rights.error("19-0", WRITE) == NONE
