"""Brokers in memory that answer Fetches by Kafka's rules, and a client connection that reads from them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from proxy.accounting.accounting import Accounts
from proxy.brokers.states import ClassicTopic
from proxy.client.request import Request
from proxy.client.rights import ANY_ID, READ, RIGHTS, ClientRights, Rights, _Known
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.diskless.diskless_reader import PartitionRead
from proxy.fetch_router import FetchRouter
from proxy.fetching.diskless import DisklessReads
from proxy.fetching.fill import Answering
from proxy.fetching.forward import Forwarding
from proxy.fetching.leader import LeaderReads
from proxy.fetching.replica import ReplicaReads
from proxy.fetching.rounds import Sources
from proxy.fetching.route import Routes
from proxy.process.memory import MemoryBudget
from proxy.process.turns import Turns
from proxy.quotas.quotas import Quotas
from proxy.replicas.answers import ReplicaAnswer, ReplicaUnavailable
from proxy.replicas.choice import LeaderReason
from proxy.replicas.log_ends import LogEnds
from proxy.replicas.near import NearBrokers
from proxy.replicas.selector import ReplicaSelector
from proxy.replicas.shunned import Shunned
from proxy.routing.addresses import Addresses
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
from tests.unit.brokers_double import Brokers
from tests.unit.client_double import ClientDouble
from tests.unit.connection_double import OneProxy
from tests.unit.parts import settings_of
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


class AllClassic:
    """A registry without entries, unless a test adds some."""

    def __init__(self) -> None:
        self.version = 1
        self.is_current = True
        self.names_taken = 0
        self.diskless: dict[str | bytes, DisklessTopic] = {}
        self.unsure: set[str | bytes] = set()
        """Topics that may be diskless or not: the proxy cannot know."""
        self.fresh: set[str | bytes] = set()
        """Topic IDs that have come up while a name is reserved."""

    def find(self, topic: str | bytes) -> DisklessTopic | None:
        return self.diskless.get(topic)

    def is_read_as_classic(self, topic: str | bytes) -> bool:
        return topic not in self.unsure

    def may_be_a_shadow(self, topic: str | bytes) -> bool:
        return topic in self.fresh


class NearRacks:
    """Every client is in the proxy's rack; `aliases` are names for it that brokers do not know."""

    def __init__(self) -> None:
        self.aliases: set[str] = set()

    def learn(self, *_: object) -> None:
        pass

    def is_alias(self, rack: str) -> bool:
        return rack in self.aliases

    def counted(self, *_: object) -> str:
        return "near"

    of = counted


class Reader:
    """Reads diskless partitions by a function of the test's, which gets the requests."""

    def __init__(self, read: Callable[[Any], list[PartitionRead]]) -> None:
        self._read = read
        self.coordinates = self
        self.listening: list[Any] = []
        self.news: list[asyncio.Event] = []

    async def read(self, requests: Any, **limits: Any) -> list[PartitionRead]:
        return self._read(requests)

    def listen(self, partitions: Any, news: asyncio.Event) -> None:
        self.listening.append(partitions)
        self.news.append(news)

    def unlisten(self, partitions: Any, news: asyncio.Event) -> None:
        self.listening.remove(partitions)


class ServiceConnection:
    """The proxy's own connection to one broker, on which it asks for the ends of logs."""

    def __init__(self, broker: ModelBroker) -> None:
        self._broker = broker

    async def ask(self, api_key: int, version: int, body: bytes) -> memoryview:
        asked = decode(request_type(api_key, version), body)
        topics = [
            {
                "name": topic["name"],
                "partitions": [
                    {**one, "offset": self._broker.logs[topic["name"], one["partition_index"]].end}
                    for one in topic["partitions"]
                ],
            }
            for topic in asked["topics"]
        ]
        entity = response_type(api_key, version)
        return memoryview(encode(entity, filled(entity, {"topics": topics})))

    def close(self) -> None:
        pass


class KnownReplicas:
    """Classic topics as the proxy knows them; it never has to ask."""

    def __init__(self, known: dict[str | bytes, ClassicTopic]) -> None:
        self.topic = known.get
        self.stale_topics: list[str | bytes] = []
        self.stale = self.stale_topics.extend

    async def know(self, topics: Any) -> None:
        pass


class ModelConnections:
    """Connections to replicas."""

    def __init__(self, brokers: dict[int, ModelBroker], memory: MemoryBudget) -> None:
        self._brokers = brokers
        self._memory = memory

    async def fetch(
        self, node: int, version: int, body: bytes, client_id: str | None, timeout_s: float
    ) -> ReplicaAnswer:
        await asyncio.sleep(0)
        broker = self._brokers[node]
        if broker.reason is not None:
            raise ReplicaUnavailable(broker.reason, slow=broker.slow)
        answer = broker.answer(version, body)
        self._memory.take(len(answer))
        return ReplicaAnswer(memoryview(answer), self._memory, len(answer))


class AlmostUnlimited:
    """Unread answers of other clients leave this many bytes."""

    free_bytes = 1 << 40


