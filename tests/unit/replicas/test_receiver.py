"""Frames received in place equal the sent ones, on both kinds of event loops."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import trustme
import uvloop

from proxy.brokers.upstream import BrokerConnection, BrokerUnreachable, connect_broker
from proxy.replicas.receiver import InPlaceReceiver, receive_in_place

SIZES = (0, 10, 65_531, 65_532, 65_536, 3_000_000, 70_000, 5)
"""Sizes of bodies, around the size from which a frame is received in place."""
Run = Callable[[Coroutine[Any, Any, None]], None]


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The body of a request says how many bytes to answer; -1 for the beginning of an answer, and the end."""
    while size := await reader.read(4):
        frame = await reader.readexactly(struct.unpack(">i", size)[0])
        (wanted,) = struct.unpack(">i", frame[-4:])
        correlation_id = frame[4:8]
        writer.write(struct.pack(">i", 4 + (wanted if wanted >= 0 else 1_000_000)) + correlation_id + body_of(wanted))
        if wanted < 0:
            break
    writer.close()


def body_of(size: int) -> bytes:
    return bytes(range(251)) * (size // 251) + bytes(size % 251) if size >= 0 else bytes(300_000)


def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The server's and the client's."""
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(client)
    return server, client


@pytest.mark.parametrize("secure", [False, True], ids=["plaintext", "TLS"])
@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_answers_of_any_size_come_whole(run: Run, secure: bool) -> None:
    async def ask_all() -> None:
        of_server, of_client = contexts() if secure else (None, None)
        server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=of_server)
        port = server.sockets[0].getsockname()[1]
        broker = BrokerConnection(max_frame_bytes=1 << 30)
        await connect_broker("127.0.0.1", port, broker, 20.0, of_client)
        receive_in_place(broker)
        assert broker.transport is not None
        assert isinstance(broker.transport.get_protocol(), InPlaceReceiver)
        for size in SIZES:
            assert await broker.ask(3, 0, struct.pack(">i", size), "test") == body_of(size)
        together = [asyncio.ensure_future(broker.ask(3, 0, struct.pack(">i", size), "test")) for size in SIZES]
        assert [bytes(body) for body in await asyncio.gather(*together)] == [body_of(size) for size in SIZES]
        assert broker.bytes_received == 2 * sum(8 + size for size in SIZES)
        with pytest.raises(BrokerUnreachable):
            await broker.ask(3, 0, struct.pack(">i", -1), "test")
        assert broker.lost
        server.close()
        await server.wait_closed()

    run(ask_all())


def test_a_connection_that_is_gone_is_left_alone() -> None:
    receive_in_place(BrokerConnection(max_frame_bytes=1 << 30))
