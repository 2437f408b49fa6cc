"""A client connection between two transports that only remember: order, backpressure, memory, and the end."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.config import Limits, Listeners
from proxy.connection import ClientConnection
from proxy.connections import Connections
from proxy.memory import MemoryBudget
from proxy.slots import BrokerSlot
from proxy.stats import Stats
from proxy.upstream import BrokerUnreachable
from proxy.wire.header import request_header
from proxy.wire.produce import PartitionProduce, ProduceRequest, TopicProduce, build_produce_request

METADATA, HEARTBEAT, PRODUCE, FETCH = 3, 12, 0, 1
"""APIs that the table rewrites, passes, intercepts, intercepts."""
_BROKER_ERROR = BrokerUnreachable("no broker")


class FakeTransport(asyncio.Transport):
    """Remembers what is written, and whether it is read from."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__({"peername": ("10.0.0.1", 50000)})
        self.protocol = protocol
        self.written = bytearray()
        self.reading = True
        self.closing = False
        self.aborted = False
        self.unsent = 0
        """Bytes that the other side does not take."""

    def set_write_buffer_limits(self, high=None, low=None):
        self.high = high

    def get_write_buffer_size(self):
        return self.unsent

    def write(self, data):
        if not self.closing:
            self.written += data

    def writelines(self, list_of_data):
        for data in list_of_data:
            self.write(data)

    def pause_reading(self):
        self.reading = False

    def resume_reading(self):
        self.reading = True

    def is_closing(self):
        return self.closing

    def close(self):
        if not self.closing:
            self.closing = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    def abort(self):
        self.aborted = True
        self.close()

    def taken(self) -> bytes:
        """What was written since this was last asked."""
        data = bytes(self.written)
        self.written.clear()
        return data

    def frames(self) -> list[bytes]:
        """As `taken`, cut into frames without their sizes."""
        data, frames = self.taken(), []
        while data:
            (size,) = struct.unpack_from(">i", data)
            assert len(data) >= 4 + size
            frames.append(data[4 : 4 + size])
            data = data[4 + size :]
        return frames


class FakeCluster:
    """Every broker accepts, unless `failure` is set."""

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.transports: list[FakeTransport] = []

    async def connect(self, node_id, protocol):
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        self.transports.append(FakeTransport(protocol))
        protocol.connection_made(self.transports[-1])

    def rack_of(self, node_id):
        return "rack-a"


class Sent:
    """One client with its connection; `handlers` by API key may replace what the proxy does."""

    def __init__(self, limits: Limits, handlers: dict[int, Any], memory_bytes: int) -> None:
        self.cluster = FakeCluster()
        self.stats = Stats()
        self.memory = MemoryBudget(memory_bytes)
        self.topics = SimpleNamespace(nothing_diskless=True)
        self.context: Any = SimpleNamespace(
            settings=SimpleNamespace(
                brokers=SimpleNamespace(with_sasl=False),
                limits=limits,
                rack_of=lambda listeners: "rack-a",
                kip1163_api=False,
            ),
            now=asyncio.get_running_loop().time,
            stats=self.stats,
            memory=self.memory,
            connections=Connections(limits, self.stats),
            cluster=self.cluster,
            topics=self.topics,
            racks=SimpleNamespace(of=lambda *_: "rack-a", counted=lambda *_: "rack-a", learn=lambda *_: None),
            fleet=SimpleNamespace(racks=lambda: ("rack-a",), listener=lambda node, rack, client, came_by: ("proxy", 1)),
            handlers={METADATA: lambda connection, request: connection.forward(request)} | handlers,
        )
        self.client = self.connect()

    def connect(self) -> FakeTransport:
        connection = ClientConnection(self.context, Listeners(), 1)
        transport = FakeTransport(connection)
        connection.connection_made(transport)
        self.connection = connection
        return transport

    @property
    def broker(self) -> FakeTransport:
        return self.cluster.transports[-1]

    def send(self, data: bytes) -> None:
        self.client.protocol.data_received(data)

    def answer(self, data: bytes) -> None:
        self.broker.protocol.data_received(data)


async def connected(*, handlers=None, memory_bytes=1 << 20, **limits) -> Sent:
    sent = Sent(Limits(**limits), handlers or {}, memory_bytes)
    await turns()
    return sent


