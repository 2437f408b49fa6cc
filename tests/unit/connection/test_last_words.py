"""Requests that a client sends before it leaves reach the broker, also with acks 0, over TLS, and with a slow
broker."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import trustme
import uvloop

from proxy.brokers.upstream import BrokerConnection, Question, connect_broker
from proxy.connection.connection import ClientConnection
from proxy.process.memory import MemoryBudget
from tests.unit.connection_double import (
    BROKER_ERROR,
    METADATA,
    PRODUCE,
    Sent,
    connected,
    produce,
    request,
    response,
    turns,
)

SEND_BUFFER_BYTES, LARGE_BYTES = 65_536, 16_000_000
"""Size of a socket's send buffer, and a size above both sides' sockets."""
ANSWERED, ASKED = 3, request(METADATA, 1)
Tls = tuple[ssl.SSLContext | None, ssl.SSLContext | None]


@pytest.fixture(params=["plain", "TLS"])
def tls(request: pytest.FixtureRequest) -> Tls:
    """Contexts of a server and a client."""
    if request.param == "plain":
        return None, None
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(client)
    return server, client


def on_uvloop(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run on uvloop, as the product does: its transports differ from asyncio's own."""
    uvloop.run(asyncio.wait_for(main(), 60))


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(6_000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("not within a minute")


def test_a_broker_that_takes_its_time_gets_all(tls: Tls) -> None:
    async def send_and_end() -> None:
        received, over = bytearray(), asyncio.Event()

        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while part := await reader.read(65_536):
                received.extend(part)
                await asyncio.sleep(0)
            writer.close()
            over.set()

        listening = await asyncio.start_server(take, "127.0.0.1", 0, ssl=tls[0], limit=65_536)
        port = listening.sockets[0].getsockname()[1]
        lost = asyncio.Event()
        broker = BrokerConnection(max_frame_bytes=1 << 20, on_lost=lost.set)
        await connect_broker("127.0.0.1", port, broker, 30, tls[1])
        assert broker.transport is not None
        broker.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        broker.send([bytes(LARGE_BYTES)], None)
        memory = MemoryBudget(2 * LARGE_BYTES)
        assert broker.finish(60, memory, effects=False)
        await lost.wait()
        assert memory.used_bytes == 0
        await over.wait()
        listening.close()
        assert len(received) == LARGE_BYTES

    on_uvloop(send_and_end)


def test_a_broker_that_reads_on_only_when_its_answer_is_taken_gets_all(tls: Tls) -> None:
    """Brokers do this too; a socket that is closed with unread answers discards its waiting bytes."""

    async def send_and_end() -> None:
        received, over = bytearray(), asyncio.Event()

        async def answer_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.transport.set_write_buffer_limits(high=0)
            for correlation_id in range(ANSWERED):
                received.extend(await reader.readexactly(len(ASKED)))
                writer.write(response(correlation_id, bytes(LARGE_BYTES // ANSWERED)))
                await writer.drain()
            while part := await reader.read(65_536):
                received.extend(part)
            writer.close()
            over.set()

        listening = await asyncio.start_server(answer_first, "127.0.0.1", 0, ssl=tls[0], limit=65_536)
        lost = asyncio.Event()
        broker = BrokerConnection(max_frame_bytes=LARGE_BYTES, on_lost=lost.set)
        await connect_broker("127.0.0.1", listening.sockets[0].getsockname()[1], broker, 30, tls[1])
        waiting = [Question(asyncio.get_running_loop().create_future(), number) for number in range(ANSWERED)]
        for question in waiting:
            broker.send([ASKED], question)
        broker.send([bytes(LARGE_BYTES)], None)
        broker.pause_reading()  # the client took nothing
        memory = MemoryBudget(2 * LARGE_BYTES)
        assert broker.finish(60, memory, effects=False)
        await lost.wait()
        assert memory.used_bytes == 0
        assert all(question.answer.done() for question in waiting)
        await over.wait()
        listening.close()
        assert len(received) == ANSWERED * len(ASKED) + LARGE_BYTES

    on_uvloop(send_and_end)


class Hasty:
    """A client like those of Java and librdkafka: with TLS, its goodbye and its end arrive at once."""

    def __init__(self, port: int, context: ssl.SSLContext | None) -> None:
        self._address = ("127.0.0.1", port)
        self._socket = socket.socket()
        self._socket.setblocking(False)
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = None if context is None else context.wrap_bio(self._in, self._out, server_hostname="127.0.0.1")

    async def connect(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.sock_connect(self._socket, self._address)
        done = self._tls is None
        while self._tls is not None and not done:
            with contextlib.suppress(ssl.SSLWantReadError):
                self._tls.do_handshake()
                done = True
            await loop.sock_sendall(self._socket, self._out.read())
            if not done:
                self._in.write(await loop.sock_recv(self._socket, 65_536))

    async def send(self, data: bytes, *, leaves: bool = False, says_goodbye: bool = True) -> None:
        if self._tls is not None:
            if data:
                self._tls.write(data)
            if leaves and says_goodbye:
                with contextlib.suppress(ssl.SSLWantReadError):
                    self._tls.unwrap()
            data = self._out.read()
        await asyncio.get_running_loop().sock_sendall(self._socket, data)
        if leaves:
            with contextlib.suppress(BlockingIOError):  # tickets of TLS: unread bytes turn the end into a reset
                self._socket.recv(65_536)
            self._socket.close()


async def serve(sent: Sent, tls: Tls, *, connects: bool = True) -> tuple[Hasty, ClientConnection]:
    """A client that has connected, and its connection; `connects`: which has its broker."""
    served: list[ClientConnection] = []

    def connection() -> ClientConnection:
        served.append(sent.connection_made())
        return served[-1]

    listening = await asyncio.get_running_loop().create_server(connection, "127.0.0.1", 0, ssl=tls[0])
    client = Hasty(listening.sockets[0].getsockname()[1], tls[1])
    await client.connect()
    await until(
        lambda: bool(served) and (served[0].broker_side.upstream is not None if connects else served[0].opened_ms > 0)
    )
    listening.close()
    return client, served[0]


def test_requests_that_have_come_are_read_though_their_client_has_gone(tls: Tls) -> None:
    async def send_and_leave() -> None:
        sent = await connected()
        client, connection = await serve(sent, tls)
        broker = sent.broker
        assert connection.broker_side.upstream is not None
        await client.send(produce(1, acks=0))
        await until(lambda: connection.requests == 1)
        connection.broker_side.upstream.pause_writing()  # the broker accepts no more bytes
        await client.send(produce(2, acks=0))
        await asyncio.sleep(0.05)
        await client.send(produce(3, acks=0), leaves=True)
        await asyncio.sleep(0.1)
        sent.connections.sweep_once(sent.now(), contended=False)
        await asyncio.sleep(0.05)
        assert not broker.closing
        connection.broker_side.upstream.resume_writing()
        await until(lambda: broker.closing)
        assert len(broker.frames()) == 3

    on_uvloop(send_and_leave)


@pytest.mark.parametrize("memory_bytes", [1 << 20, 100])
def test_requests_without_answers_continue_after_their_client_has_left(tls: Tls, memory_bytes: int) -> None:
    """Its rights are still being requested, for example, when all of its requests, its goodbye and its end have
    arrived."""

    async def send_and_leave() -> None:
        gates = [asyncio.Event() for _ in range(3)]
        begun: list[int] = []

        def wait(connection: ClientConnection, request: Any) -> Any:
            begun.append(request.correlation_id)
            slot = connection.open_slot(request, answered=False)
            return then_send(connection, request, slot, gates[len(begun) - 1])

        async def then_send(connection: ClientConnection, request: Any, slot: Any, gate: asyncio.Event) -> None:
            await gate.wait()
            connection.send_upstream([request.frame], None)
            slot.finish()

        sent = await connected(handlers={PRODUCE: wait}, memory_bytes=memory_bytes)
        sent.produce_is_held = True
        client, _ = await serve(sent, tls)
        broker = sent.broker
        await client.send(b"".join(produce(number, acks=0) for number in (1, 2, 3)), leaves=True)
        for number, gate in enumerate(gates, 1):
            await until(lambda number=number: len(begun) == number)  # type: ignore[misc]
            await asyncio.sleep(0.05)
            assert not broker.closing
            gate.set()
        await until(lambda: broker.closing)
        assert begun == [1, 2, 3]
        assert len(broker.frames()) == 3
        await turns()
        assert sent.memory.used_bytes == 0
        assert len(sent.connections) == 1  # the double's own

    on_uvloop(send_and_leave)


@pytest.mark.parametrize("why", ["memory", "quota", "broker"])
def test_held_requests_continue_after_their_client_has_left(tls: Tls, why: str) -> None:
    async def send_and_leave() -> None:
        def forward(connection: ClientConnection, request: Any) -> None:
            connection.forward(request, answered=False)
            if why == "quota":
                connection.mute(0.1)
            elif why == "broker" and request.correlation_id == 1:
                assert connection.broker_side.upstream is not None
                connection.broker_side.upstream.pause_writing()

        sent = await connected(handlers={PRODUCE: forward})
        sent.produce_is_held = True
        client, connection = await serve(sent, tls)
        broker = sent.broker
        spent_bytes = sent.memory.limit_bytes if why == "memory" else 0
        sent.memory.take(spent_bytes)
        await client.send(b"".join(produce(number, acks=0) for number in (1, 2, 3)), leaves=True)
        await asyncio.sleep(0.1)
        assert not broker.closing
        sent.memory.give_back(spent_bytes)
        assert connection.broker_side.upstream is not None
        connection.broker_side.upstream.resume_writing()
        await until(lambda: broker.closing)
        assert len(broker.frames()) == 3
        await turns()
        assert sent.memory.used_bytes == 0
        assert len(sent.connections) == 1

    on_uvloop(send_and_leave)


def far_broker(sent: Sent) -> asyncio.Event:
    """Delay connections to brokers until the event is set."""
    there, connect = asyncio.Event(), sent.cluster.connect

    async def wait_and_connect(node_id: int | None, protocol: BrokerConnection) -> None:
        await there.wait()
        await connect(node_id, protocol)

    sent.cluster.connect = wait_and_connect  # type: ignore[method-assign]
    return there


@pytest.mark.parametrize("says_goodbye", [True, False])
def test_requests_that_came_before_the_broker_continue_after_their_client_has_left(
    tls: Tls, says_goodbye: bool
) -> None:
    async def send_and_leave() -> None:
        sent = await connected()
        there = far_broker(sent)
        client, _ = await serve(sent, tls, connects=False)
        await client.send(produce(1, acks=0), leaves=True, says_goodbye=says_goodbye)
        await asyncio.sleep(0.1)
        sent.connections.sweep_once(sent.now(), contended=False)
        await asyncio.sleep(0.05)
        there.set()
        await until(lambda: len(sent.connections) == 1)
        assert len(sent.cluster.transports) == 2
        assert sent.broker.closing
        assert sent.broker.frames() == [produce(1, acks=0)[4:]]
        assert sent.memory.used_bytes == 0

    on_uvloop(send_and_leave)


@pytest.mark.parametrize("says_goodbye", [True, False])
def test_a_client_that_left_without_a_request_is_not_connected(tls: Tls, says_goodbye: bool) -> None:
    async def leave() -> None:
        sent = await connected()
        far_broker(sent)
        client, _ = await serve(sent, tls, connects=False)
        assert len(sent.connections) == 2
        await client.send(b"", leaves=True, says_goodbye=says_goodbye)
        await until(lambda: len(sent.connections) == 1)

    on_uvloop(leave)


@pytest.mark.parametrize("ends", ["refused", "late"])
def test_requests_that_wait_for_an_unreachable_broker_end(tls: Tls, ends: str) -> None:
    async def send_and_leave() -> None:
        sent = await connected(broker_write_timeout_ms=1_000 if ends == "late" else 60_000)
        there = far_broker(sent)
        sent.cluster.failure = BROKER_ERROR
        client, _ = await serve(sent, tls, connects=False)
        await client.send(produce(1, acks=0), leaves=True)
        if ends == "refused":
            await asyncio.sleep(0.1)
            assert len(sent.connections) == 2
        if ends == "refused" or tls[0] is None:  # its end is not noticed while the proxy does not read from it
            there.set()
        await until(lambda: len(sent.connections) == 1)
        assert sent.memory.used_bytes == 0

    on_uvloop(send_and_leave)


def test_requests_without_a_client_end_in_time(tls: Tls) -> None:
    async def send_and_leave() -> None:
        async def wait(connection: ClientConnection, slot: Any) -> None:
            await asyncio.Event().wait()

        def begin(connection: ClientConnection, request: Any) -> Any:
            return wait(connection, connection.open_slot(request, answered=False))

        sent = await connected(handlers={PRODUCE: begin}, broker_write_timeout_ms=300)
        sent.produce_is_held = True
        client, connection = await serve(sent, tls)
        await client.send(produce(1, acks=0), leaves=True)
        await until(lambda: connection.requests == 1)
        if tls[0] is None:  # its end is not noticed while the proxy does not read from it
            connection.abort()
        await until(lambda: sent.broker.closing)
        await turns()
        assert sent.memory.used_bytes == 0
        assert len(sent.connections) == 1

    on_uvloop(send_and_leave)
