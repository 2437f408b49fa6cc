"""The same connection twice, with the express lane and without: whatever happens to one happens to the other."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any

from proxy.config import Limits
from proxy.coordinator.interface_registry import DisklessTopic, RegistrySnapshot
from proxy.fetch_router import FetchRouter
from proxy.fetching.forward import Forwarding
from proxy.produce_offload import ProduceOffload
from proxy.producing.split import split
from proxy.wire.fetch import parse_fetch_request
from proxy.wire.fetch_response import PartitionFetched, TopicFetched, build_fetch_response
from proxy.wire.header import parse_request_header
from proxy.wire.primitives import unsigned_varint
from proxy.wire.produce import PartitionProduced, TopicProduced, build_produce_response, parse_produce_request
from tests.unit.connection_double import FETCH, PRODUCE, Held, Sent, frame, turns

LIST_OFFSETS = 2
NAMES = ("orders", "payments", "events")
IDS = {name: bytes((number + 1,)) * 16 for number, name in enumerate(NAMES)}
NODE_ENDPOINTS = b"\2" + struct.pack(">i", 2) + b"\7broker" + struct.pack(">i", 9092) + b"\0\0"
FIRST_NODE_ENDPOINTS = 10


class Proxy:
    """One connection with real handlers of Produce and Fetch, as far as topics are classic.

    A request that names a diskless topic, and a Produce without a lease, is answered at once. ListOffsets waits for
    `held.fill`.
    """

    def __init__(self, *, lane: bool, memory_bytes: int, limits: dict[str, int]) -> None:
        self.held = Held()
        self.lease_runs = True
        handlers = {PRODUCE: self._produce, FETCH: self._fetch, LIST_OFFSETS: self.held}
        self.sent = sent = Sent(Limits(**limits), handlers, memory_bytes, express_lane=lane)
        sent.now_s = 100.0
        sent.topics._lease_runs = lambda: self.lease_runs
        unused: Any = None
        self._offload = ProduceOffload(topics=sent.topics, classic=sent.classic, diskless=unused)
        self._router = FetchRouter(topics=sent.topics, racks=sent.racks, sources=_Sources(sent))
        self.expressed = 0
        """Requests that took the lane."""
        if lane:
            self.count_expressed(sent.connection)

    def count_expressed(self, connection: Any) -> None:
        lane = connection._lane
        proxy = self

        class Counted:
            def take(self, data: bytes) -> bool:
                taken = lane.take(data)
                proxy.expressed += taken
                return bool(taken)

        connection._lane = Counted()

    def _produce(self, client: Any, request: Any) -> Any:
        topics = self.sent.topics
        if split(topics, parse_produce_request(request.body, request.api_version))[1] or not topics.is_current:
            client.open_slot(request).fill([b"taken here"])
            return None
        return self._offload.produce(client, request)

    def _fetch(self, client: Any, request: Any) -> Any:
        topics = self.sent.topics
        for asked in parse_fetch_request(request.body, request.api_version).topics:
            if topics.find(asked.topic) is not None or not topics.is_read_as_classic(asked.topic):
                client.open_slot(request).fill([b"read here"])
                return None
        return self._router.fetch(client, request)

    def seen(self) -> dict[str, Any]:
        """Return everything that the lane must not change."""
        sent, connection = self.sent, self.sent.connection
        stats, topics, reading = sent.stats, sent.topics, connection.reading
        return {
            "to the broker": [bytes(one.written) for one in sent.cluster.transports],
            "to the client": bytes(sent.client.written),
            "requests": dict(stats.requests),
            "records": dict(stats.record_bytes),
            "unsettled": {topic: dict(ways) for topic, ways in stats.unsettled_bytes.items()},
            "answers": {key: _count(histogram) for key, histogram in stats.api_seconds.items()},
            "bytes": (stats.client_bytes_received, stats.client_bytes_sent, connection.sent_bytes),
            "errors": (stats.protocol_errors, dict(stats.connections_ended)),
            "memory": (sent.memory.used_bytes, sent.memory.contended, sent.unread.used_bytes),
            "forwarded": (connection._charges.forwarded_bytes, connection.held_up_bytes),
            "gate": (reading.gate.causes, sent.client.reading, sent.broker.reading, reading.in_frame),
            "frame began": reading.frame_began_s,
            "slots": [
                (one.api_key, one.api_version, one.correlation_id, one.charge_bytes) for one in connection.answers.slots
            ],
            "expected": [one.correlation_id for one in sent.broker.protocol.expected],  # type: ignore[attr-defined]
            "classic": (list(topics.classic._seen), list(topics.classic._unconfirmed.items())),
            "client": (connection.requests, connection.session.client_id, connection.session.crossed_bytes),
            "life": (connection.life.state, connection.life.cause, sent.client.closing, sent.broker.closing),
        }


class _Sources:
    """The part of `fetching.rounds.Sources` that a Fetch of classic topics needs."""

    def __init__(self, sent: Sent) -> None:
        self.routes: Any = _NeverRouted()
        self.forwarding = Forwarding(accounts=sent.accounts, addresses=sent.addresses, stats=sent.stats)
        self.turns = sent.shared.turns


class _NeverRouted:
    def is_routed(self, session: Any, parsed: Any) -> bool:
        return False

    def never_near(self, session: Any) -> None:
        return None


def _count(histogram: Any) -> int:
    each = getattr(histogram, "by_interval_ms", None)
    return histogram.count if each is None else sum(one.count for one in each.values())


class Twins:
    """A proxy with the lane, and one without."""

    def __init__(self, memory_bytes: int = 1 << 20, **limits: int) -> None:
        self.lane = Proxy(lane=True, memory_bytes=memory_bytes, limits=limits)
        self.ordinary = Proxy(lane=False, memory_bytes=memory_bytes, limits=limits)
        self.registry_version = 1
        self.answered = 0
        """Requests at the broker that were answered."""

    async def do(self, action: Callable[[Proxy], object]) -> None:
        """Do the same to both, and compare them, at once and when the loop has done its part."""
        for proxy in (self.lane, self.ordinary):
            action(proxy)
        self.compare()
        await turns(4)
        self.compare()

    def compare(self) -> None:
        lane, ordinary = self.lane.seen(), self.ordinary.seen()
        for what, expected in ordinary.items():
            assert lane[what] == expected, what

    async def send(self, *chunks: bytes) -> None:
        for chunk in chunks:
            await self.do(lambda proxy, chunk=chunk: proxy.sent.client.closing or proxy.sent.send(chunk))

    async def answer(self, *chunks: bytes) -> None:
        for chunk in chunks:
            await self.do(lambda proxy, chunk=chunk: proxy.sent.broker.closing or proxy.sent.answer(chunk))

    def owed(self) -> list[bytes]:
        """Return the requests that the broker got and has yet to answer, without their sizes."""
        frames = split_frames(bytes(self.ordinary.sent.broker.written))
        return [one for one in frames if not _is_unanswered(one)][self.answered :]

    async def registry(self, diskless: Iterable[str]) -> None:
        """Let these topics be diskless from now on, and no other one."""
        self.registry_version += 1
        topics = tuple(DisklessTopic(name, IDS[name], 1, "live") for name in diskless)
        await self.do(lambda proxy: proxy.sent.topics.take(RegistrySnapshot(self.registry_version, topics)))


def split_frames(data: bytes) -> list[bytes]:
    """Return the whole frames of `data`, without their sizes."""
    frames = []
    while len(data) >= 4 and len(data) >= 4 + struct.unpack_from(">i", data)[0]:
        size = struct.unpack_from(">i", data)[0]
        frames.append(data[4 : 4 + size])
        data = data[4 + size :]
    return frames


def _is_unanswered(one: bytes) -> bool:
    if struct.unpack_from(">h", one)[0] != PRODUCE:
        return False
    header = parse_request_header(memoryview(one))
    return parse_produce_request(one[header.body_offset :], header.api_version).acks == 0


def answer_to(one: bytes, variant: int) -> bytes:
    """Return the broker's answer to a request frame: well, with an error, with endpoints, or with another size."""
    header = parse_request_header(memoryview(one))
    version, head = header.api_version, struct.pack(">i", header.correlation_id)
    if header.api_key == PRODUCE:
        error_code = 6 if variant == 1 else 0
        topics = [
            TopicProduced(
                asked.topic, [PartitionProduced(each.index, error_code, 5, -1, 0) for each in asked.partitions]
            )
            for asked in parse_produce_request(one[header.body_offset :], version).topics
        ]
        body = build_produce_response(version, topics, throttle_ms=variant)
        if variant == 2 and version >= FIRST_NODE_ENDPOINTS:
            body = body[:-1] + b"\1\0" + unsigned_varint(len(NODE_ENDPOINTS)) + NODE_ENDPOINTS
        return frame(head + (b"\0" if version >= 9 else b"") + body)
    if header.api_key == FETCH:
        records = (bytes(50),) if variant == 1 else ()
        fetched = [
            TopicFetched(
                asked.topic,
                [PartitionFetched(each.index, 0, 5, 5, 0, records, 50 * len(records)) for each in asked.partitions],
            )
            for asked in parse_fetch_request(one[header.body_offset :], version).topics
        ]
        body = b"".join(build_fetch_response(version, 7, fetched))
        if variant == 2 and version >= 16:
            body = body[:-1] + b"\1\0" + unsigned_varint(len(NODE_ENDPOINTS)) + NODE_ENDPOINTS
        return frame(head + (b"\0" if version >= 12 else b"") + body)
    return frame(head + bytes(variant))