async def turns(count=10):
    for _ in range(count):
        await asyncio.sleep(0)


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def request(key, correlation_id, body=b"", version=0):
    return frame(request_header(key, version, correlation_id, "app") + body)


def response(correlation_id, body=b""):
    return frame(struct.pack(">i", correlation_id) + body)


def produce(correlation_id, acks=-1, size=20):
    """A Produce v3 as far as the proxy reads it while every topic is classic."""
    return request(PRODUCE, correlation_id, struct.pack(">hhi", -1, acks, 1000) + bytes(size), version=3)


class Held:
    """A handler that opens a slot and leaves it to the test to fill."""

    def __init__(self) -> None:
        self.slots: deque[Any] = deque()

    def __call__(self, connection, request):
        self.slots.append(connection.open_slot(request))

    def fill(self, body=b"mine"):
        self.slots.popleft().fill([body])


class Waiting:
    """A handler whose coroutine ends when the test says so."""

    def __init__(self) -> None:
        self.asked = 0
        self.gate = asyncio.Event()

    def __call__(self, connection, request):
        self.asked += 1
        return self._wait(connection.open_slot(request))

    async def _wait(self, slot):
        await self.gate.wait()
        slot.fill([b"waited"])


async def test_requests_and_answers_stream_through():
    sent = await connected()
    sent.send(request(HEARTBEAT, 1, b"question")[:9])
    sent.send(request(HEARTBEAT, 1, b"question")[9:])
    assert sent.broker.taken() == request(HEARTBEAT, 1, b"question")
    sent.answer(response(1, b"answer")[:9])
    assert sent.client.taken() == response(1, b"answer")[:9]
    sent.answer(response(1, b"answer")[9:])
    assert sent.client.taken() == response(1, b"answer")[9:]
    assert not sent.connection.busy


async def test_what_comes_before_the_broker_is_there_is_not_lost():
    sent = Sent(Limits(), {}, 1 << 20)
    sent.send(request(HEARTBEAT, 1))
    assert not sent.client.reading
    await turns()
    assert sent.broker.taken() == request(HEARTBEAT, 1)
    assert sent.client.reading


async def test_a_broker_that_can_not_be_reached_ends_the_connection():
    sent = Sent(Limits(), {}, 1 << 20)
    sent.cluster.failure = _BROKER_ERROR
    await turns()
    assert sent.client.closing
    assert len(sent.context.connections) == 0


async def test_answers_keep_the_order_of_the_requests_whoever_gives_them():
    held = Held()
    sent = await connected(handlers={FETCH: held})
    sent.send(request(FETCH, 1, version=4) + request(HEARTBEAT, 2) + request(FETCH, 3, version=4))
    sent.answer(response(2, b"broker"))
    assert sent.client.taken() == b""
    held.fill(b"first")
    assert sent.client.frames() == [struct.pack(">i", 1) + b"first", struct.pack(">i", 2) + b"broker"]
    held.fill(b"third")
    assert sent.client.frames() == [struct.pack(">i", 3) + b"third"]


async def test_a_slot_that_was_opened_may_become_the_brokers():
    async def forward(connection, request, slot):
        await gate.wait()
        connection.forward_in_place(
            request, slot, BrokerSlot(connection, request.api_key, request.api_version, request.correlation_id)
        )

    gate = asyncio.Event()
    sent = await connected(
        handlers={FETCH: lambda connection, asked: forward(connection, asked, connection.open_slot(asked))}
    )
    sent.send(request(HEARTBEAT, 1) + request(FETCH, 2, version=4) + request(HEARTBEAT, 3))
    await turns()
    assert sent.broker.taken() == request(HEARTBEAT, 1)
    assert sent.memory.used_bytes
    gate.set()
    await turns()
    assert sent.broker.taken() == request(FETCH, 2, version=4) + request(HEARTBEAT, 3)
    sent.answer(response(1) + response(2, b"answer")[:9])
    assert sent.client.taken() == response(1) + response(2, b"answer")[:9]
    sent.answer(response(2, b"answer")[9:] + response(3))
    assert sent.client.taken() == response(2, b"answer")[9:] + response(3)
    assert not sent.memory.used_bytes
    assert not sent.connection.busy


