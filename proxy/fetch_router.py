"""Fetch: where each partition is read from, and the merged answer.

- Only classic partitions: the request goes to the broker as it came, with the broker's fetch session (KIP-227), and the
  answer streams through. Clients that name a rack follow KIP-392 as they are.
- Only diskless partitions: read here, from the coordinator's coordinates and the rack-local cache. Kafka's rules hold:
  partition order, byte limits, `min_bytes` and `max_wait`. The proxy keeps no sessions; it answers session 0.
- Both: the classic half is asked of the broker without a session and with short waits, again and again until the whole
  answer is due. The half that the request names first has the first call on `max_bytes`, so that neither starves where
  the client rotates its partitions; a broker's first batch may then come on top, as brokers always give one.

A broker's session that gains a diskless partition is ended with FETCH_SESSION_ID_NOT_FOUND: the client begins anew with
all of its partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from proxy.coordinator.interface import DisklessTopic
from proxy.diskless_reader import PartitionRead, ReadRequest
from proxy.errors import FETCH_SESSION_ID_NOT_FOUND, NONE, UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION
from proxy.rewrite_metadata import address_of, counted_rack
from proxy.security.principal import user_of
from proxy.security.rights import READ, rights_of
from proxy.slots import BrokerSlot, Slot, StreamedFetchSlot
from proxy.wire.endpoints import rewrite_node_endpoints
from proxy.wire.fetch import FetchRequest, TopicFetch, build_fetch_request, parse_fetch_request
from proxy.wire.fetch_response import (
    PartitionFetched,
    TopicFetched,
    build_fetch_response,
    merge_fetch_response,
    scan_fetch_response,
)
from proxy.wire.fetch_stream import FetchEndpointStream

if TYPE_CHECKING:
    from proxy.connection import ClientConnection
    from proxy.request import Request
    from proxy.wire.primitives import Buffer

FETCH = 1
_NO_SESSION = -1
_FIRST_EPOCH = 0
_FIRST_NODE_ENDPOINTS_VERSION = 16


class _Diskless(NamedTuple):
    """A diskless topic of the request."""

    asked: TopicFetch
    entry: DisklessTopic


def fetch(connection: ClientConnection, request: Request) -> Coroutine[Any, Any, None] | None:
    """Fetch (API key 1)."""
    find = connection.context.topics.find
    parsed = parse_fetch_request(request.body, request.api_version)
    if parsed.rack_id:
        connection.context.racks.learn(connection, request.client_id, parsed.rack_id)
    diskless = [_Diskless(asked, entry) for asked in parsed.topics if (entry := find(asked.topic)) is not None]
    if not diskless:
        _forward(connection, request)
        return None
    slot = connection.open_slot(request)
    if parsed.session_epoch > _FIRST_EPOCH:
        slot.fill(build_fetch_response(parsed.version, 0, [], error_code=FETCH_SESSION_ID_NOT_FOUND))
        return None
    return _Fetching(connection, request, parsed, _each_once(diskless), slot).answer()


def _forward(connection: ClientConnection, request: Request) -> None:
    """All of it is the broker's."""
    key, version, correlation_id = request.api_key, request.api_version, request.correlation_id
    slot: BrokerSlot
    if version >= _FIRST_NODE_ENDPOINTS_VERSION:
        stream = FetchEndpointStream(version, address_of(connection, request.client_id))
        slot = StreamedFetchSlot(connection, key, version, correlation_id, stream)
    else:
        slot = BrokerSlot(connection, key, version, correlation_id)
    context = connection.context
    serving = context.cluster.rack_of(connection.node_id)
    slot.counted_as = ("classic", "fetch", counted_rack(connection, request.client_id), serving)
    connection.forward_slot(request, slot)


