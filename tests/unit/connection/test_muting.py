"""A connection over its quota: no further request is read, and no other client waits for it."""

from __future__ import annotations

import asyncio
import struct

import pytest

from proxy.connection.connection import ClientConnection
from tests.unit.connection.test_connection import FETCH, HEARTBEAT, METADATA, connected, request, response, turns

LONG_S = 3600.0


def unmute(sent) -> None:
    """Do what the timer does when the time is over."""
    assert sent.connection.client.muted is not None
    sent.connection.client.muted.cancel()
    sent.connection.client.unmute()


class Throttled:
    """A handler that mutes its connection and answers at once (KIP-219)."""

    def __init__(self, seconds: float = LONG_S) -> None:
        self.seconds = seconds
        self.asked = 0

    def __call__(self, connection: ClientConnection, request) -> None:
        self.asked += 1
        slot = connection.open_slot(request)
        connection.mute(self.seconds)
        slot.fill([b"throttled"])


async def test_the_answer_goes_out_at_once_and_the_next_request_waits():
    throttled = Throttled()
    sent = await connected(handlers={FETCH: throttled})
    sent.send(request(FETCH, 1, version=4) + request(HEARTBEAT, 2) + request(FETCH, 3, version=4))
    await turns()
    assert sent.client.frames() == [struct.pack(">i", 1) + b"throttled"]
    assert throttled.asked == 1
    assert sent.broker.taken() == b""
    assert not sent.client.reading
    unmute(sent)
    await turns()
    assert sent.broker.taken() == request(HEARTBEAT, 2)
    assert throttled.asked == 2


async def test_reading_continues_by_itself():
    sent = await connected(handlers={FETCH: Throttled(0.001)})
    resumed = asyncio.Event()
    sent.client.resume_reading = resumed.set
    sent.send(request(FETCH, 1, version=4))
    assert not sent.client.reading
    await resumed.wait()
    sent.send(request(HEARTBEAT, 2))
    assert sent.broker.taken() == request(HEARTBEAT, 2)


async def test_the_brokers_answers_are_sent_meanwhile():
    sent = await connected()
    sent.send(request(HEARTBEAT, 1))
    sent.connection.client.mute(LONG_S)
    sent.answer(response(1, b"late"))
    assert sent.client.frames() == [struct.pack(">i", 1) + b"late"]
    assert not sent.client.reading


@pytest.mark.parametrize("seconds", [(LONG_S, 1.0), (1.0, LONG_S)])
async def test_the_longer_time_holds(seconds):
    sent = await connected()
    now_s = asyncio.get_running_loop().time()
    for one in seconds:
        sent.connection.client.mute(one)
    assert sent.connection.client.muted is not None
    assert sent.connection.client.muted.when() >= now_s + LONG_S


async def test_no_memory_is_held_meanwhile():
    sent = await connected(handlers={METADATA: Throttled()}, memory_bytes=100)
    sent.send(request(METADATA, 1, bytes(50)) + request(METADATA, 2, bytes(50)))
    await turns()
    assert sent.memory.used_bytes == 0


async def test_a_drain_does_not_wait():
    sent = await connected(handlers={FETCH: Throttled()})
    sent.send(request(FETCH, 1, version=4))
    sent.connection.drain()
    assert sent.client.closing


async def test_nothing_is_left_of_a_client_that_leaves():
    sent = await connected(handlers={FETCH: Throttled()})
    sent.send(request(FETCH, 1, version=4))
    timer = sent.connection.client.muted
    sent.client.close()
    await turns()
    assert timer is not None
    assert timer.cancelled()
    sent.connection.client.mute(LONG_S)
    assert sent.connection.client.muted is timer
