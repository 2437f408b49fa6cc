"""Brokers in memory that answer Fetches by Kafka's rules, and a client connection that reads from them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from proxy.brokers.cluster import ClusterView
from proxy.brokers.states import ClassicTopic
from proxy.client.request import Request
from proxy.config import FetchSettings
from proxy.fetch_router import fetch
from proxy.process.memory import MemoryBudget
from proxy.process.turns import Turns
from proxy.replicas.answers import ReplicaAnswer, ReplicaUnavailable
from proxy.replicas.choice import LeaderReason
from proxy.replicas.log_ends import LogEnds
from proxy.replicas.near import NearBrokers
from proxy.replicas.shunned import Shunned
from proxy.telemetry.stats import Stats
from proxy.wire.fetch import FetchRequest, build_fetch_request, parse_fetch_request
from proxy.wire.fetch_response import (
    FetchResponse,
    PartitionFetched,
    TopicFetched,
    build_fetch_response,
    parse_fetch_response,
)
from proxy.wire.frames import Decision
from proxy.wire.header import request_header, response_header
from proxy.wire.metadata import Broker
from proxy.wire.partition_states import PartitionState
from tests.support.questions import filled
from tests.unit.sessions import session
from tests.unit.wire.trees import decode, encode, request_type, response_type

LEADER, NEAR, ALSO_NEAR = 1, 2, 3
"""Node IDs: the client's own broker, in another rack, and two in the proxy's."""
OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID = 1, 3, 100


@dataclass
class Log:
    """One replica's log: batches of (base offset, last offset, bytes); it ends after the last batch."""

    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    log_start: int = 0
    high_watermark: int = 0
    error_code: int = 0
    """Error code of every answer."""
    preferred: int = -1
    hidden: bool = False
    """Left out of answers."""

    @property
    def end(self) -> int:
        return self.batches[-1][1] + 1 if self.batches else self.log_start

    def read(self, offset: int, max_bytes: int, first_exempt: bool) -> tuple[int, bytes]:
        """Error code and records."""
        if self.error_code:
            return self.error_code, b""
        if not self.log_start <= offset <= self.end:
            return OFFSET_OUT_OF_RANGE, b""
        records = b""
        for _, last, data in self.batches:
            if last < offset:
                continue
            fits = len(records) + len(data) <= max_bytes or (first_exempt and not records)
            if last >= self.high_watermark or not fits:
                break
            records += data
        return 0, records


@dataclass
class ModelBroker:
    """Logs of one broker, by topic and partition."""

    logs: dict[tuple[str | bytes, int], Log] = field(default_factory=dict)
    reason: LeaderReason | None = None
    """Reason that the broker cannot be asked; None if it can."""
    slow: bool = False
    """True if the reason is a timeout."""
    garbage: bytes | None = None
    """Answered in place of a response."""
    error_code: int = 0
    throttle_ms: int = 0
    asked: list[FetchRequest] = field(default_factory=list)

    def answer(self, version: int, body: bytes) -> bytes:
        """The body of the response."""
        request = parse_fetch_request(body, version)
        self.asked.append(request)
        if self.garbage is not None:
            return self.garbage
        if self.throttle_ms:
            return b"".join(build_fetch_response(version, 0, [], self.throttle_ms))
        left, first_exempt, topics = request.max_bytes, True, []
        for asked in request.topics:
            partitions = []
            for partition in asked.partitions:
                unknown = UNKNOWN_TOPIC_OR_PARTITION if isinstance(asked.topic, str) else UNKNOWN_TOPIC_ID
                log = self.logs.get((asked.topic, partition.index), Log(error_code=unknown))
                if log.hidden:
                    continue
                limit = min(left, partition.partition_max_bytes)
                error_code, records = log.read(partition.fetch_offset, limit, first_exempt)
                first_exempt = first_exempt and not records
                left = max(left - len(records), 0)
                ends = (-1, -1, -1) if error_code else (log.high_watermark, log.high_watermark, log.log_start)
                partitions.append(
                    PartitionFetched(
                        partition.index,
                        error_code,
                        *ends,
                        [records],
                        len(records),
                        None,
                        preferred_read_replica=log.preferred,
                    )
                )
            topics.append(TopicFetched(asked.topic, partitions))
        return b"".join(build_fetch_response(version, 0, topics, 0, self.error_code))


