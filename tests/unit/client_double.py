"""A client without a connection, as handlers see it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any

from proxy.client.request import Request
from proxy.client.session import Session
from proxy.wire.cold import encode
from proxy.wire.header import request_header
from proxy.wire.primitives import Buffer
from proxy.wire.steps import at_once
from tests.unit.sessions import session

Broker = Callable[[int, int, bytes], Any]
"""Answers API key, version and body: with the body of the answer, or with an entity of kio."""


class AnswerSlot:
    """The place of one answer."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.body: bytes | None = None
        """The answer; None if there is none yet."""
        self.let_go: Callable[[], None] | None = None

    @property
    def done(self) -> bool:
        return self.body is not None

    def fill(self, body: list[Buffer]) -> None:
        if self.body is None:
            self.body = b"".join(map(bytes, body))
            if self.let_go is not None:
                self.let_go()


class ClientDouble:
    """Records what handlers do. `broker` answers what they ask of the client's broker."""

    def __init__(self, broker: Broker | None = None, *, of: Session | None = None) -> None:
        self.session = of if of is not None else session()
        self.broker = broker
        self.answers: Any = self
        self.slots: list[AnswerSlot] = []
        self.forwarded: list[Request] = []
        self.rewrites: list[Any] = []
        """The rewrite of each answer to a request that was forwarded; None if it passes as it is."""
        self.muted_s = 0.0

    def open_slot(self, request: Request, *, answered: bool = True) -> AnswerSlot:
        self.slots.append(AnswerSlot(request))
        return self.slots[-1]

    def forward(self, request: Request, rewrite: Any = None, *, answered: bool = True) -> None:
        self.forwarded.append(request)
        self.rewrites.append(rewrite)

    def forward_slot(self, request: Request, slot: Any) -> None:
        self.forward(request, slot._rewrite)

    def forward_opened(self, request: Request, slot: Any, rewrite: Any = None) -> None:
        self.forward(request, rewrite)

    def mute(self, seconds: float) -> None:
        self.muted_s = seconds

    async def ask(
        self, request: Request, api_key: int, api_version: int, body: Any, question: Any = None, *, check: Any = None
    ) -> memoryview:
        assert self.broker is not None, "no question was expected"
        if check is not None:
            check()
        answer = self.broker(api_key, api_version, body if isinstance(body, bytes) else b"".join(map(bytes, body)))
        if isinstance(answer, Coroutine):
            answer = await answer
        return memoryview(answer if isinstance(answer, (bytes, memoryview)) else encode(answer))

    async def answer(self, handler: Any, request: Request) -> bytes | None:
        """Let a handler handle the request, and return its answer; None if it was forwarded."""
        before = len(self.slots)
        waiting = handler(self, request)
        if waiting is not None:
            await waiting
        return self.slots[-1].body if len(self.slots) > before else None

    def rewritten(self, body: Buffer) -> bytes:
        """Return what the client gets of the broker's answer to the request that was forwarded last."""
        rewrite = self.rewrites[-1]
        if rewrite is None:
            return bytes(body)
        answer = rewrite(memoryview(body))
        return b"".join(map(bytes, at_once(answer) if isinstance(answer, Generator) else answer))


def request_of(api_key: int, version: int, body: bytes, *, client_id: str | None = "app") -> Request:
    """Return a request as the connection hands it to a handler."""
    frame = memoryview(request_header(api_key, version, 7, client_id) + body)
    return Request(api_key, version, 7, client_id, frame, frame[len(frame) - len(body) :])
