"""ShareGroupHeartbeat: a subscription with a diskless topic gets an error with a message; other requests pass."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from proxy.client.request import Request
from proxy.client.rights import DESCRIBE, RIGHTS, Rights
from proxy.handlers.group_heartbeat import SUBSCRIPTIONS, share_group_heartbeat
from proxy.protocol.errors import INVALID_TOPIC_EXCEPTION
from proxy.telemetry.throttled_log import ThrottledLog
from tests.support.questions import filled
from tests.unit.sessions import session
from tests.unit.wire.trees import decode, encode, request_type, response_type

HEARTBEAT, VERSION = 76, 1
BROKERS_ANSWER = b"the broker's own"


class Described(Rights):
    """A client that may describe some topics."""

    def __init__(self, *described: str) -> None:
        super().__init__(1.0, lambda: 0.0)
        self._described = described

    def unasked(self, topics: Mapping[str, bytes]) -> dict[str, bytes]:
        return {}

    def error(self, topic: str, operation: int, topic_id: bytes = b"") -> int:
        assert operation == DESCRIBE
        return 0 if topic in self._described else 29


class Client:
    """A connection as the handler sees it."""

    def __init__(self) -> None:
        self.diskless: set[str] = {"diskless", "secret"}
        self.forwarded = 0
        self.answer: Any = None
        self.session = session()
        self.session[RIGHTS] = Described("diskless", "later")
        self.context = SimpleNamespace(
            topics=SimpleNamespace(
                find=lambda name: SimpleNamespace(topic_id=b"i" * 16) if name in self.diskless else None
            ),
            racks=SimpleNamespace(learn=lambda *_: None),
            settings=SimpleNamespace(default_diskless_topics=()),
            throttled_log=ThrottledLog(lambda: 0.0),
        )

    def forward(self, request: Request) -> None:
        self.forwarded += 1

    def open_slot(self, request: Request) -> Any:
        return SimpleNamespace(fill=lambda body: setattr(self, "answer", b"".join(map(bytes, body))))

    async def ask(self, *_: Any) -> bytes:
        return BROKERS_ANSWER

    async def beat(self, names: list[str] | None, *, epoch: int = 0, member: str = "m") -> dict[str, Any] | None:
        """The proxy's own answer; None if the heartbeat went to the broker as it came."""
        entity = request_type(HEARTBEAT, VERSION)
        values = {"group_id": "g", "member_id": member, "member_epoch": epoch, "subscribed_topic_names": names}
        body = memoryview(encode(entity, filled(entity, values)))
        waiting = share_group_heartbeat(self, Request(HEARTBEAT, VERSION, 1, "app", body, body))  # type: ignore[arg-type]
        if waiting is None:
            return None
        await waiting
        return {} if self.answer == BROKERS_ANSWER else decode(response_type(HEARTBEAT, VERSION), self.answer)


@pytest.fixture
def client() -> Client:
    return Client()


async def test_a_subscription_with_a_diskless_topic_is_rejected(client: Client) -> None:
    with structlog.testing.capture_logs() as logged:
        answer = await client.beat(["classic", "diskless"])
    assert answer is not None
    assert answer["error_code"] == INVALID_TOPIC_EXCEPTION
    assert answer["error_message"].startswith("Share groups can't read diskless topics: diskless. Read them")
    assert [(line["event"], line["topics"]) for line in logged] == [("share_group_refused", ["diskless"])]
    assert client.forwarded == 0


async def test_a_topic_that_becomes_diskless_later_is_noticed(client: Client) -> None:
    assert await client.beat(["classic", "later"]) is None
    assert await client.beat(None, epoch=1) is None
    assert await client.beat(["classic"], member="other") is None
    client.diskless.add("later")
    answer = await client.beat(None, epoch=1)
    assert answer is not None
    assert answer["error_code"] == INVALID_TOPIC_EXCEPTION
    assert await client.beat(None, epoch=1, member="other") is None
    assert await client.beat(None, epoch=-1) is None
    assert await client.beat(None, epoch=1) is None, "it has left"


async def test_a_topic_that_the_client_may_not_describe_is_the_brokers(client: Client) -> None:
    assert await client.beat(["secret"]) == {}
    assert client.answer == BROKERS_ANSWER


async def test_the_members_of_one_connection_that_are_remembered_are_bounded(client: Client) -> None:
    for number in range(300):
        assert await client.beat(["classic"], member=f"m{number}") is None
    assert len(client.session[SUBSCRIPTIONS]) == 100


def test_an_unreadable_request_goes_to_the_broker(client: Client) -> None:
    body = memoryview(b"\x01")
    assert share_group_heartbeat(client, Request(HEARTBEAT, VERSION, 1, "app", body, body)) is None  # type: ignore[arg-type]
    assert client.forwarded == 1
