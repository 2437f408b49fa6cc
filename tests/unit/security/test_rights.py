"""What the client may do, as its broker says; brokers hear of a new topic one after the other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.metadata.v9.response import MetadataResponse, MetadataResponseBroker, MetadataResponseTopic

from proxy.errors import NONE, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION
from proxy.security import rights as rights_module
from proxy.security.rights import READ, WRITE, Rights
from proxy.wire.cold import encode, milliseconds

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
