"""A server that accepts Kafka requests and gives a test's answers."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from proxy.wire.header import RequestHeader, parse_request_header

FETCH, API_VERSIONS = 1, 18
CLOSE = None
"""An answer: the connection is closed instead."""


class FetchServer:
    """Counts connections, notes requests, answers what `answer` and `delay` say."""

    def __init__(self) -> None:
        self.asked: list[RequestHeader] = []
        self.connections: list[asyncio.StreamWriter] = []
        self.open = 0
        self.answer: bytes | None = fetched()
        self.closing = 0
        """Number of further reads that are answered by closing the connection."""
        self.closing_all = False
        """True if every request is answered by closing the connection."""
        self.highest_fetch = 17
        self.answering = asyncio.Event()
        self.answering.set()
        self.reading = asyncio.Event()
        """Do `answering` for Fetch alone."""
        self.reading.set()
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        self.open += 1
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                header = parse_request_header(await reader.readexactly(size))
                self.asked.append(header)
                await self.answering.wait()
                if header.api_key == FETCH:
                    await self.reading.wait()
                body = self.answer if header.api_key == FETCH else self.api_versions()
                if body is CLOSE or self.closing_all or (header.api_key == FETCH and self.closing):
                    self.closing = max(self.closing - 1, 0)
                    return
                flexible = header.api_key == FETCH and header.api_version >= 12
                frame = struct.pack(">i", header.correlation_id) + (b"\0" if flexible else b"") + body
                writer.write(struct.pack(">i", len(frame)) + frame)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open -= 1
            writer.close()

    def api_versions(self) -> bytes:
        return struct.pack(">hihhh", 0, 1, FETCH, 4, self.highest_fetch)

    @property
    def fetches(self) -> list[RequestHeader]:
        return [header for header in self.asked if header.api_key == FETCH]

    def close_all(self) -> None:
        """End the connections, as a broker does that goes down."""
        for writer in self.connections:
            writer.close()


def fetched(throttle_ms: int = 0, records: bytes = b"records") -> bytes:
    """The body of an answer, as far as the pool looks at it."""
    return struct.pack(">i", throttle_ms) + records


@asynccontextmanager
async def fetch_server() -> AsyncIterator[FetchServer]:
    broker = FetchServer()
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    broker.port = server.sockets[0].getsockname()[1]
    try:
        yield broker
    finally:
        broker.answering.set()
        server.close()
        broker.close_all()
        async with asyncio.timeout(5):
            while broker.open:  # noqa: ASYNC110 (nothing announces it)
                await asyncio.sleep(0.001)
