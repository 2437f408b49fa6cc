"""A client connection between two transports that only record."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from types import SimpleNamespace
from typing import Any

from proxy.brokers.silent import SilentBrokers
from proxy.brokers.upstream import BrokerUnreachable
from proxy.config import Limits, Listeners
from proxy.connection.connection import ClientConnection
from proxy.connection.connections import Connections
from proxy.connection.unread import UnreadAnswers
from proxy.process.memory import MemoryBudget
from proxy.process.turns import Turns
from proxy.telemetry.stats import Stats
from proxy.telemetry.throttled_log import ThrottledLog
from proxy.wire.header import request_header

METADATA, HEARTBEAT, PRODUCE, FETCH = 3, 12, 0, 1
"""APIs that the table rewrites, passes, intercepts, intercepts."""
BROKER_ERROR = BrokerUnreachable("no broker")


class FakeTransport(asyncio.Transport):
    """Records written bytes, and whether reading is paused."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__({"peername": ("10.0.0.1", 50000)})
        self.protocol = protocol
        self.written = bytearray()
        self.reading = True
        self.closing = False
        self.aborted = False
        self.unsent = 0
        """Bytes that the other side does not accept."""

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
        """Return the bytes that were written since the last call."""
        data = bytes(self.written)
        self.written.clear()
        return data

    def frames(self) -> list[bytes]:
        """Return the same as `taken`, cut into frames without their sizes."""
        data, frames = self.taken(), []
        while data:
            (size,) = struct.unpack_from(">i", data)
            assert len(data) >= 4 + size
            frames.append(data[4 : 4 + size])
            data = data[4 + size :]
        return frames


class FakeCluster:
    """Every broker accepts, unless `failure` is set or the broker is among `down`."""

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.down: set[int] = set()
        self.silent = SilentBrokers()
        self.view = SimpleNamespace(brokers={1: "", 2: "", 3: ""})
        self.transports: list[FakeTransport] = []
        self.asked: list[int | None] = []
        """Brokers to which connections were made or tried."""

    async def connect(self, node_id, protocol):
        self.asked.append(node_id)
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        if node_id in self.down:
            raise BROKER_ERROR
        protocol.node_id = node_id
        self.transports.append(FakeTransport(protocol))
        protocol.connection_made(self.transports[-1])

    def rack_of(self, node_id):
        return "rack-a"

    def distance(self, node_id):
        return node_id


class Sent:
    """One client with its connection; `handlers` by API key may replace what the proxy does."""

    def __init__(self, limits: Limits, handlers: dict[int, Any], memory_bytes: int) -> None:
        self.cluster = FakeCluster()
        self.stats = Stats()
        self.memory = MemoryBudget(memory_bytes)
        self.connections = Connections(limits, self.stats)
        self.streams: set[Any] = set()
        """Produces that go to the broker in parts now."""
        self.passed: list[str | bytes] = []
        """Topics of Produces that streamed through."""
        self.diskless: list[str] = []
        """Entries of the registry, if the test needs them."""
        self.now_s: float | None = None
        """The time in place of the loop's."""
        self.topics = SimpleNamespace(
            nothing_diskless=True,
            all=lambda: tuple(self.diskless),
            passed=self.passed.append,
            begin_stream=self.streams.add,
            end_stream=self.streams.discard,
        )
        self.context: Any = SimpleNamespace(
            settings=SimpleNamespace(
                rack="rack-a",
                brokers=SimpleNamespace(with_sasl=False),
                fetch=SimpleNamespace(read_near_replicas=True),
                limits=limits,
                rack_of=lambda listeners: "rack-a",
                kip1163_api=False,
            ),
            now=lambda: asyncio.get_running_loop().time() if self.now_s is None else self.now_s,
            near_brokers=SimpleNamespace(is_foreign=lambda node_id: self.foreign),
            throttled_log=ThrottledLog(asyncio.get_running_loop().time),
            stats=self.stats,
            turns=Turns(1.0),
            memory=self.memory,
            connections=self.connections,
            unread=UnreadAnswers(self.memory, limits, self.connections.end_slowest),
            cluster=self.cluster,
            topics=self.topics,
            racks=SimpleNamespace(of=lambda *_: "rack-a", counted=lambda *_: "rack-a", learn=lambda *_: None),
            fleet=SimpleNamespace(racks=lambda: ("rack-a",), listener=lambda node, rack, client, came_by: ("proxy", 1)),
            handlers={METADATA: lambda connection, request: connection.forward(request)} | handlers,
        )
        self.foreign = False
        """True if the listener stands for a broker of another rack."""
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
    """A handler whose coroutine ends when the test allows it."""

    def __init__(self) -> None:
        self.asked = 0
        self.gate = asyncio.Event()

    def __call__(self, connection, request):
        self.asked += 1
        return self._wait(connection.open_slot(request))

    async def _wait(self, slot):
        await self.gate.wait()
        slot.fill([b"waited"])