class _Fetching:
    """One Fetch with diskless partitions, until it is answered."""

    def __init__(
        self,
        connection: ClientConnection,
        request: Request,
        parsed: FetchRequest,
        diskless: list[_Diskless],
        slot: Slot,
    ) -> None:
        self._connection = connection
        self._context = connection.context
        self._request = request
        self._parsed = parsed
        self._diskless = diskless
        self._slot = slot
        names = {topic.asked.topic for topic in diskless}
        self._classic = [topic for topic in parsed.topics if topic.topic not in names]
        self._diskless_first = parsed.topics[0].topic in names
        self._refused: dict[tuple[str | bytes, int], int] = {}
        """Errors of partitions that are not read, by topic as the client named it and partition."""
        self._reads: list[ReadRequest] = []
        """In the request's order, each partition once."""
        settings = self._context.settings
        available = self._context.quotas.fetch.available_bytes(user_of(connection), request.client_id)
        self._max_bytes = min(
            parsed.max_bytes,
            settings.fetch.max_bytes,
            settings.limits.max_response_bytes_per_connection,
            int(min(available, parsed.max_bytes)),
        )
        self._min_bytes = min(parsed.min_bytes, self._max_bytes)

    async def answer(self) -> None:
        """Read, wait while there is too little, answer. Raises BrokerUnreachable."""
        began_s = self._context.now()
        await self._check()
        listened = [(read.topic_id, read.partition) for read in self._reads]
        news = self._context.reader.coordinates.listen(listened)
        try:
            reads, classic_body = await self._collect(began_s + self._parsed.max_wait_ms / 1000, news)
        finally:
            self._context.reader.coordinates.unlisten(listened, news)
        self._fill(reads, classic_body)
        self._context.stats.fetch_seconds.observe(self._context.now() - began_s)

    async def _check(self) -> None:
        """The client's right to read, and partitions that are not there."""
        rights = rights_of(self._connection)
        unasked = rights.unasked(topic.entry.name for topic in self._diskless)
        if unasked:
            await rights.ask(self._connection, self._request, unasked)
        for asked, entry in self._diskless:
            error_code = rights.error(entry.name, READ)
            for partition in asked.partitions:
                if error_code == NONE and entry.state != "live" and isinstance(asked.topic, bytes):
                    self._refused[asked.topic, partition.index] = UNKNOWN_TOPIC_ID
                elif error_code == NONE and not (entry.state == "live" and 0 <= partition.index < entry.partitions):
                    self._refused[asked.topic, partition.index] = UNKNOWN_TOPIC_OR_PARTITION
                elif error_code != NONE:
                    self._refused[asked.topic, partition.index] = error_code
                else:
                    self._reads.append(
                        ReadRequest(
                            entry.topic_id, partition.index, partition.fetch_offset, partition.partition_max_bytes
                        )
                    )

    async def _collect(
        self, due_s: float, news: asyncio.Event
    ) -> tuple[dict[tuple[bytes, int], PartitionRead], memoryview | None]:
        """Both halves, as soon as they make `min_bytes`, hold an error, or time is up."""
        first_round = True
        round_ends_s = 0.0
        classic_body: memoryview | None = None
        while True:
            news.clear()
            size, failed = 0, bool(self._refused) or not (self._reads or self._classic)
            reads: list[PartitionRead] = []
            if self._diskless_first:
                reads = await self._read(self._max_bytes, due_s, trust_ends=not first_round)
                size = sum(read.size_bytes for read in reads)
                failed = failed or any(read.error_code for read in reads)
            if self._classic:
                enough = first_round or failed or size >= self._min_bytes
                longest_s = 0.0 if enough else self._context.settings.fetch.mixed_wait_ms / 1000
                round_ends_s = self._context.now() + longest_s
                wait_s = max(0.0, min(longest_s, due_s - self._context.now()))
                classic_body = await self._ask_classic(wait_s, max(self._max_bytes - size, 0))
                half = scan_fetch_response(classic_body, self._parsed.version)
                size += half.record_bytes
                # A broker that throttles the client would keep the next round waiting.
                failed = failed or half.has_error or half.throttle_ms > 0
            if not self._diskless_first:
                reads = await self._read(
                    max(self._max_bytes - size, 0), due_s, trust_ends=not first_round, first_exempt=not size
                )
                size += sum(read.size_bytes for read in reads)
                failed = failed or any(read.error_code for read in reads)
            wait_s = due_s - self._context.now()
            if size >= self._min_bytes or failed or wait_s <= 0:
                asked = ((read.topic_id, read.partition) for read in self._reads)
                return dict(zip(asked, reads, strict=True)), classic_body
            if self._classic:
                # The broker waits for us in the next round; where it would answer at once, this round's rest is waited.
                wait_s = min(wait_s, max(0.0, round_ends_s - self._context.now()))
            first_round = False
            if wait_s > 0:
                with suppress(TimeoutError):
                    await asyncio.wait_for(news.wait(), wait_s)

    async def _read(
        self, max_bytes: int, due_s: float, *, trust_ends: bool, first_exempt: bool = True
    ) -> list[PartitionRead]:
        """The proxy's half."""
        return await self._context.reader.read(
            self._reads,
            max_bytes=max_bytes,
            trust_ends=trust_ends,
            first_exempt=first_exempt,
            wait_s=due_s - self._context.now(),
        )

    async def _ask_classic(self, wait_s: float, max_bytes: int) -> memoryview:
        """The broker's half, without a session."""
        half = self._parsed._replace(
            max_wait_ms=int(wait_s * 1000),
            min_bytes=self._min_bytes,
            max_bytes=max_bytes,
            session_id=0,
            session_epoch=_NO_SESSION,
            topics=self._classic,
            forgotten=[],
        )
        return await self._connection.ask(self._request, FETCH, self._parsed.version, build_fetch_request(half))

    def _fill(self, reads: dict[tuple[bytes, int], PartitionRead], classic_body: memoryview | None) -> None:
        version = self._parsed.version
        size = sum(read.size_bytes for read in reads.values())
        throttle_ms = self._context.quotas.throttle_fetch(self._connection, self._request.client_id, size)
        topics = []
        if throttle_ms:
            # Over the quota nothing is answered, as on brokers: the client asks for the same again.
            size = 0
        else:
            topics = [
                TopicFetched(
                    asked.topic, [self._fetched(asked, entry, partition.index, reads) for partition in asked.partitions]
                )
                for asked, entry in self._diskless
            ]
        rack = counted_rack(self._connection, self._request.client_id)
        self._context.stats.record_bytes["diskless", "fetch", rack, self._context.settings.rack] += size
        if classic_body is None:
            self._slot.fill(build_fetch_response(version, 0, topics, throttle_ms))
            return
        serving = self._context.cluster.rack_of(self._connection.node_id)
        self._context.stats.record_bytes["classic", "fetch", rack, serving] += len(classic_body)
        if version >= _FIRST_NODE_ENDPOINTS_VERSION:
            told = address_of(self._connection, self._request.client_id)
            rewritten = rewrite_node_endpoints(FETCH, classic_body, version, told)
            classic_body = memoryview(b"".join(rewritten))
        order = [topic.topic for topic in self._parsed.topics]
        self._slot.fill(merge_fetch_response(classic_body, version, order, topics, throttle_ms))

    def _fetched(
        self,
        asked: TopicFetch,
        entry: DisklessTopic,
        partition: int,
        reads: dict[tuple[bytes, int], PartitionRead],
    ) -> PartitionFetched:
        refused = self._refused.get((asked.topic, partition))
        if refused is not None:
            self._context.stats.partition_errors["Fetch", refused] += 1
            return PartitionFetched(partition, refused, -1, -1, -1, (), 0, aborted=())
        read = reads[entry.topic_id, partition]
        if read.error_code:
            # Beside an error brokers tell neither watermarks nor the log start, OFFSET_OUT_OF_RANGE included.
            self._context.stats.partition_errors["Fetch", read.error_code] += 1
            return PartitionFetched(partition, read.error_code, -1, -1, -1, (), 0)
        records: list[Buffer] = read.records
        return PartitionFetched(
            partition,
            NONE,
            read.high_watermark,
            read.high_watermark,
            read.log_start_offset,
            records,
            read.size_bytes,
            () if self._parsed.isolation_level else None,
        )


def _each_once(diskless: list[_Diskless]) -> list[_Diskless]:
    """Each partition once, as brokers do (`FetchRequest.fetchData`): where it is named first, as it is named last."""
    last = {(asked.topic, partition.index): partition for asked, _ in diskless for partition in asked.partitions}
    if len(last) == sum(len(asked.partitions) for asked, _ in diskless):
        return diskless
    once = []
    for asked, entry in diskless:
        keys = dict.fromkeys((asked.topic, partition.index) for partition in asked.partitions)
        partitions = [last.pop(key) for key in keys if key in last]
        if partitions:
            once.append(_Diskless(asked._replace(partitions=partitions), entry))
    return once