class Proxied:
    """A client at the leader's listener of a proxy in the followers' rack."""

    def __init__(self, topics: dict[str, dict[int, PartitionState]], **settings: Any) -> None:
        self.brokers = {node: ModelBroker() for node in (LEADER, NEAR, ALSO_NEAR)}
        self.known = {
            name: ClassicTopic(name, name.encode().ljust(16, b"\0"), partitions) for name, partitions in topics.items()
        }
        self.known |= {known.topic_id: known for known in self.known.values()}
        self.stale: list[str | bytes] = []
        self.unsure: set[str | bytes] = set()
        """Topics that may be diskless or not: the proxy cannot know."""
        self.fresh: set[str | bytes] = set()
        """Topic IDs that have come up while a name is reserved."""
        self.stats = Stats()
        self.memory = MemoryBudget(1 << 40)
        self.muted_s = 0.0
        self.crossed_bytes = 0
        self.response: list[Any] = []
        self.forwarded: list[Request] = []
        self.streamed = bytearray()
        now = asyncio.get_running_loop().time
        racks = {LEADER: "far", NEAR: "near", ALSO_NEAR: "near"}
        view = ClusterView({node: Broker(node, "", 0, rack) for node, rack in racks.items()})
        cluster: Any = SimpleNamespace(rack_of=racks.get, racks_seen=racks, view=view)
        self.unread = SimpleNamespace(free_bytes=1 << 40)
        near_brokers = NearBrokers("near", cluster)
        limits = SimpleNamespace(max_response_bytes_per_connection=1 << 40)
        self.context: Any = SimpleNamespace(
            settings=SimpleNamespace(
                rack="near",
                fetch=FetchSettings(**{"mixed_wait_ms": 1, **settings}),
                limits=limits,
                brokers=SimpleNamespace(with_sasl=False, request_timeout_ms=30_000),
                authorization_cache_ms=5_000,
            ),
            now=now,
            stats=self.stats,
            unread=self.unread,
            turns=Turns(0.001),
            topics=SimpleNamespace(
                find=lambda topic: None,
                is_read_as_classic=lambda topic: topic not in self.unsure,
                may_be_a_shadow=lambda topic: topic in self.fresh,
            ),
            racks=SimpleNamespace(
                learn=lambda *_: None, is_alias=lambda rack: False, counted=lambda *_: "near", of=lambda *_: "near"
            ),
            fleet=SimpleNamespace(listener=lambda *_: ("proxy", 1)),
            cluster=cluster,
            near_brokers=near_brokers,
            shunned=Shunned(now, shun_s=0.0),
            log_ends=LogEnds(
                self._service_connection, self.known.get, near_brokers, interval_s=1.0, max_partitions=100
            ),
            replica_selector=SimpleNamespace(redirects=False),
            replicas=SimpleNamespace(topic=self.known.get, know=self._know, stale=self.stale.extend),
            replica_memory=self.memory,
            replica_connections=SimpleNamespace(fetch=self._fetch),
            quotas=SimpleNamespace(
                fetch=SimpleNamespace(available_bytes=lambda *_: float("inf")), throttle_fetch=lambda *_: 0
            ),
        )
        self.answers: Any = self
        self.session = session(node_id=LEADER)
        self.upstream_bytes = 0
        self.frozen = False
        """True if the leader never answers."""

    def _service_connection(self, broker: int) -> Any:
        """Return the proxy's own connection, on which it asks for the ends of logs."""

        async def ask_ends(api_key: int, version: int, body: bytes) -> memoryview:
            asked = decode(request_type(api_key, version), body)
            topics = [
                {
                    "name": topic["name"],
                    "partitions": [
                        {**one, "offset": self.brokers[broker].logs[topic["name"], one["partition_index"]].end}
                        for one in topic["partitions"]
                    ],
                }
                for topic in asked["topics"]
            ]
            entity = response_type(api_key, version)
            return memoryview(encode(entity, filled(entity, {"topics": topics})))

        return SimpleNamespace(ask=ask_ends, close=lambda: None)

    async def fetch(self, asked: FetchRequest) -> FetchResponse | None:
        """Return the answer; None if the request was forwarded unchanged."""
        self.response = []
        body = build_fetch_request(asked)
        frame = memoryview(request_header(1, asked.version, 7, "client") + body)
        request = Request(1, asked.version, 7, "client", frame, frame[len(frame) - len(body) :])
        waiting = fetch(self, request)  # type: ignore[arg-type]
        if waiting is not None:
            await waiting
        if not self.response:
            return None
        return parse_fetch_response(b"".join(self.response), asked.version)

    # The parts of a connection that a handler uses.

    def open_slot(self, request: Request) -> Any:
        slot = SimpleNamespace(let_go=None)

        def fill(body: list[Any]) -> None:
            self.response = [bytes(part) for part in body]
            if slot.let_go is not None:
                slot.let_go()

        slot.fill = fill
        return slot

    def forward_slot(self, request: Request, slot: Any) -> None:
        """The broker's answer streams through in one part."""
        self.forwarded.append(request)
        body = self.brokers[LEADER].answer(request.api_version, bytes(request.body))
        frame = response_header(1, request.api_version, 7) + body
        slot.response_part(memoryview(len(frame).to_bytes(4, "big") + frame), True)

    def write(self, part: Any) -> None:
        self.streamed += part

    def slot_finished(self, slot: Any) -> None:
        assert slot.done

    def mute(self, seconds: float) -> None:
        self.muted_s = seconds

    def resume_upstream(self) -> None:
        """Nothing is stopped here."""

    def forward_in_place(self, request: Request, slot: Any, into: Any) -> None:
        self.forward_slot(request, into)
        body = bytes(self.streamed[4:])
        self.response = [body[len(response_header(1, request.api_version, 7)) :]]
        self.streamed.clear()

    async def ask(self, request: Request, api_key: int, version: int, body: Any, question: Any) -> memoryview:
        await asyncio.sleep(0)
        if self.frozen:
            await asyncio.Event().wait()
        answer = self.brokers[LEADER].answer(version, bytes(body))
        while question.response_begins(len(answer)) is Decision.WAIT:  # noqa: ASYNC110 (nothing announces it)
            await asyncio.sleep(0.001)
        return memoryview(answer)

    async def _fetch(
        self, node: int, version: int, body: bytes, client_id: str | None, timeout_s: float
    ) -> ReplicaAnswer:
        await asyncio.sleep(0)
        broker = self.brokers[node]
        if broker.reason is not None:
            raise ReplicaUnavailable(broker.reason, slow=broker.slow)
        answer = broker.answer(version, body)
        self.memory.take(len(answer))
        return ReplicaAnswer(memoryview(answer), self.memory, len(answer))

    async def _know(self, topics: Any) -> None:
        return None


def leader_reads(proxied: Proxied) -> dict[str, int]:
    """Partitions by reason."""
    return defaultdict(int, {str(reason): count for reason, count in proxied.stats.leader_reads.items() if count})
