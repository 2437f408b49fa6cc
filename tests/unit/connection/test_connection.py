"""A client connection between two transports that only record: order, backpressure, memory."""

from __future__ import annotations

import asyncio
import struct

import pytest

from proxy.client.slots import BrokerSlot
from proxy.config import Limits
from proxy.wire.produce import PartitionProduce, ProduceRequest, TopicProduce, build_produce_request
from tests.unit.connection_double import (
    BROKER_ERROR,
    FETCH,
    HEARTBEAT,
    METADATA,
    PRODUCE,
    Held,
    Sent,
    Waiting,
    connected,
    frame,
    produce,
    request,
    response,
    turns,
)


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


async def test_bytes_that_arrive_before_the_broker_are_not_lost():
    sent = Sent(Limits(), {}, 1 << 20)
    sent.send(request(HEARTBEAT, 1))
    assert not sent.client.reading
    await turns()
    assert sent.broker.taken() == request(HEARTBEAT, 1)
    assert sent.client.reading


async def test_a_broker_that_can_not_be_reached_ends_the_connection():
    sent = Sent(Limits(), {}, 1 << 20)
    sent.cluster.failure = BROKER_ERROR
    await turns()
    assert sent.client.closing
    assert len(sent.connections) == 0


async def test_answers_keep_the_order_of_the_requests_from_any_source():
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
            request, slot, BrokerSlot(connection.answers, request.api_key, request.api_version, request.correlation_id)
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


async def test_nothing_is_read_while_a_handler_waits():
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
    """The broker cannot answer half a request: a pause in its middle for the connection's own sake would last
    forever."""
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
    """The next request is admitted; then the write of the answer shows that the client is gone."""
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
    sent.produce_is_held = True
    assert sent.memory.try_take(500, lambda: True)
    sent.send(produce(1, size=500))
    sent.produce_is_held = False
    sent.memory.give_back(500)
    await turns()
    assert sent.broker.taken() == produce(1, size=500)
    assert sent.memory.used_bytes == 0


async def test_a_fault_in_one_request_does_not_reach_who_answers_another():
    """An answer may admit the next request; its author (the WAL buffer, another client) must not get that request's
    error."""
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
    assert sent.stats.unsettled_bytes == {"orders": {("classic", "produce", "rack-a", "rack-a"): 2100}}
    assert "orders" in sent.passed, "written while all was classic, it is so where nobody can be asked any more"


async def test_a_produce_whose_client_goes_away_is_counted_as_far_as_it_came():
    sent = await connected()
    parsed = ProduceRequest(3, None, -1, 1000, [TopicProduce("orders", [PartitionProduce(0, memoryview(bytes(700)))])])
    sent.send(request(PRODUCE, 1, b"".join(build_produce_request(parsed)), version=3)[:-100])
    sent.client.protocol.connection_lost(None)
    assert sent.stats.unsettled_bytes == {"orders": {("classic", "produce", "rack-a", "rack-a"): 600}}


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
async def test_an_api_that_is_not_served_ends_the_connection(data):
    sent = await connected()
    sent.send(data)
    await turns()
    assert sent.client.aborted
    assert sent.stats.protocol_errors == 1
    assert len(sent.connections) == 0