class Proxied(ClientDouble):
    """A client at the leader's listener of a proxy in the followers' rack."""

    def __init__(self, topics: dict[str, dict[int, PartitionState]], **settings: Any) -> None:
        super().__init__(of=session(node_id=LEADER))
        self.brokers = {node: ModelBroker() for node in (LEADER, NEAR, ALSO_NEAR)}
        self.known: dict[str | bytes, ClassicTopic] = {
            name: ClassicTopic(name, name.encode().ljust(16, b"\0"), partitions) for name, partitions in topics.items()
        }
        self.known |= {known.topic_id: known for known in self.known.values()}
        self.stats = Stats()
        self.memory = MemoryBudget(1 << 40)
        self.response: list[Any] = []
        self.streamed = bytearray()
        self.settings = settings_of(
            rack="near",
            fetch={"mixed_wait_ms": 1, **settings},
            limits={"max_response_bytes_per_connection": 1 << 40},
            authorization_cache_ms=5_000,
        )
        self.now = asyncio.get_running_loop().time
        racks = {LEADER: "far", NEAR: "near", ALSO_NEAR: "near"}
        self.cluster = Brokers({node: Broker(node, "", 0, rack) for node, rack in racks.items()})
        self.topics = AllClassic()
        self.racks = NearRacks()
        self.unread = AlmostUnlimited()
        self.set_near("near")
        self.shunned = Shunned(self.now, shun_s=0.0)
        service: Any = lambda node: ServiceConnection(self.brokers[node])  # noqa: E731
        self.log_ends = LogEnds(service, self.known.get, self.near_brokers, interval_s=1.0, max_partitions=100)
        cluster: Any = self.cluster
        self.replica_selector = ReplicaSelector(cluster, interval_s=1.0)
        self.replicas = KnownReplicas(self.known)
        self.replica_memory = self.memory
        self.replica_connections = ModelConnections(self.brokers, self.memory)
        self.quotas = Quotas(self.now, {"fetch": 0.0})
        self.reader: Any = Reader(lambda requests: [])
        self.upstream_bytes = 0
        self.frozen = False
        """True if the leader never answers."""

    def set_near(self, rack: str) -> None:
        """Move the proxy to a rack."""
        cluster: Any = self.cluster
        self.near_brokers = NearBrokers(rack, cluster)

    def set(self, section: str, **values: Any) -> None:
        """Change settings, as a reload does."""
        for name, value in values.items():
            object.__setattr__(getattr(self.settings, section), name, value)

    def allow(self, topic: str) -> Rights:
        """Let the client read a topic, forever."""
        rights = self.session[RIGHTS] = Rights(1e9, self.now)
        rights._known[topic] = _Known(float("inf"), 0, READ, ANY_ID)
        return rights

    def sources(self) -> Sources:
        """Return the parts that answer a Fetch."""
        parts: Any = self
        rights = ClientRights(self.settings, self.now)
        unused: Any = None
        accounts = Accounts("near", cluster=parts.cluster, racks=parts.racks, stats=self.stats)
        fleet: Any = OneProxy()
        addresses = Addresses(fleet=fleet, racks=parts.racks, leader_choice=unused, cluster=parts.cluster)
        routes = Routes(
            self.settings,
            near_brokers=self.near_brokers,
            shunned=self.shunned,
            log_ends=self.log_ends,
            replicas=parts.replicas,
            replica_selector=self.replica_selector,
            racks=parts.racks,
            rights=rights,
            now=self.now,
        )
        turns = Turns(0.001)
        return Sources(
            self.settings,
            routes=routes,
            diskless=DisklessReads("near", reader=self.reader, rights=rights, turns=turns, now=self.now),
            replicas=ReplicaReads(
                self.settings,
                cluster=parts.cluster,
                connections=parts.replica_connections,
                replicas=parts.replicas,
                shunned=self.shunned,
                quotas=self.quotas,
            ),
            leaders=LeaderReads(
                self.settings.brokers,
                cluster=parts.cluster,
                addresses=addresses,
                memory=self.replica_memory,
                turns=turns,
                now=self.now,
            ),
            answering=Answering(
                accounts=accounts, quotas=self.quotas, racks=parts.racks, stats=self.stats, unread=parts.unread
            ),
            forwarding=Forwarding(accounts=accounts, addresses=addresses, stats=self.stats),
            quotas=self.quotas,
            stats=self.stats,
            turns=turns,
            now=self.now,
        )

    async def fetch(self, asked: FetchRequest) -> FetchResponse | None:
        """Return the answer; None if the request was forwarded unchanged."""
        self.response = []
        body = build_fetch_request(asked)
        frame = memoryview(request_header(1, asked.version, 7, "client") + body)
        request = Request(1, asked.version, 7, "client", frame, frame[len(frame) - len(body) :])
        parts: Any = self
        router = FetchRouter(topics=parts.topics, racks=parts.racks, sources=self.sources())
        answer = await self.answer(router.fetch, request)
        answer = answer or b"".join(self.response)
        return parse_fetch_response(answer, asked.version) if answer else None

    # The parts of a connection that a handler uses, and the double has not.

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

    def resume_upstream(self) -> None:
        """Nothing is stopped here."""

    def forward_in_place(self, request: Request, slot: Any, into: Any) -> None:
        self.forward_slot(request, into)
        body = bytes(self.streamed[4:])
        self.response = [body[len(response_header(1, request.api_version, 7)) :]]
        self.streamed.clear()

    async def ask(
        self, request: Request, api_key: int, version: int, body: Any, question: Any = None, *, check: Any = None
    ) -> memoryview:
        await asyncio.sleep(0)
        if self.frozen:
            await asyncio.Event().wait()
        answer = self.brokers[LEADER].answer(version, bytes(body))
        while question.response_begins(len(answer)) is Decision.WAIT:  # noqa: ASYNC110 (nothing announces it)
            await asyncio.sleep(0.001)
        return memoryview(answer)


def leader_reads(proxied: Proxied) -> dict[str, int]:
    """Partitions by reason."""
    return defaultdict(int, {str(reason): count for reason, count in proxied.stats.leader_reads.items() if count})
