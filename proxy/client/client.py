"""Everything that a handler may do to the connection of a client.

Handlers are typed against `Client`, and never against the connection itself (`connection/connection.py`). The facts
about the client are in its session.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from proxy.client.expected import Awaiting, Expected
    from proxy.client.request import Request
    from proxy.client.session import Session
    from proxy.client.slots import AnswerQueue, BrokerSlot, Slot
    from proxy.wire.primitives import Buffer
    from proxy.wire.produce_stream import ProduceStream
    from proxy.wire.steps import Rewrite

Ended = Callable[["ProduceStream"], bool] | None


class Client(Protocol):
    """One client as its handlers see it."""

    session: Session

    @property
    def answers(self) -> AnswerQueue:
        """The queue of the client's answers, for slots that a handler makes itself."""

    def open_slot(self, request: Request, *, answered: bool = True) -> Slot:
        """Open the place of an answer that the proxy gives itself.

        A slot that is not `answered` (acks=0) only holds the memory of the request.
        """

    def forward(self, request: Request, rewrite: Rewrite | None = None, *, answered: bool = True) -> None:
        """Send the request to the broker as it came; `rewrite` turns the body of the broker's answer into the client's.

        A request that is not `answered` (acks=0) gets no slot.
        """

    def forward_slot(self, request: Request, slot: BrokerSlot | None) -> None:
        """Forward the request, with its answer in a slot that the caller has made; None if it is not answered."""

    def forward_opened(self, request: Request, slot: Slot, rewrite: Rewrite | None = None) -> None:
        """Do `forward` for a request whose slot was opened already."""

    def forward_in_place(self, request: Request, slot: Slot, into: BrokerSlot) -> None:
        """Forward the request of a slot that was opened already: `into` takes its place and its memory."""

    def begin_stream(
        self, api_key: int, slot: BrokerSlot | None, looked_through: ProduceStream | None = None, ended: Ended = None
    ) -> None:
        """Begin to stream a request, of which nothing is held; `slot` is None if the broker will not answer.

        `looked_through` sees all bytes of the request, from the frame's size on. `ended` gets it when all of the
        request has come, or never will, and returns whether the last bytes may go to the broker. If they may not, the
        connection ends, and the broker does nothing for a part of a request.
        """

    def send_upstream(self, buffers: list[Buffer], expected: Expected | None) -> None:
        """Send a request frame, without its size, to the client's broker; the answer goes to `expected`."""

    async def ask(
        self,
        request: Request,
        api_key: int,
        api_version: int,
        body: list[Buffer] | bytes,
        question: Awaiting | None = None,
        *,
        check: Callable[[], None] | None = None,
    ) -> memoryview:
        """Ask the client's own broker something as the client, and return the answer's body. Raises BrokerUnreachable.

        `question` is as in `BrokerConnection.ask`. `check` is called in the step that sends; if it raises, nothing is
        sent.
        """

    async def exchange_token(self, token: bytes) -> memoryview:
        """Send a SASL token without header to the broker, and return its answer. Raises BrokerUnreachable."""

    def mute(self, seconds: float) -> None:
        """Look at no further request for that long (KIP-219)."""

    def close(self) -> None:
        """End the connection at once; what is written is still sent."""

    @property
    def upstream_bytes(self) -> int:
        """Bytes received from the client's broker so far; 0 without a broker connection."""

    def resume_upstream(self) -> None:
        """Go on reading from the client's broker, after an answer had to wait for memory."""
