"""The receivers of broker answers, as a broker connection sees them."""

from __future__ import annotations

import asyncio
from typing import Protocol

from proxy.wire.frames import Decision


class Expected(Protocol):
    """Receives the next answer of a broker."""

    @property
    def correlation_id(self) -> int | None:
        """None if the answer has no header (a SASL token of the oldest clients)."""

    def response_begins(self, size: int) -> Decision:
        """Hold the answer whole, stream it, or wait until the reader is resumed."""

    def response_held(self, frame: memoryview) -> None:
        """Take the whole answer, from its correlation ID on."""

    def response_part(self, part: memoryview, last: bool) -> None:
        """Take the next bytes of a streamed answer; the first part begins with the frame's size."""

    def response_lost(self) -> None:
        """Take note that the connection ended first."""


class Awaiting(Expected, Protocol):
    """Waits for the answer to a question of the proxy's own."""

    answer: asyncio.Future[memoryview]
    """The whole answer; BrokerUnreachable or ConnectionError if none comes."""
