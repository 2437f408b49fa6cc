"""A client connection between two transports that only record."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from typing import Any

from proxy.accounting.accounting import Accounts
from proxy.brokers.cluster import ClusterView
from proxy.brokers.silent import SilentBrokers
from proxy.brokers.upstream import BrokerUnreachable
from proxy.client.client import Client
from proxy.client.handler import Handlers
from proxy.config import Limits, Listeners
from proxy.connection.connection import ClientConnection
from proxy.connection.connections import Connections
from proxy.connection.shared import Shared
from proxy.connection.unread import UnreadAnswers
from proxy.handlers.sasl import Sasl
from proxy.process.memory import MemoryBudget
from proxy.process.poll_window import poll_window
from proxy.process.turns import Turns
from proxy.produce_offload import ProduceOffload
from proxy.producing.classic import ClassicProduce
from proxy.routing.addresses import Addresses
from proxy.telemetry.stats import Stats
from proxy.telemetry.throttled_log import ThrottledLog
from proxy.wire.frames import Decision
from proxy.wire.header import request_header
from proxy.wire.metadata import Broker
from tests.unit.parts import parts_of, settings_of

METADATA, HEARTBEAT, PRODUCE, FETCH = 3, 12, 0, 1
"""APIs that the table rewrites, passes, intercepts, intercepts."""
BROKER_ERROR = BrokerUnreachable("no broker")
EXPRESS_LANE = True
"""Whether connections have the lane; the tests in `connection/` run with and without it (`connection/conftest.py`)."""


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
        self.view = ClusterView({node: Broker(node, "broker", 9092, "rack-a") for node in (1, 2, 3)})
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


class OneProxy:
    """A fleet of one proxy, by which every broker is reached."""

    def listener(self, *_: object) -> tuple[str, int]:
        return "proxy", 1


class Sent:
    """One client with its connection; `handlers` by API key may replace what the proxy does."""

    def __init__(
        self, limits: Limits, handlers: dict[int, Any], memory_bytes: int, *, express_lane: bool | None = None
    ) -> None:
        self.settings = settings_of(limits=limits)
        self.parts = parts_of(self.settings)
        self.cluster = FakeCluster()
        self.stats = Stats()
        self.memory = MemoryBudget(memory_bytes)
        self.connections = Connections(limits, self.stats)
        self.topics = self.parts.topics.topics
        self.produce_is_held = False
        """True if a Produce goes to its handler; otherwise it streams to the broker, as every topic is classic."""
        self.any_broker_serves = False
        """True if another broker may stand in for the client's."""
        self.foreign = False
        """True if the listener stands for a broker of another rack."""
        self.now_s: float | None = None
        """The time in place of the loop's."""
        cluster: Any = self.cluster
        fleet: Any = OneProxy()
        self.racks = self.parts.routing.racks
        unused: Any = None
        self.addresses = Addresses(fleet=fleet, racks=self.racks, leader_choice=unused, cluster=cluster)
        self.accounts = Accounts("rack-a", cluster=cluster, racks=self.racks, stats=self.stats)
        self.classic = ClassicProduce(accounts=self.accounts, addresses=self.addresses, topics=self.topics)
        self.handlers = Handlers(
            handle={METADATA: lambda client, request: client.forward(request)} | handlers,
            begin={PRODUCE: self._begin_produce},
            token=Sasl(self.settings).pass_token,
        )
        self._streaming = ProduceOffload(topics=self.topics, classic=self.classic, diskless=unused)
        self.shared = Shared(
            settings=self.settings,
            now=lambda: asyncio.get_running_loop().time() if self.now_s is None else self.now_s,
            stats=self.stats,
            throttled_log=ThrottledLog(asyncio.get_running_loop().time),
            memory=self.memory,
            turns=Turns(1.0),
            cluster=cluster,
            connections=self.connections,
            unread=UnreadAnswers(self.memory, limits, self.connections.end_slowest),
            any_broker_serves=lambda: self.any_broker_serves,
            reads_near=lambda node_id: self.foreign,
            poll_window=poll_window(limits.poll_window_us),
            express_lane=EXPRESS_LANE if express_lane is None else express_lane,
        )
        self.unread = self.shared.unread
        self.now = self.shared.now
        self.client = self.connect()

    def _begin_produce(self, client: Client, size: int, head: memoryview) -> Decision:
        return Decision.HOLD if self.produce_is_held else self._streaming.begin(client, size, head)

    def connection_made(self) -> ClientConnection:
        """Return a further connection, which has no transport yet."""
        return ClientConnection(self.shared, self.handlers, Listeners(), 1)

    def connect(self) -> FakeTransport:
        connection = self.connection_made()
        transport = FakeTransport(connection)
        connection.connection_made(transport)
        self.connection = connection
        return transport

    def require_sasl(self) -> None:
        """Let the brokers' listener be one of SASL, for connections to come."""
        object.__setattr__(self.settings.brokers, "security_protocol", "SASL_PLAINTEXT")

    @property
    def passed(self) -> set[str | bytes]:
        """Topics of Produces that streamed through."""
        return {*self.topics.classic._seen, *self.topics.classic._unconfirmed}

    @property
    def streams(self) -> int:
        """Produces that go to the broker in parts now."""
        return len(self.topics._streams)

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
