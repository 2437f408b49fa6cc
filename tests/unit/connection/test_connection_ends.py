"""The end of a client connection between two transports: brokers and clients that leave, drains, time limits."""

from __future__ import annotations

import asyncio
import socket
import struct

import pytest

from tests.unit.connection.test_last_words import until
from tests.unit.connection_double import (
    FETCH,
    HEARTBEAT,
    METADATA,
    PRODUCE,
    Held,
    Waiting,
    connected,
    produce,
    request,
    response,
    turns,
)


async def test_when_the_broker_leaves_own_answers_are_sent_first():
    held = Held()
    sent = await connected(handlers={PRODUCE: held})
    sent.produce_is_held = True
    sent.send(produce(1) + request(HEARTBEAT, 2))
    sent.broker.close()
    await turns()
    assert not sent.client.closing
    held.fill(b"produced")
    assert sent.client.frames() == [struct.pack(">i", 1) + b"produced"]
    assert sent.client.closing


async def test_when_the_broker_leaves_its_missing_answers_end_the_connection():
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
    assert len(sent.connections) == 1
    assert sent.stats.connections_refused == 1


async def test_answers_that_wait_for_an_earlier_one_are_counted_from_any_source():
    """A client that sends many requests after a request without an answer costs no more than its buffer."""
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
    """This holds for any part of a request, even one that does not have its API key yet."""
    sent = await connected(frame_timeout_ms=1000)
    sent.send(frame_start)
    began_s = sent.now()
    sent.connections.sweep_once(began_s + 0.9, contended=False)
    assert not sent.client.closing
    sent.connections.sweep_once(began_s + 1.1, contended=False)
    assert sent.client.aborted


async def test_a_slow_request_is_cut_off_sooner_while_others_wait_for_memory():
    sent = await connected(frame_timeout_ms=60_000, contended_frame_timeout_ms=1000, handlers={FETCH: Held()})
    sent.send(request(FETCH, 1, bytes(900_000), version=4)[:100])
    other = sent.connect()
    await turns()
    sent.connection.data_received(request(FETCH, 1, bytes(900_000), version=4))
    assert sent.memory.contended
    sent.connections.sweep_once(sent.now() + 2, contended=sent.memory.contended)
    await turns()
    assert sent.client.aborted
    assert not other.aborted
    assert not sent.memory.contended


async def test_a_broker_that_hangs_does_not_keep_the_memory_that_others_wait_for():
    """Its clients stay as long as they care to, and their requests with them, which are due to be written."""

    def forward(connection, asked):
        connection.forward(asked)
        if connection.broker_side.upstream.transport is hanging:
            hanging.unsent = 900_000
            connection.broker_side.upstream.pause_writing()

    sent = await connected(broker_write_timeout_ms=1000, handlers={FETCH: forward})
    hanging = sent.broker
    sent.send(request(FETCH, 1, bytes(900_000), version=4))
    assert sent.memory.used_bytes > 900_000
    other = sent.connect()
    await turns()
    asked = request(FETCH, 1, bytes(800_000), version=4)
    sent.connection.data_received(asked)
    assert sent.memory.contended
    sweep, now_s = sent.connections.sweep_once, sent.now()
    sweep(now_s, contended=True)
    hanging.unsent -= 1  # it takes some bytes: it does not hang
    sweep(now_s + 1.1, contended=True)
    sweep(now_s + 2.0, contended=True)
    assert not sent.client.aborted
    sweep(now_s + 9.0, contended=False)
    assert not sent.client.aborted, "nobody waits for its memory"
    sweep(now_s + 9.1, contended=True)
    await turns()
    assert sent.client.aborted
    assert hanging.aborted
    assert not other.aborted
    assert sent.broker.taken() == asked
    assert not sent.memory.contended


async def test_a_client_that_takes_none_of_its_answers_is_cut_off():
    sent = await connected(write_timeout_ms=1000)
    sweep, now_s = sent.connections.sweep_once, sent.now()
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
    now_s = sent.now()
    sent.connections.sweep_once(now_s, contended=False)
    sent.connections.sweep_once(now_s + 1.1, contended=False)
    assert sent.client.aborted


async def test_idle_connections_are_closed_and_those_that_wait_are_not():
    sent = await connected(idle_timeout_ms=1000)
    sent.send(request(HEARTBEAT, 1))
    began_s = sent.now()
    sent.connections.sweep_once(began_s + 5, contended=False)
    assert not sent.client.closing
    sent.answer(response(1))
    answered_s = sent.connection.last_active_s
    assert answered_s >= began_s
    sent.connections.sweep_once(answered_s + 0.9, contended=False)
    assert not sent.client.closing
    sent.connections.sweep_once(answered_s + 1.1, contended=False)
    assert sent.client.closing
    assert not sent.client.aborted


@pytest.mark.parametrize(("unread", "ended"), [(b"", True), (request(HEARTBEAT, 2), False)])
async def test_a_client_that_goes_while_it_is_not_read_from_is_noticed(unread, ended):
    """Otherwise a Fetch with a wait of weeks would stay as long; but bytes that came before the end are still read."""
    sent = await connected(handlers={FETCH: Waiting()})
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sent.client._extra["socket"] = ours
        sent.send(request(FETCH, 1, version=4))
        sent.connections.sweep_once(sent.now(), contended=False)
        assert not sent.client.reading
        assert not sent.client.aborted
        theirs.send(unread)
        theirs.shutdown(socket.SHUT_WR)
        sent.connections.sweep_once(sent.now(), contended=False)
        await turns()
        assert sent.client.aborted == ended


async def test_resting_clients_are_all_looked_at_only_while_requests_wait_for_memory(monkeypatch):
    """Thousands of them would cost CPU in every second; but who leaves while it is not read from is noticed soon."""
    sent = await connected(frame_timeout_ms=60_000, contended_frame_timeout_ms=100, handlers={FETCH: Waiting()})
    contended_sweeps: asyncio.Queue[bool] = asyncio.Queue()
    monkeypatch.setattr(
        sent.connections, "sweep_once", lambda now_s, *, contended: contended_sweeps.put_nowait(contended)
    )
    sweeping = asyncio.create_task(sent.connections.sweep(sent.memory))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sent.client._extra["socket"] = ours
        sent.send(request(FETCH, 1, version=4))
        theirs.shutdown(socket.SHUT_WR)
        await until(lambda: sent.client.aborted)
    assert contended_sweeps.empty()
    assert sent.memory.try_take(sent.memory.limit_bytes, lambda: True)
    assert not sent.memory.try_take(1, lambda: True)
    assert await contended_sweeps.get()
    sweeping.cancel()


@pytest.mark.parametrize("leaves", [False, True])
async def test_a_produce_that_streams_is_known_until_its_end(leaves: bool):
    sent = await connected()
    whole = produce(1, size=1_000)
    sent.send(whole[:200])
    assert sent.streams == 1
    if leaves:
        sent.client.close()
    else:
        sent.send(whole[200:])
    await turns()
    assert not sent.streams
