"""Large requests of APIs whose elements are independent of one another: answered in parts, in turns with other work.

Each part goes through the API's own handler as if the client had sent it alone, and the answers are joined. So however
much a request names, no step of the event loop handles more than one part, and no more than one part of it is decoded
at a time. Two elements that name the same thing may be in different parts: they are answered as in two requests. If
brokers reject them in one request, a request with such elements is not cut.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple

from proxy.brokers.upstream import BrokerUnreachable
from proxy.client.client import Client
from proxy.client.handler import Handler
from proxy.client.request import Request
from proxy.client.slots import Slot
from proxy.config import Limits
from proxy.process.turns import Turns
from proxy.wire.cold_parts import AnswerPart, answer_part, join_answers, request_parts
from proxy.wire.errors import ProtocolError
from proxy.wire.primitives import Buffer
from proxy.wire.steps import Rewrite


class Spread(NamedTuple):
    """How the requests of an API are cut."""

    arrays: tuple[str, ...]
    """The array of the request, by the names that kio has for it."""
    answered: str
    """The array of the response."""
    cuts_elements: bool = True
    """Whether an element of the array may be cut itself, at its first array."""
    once: bool = False
    """Whether brokers reject an element that is named twice in one request."""
    small_bytes: int = 4096
    """A request body of this size is handled whole."""
    max_elements: int = 256
    """Elements of a part. Reading, answering and writing one takes up to 20 µs."""
    skip: Callable[[int, memoryview, int], int] | None = None
    """Skips an element of the answer, by version, data and position, faster than a walk by kio's schema."""


class InParts:
    """Makes handlers of requests of any size."""

    def __init__(self, limits: Limits, turns: Turns) -> None:
        self._limits = limits
        self._turns = turns

    def of(self, handler: Handler, spread: Spread) -> Handler:
        """Return the handler, for requests of any size."""

        def handle(client: Client, request: Request) -> Coroutine[Any, Any, None] | None:
            if len(request.body) <= spread.small_bytes:
                return handler(client, request)
            return self._answer(client, request, client.open_slot(request), handler, spread)

        return handle

    async def _answer(self, client: Client, request: Request, slot: Slot, handler: Handler, spread: Spread) -> None:
        """Raises BrokerUnreachable and ProtocolError."""
        turns = self._turns
        key, version = request.api_key, request.api_version
        cutting = request_parts(
            key,
            version,
            request.body,
            spread.arrays,
            max_elements=spread.max_elements,
            cuts_elements=spread.cuts_elements,
            once=spread.once,
        )
        bodies = await turns.run(cutting)
        if len(bodies) <= 1:
            bodies = [[request.body]]
        answers: list[AnswerPart] = []
        most_bytes, size = self._limits.max_response_bytes_per_connection, 0
        for body in bodies:
            await turns.next()
            answer = await Part(client, request.with_body(b"".join(body)), turns).answer(handler)
            skip = None if spread.skip is None else partial(spread.skip, version)
            answers.append(await turns.do(answer_part.steps(key, version, answer, spread.answered, skip)))
            size += len(answer)
            if size > most_bytes:
                raise ProtocolError(
                    f"the answer takes more than limits.max_response_bytes_per_connection ({most_bytes})"
                )
        slot.fill(join_answers(key, version, answers))


class Part:
    """Stands in for the client of one part: its answer comes here."""

    def __init__(self, client: Client, request: Request, turns: Turns) -> None:
        self._client = client
        self._request = request
        self._turns = turns
        self._slot: _PartSlot | None = None
        self._forwarded: tuple[Request, Rewrite | None] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def answer(self, handler: Handler) -> Buffer:
        """The body of the answer. Raises BrokerUnreachable and ProtocolError."""
        this: Any = self
        waiting = handler(this, self._request)
        if waiting is not None:
            await waiting
        if self._forwarded is not None:
            request, rewrite = self._forwarded
            body: memoryview = await self._client.ask(request, request.api_key, request.api_version, [request.body])
            return b"".join(await self._turns.rewritten(rewrite(body))) if rewrite else body
        if self._slot is None or self._slot.body is None:
            raise BrokerUnreachable("a part of the request has no answer")
        return self._slot.body

    def open_slot(self, request: Request) -> _PartSlot:
        """Does what `Client` does."""
        self._slot = _PartSlot()
        return self._slot

    def forward(self, request: Request, rewrite: Rewrite | None = None) -> None:
        """Does what `Client` does."""
        self._forwarded = request, rewrite


class _PartSlot:
    """Stands for a `Slot` as far as handlers use one: keeps the body of the answer to one part."""

    __slots__ = ("body",)

    def __init__(self) -> None:
        self.body: bytes | None = None

    @property
    def done(self) -> bool:
        """Whether it was filled."""
        return self.body is not None

    def fill(self, body: list[Buffer]) -> None:
        """Keep the answer; a second call is ignored."""
        if self.body is None:
            self.body = b"".join(body)