async def test_answers_that_have_to_wait_are_bounded():
    held = Held()
    sent = await connected(handlers={FETCH: held}, max_response_bytes_per_connection=1024)
    sent.send(request(FETCH, 1, version=4) + b"".join(request(HEARTBEAT, number) for number in (2, 3)))
    sent.answer(response(2, bytes(1000)) + response(3, bytes(1000)))
    assert not sent.broker.reading
    held.fill()
    assert [len(one) for one in sent.client.frames()] == [8, 1004, 1004]
    assert sent.broker.reading


async def test_nothing_is_looked_at_while_a_handler_waits():
    waiting = Waiting()
    sent = await connected(handlers={FETCH: waiting})
    sent.send(request(FETCH, 1, version=4) + request(FETCH, 2, version=4))
    await turns()
    assert waiting.asked == 1
    assert not sent.client.reading
    waiting.gate.set()
    await turns()
    assert waiting.asked == 2
    assert [one[:4] for one in sent.client.frames()] == [struct.pack(">i", number) for number in (1, 2)]
    assert sent.client.reading


async def test_reading_stops_at_the_requests_in_flight_that_are_allowed():
    sent = await connected(max_in_flight_requests=2)
    sent.send(b"".join(request(HEARTBEAT, number) for number in range(3)))
    assert sent.broker.taken() == request(HEARTBEAT, 0) + request(HEARTBEAT, 1)
    assert not sent.client.reading
    sent.answer(response(0))
    await turns()
    assert sent.broker.taken() == request(HEARTBEAT, 2)
    sent.answer(response(1))
    await turns()
    assert sent.client.reading


async def test_a_request_that_is_read_in_pieces_is_read_to_its_end():
    """The broker can't answer half a request: stopping in its midst for its own sake would be for ever."""
    sent = await connected(max_in_flight_requests=1)
    sent.send(request(HEARTBEAT, 1, bytes(100))[:50])
    assert sent.client.reading
    sent.send(request(HEARTBEAT, 1, bytes(100))[50:])
    assert sent.broker.taken() == request(HEARTBEAT, 1, bytes(100))
    assert not sent.client.reading


async def test_a_client_that_does_not_read_is_not_read_from():
    sent = await connected()
    sent.connection.pause_writing()
    assert not sent.client.reading
    assert not sent.broker.reading
    sent.connection.resume_writing()
    await turns()
    assert sent.client.reading
    assert sent.broker.reading


async def test_a_broker_that_does_not_read_is_not_written_to():
    sent = await connected()
    sent.broker.protocol.pause_writing()
    sent.send(request(HEARTBEAT, 1))
    assert not sent.client.reading
    assert sent.broker.taken() == b""
    sent.broker.protocol.resume_writing()
    await turns()
    assert sent.broker.taken() == request(HEARTBEAT, 1)


async def test_held_requests_are_charged_until_they_are_answered():
    held = Held()
    sent = await connected(handlers={FETCH: held})
    sent.send(request(FETCH, 1, bytes(500), version=4))
    assert sent.memory.used_bytes == len(request(FETCH, 1, bytes(500), version=4)) - 4
    held.fill()
    assert sent.memory.used_bytes == 0


async def test_a_request_waits_for_memory():
    held = Held()
    sent = await connected(handlers={FETCH: held}, memory_bytes=100)
    sent.send(request(FETCH, 1, bytes(80), version=4) + request(FETCH, 2, bytes(80), version=4))
    assert len(held.slots) == 1
    assert not sent.client.reading
    held.fill()
    await turns()
    assert len(held.slots) == 1
    assert sent.client.reading


async def test_a_client_that_goes_in_the_midst_of_a_request_gives_its_memory_back():
    sent = await connected()
    sent.send(request(METADATA, 1, bytes(500))[:100])
    assert sent.memory.used_bytes
    sent.client.close()
    await turns()
    assert sent.memory.used_bytes == 0


async def test_a_client_that_goes_while_its_request_waits_gives_its_memory_back():
    waiting = Waiting()
    sent = await connected(handlers={FETCH: waiting})
    sent.send(request(FETCH, 1, bytes(500), version=4))
    await turns()
    sent.client.close()
    await turns()
    assert sent.memory.used_bytes == 0


async def test_a_client_that_goes_while_it_waits_for_memory_does_not_hold_up_another():
    held = Held()
    sent = await connected(handlers={FETCH: held}, memory_bytes=100)
    sent.send(request(FETCH, 1, bytes(80), version=4))
    gone = sent.connect()
    alive = sent.connect()
    await turns()
    for transport in (gone, alive):
        transport.protocol.data_received(request(FETCH, 1, bytes(80), version=4))
    gone.close()
    await turns()
    held.fill()
    await turns()
    assert len(held.slots) == 1


