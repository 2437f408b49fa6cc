"""One client connection: the shell around its parts, which asyncio calls.

The parts hold the state and decide: `life` (the states, and the cause of the end), `reading` and its `gate` (the causes
that pause reading), `client` (the requests, from frames to handlers), `answers` (the queue of slots), `charges` (the
memory budget), `client_side` and `broker_side` (the transports). The shell has the tasks, and does what they decide.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from time import perf_counter
from typing import TYPE_CHECKING, Any

from proxy.brokers.upstream import BrokerUnreachable
from proxy.client.authentication import Authentication
from proxy.client.session import Session
from proxy.connection.answers import Answers
from proxy.connection.broker_side import BrokerSide
from proxy.connection.charges import Charges
from proxy.connection.client_side import ClientSide
from proxy.connection.express import ExpressLane
from proxy.connection.gate import ANSWERS_WAIT, BROKER_FULL, CLIENT_FULL, CONNECTING, ENDING, IN_FLIGHT, MEMORY
from proxy.connection.life import EndCause, Life, State
from proxy.connection.open_connection import OpenConnection
from proxy.connection.requests import Requests
from proxy.protocol import apis
from proxy.wire.errors import ProtocolError

if TYPE_CHECKING:
    from proxy.client.handler import Handlers
    from proxy.client.slots import BrokerSlot, Slot
    from proxy.config import Listeners
    from proxy.connection.shared import Shared


class ClientConnection(OpenConnection, asyncio.Protocol):
    """A client, its requests, and its one connection to the broker that the listener stands for."""

    def __init__(self, shared: Shared, handlers: Handlers, listeners: Listeners, node_id: int | None) -> None:
        self._shared = shared
        limits = shared.settings.limits
        self._stats = shared.stats
        self._now = shared.now
        self._poll_window = shared.poll_window
        authentication = Authentication(
            shared.settings.brokers.with_sasl,
            shared.now,
            max_bytes=limits.max_unauthenticated_request_bytes,
            max_requests=limits.max_unauthenticated_requests,
        )
        self.session = Session(listeners, node_id, authentication)
        self.life = Life()
        self.client_side = ClientSide(shared.stats, lambda: shared.unread.charge(self))
        self.broker_side = BrokerSide(
            shared.cluster,
            self.session,
            shared.now,
            with_sasl=shared.settings.brokers.with_sasl,
            others_serve=shared.any_broker_serves,
            on_lost=self._broker_lost,
            on_pause=self._broker_pauses,
            express_lane=shared.express_lane,
        )
        self.answers = Answers(
            limits.max_response_bytes_per_connection,
            shared.turns,
            write=self.client_side.write,
            pass_whole=self._pass_whole,
            slot_finished=self._slot_finished,
            go_on=self._go_on,
            broker_answer_unreadable=self._broker_answer_unreadable,
            count_answer=shared.stats.count_answer,
        )
        self._charges = Charges(shared.memory, lambda: self.reading.unpause(MEMORY))
        self.client = Requests(
            self,
            shared.settings,
            shared.stats,
            shared.now,
            handlers,
            self.session,
            self.client_side,
            self.broker_side,
            self.answers,
            self._charges,
        )
        self.reading = self.client.reading
        self._lane = (
            ExpressLane(
                self.client,
                self._charges,
                shared.memory,
                shared.stats,
                max_frame_bytes=limits.max_frame_bytes,
                max_in_flight=limits.max_in_flight_requests,
            )
            if shared.express_lane
            else None
        )
        self.opened_ms = 0
        self.received_bytes = 0
        self.last_active_s = shared.now()
        self._admitted = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._goes_on: asyncio.TimerHandle | None = None
        """Ends what goes on without the client."""

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a client that has connected."""
        self.session.host = self.client_side.open(transport, self._shared.settings.limits.write_buffer_bytes)
        self.opened_ms = time.time_ns() // 1_000_000
        self._admitted = self._shared.connections.admit(self)
        if self._admitted:
            self._reach_broker()
        elif self.client_side.transport is not None:
            self.client_side.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take bytes of the client."""
        # Here, and below: to call what an attribute holds takes less time from a variable (Python 3.11).
        now = self._now
        self.last_active_s = now()
        size = len(data)
        self._stats.client_bytes_received += size
        self.received_bytes += size
        if self._lane is None or not self._lane.take(data):
            self.reading.feed(data)
        if self._poll_window is not None:
            self._poll_window.begin()

    def connection_lost(self, error: Exception | None) -> None:
        """Take note that the client has gone, or was sent away."""
        self.client_side.transport = None
        self.reading.frame_began_s = None
        self.life.blame(EndCause.CLIENT_LEFT)
        goes_on = self.client.does_unanswered or self.reading.goes_on_alone(granted=self._charges.granted)
        if not goes_on or not self.life.move(State.GOES_ON):
            self._end()
            return
        within_s = self._shared.settings.limits.broker_write_timeout_ms / 1000
        self._goes_on = asyncio.get_running_loop().call_later(within_s, self._end)
        self.reading.gate.resume(CLIENT_FULL)
        self.broker_side.resume_reading()

    def pause_writing(self) -> None:
        """Read neither from the client nor from the broker: the client reads slower than it is answered."""
        self.reading.pause(CLIENT_FULL)
        self.broker_side.pause_reading()

    def resume_writing(self) -> None:
        """Go on: the client has taken its answers."""
        self._shared.unread.charge(self)
        self.answers.let_go()
        self.reading.unpause(CLIENT_FULL)
        self.broker_side.resume_reading()

    # The end.

    def drain(self, cause: EndCause = EndCause.DRAINED) -> None:
        """Read no further request; close when every answer that matters is given."""
        self._stop(cause)
        self.close_if_done()

    def close(self, cause: EndCause = EndCause.UNANSWERED) -> None:
        """End at once; what is written is still sent."""
        self._stop(cause)
        if self.client_side.transport is not None:
            self.life.move(State.CLOSING)
            self.client_side.transport.close()
        elif not self.client.does_unanswered:
            self._end()

    def abort(self, cause: EndCause = EndCause.CUT_OFF) -> None:
        """End at once; what is not sent is lost."""
        self._stop(cause)
        if self.client_side.transport is not None:
            self.life.move(State.CLOSING)
            self.client_side.transport.abort()
            return
        lingered = self.life.state is State.LINGERING
        self._end()
        if lingered:
            self.broker_side.close()

    # Answers.

    def _pass_whole(self, slot: BrokerSlot, frame: bytes) -> bool:
        """Do `write` and `_slot_finished` for the head, whose answer is one frame. False if it is not the head."""
        answers = self.answers
        slots = answers.slots
        if not slots or slots[0] is not slot:
            return False
        self.client_side.write(frame)
        if slot.charge_bytes or slot.let_go is not None or len(slots) > 1:
            slot.finish()
            return True
        slot.done = True
        now, count_answer = self._now, answers.count_answer
        self.last_active_s = now()
        del slots[0]
        count_answer(slot.api_key, perf_counter() - slot.began_s)
        if answers.not_taken or self.reading.gate.causes:
            self._flushed()
        return True

    def _slot_finished(self, slot: Slot) -> None:
        answers = self.answers
        if slot.charge_bytes:
            self._charges.give_back_slot(slot)
        self.last_active_s = self._now()
        if answers.is_head(slot):
            if answers.flush(self.client_side.write_all):
                self._flushed()
            else:
                self.close(EndCause.BROKER_LOST if self.broker_side.lost else EndCause.UNANSWERED)
        elif self.life.over:
            answers.forget(slot)
        else:
            self._shared.unread.charge(self)
        if answers.too_many_held:
            self.reading.pause(ANSWERS_WAIT)

    def _flushed(self) -> None:
        """Go on with what waited until answers went out."""
        causes = self.reading.gate.causes
        if not causes & CLIENT_FULL:
            if self.answers.not_taken:
                self.answers.let_go()
            upstream = self.broker_side.upstream
            if upstream is not None and upstream.reader.stopped:
                upstream.resume_reading()
        if causes:
            if causes & ANSWERS_WAIT and not self.answers.too_many_held:
                self.reading.unpause(ANSWERS_WAIT)
            if causes & IN_FLIGHT:
                self.client.answers_went_out()
            if causes & ENDING:
                self.close_if_done()

    def _broker_answer_unreadable(self, slot: Slot, error: Exception) -> None:
        api = apis.API_TABLE[slot.api_key]
        self._shared.throttled_log.error(
            "broker_answer_unreadable",
            api=api.name,
            api_version=slot.api_version,
            reason=repr(error),
            remedy="report it with the broker's version; the client reconnects",
        )
        self._stats.protocol_errors += 1
        self.life.blame(EndCause.UNREADABLE)
        slot.lose()

    # What requests need: see `requests.Shell`.

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task that is cancelled at the end of the connection."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _go_on(self, work: Coroutine[Any, Any, None]) -> None:
        self.start(work)

    def fail(self, error: BaseException) -> None:
        """End this connection, and no other: one of its requests failed."""
        if isinstance(error, ProtocolError):
            self._stats.protocol_errors += 1
            self._shared.connections.rejected(self, str(error))
            self.abort(EndCause.REJECTED)
        elif isinstance(error, (BrokerUnreachable, asyncio.CancelledError)):
            self._stop(EndCause.BROKER_LOST)
        else:
            self._shared.connections.failed(self, error)
            self.abort(EndCause.FAILED)

    def close_if_done(self) -> None:
        """Close if every answer that matters is given."""
        if self.client.may_be_cut:
            self.close()

    def return_to_own_broker(self) -> None:
        """Try to return from a broker that stands in."""
        self.start(self._return_to_own())

    def resumed(self) -> None:
        """End what goes on without the client when all of its requests have been given out."""
        if self._goes_on is not None and not self.reading.gate.causes:
            self._end()

    @property
    def has_client(self) -> bool:
        """True until the client has gone."""
        return self.client_side.transport is not None

    # The broker.

    def _reach_broker(self) -> None:
        self.broker_side.reach_in(self.start(self._reaching_broker()))

    async def _reaching_broker(self) -> None:
        side, connections = self.broker_side, self._shared.connections
        try:
            failure = await side.reach()
        except BrokerUnreachable as error:
            connections.broker_unreachable(self, error)
            self.drain(EndCause.BROKER_UNREACHABLE)
            return
        if failure:
            connections.stood_in(self, failure)
        if self.life.over:
            side.close()
            return
        if self.reading.gate.causes & CLIENT_FULL:
            side.pause_reading()
        self.life.move(State.OPEN)
        self.reading.unpause(CONNECTING)

    async def _return_to_own(self) -> None:
        """Return to the client's own broker; a client that authenticated has to do that itself, and is drained."""
        own = await self.broker_side.reach_own()
        if own is None:
            return
        if self.reading.gate.causes & (CONNECTING | ENDING):
            own.forsake()
        elif self._shared.settings.brokers.with_sasl:
            own.forsake()
            self.drain(EndCause.NOT_ANY_BROKER)
        else:
            self.broker_side.return_to(own)
            if self.reading.gate.causes & CLIENT_FULL:
                own.pause_reading()

    def _broker_pauses(self, paused: bool) -> None:
        if paused:
            self.reading.pause(BROKER_FULL)
        else:
            self._charges.give_back_forwarded()
            self.reading.unpause(BROKER_FULL)

    def _broker_lost(self) -> None:
        if self.life.over:
            self._forget()
        elif self._may_reach_broker_again:
            self.life.move(State.CONNECTING)
            self.reading.pause(CONNECTING)
            self._reach_broker()
        else:
            self._stop(EndCause.BROKER_LOST)
            self.close_if_done()

    @property
    def _may_reach_broker_again(self) -> bool:
        shared = self._shared
        if self.life.state is not State.OPEN or not self.client_side.is_open or self.answers.any_lost:
            return False
        if shared.settings.brokers.with_sasl:
            return False
        return self.broker_side.may_be_replaced(reads_near=shared.reads_near(self.session.node_id))

    # How it ends.

    def _stop(self, cause: EndCause) -> None:
        self.life.blame(cause)
        self.life.move(State.DRAINING)
        self.reading.pause(ENDING)

    def _end(self) -> None:
        """Do nothing more for the client, except that the broker may still take what the client sent last."""
        if not self.life.move(State.LINGERING):
            return
        streamed = self.client.cut_off()
        left_s = self._shared.settings.limits.broker_write_timeout_ms / 1000
        if self._goes_on is not None:
            left_s = max(0.0, self._goes_on.when() - asyncio.get_running_loop().time())
            self._goes_on.cancel()
            self._goes_on = None
        for task in self._tasks:
            task.cancel()
        # While others wait for memory, what a broker does not take is not kept for a client that has gone.
        effects = not self._charges.contended and self.answers.await_effects(streamed)
        self._charges.end()
        lingers = self.broker_side.finish(left_s, self._shared.memory, streamed, effects=effects)
        self.answers.end()
        self._shared.unread.forget(self)
        if not lingers:
            self._forget()

    def _forget(self) -> None:
        if self.life.move(State.ENDED) and self._admitted:
            self._stats.connections_ended[self.life.cause or EndCause.CLIENT_LEFT] += 1
            self._shared.connections.forget(self)
