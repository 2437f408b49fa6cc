"""ShareGroupHeartbeat: a subscription with a diskless topic gets an error with a message; other requests pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import structlog

from proxy.client.rights import DESCRIBE, RIGHTS, ClientRights, Rights
from proxy.coordinator.interface_registry import DisklessTopic, RegistrySnapshot
from proxy.handlers.group_heartbeat import SUBSCRIPTIONS, GroupHeartbeat
from proxy.protocol.errors import INVALID_TOPIC_EXCEPTION
from proxy.telemetry.throttled_log import ThrottledLog
from tests.support.questions import filled
from tests.unit.client_double import ClientDouble, request_of
from tests.unit.parts import parts_of
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


class Client(ClientDouble):
    """A client of a proxy with two diskless topics."""

    def __init__(self) -> None:
        super().__init__(lambda *_: BROKERS_ANSWER)
        self.session[RIGHTS] = Described("diskless", "later")
        parts = parts_of()
        self._topics = parts.topics.topics
        self.set_diskless("diskless", "secret")
        self.handle = GroupHeartbeat(
            parts.process.settings,
            racks=parts.routing.racks,
            topics=self._topics,
            rights=ClientRights(parts.process.settings, lambda: 0.0),
            throttled_log=ThrottledLog(lambda: 0.0),
        ).share_group_heartbeat

    def set_diskless(self, *names: str) -> None:
        entries = tuple(DisklessTopic(name, name.encode().ljust(16), 1, "live") for name in names)
        self._topics.take(RegistrySnapshot(self._topics.version + 1, entries))

    async def beat(self, names: list[str] | None, *, epoch: int = 0, member: str = "m") -> dict[str, Any] | None:
        """The proxy's own answer; None if the heartbeat went to the broker as it came."""
        entity = request_type(HEARTBEAT, VERSION)
        values = {"group_id": "g", "member_id": member, "member_epoch": epoch, "subscribed_topic_names": names}
        body = encode(entity, filled(entity, values))
        answer = await self.answer(self.handle, request_of(HEARTBEAT, VERSION, body))
        if answer is None:
            return None
        return {} if answer == BROKERS_ANSWER else decode(response_type(HEARTBEAT, VERSION), answer)


@pytest.fixture
async def client() -> Client:
    return Client()


async def test_a_subscription_with_a_diskless_topic_is_rejected(client: Client) -> None:
    with structlog.testing.capture_logs() as logged:
        answer = await client.beat(["classic", "diskless"])
    assert answer is not None
    assert answer["error_code"] == INVALID_TOPIC_EXCEPTION
    assert answer["error_message"].startswith("Share groups can't read diskless topics: diskless. Read them")
    assert [(line["event"], line["topics"]) for line in logged] == [("share_group_refused", ["diskless"])]
    assert client.forwarded == []


async def test_a_topic_that_becomes_diskless_later_is_noticed(client: Client) -> None:
    assert await client.beat(["classic", "later"]) is None
    assert await client.beat(None, epoch=1) is None
    assert await client.beat(["classic"], member="other") is None
    client.set_diskless("diskless", "secret", "later")
    answer = await client.beat(None, epoch=1)
    assert answer is not None
    assert answer["error_code"] == INVALID_TOPIC_EXCEPTION
    assert await client.beat(None, epoch=1, member="other") is None
    assert await client.beat(None, epoch=-1) is None
    assert await client.beat(None, epoch=1) is None, "it has left"


async def test_a_topic_that_the_client_may_not_describe_is_the_brokers(client: Client) -> None:
    assert await client.beat(["secret"]) == {}


async def test_the_members_of_one_connection_that_are_remembered_are_bounded(client: Client) -> None:
    for number in range(300):
        assert await client.beat(["classic"], member=f"m{number}") is None
    assert len(client.session[SUBSCRIPTIONS]) == 100


async def test_an_unreadable_request_goes_to_the_broker(client: Client) -> None:
    assert await client.answer(client.handle, request_of(HEARTBEAT, VERSION, b"\x01")) is None
    assert len(client.forwarded) == 1