async def test_a_client_that_goes_before_its_handler_has_begun_gives_its_memory_back():
    """The next request is let in, and then it is noticed, by the write of the answer, that there is no client."""
    held, waiting = Held(), Waiting()
    sent = await connected(handlers={FETCH: held, METADATA: waiting}, memory_bytes=600)
    sent.send(request(FETCH, 1, bytes(500), version=4) + request(METADATA, 2, bytes(500)))
    held.fill()
    sent.client.close()
    await turns()
    assert waiting.asked == 1
    assert sent.memory.used_bytes == 0


async def test_memory_that_a_produce_waited_for_is_given_back_where_nothing_is_diskless_any_more():
    sent = await connected(handlers={PRODUCE: lambda connection, one: connection.forward(one)}, memory_bytes=600)
    sent.topics.nothing_diskless = False
    assert sent.memory.try_take(500, lambda: True)
    sent.send(produce(1, size=500))
    sent.topics.nothing_diskless = True
    sent.memory.give_back(500)
    await turns()
    assert sent.broker.taken() == produce(1, size=500)
    assert sent.memory.used_bytes == 0


async def test_a_fault_in_one_request_does_not_reach_who_answers_another():
    """Answering may let the next request in; whoever answers (the WAL buffer, another client) is not to blame."""
    held = Held()

    def broken(connection, request):
        raise RuntimeError("a fault")

    sent = await connected(handlers={FETCH: held, METADATA: broken}, max_in_flight_requests=1)
    sent.send(request(FETCH, 1, version=4) + request(METADATA, 2))
    held.fill()
    await turns()
    assert sent.client.closing
    assert sent.memory.used_bytes == 0


@pytest.mark.parametrize("acks", [-1, 0, 1])
async def test_a_classic_produce_streams_and_only_its_acks_make_a_slot(acks):
    sent = await connected()
    sent.send(produce(1, acks)[:30])
    sent.send(produce(1, acks)[30:])
    assert sent.broker.taken() == produce(1, acks)
    assert sent.connection.busy is (acks != 0)
    assert sent.stats.requests[PRODUCE] == 1


@pytest.mark.parametrize("version", [3, 9])
@pytest.mark.parametrize("pieces", [[10_000], [40, 60, 10_000], [120], [1000]])
async def test_records_of_a_classic_produce_are_counted_as_it_streams(version, pieces):
    sent = await connected()
    partitions = [PartitionProduce(index, memoryview(bytes(700))) for index in range(3)]
    parsed = ProduceRequest(version, None, -1, 1000, [TopicProduce("orders", partitions), TopicProduce("events", [])])
    sending = request(PRODUCE, 1, b"".join(build_produce_request(parsed)), version=version)
    at, turn = 0, 0
    while at < len(sending):
        part = sending[at : at + pieces[min(turn, len(pieces) - 1)]]
        at, turn = at + len(part), turn + 1
        sent.send(part)
    assert sent.broker.taken() == sending
    assert sent.stats.record_bytes == {("classic", "produce", "rack-a", "rack-a", "orders"): 2100}


async def test_a_produce_whose_client_goes_away_is_counted_as_far_as_it_came():
    sent = await connected()
    parsed = ProduceRequest(3, None, -1, 1000, [TopicProduce("orders", [PartitionProduce(0, memoryview(bytes(700)))])])
    sent.send(request(PRODUCE, 1, b"".join(build_produce_request(parsed)), version=3)[:-100])
    sent.client.protocol.connection_lost(None)
    assert sent.stats.record_bytes == {("classic", "produce", "rack-a", "rack-a", "orders"): 600}


@pytest.mark.parametrize("size", range(10))
async def test_a_produce_that_is_too_short_is_refused_like_any_other_frame(size):
    """With a line in the log, and counted: no other exception may leave `data_received`."""
    sent = await connected()
    sent.send(frame(produce(1)[4:][:size]))
    assert sent.client.aborted
    assert sent.stats.protocol_errors == 1


