"""One client connection: frame order, response slots, backpressure.

Requests are read in order. Each takes a response slot; what the table passes streams to the broker, what it rewrites or
intercepts goes to that API's handler. A handler that must wait (for the client's rights, for records, for another
broker) returns a coroutine, and no further request of this connection is looked at until it ends: as on a broker,
which handles one request of a connection at a time. Diskless produces don't wait; that is how they are pipelined.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections import deque
from collections.abc import Callable, Coroutine
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

import structlog

from proxy.brokers.upstream import BrokerConnection, BrokerUnreachable
from proxy.client.authentication import Authentication
from proxy.client.request import Request
from proxy.client.session import Session
from proxy.client.slots import AnswerQueue, BrokerSlot, Slot
from proxy.connection.charges import Charges
from proxy.connection.gate import (
    ANSWERS_WAIT,
    BARRIER,
    BROKER_FULL,
    CLIENT_FULL,
    CONNECTING,
    ENDING,
    IN_FLIGHT,
    MEMORY,
    THROTTLED,
    Gate,
)
from proxy.connection.stand_in import ANY_BROKER, LEAST_PAUSE_S, reach, reach_again
from proxy.handlers.sasl import pass_token
from proxy.produce_offload import begin_classic_produce
from proxy.protocol import apis
from proxy.protocol.api_keys import API_VERSIONS, FETCH, METADATA, PRODUCE, SASL_HANDSHAKE
from proxy.wire.errors import ProtocolError
from proxy.wire.frames import Decision, FrameReader
from proxy.wire.header import parse_request_header
from proxy.wire.primitives import Buffer
from proxy.wire.steps import Result, Rewrite, Steps

if TYPE_CHECKING:
    from proxy.assembly.context import Context
    from proxy.client.expected import Awaiting, Expected
    from proxy.config import Listeners
    from proxy.wire.produce_stream import ProduceStream

log = structlog.get_logger()

_SIZE = struct.Struct(">i")
_HEAD = struct.Struct(">hhi")
_HEAD_BYTES = 8

_MAY_BE_CUT = frozenset({1, 11, 12, 14, 68, 76, 78, 88})
"""Fetch, JoinGroup, Heartbeat, SyncGroup, ConsumerGroupHeartbeat, ShareGroupHeartbeat, ShareFetch,
StreamsGroupHeartbeat: long waits without effect, which a drain does not wait for."""

_ASKS_ONLY = frozenset({1, 2, 3, 9, 10, 11, 12, 14, 18})
"""Fetch, ListOffsets, Metadata, OffsetFetch, FindCoordinator, JoinGroup, Heartbeat, SyncGroup, ApiVersions: nothing is
lost where nobody hears of the answer. The newer heartbeats may be a leave."""


class ClientConnection(asyncio.Protocol):
    """A client, its requests, and its one connection to the broker that the listener stands for.

    It is the `Client` of the handlers, and the `AnswerQueue` of their slots.
    """

    def __init__(self, context: Context, listeners: Listeners, node_id: int | None) -> None:
        self.context = context
        limits = context.settings.limits
        self._authentication = Authentication(
            context.settings.brokers.with_sasl,
            context.now,
            max_bytes=limits.max_unauthenticated_request_bytes,
            max_requests=limits.max_unauthenticated_requests,
        )
        self.session = Session(listeners, node_id, self._authentication)
        self.answers: AnswerQueue = self
        self.opened_ms = 0
        """Since 1970; 0 before there is a client."""
        self.requests = 0
        self.received_bytes = 0
        self.sent_bytes = 0
        self.upstream: BrokerConnection | None = None
        self.stands_in = False
        """Whether `upstream` leads to another broker than the listener's, which is down (`stand_in`)."""
        self._connecting: asyncio.Task[None] | None = None
        """Makes the broker connection, for the first time or again."""
        self._made_again_s = float("-inf")
        """When the broker connection was made again last."""
        self._tried_own_s = float("-inf")
        """Time of the last attempt to return from a broker that stands in."""
        self.last_active_s = context.now()
        self._looked_through: ProduceStream | None = None
        """The request that streams, where its records are counted as they pass."""
        self._max_in_flight = limits.max_in_flight_requests
        self._max_held_response_bytes = limits.max_response_bytes_per_connection
        self._transport: asyncio.Transport | None = None
        self._reader = FrameReader(self, head_bytes=_HEAD_BYTES, max_frame_bytes=limits.max_frame_bytes)
        self._reader.stop()
        self.gate = Gate()
        self._slots: deque[Slot] = deque()
        self._opened: Slot | None = None
        self._charges = Charges(context.memory, lambda: self._unpause(MEMORY))
        self._token = False
        """Whether the frame that is being received is a SASL token without header."""
        self._reading = True
        self.frame_began_s: float | None = None
        """When the frame that is being received began; None between frames and while reading is paused."""
        self._held_response_bytes = 0
        """Of answers that are whole and wait for their turn."""
        self._not_taken: list[Callable[[], None]] = []
        """`Slot.let_go` of answers that are written, and not all taken by the client."""
        self._muted: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._unanswered = False
        """Whether the request behind the barrier is one that nobody waits for."""
        self._admitted = False
        self._streamed: BrokerSlot | None = None
        """Of the request that streams to the broker, if that is to be answered."""
        self._goes_on: asyncio.TimerHandle | None = None
        """Ends what goes on without the client: a request that nobody waits for, and those behind it."""
        self._ended = False
        self._lingers = False
        """Whether the client is gone, and what it sent last is not all with the broker yet."""

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: a client."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self.context.settings.limits.write_buffer_bytes)
        if transport.get_extra_info("ssl_object") is not None:
            # What comes while reading is paused stays with the system: TLS that hears of the end forgets what it holds.
            cast(Any, transport).set_read_buffer_limits(high=1)
        peer = transport.get_extra_info("peername")
        self.session.host = str(peer[0]) if isinstance(peer, tuple) else ""
        self.opened_ms = time.time_ns() // 1_000_000
        self._admitted = self.context.connections.admit(self)
        if self._admitted:
            self._connecting = self._start(self._connect())
        else:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """asyncio: bytes of the client."""
        self.last_active_s = self.context.now()
        self.context.stats.client_bytes_received += len(data)
        self.received_bytes += len(data)
        self._reading = True
        self._read(lambda: self._reader.feed(data))

    def connection_lost(self, error: Exception | None) -> None:
        """asyncio: the client is gone, or was sent away."""
        self._transport = None
        self.frame_began_s = None
        if not (self._does_unanswered or self._has_kept_back):
            self._end()
            return
        within_s = self.context.settings.limits.broker_write_timeout_ms / 1000
        self._goes_on = asyncio.get_running_loop().call_later(within_s, self._end)
        self.gate.resume(CLIENT_FULL)
        self._resume_broker()

    def _end(self) -> None:
        """Nothing more is done for the client, but that the broker may still take what it sent last."""
        if self._ended:
            return
        self._ended = True
        self.frame_began_s = None
        left_s = self.context.settings.limits.broker_write_timeout_ms / 1000
        if self._goes_on is not None:
            left_s = max(0.0, self._goes_on.when() - asyncio.get_running_loop().time())
            self._goes_on.cancel()
            self._goes_on = None
        self.gate.pause(ENDING)
        self._reader.stop()
        self._end_looking_through()
        if self._muted is not None:
            self._muted.cancel()
        for task in self._tasks:
            task.cancel()
        contended = self._charges.contended
        self._charges.end()
        if self.upstream is not None:
            if self._streamed is not None:
                self.upstream.never_answered(self._streamed)
            whole = [slot for slot in self._slots if isinstance(slot, BrokerSlot) and slot is not self._streamed]
            # While others wait for memory, what a broker does not take is not kept for a client that has gone.
            effects = not contended and any(slot.api_key not in _ASKS_ONLY for slot in whole)
            self._lingers = self.upstream.finish(left_s, self.context.memory, effects=effects)
        for slot in [slot for slot in self._slots if isinstance(slot, BrokerSlot)]:
            slot.lose()
        self._not_taken.extend(slot.let_go for slot in self._slots if slot.let_go is not None)
        self._slots.clear()
        self._held_response_bytes = 0
        self.context.unread.forget(self)
        self._let_go()
        if self._admitted and not self._lingers:
            self.context.connections.forget(self)

    def pause_writing(self) -> None:
        """asyncio: the client reads slower than it is answered, so neither it nor the broker is listened to."""
        self._pause(CLIENT_FULL)
        if self.upstream is not None:
            self.upstream.pause_reading()

    def resume_writing(self) -> None:
        """asyncio: room again."""
        self.context.unread.charge(self)
        self._let_go()
        self._unpause(CLIENT_FULL)
        self._resume_broker()

    # Frames of the client.

    def frame_begins(self, size: int, head: memoryview) -> Decision:
        """A request begins: hold it for its handler, or stream it to the broker."""
        self.frame_began_s = self.context.now()
        # A frame that waited for memory begins a second time.
        self._token = (self._charges.granted and self._token) or self._authentication.takes_token(size, head)
        if self._token:
            return self._hold(size)
        if size < _HEAD_BYTES:
            raise ProtocolError(f"a frame of {size} bytes is no Kafka request")
        api_key, api_version, correlation_id = _HEAD.unpack_from(head)
        api = apis.API_TABLE.get(api_key)
        if api is None or api.treatment is apis.Treatment.HIDE:
            name = "unknown" if api is None else f"{api.name}, which brokers use among themselves"
            raise ProtocolError(f"API key {api_key} ({name}) is not served to clients")
        if (
            not api.lowest_version <= api_version <= api.highest_version
            and api_key != API_VERSIONS
            and not (self.context.settings.kip1163_api and apis.PROPOSED_VERSIONS.get(api_key) == api_version)
        ):
            raise ProtocolError(
                f"{api.name} v{api_version} was not offered, only v{api.lowest_version} to v{api.highest_version}"
            )
        self._authentication.admit(api_key, size)
        if self.stands_in:
            if api_key not in ANY_BROKER:
                self.drain()
                return Decision.WAIT
            self._try_own_broker()
        if api.treatment is apis.Treatment.PASS:
            self.begin_stream(api_key, BrokerSlot(self, api_key, api_version, correlation_id))
            return Decision.STREAM
        # What memory was granted for is held, also where the last diskless topic has gone meanwhile.
        if api_key == PRODUCE and self.context.topics.nothing_diskless and not self._charges.granted:
            return begin_classic_produce(self, size, head)
        return self._hold(size)

    def _hold(self, size: int) -> Decision:
        """Hold a frame as soon as there is memory for it."""
        if self._charges.hold(size):
            return Decision.HOLD
        self._pause(MEMORY)
        return Decision.WAIT

    def frame_held(self, frame: memoryview) -> None:
        """A request is whole: to its handler."""
        if self._token:
            self._pass_token(frame)
            return
        header = parse_request_header(frame)
        body = frame[header.body_offset :]
        request = Request(header.api_key, header.api_version, header.correlation_id, header.client_id, frame, body)
        self.context.stats.count_request(request.api_key)
        self.requests += 1
        self.session.client_id = header.client_id
        self._opened = None
        waiting = self.context.handlers[request.api_key](self, request)
        slot = self._opened
        if slot is not None and not slot.done:
            self._charges.frame_to_slot(slot)
        elif self.gate.causes & BROKER_FULL:
            self._charges.frame_to_broker()
        else:
            self._charges.give_back_frame()
        if waiting is not None:
            self._start_behind_barrier(waiting, slot)
        self._check_in_flight()

    def _end_looking_through(self) -> None:
        if self._looked_through is not None:
            self._looked_through.count()
            self.context.topics.end_stream(self._looked_through)
            self._looked_through = None

    def _pass_token(self, token: memoryview) -> None:
        slot = Slot(self, SASL_HANDSHAKE, 0, 0)
        self._charges.frame_to_slot(slot)
        self._slots.append(slot)
        self._start_behind_barrier(pass_token(self, bytes(token), slot), slot)

    def frame_part(self, part: memoryview, last: bool) -> None:
        """More of a streamed request."""
        if self._looked_through is not None:
            self._looked_through.feed(part)
            if last:
                self._end_looking_through()
        if last:
            self._streamed = None
        if self.upstream is not None:
            self.upstream.write(part)

    # What handlers use.

    def open_slot(self, request: Request, *, answered: bool = True) -> Slot:
        """The place of an answer of the proxy's own; not `answered` for acks=0, where it only holds the memory."""
        slot = Slot(self, request.api_key, request.api_version, request.correlation_id)
        self._opened = slot
        if answered:
            self._slots.append(slot)
        return slot

    def forward(self, request: Request, rewrite: Rewrite | None = None, *, answered: bool = True) -> None:
        """Send the request on as it came; `rewrite` turns the body of the broker's answer into the client's."""
        slot = None
        if answered:
            slot = BrokerSlot(self, request.api_key, request.api_version, request.correlation_id, rewrite)
        self.forward_slot(request, slot)

    def forward_slot(self, request: Request, slot: BrokerSlot | None) -> None:
        """As `forward`, into a slot of the caller's making."""
        if slot is not None:
            self._slots.append(slot)
        self._forward_to_own(request, slot)

    def begin_stream(self, api_key: int, slot: BrokerSlot | None, looked_through: ProduceStream | None = None) -> None:
        """A request of which nothing is held begins to stream; its slot, None where the broker won't answer.

        `looked_through` is shown all of it, from the frame's size on.
        """
        if looked_through is not None:
            self._looked_through = looked_through
            self.context.topics.begin_stream(looked_through)
        self.context.stats.count_request(api_key)
        self.requests += 1
        if self.upstream is None:
            return
        if slot is None:
            self.upstream.wrote_unanswered = True
            return
        self._streamed = slot
        self._slots.append(slot)
        self.upstream.expected.append(slot)
        self._check_in_flight()

    def send_upstream(self, buffers: list[Buffer], expected: Expected | None) -> None:
        """A request frame of the caller's making, without its size; the answer goes to `expected`."""
        if self.upstream is not None:
            self.upstream.send([_SIZE.pack(sum(map(len, buffers))), *buffers], expected)

    def forward_opened(self, request: Request, slot: Slot, rewrite: Rewrite | None = None) -> None:
        """Do `forward` for a request whose slot was opened already."""
        into = BrokerSlot(self, request.api_key, request.api_version, request.correlation_id, rewrite)
        self.forward_in_place(request, slot, into)

    def forward_in_place(self, request: Request, slot: Slot, into: BrokerSlot) -> None:
        """As `forward_slot`, where a slot was opened already: `into` takes its place, and its memory."""
        self._slots[self._slots.index(slot)] = into
        into.charge_bytes, slot.charge_bytes = slot.charge_bytes, 0
        into.began_s = slot.began_s
        self._forward_to_own(request, into)

    def _forward_to_own(self, request: Request, slot: BrokerSlot | None) -> None:
        """Forward; a Fetch of classic partitions, which another broker must not answer, ends the connection then."""
        if self.stands_in and request.api_key == FETCH and slot is not None:
            slot.lose()
        else:
            self.send_upstream([request.frame], slot)

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
        """Ask the client's own broker something as the client; the answer's body. Raises BrokerUnreachable.

        `question` as in `BrokerConnection.ask`. `check`: called in the step that sends; if it raises, nothing is sent.
        Metadata, by which rights are asked for, is asked again of the broker
        that stands in, if the broker ends the connection.
        """
        if self._connecting is not None and not self._connecting.done():
            await asyncio.wait([self._connecting])
        if self.stands_in and api_key == FETCH:
            raise BrokerUnreachable("the client's broker is down, and another one must not answer for it")
        if self.upstream is None:
            raise BrokerUnreachable("the client's connection is ending")
        if self._authentication.under_way:
            # The broker would take it for a token, and close the connection.
            raise BrokerUnreachable("the client is authenticating")
        upstream = self.upstream
        if check is not None:
            check()
        while True:
            try:
                return await upstream.ask(api_key, api_version, body, request.client_id, question)
            except BrokerUnreachable:
                if api_key != METADATA or self._connecting is None or self._connecting.done():
                    raise
                await asyncio.wait([self._connecting])
                if self.upstream is upstream:
                    raise
            upstream = self.upstream

    async def exchange_token(self, token: bytes) -> memoryview:
        """Send a SASL token without header to the broker, and return its answer. Raises BrokerUnreachable."""
        if self.upstream is None:
            raise BrokerUnreachable("the client's connection is ending")
        return await self.upstream.exchange_token(token)

    @property
    def upstream_bytes(self) -> int:
        """Bytes received from the client's broker so far; 0 without a broker connection."""
        return 0 if self.upstream is None else self.upstream.bytes_received

    def resume_upstream(self) -> None:
        """Go on reading from the client's broker, after an answer had to wait for memory."""
        if self.upstream is not None:
            self.upstream.resume_reading()

    def mute(self, seconds: float) -> None:
        """Look at no further request for so long (KIP-219); what is answered goes out, and a drain does not wait."""
        loop = asyncio.get_running_loop()
        if self._transport is None or (self._muted is not None and self._muted.when() > loop.time() + seconds):
            return
        if self._muted is not None:
            self._muted.cancel()
        self._muted = loop.call_later(seconds, self._unmute)
        self._pause(THROTTLED)

    # What slots use.

    def is_head(self, slot: Slot) -> bool:
        """Whether nothing is to be answered before it."""
        return bool(self._slots) and self._slots[0] is slot

    def may_hold_response(self, size: int) -> bool:
        """Whether one more answer may wait for earlier ones."""
        return self._held_response_bytes + size <= self._max_held_response_bytes or not self._held_response_bytes

    def hold_response(self, slot: Slot) -> None:
        """Count an answer that is whole; until it is written, in its turn."""
        self._held_response_bytes += sum(map(len, slot.buffers))

    def write(self, part: Buffer) -> None:
        """Bytes of the head's answer, at once."""
        if self._transport is not None:
            self.context.stats.client_bytes_sent += len(part)
            self.sent_bytes += len(part)
            self._transport.write(part)
            if self._transport.get_write_buffer_size():
                self.context.unread.charge(self)

    def slot_finished(self, slot: Slot) -> None:
        """A slot has all of its answer, or never will."""
        if slot.charge_bytes:
            self._charges.give_back_slot(slot)
        self.last_active_s = self.context.now()
        if self._slots and self._slots[0] is slot:
            self._flush()
        elif self._ended:
            if slot.let_go is not None:
                slot.let_go()
        else:
            self.context.unread.charge(self)
        if self._held_response_bytes > self._max_held_response_bytes:
            self._pause(ANSWERS_WAIT)

    def go_on(self, work: Coroutine[Any, Any, None]) -> None:
        """Do work for an answer until it ends, or the connection does. It raises nothing."""
        self._start(work)

    async def in_turns(self, steps: Steps[Result]) -> Result:
        """Do long work in turns with other work, and return its result."""
        return await self.context.turns.run(steps)

    def broker_answer_unreadable(self, slot: Slot, error: Exception) -> None:
        """The broker's answer can't be rewritten, and may not pass as it is: end the connection."""
        api = apis.API_TABLE[slot.api_key]
        self.context.throttled_log.error(
            "broker_answer_unreadable",
            api=api.name,
            api_version=slot.api_version,
            reason=repr(error),
            remedy="report it with the broker's version; the client reconnects",
        )
        self.context.stats.protocol_errors += 1
        slot.lose()

    # The end, and what is seen from outside.

    @property
    def address(self) -> str:
        """The client's, as `host:port`."""
        peer = self._transport.get_extra_info("peername") if self._transport is not None else None
        return f"{self.host}:{peer[1]}" if isinstance(peer, tuple) else self.host

    @property
    def host(self) -> str:
        """The client's IP address."""
        return self.session.host

    @property
    def busy(self) -> bool:
        """Whether an answer is due."""
        return bool(self._slots)

    @property
    def requests_underway(self) -> int:
        """Requests whose answers are due."""
        return len(self._slots)

    @property
    def unsent_bytes(self) -> int:
        """What was written and has not left the process, as the client does not take it."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    @property
    def unread_bytes(self) -> int:
        """Answers that are whole and have not left the process."""
        return self.unsent_bytes + self._held_response_bytes

    @property
    def read_bytes(self) -> int:
        """Bytes that the client has taken so far."""
        return self.sent_bytes - self.unsent_bytes

    @property
    def held_up_bytes(self) -> int:
        """What the broker has yet to take, where bytes of the memory budget wait for that."""
        held_up = (
            self._charges.forwarded_bytes and not self.gate.causes & CLIENT_FULL
        )  # else it is the client that takes nothing
        transport = self.upstream.transport if self.upstream is not None and held_up else None
        return transport.get_write_buffer_size() if transport is not None else 0

    @property
    def unwatched_descriptor(self) -> int | None:
        """The socket's, where it is not read from, so that its end is not noticed; else None.

        A request that is not answered (acks=0) goes on when its client has left: that one is not looked for.
        """
        if self._reading or self._transport is None or self._transport.is_closing() or self._does_unanswered:
            return None
        one = self._transport.get_extra_info("socket")
        return None if one is None else cast(int, one.fileno())

    @property
    def unread_tls_bytes(self) -> int:
        """What has come and is not decrypted yet; 0 without TLS, where it stays with the system."""
        unread = getattr(self._transport, "get_read_buffer_size", None)
        return int(unread()) if unread is not None else 0

    @property
    def in_frame(self) -> bool:
        """Whether part of a request has come."""
        return self._reader.partial

    def drain(self) -> None:
        """Read no further request; close when every answer that matters is given."""
        self._pause(ENDING)
        self._close_if_done()

    def close(self) -> None:
        """End at once; what is written is still sent."""
        self._pause(ENDING)
        if self._transport is not None:
            self._transport.close()
        elif not self._does_unanswered:
            self._end()

    def abort(self) -> None:
        """End at once; what is not sent is lost."""
        self._pause(ENDING)
        if self._transport is not None:
            self._transport.abort()
            return
        lingered = self._lingers
        self._end()
        if lingered and self.upstream is not None:
            self.upstream.close()

    # Inner workings.

    def _new_upstream(self) -> BrokerConnection:
        made = BrokerConnection(
            max_frame_bytes=2**31 - 1, on_lost=lambda: self._broker_lost(made), on_pause=self._broker_pauses
        )
        return made

    async def _connect(self) -> None:
        try:
            others, own = bool(self.context.topics.all()), not self._was_just_made_again
            upstream, failure = await reach(
                self.context.cluster, self.session.node_id, self._new_upstream, others=others, own=own
            )
        except BrokerUnreachable as error:
            self.context.connections.broker_unreachable(self, error)
            self.drain()
            return
        self.stands_in = bool(failure)
        if self.stands_in:
            self.context.connections.stood_in(self, failure)
        if self.upstream is not None:
            self._made_again_s = self.context.now()
        self.upstream = upstream
        if self._ended:
            upstream.close()
            return
        if self.gate.causes & CLIENT_FULL:
            upstream.pause_reading()
        self._unpause(CONNECTING)

    def _try_own_broker(self) -> None:
        """Try to return to the client's own broker, at most once in `LEAST_PAUSE_S`; requests go on meanwhile."""
        now_s = self.context.now()
        if now_s >= self._tried_own_s + LEAST_PAUSE_S:
            self._tried_own_s = now_s
            self._start(self._return_to_own())

    async def _return_to_own(self) -> None:
        """Return to the client's own broker if it accepts a connection, and if the other one owes no answer then.

        Otherwise a client would be answered NOT_LEADER_OR_FOLLOWER forever after its broker is back and leads again.
        A client that authenticated (SASL) has to do so with its own broker, on its next connection.
        """
        left = self.upstream
        own = await reach_again(self.context.cluster, self.session.node_id, self._new_upstream)
        if own is None:
            return
        if left is None or left is not self.upstream or not left.is_idle or self.gate.causes & (CONNECTING | ENDING):
            own.forsake()
        elif self.context.settings.brokers.with_sasl:
            own.forsake()
            self.drain()
        else:
            self.upstream, self.stands_in = own, False
            self._made_again_s = self.context.now()
            left.forsake()
            if self.gate.causes & CLIENT_FULL:
                own.pause_reading()

    def _start_behind_barrier(self, waiting: Coroutine[Any, Any, None], slot: Slot | None) -> None:
        def ended(task: asyncio.Task[None]) -> None:
            # Cancelled before its first step, the task has run nothing that would give the memory back.
            if task.cancelled():
                waiting.close()
                if slot is not None:
                    slot.lose()

        self._unanswered = slot is not None and slot not in self._slots
        self._pause(BARRIER)
        self._start(self._behind_barrier(waiting, slot)).add_done_callback(ended)

    async def _behind_barrier(self, waiting: Coroutine[Any, Any, None], slot: Slot | None) -> None:
        try:
            await waiting
        except BaseException as error:
            self._handler_failed(error)
            if slot is not None:
                slot.lose()
            if isinstance(error, asyncio.CancelledError):
                raise
        self._unpause(BARRIER)
        if self.gate.causes & ENDING:
            self._close_if_done()

    def _handler_failed(self, error: BaseException) -> None:
        if isinstance(error, ProtocolError):
            self._reject(str(error))
            return
        self._pause(ENDING)
        if not isinstance(error, (BrokerUnreachable, asyncio.CancelledError)):
            self.context.connections.failed(self, error)
            self.abort()

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _pause(self, cause: int) -> None:
        self.gate.pause(cause)
        self._reader.stop()
        self._update_reading()

    def _unpause(self, cause: int) -> None:
        """Go on in a step of its own, so that the part that made room (the WAL, say) does not run our requests."""
        if not self.gate.resume(cause):
            return
        if self.gate.causes:
            self._update_reading()
        else:
            asyncio.get_running_loop().call_soon(self._resume)

    def _resume(self) -> None:
        if not self.gate.causes:
            self._read(self._reader.resume)

    def _read(self, step: Callable[[], None]) -> None:
        """Feed or resume the reader; what goes wrong in a request is the end of this connection, and of no other."""
        try:
            step()
        except Exception as error:
            if self._opened is not None:
                self._opened.lose()
            self._handler_failed(error)
        self._opened = None
        self._update_reading()
        if self._goes_on is not None and not self.gate.causes:
            self._end()

    def _update_reading(self) -> None:
        """Read from the client, or not.

        A request whose beginning is with the broker is read to its end, else the broker would wait for ever: only a
        full broker connection stops that.
        """
        transport = self._transport
        if transport is None:
            self.frame_began_s = None
            return
        if transport.is_closing():
            return
        reading = not self.gate.causes or self.gate.reads(self._reader.in_frame)
        if not reading or not self._reader.partial:
            self.frame_began_s = None
        elif self.frame_began_s is None:
            self.frame_began_s = self.context.now()
        if reading != self._reading:
            self._reading = reading
            (transport.resume_reading if reading else transport.pause_reading)()

    def _unmute(self) -> None:
        self._muted = None
        self._unpause(THROTTLED)

    def _check_in_flight(self) -> None:
        if len(self._slots) >= self._max_in_flight:
            self._pause(IN_FLIGHT)

    def _broker_pauses(self, paused: bool) -> None:
        if paused:
            self._pause(BROKER_FULL)
        else:
            self._charges.give_back_forwarded()
            self._unpause(BROKER_FULL)

    def _broker_lost(self, upstream: BrokerConnection) -> None:
        if upstream is not self.upstream:
            return  # Lost while it was being made: `reach` sees it.
        if self._lingers:
            self._lingers = False
            self.context.connections.forget(self)
        if self._goes_on_without_broker():
            self._pause(CONNECTING)
            self._connecting = self._start(self._connect())
            return
        self._pause(ENDING)
        self._close_if_done()

    def _goes_on_without_broker(self) -> bool:
        """True if the broker owed nothing to the client, so that another connection to a broker is as good.

        It may have closed one that was idle, while the proxy served the client itself, or it is down.
        """
        upstream, context = self.upstream, self.context
        if upstream is None or upstream.wrote_unanswered or self.gate.causes & (ENDING | CONNECTING):
            return False
        if self._transport is None or self._transport.is_closing() or any(slot.lost for slot in self._slots):
            return False
        if context.settings.brokers.with_sasl:
            return False
        others = bool(context.topics.all())
        if self._was_just_made_again:
            # A broker that is killed may still take a connection before its port is closed: then another is asked.
            return others and self.session.node_id is not None and not self.stands_in
        return others or self._reads_near

    @property
    def _was_just_made_again(self) -> bool:
        return self.context.now() < self._made_again_s + LEAST_PAUSE_S

    @property
    def _reads_near(self) -> bool:
        return self.context.settings.fetch.read_near_replicas and self.context.near_brokers.is_foreign(
            self.session.node_id
        )

    def _resume_broker(self) -> None:
        if self.upstream is not None and not self.gate.causes & CLIENT_FULL:
            self.upstream.resume_reading()

    def _flush(self) -> None:
        slots = self._slots
        while slots:
            head = slots[0]
            if head.lost:
                self.close()
                return
            if head.buffers:
                self._write_out(head)
            if not head.done:
                break
            slots.popleft()
            self.context.stats.count_answer(head.api_key, perf_counter() - head.began_s)
            if head.let_go is not None:
                self._not_taken.append(head.let_go)
        if self._not_taken and not self.gate.causes & CLIENT_FULL:
            self._let_go()
        if self.gate.causes & ANSWERS_WAIT and self._held_response_bytes <= self._max_held_response_bytes:
            self._unpause(ANSWERS_WAIT)
        if self.gate.causes & IN_FLIGHT and len(slots) < self._max_in_flight:
            self._unpause(IN_FLIGHT)
        if self.upstream is not None and self.upstream.reader.stopped:
            self._resume_broker()
        if self.gate.causes & ENDING:
            self._close_if_done()

    def _write_out(self, slot: Slot) -> None:
        buffers, slot.buffers = slot.buffers, []
        size = sum(map(len, buffers))
        self._held_response_bytes -= size
        if self._transport is not None:
            self.context.stats.client_bytes_sent += size
            self.sent_bytes += size
            self._transport.writelines(buffers)
            if self._transport.get_write_buffer_size():
                self.context.unread.charge(self)

    def _let_go(self) -> None:
        not_taken, self._not_taken = self._not_taken, []
        for let_go in not_taken:
            let_go()

    @property
    def _has_kept_back(self) -> bool:
        """Whether frames wait for something that comes without the client, or for the step in which they go on."""
        return self.gate.opens_alone(
            kept_back=self._reader.partial, granted=self._charges.granted, stopped=self._reader.stopped
        )

    @property
    def _does_unanswered(self) -> bool:
        return self._unanswered and bool(self.gate.causes & BARRIER)

    def _close_if_done(self) -> None:
        busy = self.gate.causes & BARRIER and not self._slots
        if not busy and all(slot.api_key in _MAY_BE_CUT for slot in self._slots):
            self.close()

    def _reject(self, reason: str) -> None:
        self.context.stats.protocol_errors += 1
        self.context.connections.rejected(self, reason)
        self.abort()
