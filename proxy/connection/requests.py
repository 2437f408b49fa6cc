"""The requests of one connection, from frames to handlers: the `Client` that handlers see.

Requests are read in order. Each takes a response slot; what the table passes streams to the broker, what it rewrites or
intercepts goes to that API's handler. A handler that must wait (for the client's rights, for records, for another
broker) returns a coroutine, and no further request of this connection is looked at until it ends: as on a broker,
which handles one request of a connection at a time. Diskless produces don't wait; that is how they are pipelined.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from proxy.client.request import Request
from proxy.client.slots import BrokerSlot, Slot
from proxy.connection.charges import Charges, held_bytes
from proxy.connection.gate import BARRIER, BROKER_FULL, ENDING, IN_FLIGHT, MEMORY, THROTTLED
from proxy.connection.life import EndCause
from proxy.connection.offered import check_unusual
from proxy.connection.reading import Reading
from proxy.connection.stand_in import ANY_BROKER
from proxy.protocol import apis
from proxy.protocol.api_keys import FETCH, SASL_HANDSHAKE
from proxy.wire.errors import ProtocolError
from proxy.wire.frames import Decision
from proxy.wire.header import parse_request_header
from proxy.wire.primitives import Buffer
from proxy.wire.steps import Rewrite

if TYPE_CHECKING:
    from proxy.client.client import Ended
    from proxy.client.expected import Awaiting, Expected
    from proxy.client.handler import Handlers
    from proxy.client.session import Session
    from proxy.config import Settings
    from proxy.connection.answers import Answers
    from proxy.connection.broker_side import BrokerSide
    from proxy.connection.client_side import ClientSide
    from proxy.connection.life import Life
    from proxy.telemetry.stats import Stats
    from proxy.wire.produce_stream import ProduceStream

_SIZE = struct.Struct(">i")
_HEAD = struct.Struct(">hhi")
_HEAD_BYTES = 8


class Shell(Protocol):
    """The connection, as far as its requests need it."""

    life: Life

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task that is cancelled at the end of the connection."""

    def fail(self, error: BaseException) -> None:
        """End the connection: one of its requests failed."""

    def drain(self, cause: EndCause) -> None:
        """Read no further request; close when every answer that matters is given."""

    def close(self, cause: EndCause) -> None:
        """End at once; what is written is still sent."""

    def close_if_done(self) -> None:
        """Close if every answer that matters is given."""

    def return_to_own_broker(self) -> None:
        """Try to return from a broker that stands in."""

    def resumed(self) -> None:
        """Take note that requests that were kept back have been given out."""

    @property
    def has_client(self) -> bool:
        """True until the client has gone."""