@pytest.mark.parametrize(
    "data",
    [
        frame(struct.pack(">hhi", 4, 0, 1)),
        frame(struct.pack(">hhi", 999, 0, 1)),
        frame(struct.pack(">hhi", METADATA, 99, 1)),
        frame(b"short"),
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">i", 1 << 30) + bytes(8),
    ],
)
async def test_what_is_not_served_ends_the_connection(data):
    sent = await connected()
    sent.send(data)
    await turns()
    assert sent.client.aborted
    assert sent.stats.protocol_errors == 1
    assert len(sent.context.connections) == 0


async def test_when_the_broker_goes_what_is_answered_here_is_answered_first():
    held = Held()
    sent = await connected(handlers={PRODUCE: held})
    sent.topics.nothing_diskless = False
    sent.send(produce(1) + request(HEARTBEAT, 2))
    sent.broker.close()
    await turns()
    assert not sent.client.closing
    held.fill(b"produced")
    assert sent.client.frames() == [struct.pack(">i", 1) + b"produced"]
    assert sent.client.closing


async def test_when_the_broker_goes_what_it_owes_ends_the_connection():
    sent = await connected()
    sent.send(request(METADATA, 1) + request(HEARTBEAT, 2))
    sent.broker.close()
    await turns()
    assert sent.client.closing
    assert sent.client.taken() == b""


async def test_a_question_that_the_broker_does_not_answer_ends_the_connection():
    async def ask(connection, request, slot):
        await connection.ask(request, METADATA, 0, b"")
        slot.fill([b"never"])

    sent = await connected(
        handlers={FETCH: lambda connection, request: ask(connection, request, connection.open_slot(request))}
    )
    sent.send(request(FETCH, 1, bytes(100), version=4))
    await turns()
    assert len(sent.broker.frames()) == 1
    sent.broker.close()
    await turns()
    assert sent.client.closing
    assert sent.memory.used_bytes == 0


async def test_a_broker_that_answers_another_question_is_not_believed():
    sent = await connected()
    sent.send(request(HEARTBEAT, 1))
    sent.answer(response(2))
    await turns()
    assert sent.client.closing
    assert sent.client.taken() == b""


async def test_an_idle_connection_is_drained_at_once():
    sent = await connected()
    sent.connection.drain()
    assert sent.client.closing


async def test_a_drained_connection_answers_what_it_has_read_and_reads_no_more():
    sent = await connected(max_in_flight_requests=1)
    sent.send(request(METADATA, 1) + request(METADATA, 2))
    sent.connection.drain()
    assert not sent.client.closing
    sent.broker.taken()
    sent.answer(response(1, b"answer"))
    assert sent.client.taken() == response(1, b"answer")
    assert sent.client.closing
    assert sent.broker.taken() == b""


async def test_a_drain_does_not_wait_for_long_polls():
    waiting = Waiting()
    sent = await connected(handlers={FETCH: waiting})
    sent.send(request(FETCH, 1, version=4))
    await turns()
    sent.connection.drain()
    assert sent.client.closing


async def test_a_drain_lets_a_request_end_that_is_half_on_its_way():
    """Else the broker waits for the rest, the client for the answer, and the drain for its time to run out."""
    sent = await connected()
    sent.send(produce(1, size=100)[:50])
    sent.connection.drain()
    assert sent.client.reading
    sent.send(produce(1, size=100)[50:])
    assert sent.broker.taken() == produce(1, size=100)
    sent.answer(response(1, b"produced"))
    assert sent.client.taken() == response(1, b"produced")
    assert sent.client.closing


async def test_connections_over_the_limit_are_refused():
    sent = await connected(max_connections=1)
    refused = sent.connect()
    await turns()
    assert refused.aborted
    assert len(sent.context.connections) == 1
    assert sent.stats.connections_refused == 1


async def test_answers_that_wait_for_an_earlier_one_are_counted_whoever_gives_them():
    """A client that asks for everything behind an answer that does not come costs no more than its buffer."""
    held = Held()
    sent = await connected(handlers={FETCH: held}, max_response_bytes_per_connection=2000)
    sent.send(b"".join(request(FETCH, number, version=4) for number in (1, 2, 3)))
    first = held.slots.popleft()
    held.fill(bytes(1500))
    assert sent.client.reading
    held.fill(bytes(1500))
    assert not sent.client.reading
    sent.send(request(FETCH, 4, version=4))
    await turns()
    assert not held.slots
    first.fill([b"first"])
    assert len(sent.client.frames()) == 3
    await turns()
    assert sent.client.reading
    assert len(held.slots) == 1


