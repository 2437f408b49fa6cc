"""ApiVersions at a listener whose broker hangs: the last answer of any broker, and no answer before the first one."""

from __future__ import annotations

import asyncio
import struct
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.client.request import Request
from proxy.config import FetchSettings
from proxy.handlers.api_versions import api_versions
from tests.support.questions import filled
from tests.unit.sessions import session
from tests.unit.wire.trees import encode, response_type

API_VERSIONS, FETCH = 18, 1
ANSWER = struct.pack(">hihhhhhh", 0, 2, FETCH, 4, 99, API_VERSIONS, 0, 4)
CLAMPED = struct.pack(">hihhhhhh", 0, 2, FETCH, 4, 18, API_VERSIONS, 0, 4)
"""v0: error code, and key, lowest and highest version of each API."""


class Client:
    """A connection as the handler sees it; `broker_answers` None: it hangs."""

    def __init__(self, *, foreign: bool, near_reads: bool = True) -> None:
        self.context: Any = SimpleNamespace(
            settings=SimpleNamespace(
                fetch=FetchSettings(api_versions_wait_ms=10, read_near_replicas=near_reads), kip1163_api=False
            ),
            near_brokers=SimpleNamespace(is_foreign=lambda node_id: foreign),
            api_versions_learnt={},
        )
        self.session = session()
        self.broker_answers: bytes | None = ANSWER
        self.received: bytes | None = None

    async def ask_version(self, version: int = 0) -> bytes | None:
        """Return the client's answer; None if it has none yet."""
        self.received = None
        request = Request(API_VERSIONS, version, 7, "client", memoryview(b""), memoryview(b""))
        waiting = api_versions(self, request)  # type: ignore[arg-type]
        if waiting is not None:
            await waiting
        return self.received

    def forward(self, request: Request, rewrite: Any) -> None:
        if self.broker_answers is not None:
            self.received = b"".join(rewrite(memoryview(self.broker_answers)))

    def open_slot(self, request: Request) -> Any:
        def fill(body: list[bytes]) -> None:
            self.received = b"".join(body)

        return SimpleNamespace(fill=fill)

    async def ask(self, *_: object) -> memoryview:
        if self.broker_answers is None:
            await asyncio.Event().wait()
        return memoryview(self.broker_answers)


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
    assert list(client.context.api_versions_learnt) == [0]


@pytest.mark.parametrize("version", [-1, -(2**15), 5])
async def test_a_version_that_there_is_not_is_unsupported(version: int) -> None:
    """KIP-511: in a v0 body with the versions of ApiVersions itself, and without asking the broker."""
    client = Client(foreign=False)
    client.broker_answers = None
    assert await client.ask_version(version) == struct.pack(">hihhh", 35, 1, API_VERSIONS, 0, 4)
