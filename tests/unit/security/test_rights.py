"""What the client may do, as its broker says; brokers hear of a new topic one after the other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v9.response import MetadataResponse, MetadataResponseBroker, MetadataResponseTopic

from proxy.api_keys import METADATA
from proxy.errors import NONE, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION
from proxy.security import rights as rights_module
from proxy.security.rights import READ, WRITE, Rights
from proxy.wire.cold import encode, milliseconds, read_request

REQUEST: Any = SimpleNamespace(client_id="client")


def metadata(**errors: int) -> memoryview:
    """Metadata v9 with these topics; those without error may be written to."""
    broker = MetadataResponseBroker(node_id=1, host="broker", port=9092, rack=None)
    topics = tuple(
        MetadataResponseTopic(
            error_code=ErrorCode(error), name=name, partitions=(), topic_authorized_operations=0 if error else WRITE
        )
        for name, error in errors.items()
    )
    response = MetadataResponse(throttle_time=milliseconds(0), brokers=(broker,), controller_id=1, topics=topics)
    return memoryview(encode(response))


class Broker:
    """A client's connection whose broker gives these answers, the last one for ever."""

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


async def test_a_topic_that_the_broker_has_not_heard_of_yet_is_asked_for_again(monkeypatch):
    rights = made(monkeypatch)
    broker: Any = Broker(metadata(old=0, new=3), metadata(new=3), metadata(new=0))
    await rights.ask(broker, REQUEST, ["old", "new"])
    assert broker.asked == 3
    assert [rights.error(name, WRITE) for name in ("old", "new")] == [NONE, NONE]
    assert rights.error("new", READ) == TOPIC_AUTHORIZATION_FAILED


async def test_a_topic_that_is_not_there_is_unknown_after_a_moment(monkeypatch):
    rights = made(monkeypatch)
    broker: Any = Broker(metadata(gone=3))
    await rights.ask(broker, REQUEST, ["gone"])
    assert 1 < broker.asked < 30
    assert rights.error("gone", WRITE) == UNKNOWN_TOPIC_OR_PARTITION


async def test_a_topic_that_is_forbidden_is_asked_for_once(monkeypatch):
    rights = made(monkeypatch)
    broker: Any = Broker(metadata(secret=29))
    await rights.ask(broker, REQUEST, ["secret"])
    assert broker.asked == 1
    assert rights.error("secret", WRITE) == TOPIC_AUTHORIZATION_FAILED


class AnyTopics:
    """A client's connection whose broker knows every topic, `late` from the second question on."""

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
    await rights.ask(broker, REQUEST, many)
    now_s = 4.9
    assert rights.unasked([*many, "new"]) == ["new"]
    now_s = 30.0  # the broker took its time for earlier requests
    await rights.ask(broker, REQUEST, ["new"])
    assert {rights.error(name, WRITE) for name in [*many, "new"]} == {NONE}


async def test_asking_again_for_one_of_many_topics_forgets_none_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    rights = made(monkeypatch)
    many = [f"t{number}" for number in range(10_002)]
    broker: Any = AnyTopics(late="t7")
    await rights.ask(broker, REQUEST, many)
    assert broker.late == {}
    assert {rights.error(name, WRITE) for name in many} == {NONE}


async def test_what_no_request_needs_any_more_is_forgotten() -> None:
    now_s = 0.0
    rights = Rights(5.0, lambda: now_s)
    broker: Any = AnyTopics()
    for generation in range(20):
        await rights.ask(broker, REQUEST, [f"{generation}-{number}" for number in range(4_000)])
        assert len(rights._known) <= 20_000
        now_s += 40.0
    assert rights.error("0-0", WRITE) == TOPIC_AUTHORIZATION_FAILED
    assert rights.error("19-0", WRITE) == NONE
