"""Proxies that die after a chosen number of writes of one operation, in this process, next to the proxies of a real
stack.

From outside, a killed process differs only in how many of its writes were carried out. So an operation runs once to
count its writes, and then once per number with a new victim: after that write, nothing of the victim gets out, as if it
had been killed there. A write is a script call that changes the coordinator's store, or a request that changes
something on the brokers. Scripts that are normally sent together are sent one by one here.

    async with Victim(stack, "rack-a", writes=3) as victim:
        await victim.ask(CREATE_TOPICS, 7, …)      # None: it died
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, Self

import pytest
from kio.index import load_request_schema
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as StoreConnectionError

from proxy.assembly.parts import Parts
from proxy.brokers.upstream import BrokerConnection, BrokerUnreachable
from proxy.client.expected import Awaiting
from proxy.config import Settings, load_settings
from proxy.connection.connection import ClientConnection
from proxy.coordinator import scripts
from proxy.demo.stack import Stack
from proxy.server.server import Server
from proxy.wire.cold import encode, read_request, read_response
from proxy.wire.header import request_header, response_header_length
from proxy.wire.primitives import Buffer

WRITING_SCRIPTS = {
    "registry_reserve",
    "registry_activate",
    "registry_configure",
    "registry_begin_delete",
    "registry_remove",
    "create_logs",
    "delete_logs",
}
WRITING_REQUESTS = {
    19: "CreateTopics",
    20: "DeleteTopics",
    33: "AlterConfigs",
    37: "CreatePartitions",
    44: "IncrementalAlterConfigs",
}
ANSWER_SECONDS = 60.0
LISTENER_NODE_IDS = "1-3"

_victim: ContextVar[Victim | None] = ContextVar("victim", default=None)
"""The victim whose client's request is being handled."""


class Victim:
    """One proxy. With `loses_reply` it lives on and gets an error for the chosen write, although it was carried out."""

    def __init__(self, stack: Stack, rack: str, writes: int | None, *, loses_reply: bool = False) -> None:
        """Die after this many `writes`; None means never."""
        self._settings = _settings(stack, rack)
        self._at = writes
        self._loses_reply = loses_reply
        self.written: list[str] = []
        """Writes that were carried out, in order."""
        self.dead = asyncio.Event()
        self._server = Server(self._settings)

    async def __aenter__(self) -> Self:
        self._parts: Parts = await self._server._build()
        _victims[id(self._parts.stores.store)] = self
        await self._server.start.run(self._parts)
        _victim.set(self)  # the connections' tasks inherit it from here; tasks that were started above do not have it
        handlers = self._server._handlers
        assert handlers is not None
        made = partial(ClientConnection, self._parts.clients.shared, handlers, self._settings.listeners, None)
        self._listener = await asyncio.get_running_loop().create_server(made, "127.0.0.1", 0)
        _victim.set(None)
        return self

    async def __aexit__(self, *_: object) -> None:
        _victims.pop(id(self._parts.stores.store), None)
        self._listener.close()
        await self._server._close(self._parts, _NoOutside())

    async def ask(self, api_key: int, api_version: int, **fields: Any) -> Any:
        """Send a client's request; return the answer, or None if the victim died or closed the connection."""
        schema: Any = load_request_schema(api_key, api_version)
        asking = asyncio.ensure_future(self._exchange(api_key, api_version, encode(schema(**fields))))
        dying = asyncio.ensure_future(self.dead.wait())
        await asyncio.wait({asking, dying}, timeout=ANSWER_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        dying.cancel()
        if asking.done():
            with suppress(asyncio.IncompleteReadError):  # it could not report how the brokers answered the request
                return await asking
            return None
        asking.cancel()
        assert self.dead.is_set(), f"no answer, and it lives, after {self.written}"
        return None

    async def _exchange(self, api_key: int, api_version: int, body: bytes) -> Any:
        host, port = self._listener.sockets[0].getsockname()
        reader, writer = await asyncio.open_connection(host, port)
        try:
            frame = request_header(api_key, api_version, 1, "administrator") + body
            writer.write(len(frame).to_bytes(4, "big") + frame)
            answer = memoryview(await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big")))
            return read_response(api_key, api_version, answer[response_header_length(api_key, api_version, answer) :])
        finally:
            writer.close()

    async def step(self, name: str, do: Callable[[], Awaitable[Any]], failure: Callable[[], Exception]) -> Any:
        """Pass a step that leaves this proxy; `name` is set if it is a write for its client, else empty."""
        if self.dead.is_set():
            await asyncio.Event().wait()
        done = await do()
        if name:
            self.written.append(name)
            if len(self.written) == self._at:
                if self._loses_reply:
                    raise failure()
                self._die()
                await asyncio.Event().wait()
        return done

    def _die(self) -> None:
        self.dead.set()
        for task in self._server._tasks:
            task.cancel()


class _NoOutside:
    async def start(self) -> None: ...

    async def close(self) -> None: ...


_victims: dict[int, Victim] = {}
"""Victims by the ID of their store clients."""


def _settings(stack: Stack, rack: str) -> Settings:
    """Return the settings of the rack's proxy with another name; nobody connects to the ports in it."""
    settings = load_settings(stack.config_path(rack))
    listeners = settings.listeners.model_copy(update={"broker_node_ids": LISTENER_NODE_IDS})
    return settings.model_copy(update={"listeners": listeners, "proxy_id": f"victim-of-{rack}"})


@pytest.fixture
def victims(monkeypatch: pytest.MonkeyPatch) -> None:
    """Route everything that leaves a proxy through its victim, so that victims can die."""
    evaluate, ask = scripts._evaluate, BrokerConnection.ask

    async def evaluate_one_by_one(
        client: Redis, script: scripts.Script, calls: Sequence[scripts.Call], *more: Any
    ) -> list[Any]:
        victim = _victims.get(id(client))
        if victim is None:
            return await evaluate(client, script, calls, *more)
        name = script.name if script.name in WRITING_SCRIPTS and _victim.get() is victim else ""
        lost = partial(StoreConnectionError, "the reply was lost")
        replies: list[Any] = []
        for call in calls:
            replies += await victim.step(name, partial(evaluate, client, script, [call], *more), lost)
        return replies

    async def ask_by_victim(
        self: BrokerConnection,
        api_key: int,
        api_version: int,
        body: list[Buffer] | bytes,
        client_id: str | None,
        question: Awaiting | None = None,
    ) -> memoryview:
        do = partial(ask, self, api_key, api_version, body, client_id, question)
        victim = _victim.get()
        if victim is None:
            return await do()
        name = WRITING_REQUESTS.get(api_key, "")
        if name:
            asked: Any = read_request(
                api_key, api_version, memoryview(body if isinstance(body, bytes) else b"".join(body))
            )
            name = "" if getattr(asked, "validate_only", False) else name
        answer: memoryview = await victim.step(name, do, partial(BrokerUnreachable, "the answer was lost"))
        return answer

    monkeypatch.setattr(scripts, "_evaluate", evaluate_one_by_one)
    monkeypatch.setattr(BrokerConnection, "ask", ask_by_victim)