async def test_an_answer_to_be_rewritten_waits_where_too_much_is_held():
    held = Held()
    sent = await connected(handlers={FETCH: held}, max_response_bytes_per_connection=2000)
    sent.send(request(FETCH, 1, version=4) + request(METADATA, 2) + request(METADATA, 3))
    sent.answer(response(2, bytes(1500)) + response(3, bytes(1500)))
    assert not sent.broker.reading
    held.fill(b"first")
    assert len(sent.client.frames()) == 3
    assert sent.broker.reading


async def test_the_write_buffer_has_its_limit():
    sent = await connected(write_buffer_bytes=4096)
    assert sent.client.high == 4096


@pytest.mark.parametrize("frame_start", [b"\0", b"\0\0\0\x64\0\x0c", request(HEARTBEAT, 1, bytes(90))[:50]])
async def test_a_request_that_comes_too_slowly_ends_its_connection(frame_start):
    """However little of it came: also where it does not yet say which API it is for."""
    sent = await connected(frame_timeout_ms=1000)
    sent.send(frame_start)
    began_s = sent.context.now()
    sent.context.connections.sweep_once(began_s + 0.9, contended=False)
    assert not sent.client.closing
    sent.context.connections.sweep_once(began_s + 1.1, contended=False)
    assert sent.client.aborted


async def test_a_slow_request_is_cut_off_sooner_while_others_wait_for_memory():
    sent = await connected(frame_timeout_ms=60_000, contended_frame_timeout_ms=1000, handlers={FETCH: Held()})
    sent.send(request(FETCH, 1, bytes(900_000), version=4)[:100])
    other = sent.connect()
    await turns()
    sent.connection.data_received(request(FETCH, 1, bytes(900_000), version=4))
    assert sent.memory.contended
    sent.context.connections.sweep_once(sent.context.now() + 2, contended=sent.memory.contended)
    await turns()
    assert sent.client.aborted
    assert not other.aborted
    assert not sent.memory.contended


async def test_a_client_that_takes_none_of_its_answers_is_cut_off():
    sent = await connected(write_timeout_ms=1000)
    sweep, now_s = sent.context.connections.sweep_once, sent.context.now()
    sent.client.unsent = 500
    sweep(now_s, contended=False)
    sent.client.unsent = 400
    sweep(now_s + 5, contended=False)
    sweep(now_s + 5.9, contended=False)
    assert not sent.client.aborted
    sweep(now_s + 6.1, contended=False)
    assert sent.client.aborted


async def test_a_closed_connection_whose_client_takes_nothing_does_not_stay():
    sent = await connected(write_timeout_ms=1000)
    sent.client.close = lambda: setattr(sent.client, "closing", True)
    sent.client.unsent = 500
    sent.connection.close()
    now_s = sent.context.now()
    sent.context.connections.sweep_once(now_s, contended=False)
    sent.context.connections.sweep_once(now_s + 1.1, contended=False)
    assert sent.client.aborted


async def test_idle_connections_are_closed_and_those_that_wait_are_not():
    sent = await connected(idle_timeout_ms=1000)
    sent.send(request(HEARTBEAT, 1))
    began_s = sent.context.now()
    sent.context.connections.sweep_once(began_s + 5, contended=False)
    assert not sent.client.closing
    sent.answer(response(1))
    answered_s = sent.connection.last_active_s
    assert answered_s >= began_s
    sent.context.connections.sweep_once(answered_s + 0.9, contended=False)
    assert not sent.client.closing
    sent.context.connections.sweep_once(answered_s + 1.1, contended=False)
    assert sent.client.closing
    assert not sent.client.aborted


@pytest.mark.parametrize(("unread", "ended"), [(b"", True), (request(HEARTBEAT, 2), False)])
async def test_a_client_that_goes_while_it_is_not_read_from_is_noticed(unread, ended):
    """Else a Fetch that asks to wait for weeks would stay so long; but what came before the end is still read."""
    sent = await connected(handlers={FETCH: Waiting()})
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sent.client._extra["socket"] = ours
        sent.send(request(FETCH, 1, version=4))
        sent.context.connections.sweep_once(sent.context.now(), contended=False)
        assert not sent.client.reading
        assert not sent.client.aborted
        theirs.send(unread)
        theirs.shutdown(socket.SHUT_WR)
        sent.context.connections.sweep_once(sent.context.now(), contended=False)
        await turns()
        assert sent.client.aborted == ended
