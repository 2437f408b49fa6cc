"""The last requests of a client that has left are counted until the broker has them, and given up in time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proxy.config import Limits
from proxy.connection.connection import ClientConnection
from tests.unit.connection.test_last_words import until
from tests.unit.connection_double import METADATA, PRODUCE, Sent, connected, produce, request, turns

LONG_MS = 60_000


async def left(**limits: int) -> Sent:
    """Return a client that has left; the broker has not accepted 20 bytes of its last request."""
    sent = await connected(**limits)
    sent.broker.close = lambda: None  # it waits for the broker
    sent.send(produce(1, acks=0))
    sent.broker.unsent = 20
    sent.client.close()
    await turns()
    assert not sent.broker.aborted
    assert sent.memory.used_bytes == 20
    return sent


async def test_a_broker_that_takes_nothing_is_given_up():
    sent = await left(broker_write_timeout_ms=500)
    del sent.broker.close
    await until(lambda: sent.broker.aborted)
    await turns()
    assert sent.memory.used_bytes == 0
    assert not len(sent.connections)


async def test_requests_with_answers_are_dropped_when_their_client_has_left():
    sent = await connected(broker_write_timeout_ms=LONG_MS)
    sent.send(request(METADATA, 1))
    sent.broker.unsent = 20
    sent.client.close()
    await turns()
    assert sent.broker.aborted
    assert sent.memory.used_bytes == 0
    assert not len(sent.connections)


async def test_a_client_that_left_counts_as_a_connection_and_a_drain_waits_for_it():
    sent = await left(broker_write_timeout_ms=LONG_MS)
    assert len(sent.connections) == 1
    draining = asyncio.create_task(sent.connections.drain())
    await turns()
    assert not draining.done()
    sent.broker.protocol.connection_lost(None)
    await draining
    assert sent.memory.used_bytes == 0


async def test_a_drain_that_may_not_wait_ends_it():
    sent = await left(broker_write_timeout_ms=LONG_MS)
    del sent.broker.close
    sent.connections.abort()
    await turns()
    assert sent.broker.aborted
    assert not len(sent.connections)


@pytest.mark.parametrize("acks", [0, 1])
@pytest.mark.parametrize("leaves", [False, True])
async def test_a_request_that_the_broker_does_not_take_is_held_memory(acks: int, leaves: bool) -> None:
    def forward(connection: ClientConnection, request: Any) -> None:
        connection.forward(request, answered=acks != 0)

    sent = await connected(handlers={PRODUCE: forward})
    sent.produce_is_held = True
    full = sent.broker.writelines

    def write_and_be_full(parts: Any) -> None:
        full(parts)
        sent.broker.protocol.pause_writing()

    sent.broker.writelines = write_and_be_full
    request = produce(1, acks=acks, size=200)
    sent.send(request)
    assert sent.memory.used_bytes == len(request) - 4
    if leaves:
        sent.client.close()
        await turns()
    else:
        sent.broker.protocol.resume_writing()
    assert sent.memory.used_bytes == 0


@pytest.mark.parametrize("turns_before", range(4))
async def test_a_client_that_leaves_while_its_broker_connects_is_still_read(turns_before: int) -> None:
    sent = Sent(Limits(), {}, 1 << 20)
    sent.send(produce(1, acks=0))
    await turns(turns_before)
    sent.client.close()
    await turns()
    assert sent.broker.frames() == [produce(1, acks=0)[4:]]
    assert sent.broker.closing
    assert not len(sent.connections)