class Requests:
    """The requests of one client, and what their handlers may do to its connection."""

    def __init__(
        self,
        shell: Shell,
        settings: Settings,
        stats: Stats,
        now: Callable[[], float],
        handlers: Handlers,
        session: Session,
        client_side: ClientSide,
        broker_side: BrokerSide,
        answers: Answers,
        charges: Charges,
    ) -> None:
        limits = settings.limits
        self.session = session
        self.answers = answers
        self.broker_side = broker_side
        self.count = 0
        """Requests that were read so far."""
        self.reading = Reading(
            self,
            client_side,
            now,
            head_bytes=_HEAD_BYTES,
            max_frame_bytes=limits.max_frame_bytes,
            fail=self._fail,
            on_resumed=shell.resumed,
        )
        self.muted: asyncio.TimerHandle | None = None
        """Ends the time for which no request is looked at."""
        self._shell = shell
        self._settings = settings
        self._stats = stats
        self._now = now
        self._handle = handlers.handle
        self._begin = handlers.begin
        self._handle_token = handlers.token
        self._authentication = session.authentication
        self._charges = charges
        self._max_in_flight = limits.max_in_flight_requests
        self._opened: Slot | None = None
        """The slot of the request that is being handled, if it has one."""
        self._token = False
        """True if the frame that is being received is a SASL token without header."""
        self._streamed: BrokerSlot | None = None
        """The slot of the request that streams to the broker, if it is to be answered."""
        self._looked_through: ProduceStream | None = None
        """The request that streams, if its records are counted as they pass."""
        self._stream_ended: Ended = None
        """Called with it at its end."""
        self._unanswered = False
        """True if nobody waits for the answer of the request behind the barrier."""

    # Frames of the client.

    def frame_begins(self, size: int, head: memoryview) -> Decision:
        """Hold a request for its handler, or stream it to the broker."""
        self.reading.frame_began_s = self._now()
        # A frame that waited for memory begins a second time.
        self._token = (self._charges.granted and self._token) or self._authentication.takes_token(size, head)
        if self._token:
            return self._hold(size)
        if size < _HEAD_BYTES:
            raise ProtocolError(f"a frame of {size} bytes is no Kafka request")
        api_key, api_version, correlation_id = _HEAD.unpack_from(head)
        api = apis.API_TABLE.get(api_key)
        if (
            api is None
            or api.treatment is apis.Treatment.HIDE
            or not api.lowest_version <= api_version <= api.highest_version
        ):
            api = check_unusual(api, api_key, api_version, kip1163_api=self._settings.kip1163_api)
        self._authentication.admit(api_key, size)
        if self.broker_side.stands_in:
            if api_key not in ANY_BROKER:
                self._shell.drain(EndCause.NOT_ANY_BROKER)
                return Decision.WAIT
            if self.broker_side.should_try_own():
                self._shell.return_to_own_broker()
        if api.treatment is apis.Treatment.PASS:
            self.begin_stream(api_key, BrokerSlot(self.answers, api_key, api_version, correlation_id))
            return Decision.STREAM
        # What memory was granted for is held, also if it could be streamed by now.
        if api_key in self._begin and not self._charges.granted:
            decision = self._begin[api_key](self, size, head)
            if decision is not Decision.HOLD:
                return decision
        return self._hold(held_bytes(api_key, size))

    def _hold(self, size: int) -> Decision:
        if self._charges.hold(size):
            return Decision.HOLD
        self.reading.pause(MEMORY)
        return Decision.WAIT

    def frame_held(self, frame: memoryview) -> None:
        """Give a whole request to its handler."""
        if self._token:
            self._pass_token(frame)
            return
        header = parse_request_header(frame)
        body = frame[header.body_offset :]
        request = Request(header.api_key, header.api_version, header.correlation_id, header.client_id, frame, body)
        self._stats.count_request(request.api_key)
        self.count += 1
        self.session.client_id = header.client_id
        self._opened = None
        waiting = self._handle[request.api_key](self, request)
        slot = self._opened
        if slot is not None and not slot.done:
            self._charges.frame_to_slot(slot)
        elif self.reading.gate.causes & BROKER_FULL:
            self._charges.frame_to_broker()
        else:
            self._charges.give_back_frame()
        if waiting is not None:
            self._start_behind_barrier(waiting, slot)
        self._opened = None
        self._check_in_flight()

    def _pass_token(self, token: memoryview) -> None:
        slot = Slot(self.answers, SASL_HANDSHAKE, 0, 0)
        self._charges.frame_to_slot(slot)
        self.answers.slots.append(slot)
        self._start_behind_barrier(self._handle_token(self, bytes(token), slot), slot)

    def frame_part(self, part: memoryview, last: bool) -> None:
        """Send more of a streamed request to the broker."""
        if self._looked_through is not None:
            self._looked_through.feed(part)
            if last and not self._end_looking_through():
                self._shell.close(EndCause.UNANSWERED)
                return
        if last:
            self._streamed = None
        upstream = self.broker_side.upstream
        if upstream is not None:
            upstream.write(part)

    def _fail(self, error: Exception) -> None:
        opened, self._opened = self._opened, None
        self._shell.fail(error)
        if opened is not None:
            opened.lose()

    def _check_in_flight(self) -> None:
        if len(self.answers.slots) >= self._max_in_flight:
            self.reading.pause(IN_FLIGHT)

    def answers_went_out(self) -> None:
        """Let requests through again if few enough answers are due."""
        if len(self.answers.slots) < self._max_in_flight:
            self.reading.unpause(IN_FLIGHT)

    def _end_looking_through(self) -> bool:
        stream, self._looked_through = self._looked_through, None
        if stream is None:
            return True
        stream.count()
        return self._stream_ended is None or self._stream_ended(stream)

    # What handlers use: see `Client`.

    def open_slot(self, request: Request, *, answered: bool = True) -> Slot:
        """Open the place of an answer that the proxy gives itself; see `Client`."""
        slot = Slot(self.answers, request.api_key, request.api_version, request.correlation_id)
        self._opened = slot
        if answered:
            self.answers.slots.append(slot)
        return slot

    def forward(self, request: Request, rewrite: Rewrite | None = None, *, answered: bool = True) -> None:
        """Send the request to the broker as it came; see `Client`."""
        slot = None
        if answered:
            slot = BrokerSlot(self.answers, request.api_key, request.api_version, request.correlation_id, rewrite)
        self.forward_slot(request, slot)

    def forward_slot(self, request: Request, slot: BrokerSlot | None) -> None:
        """Forward the request, with its answer in a slot that the caller has made; see `Client`."""
        if slot is not None:
            self.answers.slots.append(slot)
        self._forward_to_own(request, slot)

    def forward_opened(self, request: Request, slot: Slot, rewrite: Rewrite | None = None) -> None:
        """Do `forward` for a request whose slot was opened already."""
        into = BrokerSlot(self.answers, request.api_key, request.api_version, request.correlation_id, rewrite)
        self.forward_in_place(request, slot, into)

    def forward_in_place(self, request: Request, slot: Slot, into: BrokerSlot) -> None:
        """Forward the request of a slot that was opened already; see `Client`."""
        self.answers.replace(slot, into)
        self._forward_to_own(request, into)

    def _forward_to_own(self, request: Request, slot: BrokerSlot | None) -> None:
        # A Fetch of classic partitions, which another broker must not answer, ends the connection.
        if self.broker_side.stands_in and request.api_key == FETCH and slot is not None:
            self._shell.life.blame(EndCause.NOT_ANY_BROKER)
            slot.lose()
        else:
            self.send_upstream([request.frame], slot)

    def begin_stream(
        self, api_key: int, slot: BrokerSlot | None, looked_through: ProduceStream | None = None, ended: Ended = None
    ) -> None:
        """Begin to stream a request, of which nothing is held; see `Client`."""
        self._looked_through, self._stream_ended = looked_through, ended
        self._stats.count_request(api_key)
        self.count += 1
        upstream = self.broker_side.upstream
        if upstream is None:
            return
        if slot is None:
            upstream.wrote_unanswered = True
            return
        self._streamed = slot
        self.answers.slots.append(slot)
        upstream.expected.append(slot)
        self._check_in_flight()

    def send_upstream(self, buffers: list[Buffer], expected: Expected | None) -> None:
        """Send a request frame, without its size, to the client's broker; see `Client`."""
        self.broker_side.send([_SIZE.pack(sum(map(len, buffers))), *buffers], expected)

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
        """Ask the client's own broker something as the client; see `Client`. Raises BrokerUnreachable."""
        return await self.broker_side.ask(request, api_key, api_version, body, question, check)

    async def exchange_token(self, token: bytes) -> memoryview:
        """Send a SASL token without header to the broker; see `Client`. Raises BrokerUnreachable."""
        return await self.broker_side.exchange_token(token)

    @property
    def upstream_bytes(self) -> int:
        """Bytes received from the client's broker so far; 0 without a broker connection."""
        upstream = self.broker_side.upstream
        return 0 if upstream is None else upstream.bytes_received

    def resume_upstream(self) -> None:
        """Go on reading from the client's broker, after an answer had to wait for memory."""
        self.broker_side.resume_reading()

    def mute(self, seconds: float) -> None:
        """Look at no further request for that long; answers go out, and a drain does not wait."""
        loop = asyncio.get_running_loop()
        if not self._shell.has_client:
            return
        if self.muted is not None:
            if self.muted.when() > loop.time() + seconds:
                return
            self.muted.cancel()
        self.muted = loop.call_later(seconds, self.unmute)
        self.reading.pause(THROTTLED)

    def unmute(self) -> None:
        """Look at requests again."""
        self.muted = None
        self.reading.unpause(THROTTLED)

    def close(self) -> None:
        """End the connection at once; what is written is still sent."""
        self._shell.close(EndCause.UNANSWERED)

    # Handlers that wait, and the end.

    def _start_behind_barrier(self, waiting: Coroutine[Any, Any, None], slot: Slot | None) -> None:
        def ended(task: asyncio.Task[None]) -> None:
            # Cancelled before its first step, the task has run nothing that would give the memory back.
            if task.cancelled():
                waiting.close()
                if slot is not None:
                    slot.lose()

        self._unanswered = slot is not None and slot not in self.answers.slots
        self.reading.pause(BARRIER)
        self._shell.start(self._behind_barrier(waiting, slot)).add_done_callback(ended)

    async def _behind_barrier(self, waiting: Coroutine[Any, Any, None], slot: Slot | None) -> None:
        try:
            await waiting
        except BaseException as error:
            self._shell.fail(error)
            if slot is not None:
                slot.lose()
            if isinstance(error, asyncio.CancelledError):
                raise
        self.reading.unpause(BARRIER)
        if self.reading.gate.causes & ENDING:
            self._shell.close_if_done()

    @property
    def does_unanswered(self) -> bool:
        """True if a handler waits whose answer nobody waits for (acks=0)."""
        return self._unanswered and bool(self.reading.gate.causes & BARRIER)

    @property
    def may_be_cut(self) -> bool:
        """True if no handler and no answer is due that a drain has to wait for."""
        waits = self.reading.gate.causes & BARRIER and not self.answers.slots
        return not waits and self.answers.all_may_be_cut

    def cut_off(self) -> BrokerSlot | None:
        """Look at no further request. Return the slot of the one that was streaming, if it was to be answered."""
        self.reading.pause(ENDING)
        self._end_looking_through()
        if self.muted is not None:
            self.muted.cancel()
        return self._streamed
