"""ApiVersions at a listener whose broker hangs: the last answer of any broker, and no answer before the first one."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest

from proxy.client.request import Request
from proxy.config.transactions import Transactions
from proxy.handlers.api_versions import ApiVersions
from proxy.replicas.near import NearBrokers
from proxy.transactions.client_version import ClientVersion
from proxy.wire.metadata import Broker
from tests.support.questions import filled
from tests.unit.brokers_double import Brokers
from tests.unit.client_double import ClientDouble
from tests.unit.parts import settings_of
from tests.unit.wire.trees import encode, response_type

API_VERSIONS, FETCH = 18, 1
ANSWER = struct.pack(">hihhhhhh", 0, 2, FETCH, 4, 99, API_VERSIONS, 0, 4)
CLAMPED = struct.pack(">hihhhhhh", 0, 2, FETCH, 4, 18, API_VERSIONS, 0, 4)
"""v0: error code, and key, lowest and highest version of each API."""


class Client(ClientDouble):
    """A client whose broker may hang (`broker_answers` None)."""

    def __init__(self, *, foreign: bool, near_reads: bool = True) -> None:
        super().__init__(self._asked)
        settings = settings_of(
            rack="near", fetch={"api_versions_wait_ms": 10, "read_near_replicas": near_reads}, kip1163_api=False
        )
        rack = "far" if foreign else "near"
        brokers: Any = Brokers({1: Broker(1, "broker", 9092, rack), 2: Broker(2, "broker", 9092, "near")})
        version = ClientVersion(Transactions(client_version=1), self._asked, lambda: 0.0)
        self.handler = ApiVersions(settings, near_brokers=NearBrokers("near", brokers), client_version=version)
        self.broker_answers: bytes | None = ANSWER

    async def ask_version(self, version: int = 0) -> bytes | None:
        """Return the client's answer; None if it has none yet."""
        request = Request(API_VERSIONS, version, 7, "client", memoryview(b""), memoryview(b""))
        forwarded = len(self.forwarded)
        answer = await self.answer(self.handler.api_versions, request)
        if len(self.forwarded) > forwarded and self.broker_answers is not None:
            return self.rewritten(self.broker_answers)
        return answer

    async def _asked(self, *_: object) -> bytes:
        if self.broker_answers is None:
            await asyncio.Event().wait()
        assert self.broker_answers is not None
        return self.broker_answers


async def test_a_hanging_broker_of_another_rack_is_not_waited_for() -> None:
    client = Client(foreign=True)
    assert await client.ask_version() == CLAMPED
    client.broker_answers = None
    assert await client.ask_version() == CLAMPED
    client.broker_answers = ANSWER.replace(struct.pack(">hhh", FETCH, 4, 99), struct.pack(">hhh", FETCH, 4, 12))
    narrower = CLAMPED.replace(struct.pack(">hhh", FETCH, 4, 18), struct.pack(">hhh", FETCH, 4, 12))
    assert await client.ask_version() == narrower
    client.broker_answers = None
    assert await client.ask_version() == narrower


@pytest.mark.parametrize("options", [{"foreign": False}, {"foreign": True, "near_reads": False}])
async def test_others_wait_for_their_broker(options) -> None:
    client = Client(**options)
    assert await client.ask_version() == CLAMPED
    client.broker_answers = None
    assert await client.ask_version() is None


@pytest.mark.parametrize("version", [0, 2, 4])
async def test_nobody_is_throttled_for_another_client(version: int) -> None:
    offered: Any = {"api_keys": [{"api_key": FETCH, "min_version": 4, "max_version": 12}]}
    entity = response_type(API_VERSIONS, version)
    throttled = {"throttle_time": 9_000}
    client = Client(foreign=True)
    client.broker_answers = encode(entity, filled(entity, offered | throttled))
    assert await client.ask_version(version) == client.broker_answers
    client.broker_answers = None
    assert await client.ask_version(version) == encode(entity, filled(entity, offered))


async def test_no_answer_is_given_that_no_broker_gave_in_that_version() -> None:
    client = Client(foreign=True)
    client.broker_answers = struct.pack(">hi", 35, 0)
    assert await client.ask_version() == client.broker_answers
    client.broker_answers = None
    assert await client.ask_version() is None
    client.broker_answers = ANSWER
    assert await client.ask_version() == CLAMPED
    client.broker_answers = None
    assert await client.ask_version() == CLAMPED


@pytest.mark.parametrize("version", [-1, -(2**15), 5])
async def test_a_version_that_there_is_not_is_unsupported(version: int) -> None:
    """KIP-511: in a v0 body with the versions of ApiVersions itself, and without asking the broker."""
    client = Client(foreign=False)
    client.broker_answers = None
    assert await client.ask_version(version) == struct.pack(">hihhh", 35, 1, API_VERSIONS, 0, 4)
