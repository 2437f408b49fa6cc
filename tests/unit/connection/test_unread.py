"""Clients that do not read their answers: the memory of these answers, and the connections that end."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack
from typing import Any

from proxy.connection.connection import ClientConnection
from proxy.fetching.answer import DISKLESS, Answer, piece_of
from proxy.fetching.fill import Answering, Filling
from proxy.wire.fetch import PartitionFetch, TopicFetch
from proxy.wire.fetch_response import PartitionFetched
from tests.unit.client_double import AnswerSlot, request_of
from tests.unit.connection.test_last_words import until
from tests.unit.connection_double import FETCH, HEARTBEAT, FakeTransport, Held, Sent, connected, request, turns

_LIMIT = 1_000_000


async def asked(limit_bytes: int = _LIMIT, clients: int = 1) -> tuple[Sent, Held, list[FakeTransport]]:
    """Return clients that have each sent a request that the test answers."""
    held = Held()
    sent = await connected(handlers={FETCH: held}, memory_bytes=100 * _LIMIT, max_unread_answer_bytes=limit_bytes)
    transports = [sent.client, *(sent.connect() for _ in range(clients - 1))]
    await turns()
    for one in transports:
        one.protocol.data_received(request(FETCH, 1, version=4))
    return sent, held, transports


def answer(held: Held, transport: FakeTransport, size: int) -> None:
    """Fill the next slot with this many bytes, none of which the client accepts."""
    transport.unsent += size
    held.fill(bytes(size))


async def test_an_answer_is_charged_until_the_client_has_taken_it():
    sent, held, (client,) = await asked()
    before = sent.memory.used_bytes
    answer(held, client, 4000)
    assert sent.unread.used_bytes == 4000
    assert sent.memory.used_bytes == before + 4000 - len(request(FETCH, 1, version=4)) + 4
    client.unsent = 1000
    sent.unread.look_once(sent.now())
    assert sent.unread.used_bytes == 1000
    client.unsent = 0
    sent.connection.resume_writing()
    assert sent.unread.used_bytes == sent.memory.used_bytes == 0


async def test_an_answer_that_waits_for_an_earlier_one_is_charged():
    held = Held()
    sent = await connected(handlers={FETCH: held})
    sent.send(request(HEARTBEAT, 1) + request(FETCH, 2, version=4))
    held.fill(bytes(4000))
    assert 4000 <= sent.unread.used_bytes <= 4100
    sent.client.close()
    await turns()
    assert sent.unread.used_bytes == sent.memory.used_bytes == 0


async def test_unread_bytes_that_pass_the_proxy_are_charged():
    sent = await connected()
    sent.send(request(HEARTBEAT, 1))
    sent.client.unsent = 300
    sent.answer(b"\x00\x00\x00\x08" + b"\x00\x00\x00\x01" + bytes(4))
    assert sent.unread.used_bytes == 300


async def test_above_the_limit_the_slowest_client_ends_and_is_counted():
    sent, held, (slow, slowest, fast, late) = await asked(clients=4)
    for one in (slow, slowest, fast):
        answer(held, one, 400_000)
    unread, now_s = sent.unread, sent.now()
    slow.unsent, slowest.unsent, fast.unsent = 390_000, 399_000, 100_000
    unread.look_once(now_s + 2)
    assert [one.aborted for one in (slow, slowest, fast)] == [False, False, False], "889,000 bytes are allowed"
    answer(held, late, 900_000)
    late.unsent = 500_000
    unread.look_once(now_s + 2)
    assert [one.aborted for one in (slow, slowest, fast, late)] == [False, True, False, False]
    assert unread.used_bytes == 990_000
    assert sent.stats.connections_cut_off["unread_answers"] == 1
    await turns()
    assert unread.used_bytes == sent.memory.used_bytes == 990_000


async def test_a_client_that_has_just_fallen_behind_gets_a_grace_period():
    sent, held, (client,) = await asked()
    answer(held, client, 2 * _LIMIT)
    unread, grace_s = sent.unread, sent.settings.limits.unread_grace_ms / 1000
    unread.look_once(sent.now() + grace_s / 2)
    assert not client.aborted
    assert unread.free_bytes == 0
    unread.look_once(sent.now() + grace_s)
    assert client.aborted
    assert unread.free_bytes == _LIMIT


async def test_slow_readers_leave_three_quarters_of_a_small_budget_to_requests():
    held = Held()
    sent = await connected(handlers={FETCH: held}, memory_bytes=40_000)
    assert sent.unread.limit_bytes == 10_000


async def test_a_fetch_gets_what_slow_readers_leave_free_and_at_least_a_batch():
    sent, held, (client,) = await asked()
    answer(held, client, _LIMIT - 1000)
    for free_bytes, expected in ((1000, 10), (0, 1)):
        client.unsent = _LIMIT - free_bytes
        sent.unread.look_once(sent.now())
        assert fetched_batches(sent) == expected


def fetched_batches(sent: Sent) -> int:
    """Batches of 100 bytes that the answer to a Fetch holds for which there are 50."""
    batch = bytes(8) + (88).to_bytes(4, "big") + bytes(88)
    fetched = PartitionFetched(0, 0, 50, 50, 0, (batch * 50,), 5000)
    answers = [Answer(DISKLESS, "rack-a", True, {("t", 0): piece_of(fetched)}, 5000, True)]
    topics = [TopicFetch("t", [PartitionFetch(0, -1, 0, -1, -1, 5000)])]
    parts = sent.parts
    answering = Answering(
        accounts=sent.accounts, quotas=parts.clients.quotas, racks=sent.racks, stats=sent.stats, unread=sent.unread
    )
    slot: Any = AnswerSlot(request_of(FETCH, 12, b""))
    Filling(answering, sent.connection.client, "app", 12, topics, [], 1 << 30).fill(slot, answers, [], {}, [])
    return len(slot.body) // len(batch)


async def test_a_crowd_that_reads_nothing_stays_within_the_limit():
    """Use real sockets: each of 24 clients gets an answer of 2 MB, more than its socket holds, and reads none of it."""
    held = Held()
    limit_bytes = 8_000_000
    sent = await connected(
        handlers={FETCH: held},
        memory_bytes=100 * limit_bytes,
        max_unread_answer_bytes=limit_bytes,
        unread_grace_ms=10,
    )
    loop = asyncio.get_running_loop()
    made: list[ClientConnection] = []

    def connection() -> ClientConnection:
        made.append(sent.connection_made())
        return made[-1]

    with ExitStack() as sockets:
        listening = sockets.enter_context(socket.create_server(("127.0.0.1", 0)))
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        server = await loop.create_server(connection, sock=listening)
        clients = [sockets.enter_context(small_socket(listening.getsockname())) for _ in range(24)]
        for client in clients:
            client.sendall(request(FETCH, 1, version=4))
        await until(lambda: len(held.slots) == len(clients))
        while held.slots:
            held.fill(bytes(2_000_000))
        await until(lambda: sum(one.unsent_bytes for one in made) <= limit_bytes)
        left = [one for one in made if one.unsent_bytes]
        assert sent.stats.connections_cut_off["unread_answers"] == len(clients) - len(left) > 0
        assert left, "no more than necessary are ended"
        assert sent.unread.used_bytes == sent.memory.used_bytes == sum(one.unsent_bytes for one in left)
        for one in left:
            one.abort()
        server.close()
        await turns()
    assert sent.memory.used_bytes == 0


def small_socket(address: tuple[str, int]) -> socket.socket:
    """Connect a client whose system accepts few bytes before the client reads."""
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    one.connect(address)
    return one
