"""The life of a connection: whatever happens in whatever order, answers keep their order, and nothing is left."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proxy.client.request import Request
from proxy.config import Limits
from proxy.connection.gate import BARRIER, CLIENT_FULL, CONNECTING, ENDING, IN_FLIGHT
from proxy.connection.life import EndCause, Life, State
from tests.unit.connection_double import (
    FETCH,
    HEARTBEAT,
    METADATA,
    PRODUCE,
    FakeTransport,
    Held,
    Sent,
    produce,
    request,
    response,
    turns,
)

LIST_OFFSETS = 2
MEMORY_BYTES = 800
SIZES = st.integers(0, 300)
REQUESTS = st.tuples(
    st.sampled_from([HEARTBEAT, FETCH, METADATA, LIST_OFFSETS, PRODUCE]), st.sampled_from([-1, 0]), st.integers(0, 100)
)
"""API key, acks, and size."""
HEADER_BYTES = 4 + 13
"""Size, and header with the client ID `app`."""


def test_the_first_cause_counts() -> None:
    life = Life()
    assert life.cause is None
    life.blame(EndCause.IDLE)
    life.blame(EndCause.CLIENT_LEFT)
    assert life.cause is EndCause.IDLE


@pytest.mark.parametrize("state", State)
def test_a_life_ends_from_every_state_and_never_goes_back(state: State) -> None:
    life = Life()
    life.state = state
    assert life.move(State.LINGERING) is (state < State.LINGERING)
    assert life.move(State.ENDED) is (state < State.ENDED)
    assert not any(life.move(to) for to in State)
    assert life.over


class Waits:
    """A handler that waits until the test lets the oldest request go on."""

    def __init__(self) -> None:
        self.waiting: deque[asyncio.Future[None]] = deque()

    def __call__(self, client: Any, request: Request) -> Any:
        slot = client.open_slot(request)
        self.waiting.append(asyncio.get_running_loop().create_future())
        return self._answer(slot, self.waiting[-1])

    async def _answer(self, slot: Any, gate: asyncio.Future[None]) -> None:
        await gate
        slot.fill([b"waited"])


class Frames:
    """The frames that a transport was given, whole ones only."""

    def __init__(self, transport: FakeTransport) -> None:
        self._transport = transport
        self._rest = b""

    def take(self) -> list[bytes]:
        data, frames = self._rest + self._transport.taken(), []
        while len(data) >= 4 and len(data) >= 4 + struct.unpack_from(">i", data)[0]:
            size = 4 + struct.unpack_from(">i", data)[0]
            frames.append(data[:size])
            data = data[size:]
        self._rest = data
        return frames


class AnyOrder(RuleBasedStateMachine):
    """One client with its connection, and everything that may happen to it."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.held, self.waits = Held(), Waits()
        self.rest = b""
        """The part of a request that is still to be sent."""
        self.asked: list[int] = []
        """Correlation IDs of the requests that are to be answered, in their order."""
        self.answered: list[int] = []
        self.owed: deque[int] = deque()
        """Correlation IDs that the present broker still has to answer."""
        self.number = 0
        self.taken_bytes = 0
        self.paused: set[str] = set()

    @initialize(
        diskless=st.booleans(),
        in_flight=st.integers(1, 4),
        held_bytes=st.sampled_from([1, 40, 10_000]),
        lasts=st.integers(0, 30),
    )
    def connect(self, diskless: bool, in_flight: int, held_bytes: int, lasts: int) -> None:
        limits = Limits(max_in_flight_requests=in_flight, max_response_bytes_per_connection=1024 + held_bytes)
        self.in_flight, self.lasts = in_flight, lasts

        def make() -> None:
            self.sent = Sent(limits, {FETCH: self.held, LIST_OFFSETS: self.waits}, MEMORY_BYTES)
            self.sent.any_broker_serves = diskless

        self.do(make)
        self.to_client = Frames(self.sent.client)
        self.to_broker = Frames(self.sent.broker)

    def do(self, action: Callable[[], Any]) -> None:
        async def act() -> None:
            action()
            await turns(6)

        self.loop.run_until_complete(act())

    @property
    def life(self) -> Life:
        return self.sent.connection.life

    @property
    def has_client(self) -> bool:
        return not self.sent.client.closing

    def send(self, data: bytes) -> None:
        if self.has_client:
            self.do(lambda: self.sent.send(data))

    @rule(asked=st.lists(REQUESTS, min_size=1, max_size=4), sent=st.sampled_from([1.0, 1.0, 1.0, 0.3, 0.9]))
    def the_client_sends_requests(self, asked: list[tuple[int, int, int]], sent: float) -> None:
        """Send a part of them, or all."""
        if self.rest or not self.has_client:
            return
        whole = b"".join(self.a_request(*one) for one in asked)
        cut = int(len(whole) * sent)
        self.rest = whole[cut:]
        self.send(whole[:cut])

    def a_request(self, kind: int, acks: int, size: int) -> bytes:
        self.number += 1
        if kind != PRODUCE or acks:
            self.asked.append(self.number)
        if kind == PRODUCE:
            return produce(self.number, acks, size)
        return request(kind, self.number, bytes(size), version={FETCH: 4, LIST_OFFSETS: 1}.get(kind, 0))

    @precondition(lambda self: self.rest)
    @rule()
    def the_client_sends_the_rest(self) -> None:
        rest, self.rest = self.rest, b""
        self.send(rest)

    @rule(count=st.integers(1, 3), size=SIZES)
    def the_broker_answers(self, count: int, size: int) -> None:
        if self.sent.broker.closing:
            return
        for _ in range(min(count, len(self.owed))):
            self.do(lambda: self.sent.answer(response(self.owed.popleft(), bytes(size))))

    @precondition(lambda self: self.held.slots)
    @rule(size=SIZES, last=st.booleans())
    def the_proxy_answers(self, size: int, last: bool) -> None:
        self.held.slots.rotate(last)
        self.do(lambda: self.held.fill(bytes(size)))

    @precondition(lambda self: self.waits.waiting)
    @rule()
    def a_handler_goes_on(self) -> None:
        gate = self.waits.waiting.popleft()
        if not gate.done():
            self.do(lambda: gate.set_result(None))

    @rule(size=SIZES)
    def what_has_come_is_answered(self, size: int) -> None:
        for _ in range(4):
            self.the_broker_owes_what_it_got()
            self.the_broker_answers(3, size)
            if self.held.slots:
                self.the_proxy_answers(size, False)
            if self.waits.waiting:
                self.a_handler_goes_on()

    @rule(who=st.sampled_from(["client", "broker"]))
    def takes_no_more_or_takes_more(self, who: str) -> None:
        transport = self.sent.client if who == "client" else self.sent.broker
        if transport.closing:
            return
        self.paused ^= {who}
        protocol: Any = transport.protocol
        self.do(protocol.pause_writing if who in self.paused else protocol.resume_writing)

    @rule(size=st.integers(1, MEMORY_BYTES))
    def others_take_memory(self, size: int) -> None:
        self.taken_bytes += size
        self.sent.memory.take(size)

    @rule()
    def others_give_memory_back(self) -> None:
        size, self.taken_bytes = self.taken_bytes, 0
        self.do(lambda: self.sent.memory.give_back(size))

    @precondition(lambda self: self.number >= self.lasts)
    @rule()
    def the_broker_goes(self) -> None:
        self.paused.discard("broker")
        self.do(self.sent.broker.close)

    @precondition(lambda self: self.number >= self.lasts)
    @rule()
    def the_client_goes(self) -> None:
        self.rest = b""
        self.do(self.sent.client.close)

    @precondition(lambda self: self.number >= self.lasts)
    @rule()
    def the_proxy_drains(self) -> None:
        self.do(self.sent.connection.drain)

    @precondition(lambda self: self.number >= self.lasts)
    @rule()
    def the_proxy_cuts_it_off(self) -> None:
        self.rest = b""
        self.do(self.sent.connection.abort)

    @invariant()
    def the_broker_owes_what_it_got(self) -> None:
        if not hasattr(self, "sent"):
            return
        if self.to_broker._transport is not self.sent.broker:
            self.to_broker = Frames(self.sent.broker)
            self.owed.clear()
        for one in self.to_broker.take():
            key, _, correlation_id = struct.unpack_from(">hhi", one, 4)
            if key != PRODUCE or struct.unpack_from(">h", one, HEADER_BYTES + 2)[0]:
                self.owed.append(correlation_id)

    @invariant()
    def answers_keep_the_order(self) -> None:
        if hasattr(self, "sent"):
            self.answered += [struct.unpack_from(">i", one, 4)[0] for one in self.to_client.take()]
            assert self.answered == self.asked[: len(self.answered)]

    @invariant()
    def it_is_read_from_if_the_gate_says_so(self) -> None:
        if hasattr(self, "sent") and self.has_client:
            reading = self.sent.connection.reading
            assert self.sent.client.reading == reading.gate.reads(reading.reader.in_frame)

    @invariant()
    def the_gate_has_a_cause_as_long_as_there_is_one(self) -> None:
        if not hasattr(self, "sent") or not self.has_client:
            return
        causes = self.sent.connection.reading.gate.causes
        assert bool(causes & BARRIER) == any(not gate.done() for gate in self.waits.waiting)
        assert bool(causes & CLIENT_FULL) == ("client" in self.paused)
        assert bool(causes & IN_FLIGHT) == (len(self.sent.connection.answers.slots) >= self.in_flight)
        assert bool(causes & CONNECTING) == (self.life.state is State.CONNECTING)
        assert bool(causes & ENDING) == (self.life.state >= State.DRAINING)

    @invariant()
    def it_ends_once(self) -> None:
        if hasattr(self, "sent"):
            ended = self.life.state is State.ENDED
            assert sum(self.sent.stats.connections_ended.values()) == ended
            assert len(self.sent.connections) == (not ended)

    @invariant()
    def an_ended_connection_holds_nothing(self) -> None:
        """Except for requests that the proxy has yet to answer, of which it gives the memory back itself."""
        if hasattr(self, "sent") and self.life.state is State.ENDED:
            due = sum(slot.charge_bytes for slot in self.held.slots)
            assert self.sent.memory.used_bytes == self.taken_bytes + due

    def teardown(self) -> None:
        if hasattr(self, "sent"):
            self.others_give_memory_back()
            self.the_proxy_cuts_it_off()
            self.do(self.sent.connection.abort)
            self.the_broker_goes()
            while self.held.slots:
                self.do(self.held.fill)
            assert self.life.state is State.ENDED
            assert self.sent.memory.used_bytes == 0
            assert self.sent.unread.used_bytes == 0
            self.it_ends_once()
        self.loop.close()


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
