"""Produce: the classic part goes to the broker, the diskless part to the WAL buffer, and one answer comes back.

As long as no topic is diskless, a Produce streams through unheld (`begin_classic_produce`). Otherwise `produce` splits
it:

1. each topic is classic, diskless, or rejected (being created, or not surely classic while this proxy's lease is out);
2. the client's right to write is read from its own broker, once per connection and short time;
3. every diskless batch is checked as a broker checks it, and appended; a bad one fails alone, with Kafka's error code;
4. when all outcomes are there, including the broker's for the classic part, the answer is built. Requests don't wait
   for each other: up to the client's in-flight limit are buffered and uploaded while earlier ones still are.

No answer before the batch is durable and ordered: PUT, then commit, then answer (KIP-1163).
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Collection, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog

from proxy.accounting.accounting import count_classic, count_diskless
from proxy.client.rights import WRITE, rights_of
from proxy.client.slots import BrokerSlot, Slot
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.diskless.index_watch import FULL_MESSAGE, FULL_THROTTLE_MS
from proxy.diskless.produce_checks import check_produced
from proxy.protocol.api_keys import PRODUCE
from proxy.protocol.errors import (
    INVALID_REQUEST,
    INVALID_TXN_STATE,
    KAFKA_STORAGE_ERROR,
    NONE,
    REQUEST_TIMED_OUT,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from proxy.records.batches import RecordsError, producer_id_of
from proxy.rewrite_metadata import address_of
from proxy.telemetry.throttled_log import NAMES_SHOWN
from proxy.wire.endpoints import rewrite_node_endpoints
from proxy.wire.errors import ProtocolError
from proxy.wire.frames import Decision
from proxy.wire.header import response_header_length
from proxy.wire.produce import (
    FIRST_TOPIC_ID,
    LOWEST_VERSION,
    PartitionProduce,
    PartitionProduced,
    ProduceRequest,
    TopicProduced,
    build_produce_request,
    build_produce_response,
    merge_produce_response,
    parse_produce_request,
)
from proxy.wire.produce_prefix import client_id_of_prefix, read_produce_prefix
from proxy.wire.produce_stream import ProduceStream, count_produced

if TYPE_CHECKING:
    from proxy.client.client import Client
    from proxy.client.request import Request
    from proxy.diskless.wal.outcome import Outcome
    from proxy.wire.primitives import Buffer
    from proxy.wire.topic_walk import CountTopic

log = structlog.get_logger()

_HEAD = struct.Struct(">hhi")
_SIZE_BYTES = 4
_MAX_PREFIX_BYTES = 131_072
"""Two strings of 32,767 bytes and some tagged fields come before the acks."""
_FIRST_NODE_ENDPOINTS_VERSION = 10
_Rewrite = Callable[[memoryview], "list[Buffer]"]
_TWICE = "the request has records for this partition already: send what follows in another request"


class _DisklessPart(NamedTuple):
    """One topic of the request that the broker does not get."""

    topic: str | bytes
    """Topic as the client named it."""
    entry: DisklessTopic | None
    """Entry in the registry; None if the topic is rejected with `error_code`."""
    error_code: int
    partitions: list[PartitionProduce]


def begin_classic_produce(client: Client, size: int, head: memoryview) -> Decision:
    """A Produce begins while every topic is classic: stream it. `head` is what has come of its `size` bytes."""
    _, version, correlation_id = _HEAD.unpack_from(head)
    prefix = read_produce_prefix(head, version)
    if prefix is None:
        if len(head) < min(size, _MAX_PREFIX_BYTES):
            return Decision.NEED_MORE
        raise ProtocolError("a Produce request ends before its acks, or has an endless client or transactional ID")
    client_id = client_id_of_prefix(head)
    count = _count_passing(client, client_id)
    stream = None
    if len(head) == size:
        count_produced(head, prefix.topics_at, version, count)
    else:
        stream = ProduceStream(version, count, begins_at=_SIZE_BYTES + prefix.topics_at)
    slot = None
    if prefix.acks != 0:
        slot = BrokerSlot(client.answers, PRODUCE, version, correlation_id, _rewriter(client, client_id, version))
    client.begin_stream(PRODUCE, slot, stream)
    return Decision.STREAM


def produce(client: Client, request: Request) -> Coroutine[Any, Any, None] | None:
    """Produce (API key 0) while diskless topics exist, or may."""
    parsed = parse_produce_request(request.body, request.api_version)
    _, diskless = _split(client, parsed)
    if diskless and request.api_version < LOWEST_VERSION:
        # An older broker than 4.0 (KIP-896) would put the records into a shadow's log.
        named = ", ".join(str(part.topic) for part in diskless[:NAMES_SHOWN])
        raise ProtocolError(
            f"Produce v{request.api_version} to {named}: diskless topics take records of clients of Kafka 0.11 or newer"
        )
    if not diskless:
        _count_produced(client, request.client_id, parsed)
        rewriter = _rewriter(client, request.client_id, request.api_version)
        client.forward(request, rewriter, answered=parsed.acks != 0)
        return None
    slot = client.open_slot(request, answered=parsed.acks != 0)
    pending = _PendingProduce(client, request, slot, parsed)
    unasked = pending.accept()
    return pending.ask_then_accept(unasked) if unasked else None


def _split(client: Client, parsed: ProduceRequest) -> tuple[ProduceRequest, list[_DisklessPart]]:
    topics = client.context.topics
    classic, diskless = [], []
    for produced in parsed.topics:
        entry = topics.find(produced.topic)
        if entry is None:
            if topics.surely_classic(produced.topic):
                classic.append(produced)
            else:
                diskless.append(_DisklessPart(produced.topic, None, KAFKA_STORAGE_ERROR, produced.partitions))
        elif entry.state != "live":
            unknown = UNKNOWN_TOPIC_OR_PARTITION if isinstance(produced.topic, str) else UNKNOWN_TOPIC_ID
            diskless.append(_DisklessPart(produced.topic, None, unknown, produced.partitions))
        else:
            diskless.append(_DisklessPart(produced.topic, entry, NONE, produced.partitions))
    return parsed._replace(topics=classic), diskless


class _PendingProduce:
    """One Produce request whose outcomes come in one by one."""

    def __init__(self, client: Client, request: Request, slot: Slot, parsed: ProduceRequest) -> None:
        self._client = client
        self._request = request
        self._slot = slot
        self._parsed = parsed
        self._topics: list[TopicProduced] = []
        self._open = 1
        """Outcomes that are still to come; one for `accept` itself."""
        self._classic_awaited = False
        self._classic_body: memoryview | None = None
        self._timed_out = False
        self._accepted = False
        self._kept_bytes = 0
        self._throttle_ms = 0
        self._timeout: asyncio.TimerHandle | None = None
        self._began_s = client.context.now()

    async def ask_then_accept(self, unasked: dict[str, bytes]) -> None:
        """Ask the brokers what the client may write, then accept. Raises BrokerUnreachable."""
        self._start_timer()
        asked: set[str] = set()
        while unasked:
            await rights_of(self._client).ask(self._client, self._request, unasked)
            if self._timed_out:
                return
            asked.update(unasked)
            unasked = self.accept(asked)

    def accept(self, asked: Collection[str] = ()) -> dict[str, bytes]:
        """Send the classic part on, and append the diskless part.

        If the client's rights on some topics are unknown, nothing is done and these topics are returned, IDs by name.
        The topics in `asked`, whose rights were read for this very request, count as known, however short the brokers'
        answer is cached. Whether a topic is classic is judged here, in the same step that forwards it: an earlier
        judgement may be older than a registry version that this proxy has acknowledged since.
        """
        classic, diskless = _split(self._client, self._parsed)
        rights = rights_of(self._client)
        unasked = rights.unasked({part.entry.name: part.entry.topic_id for part in diskless if part.entry is not None})
        if not set(unasked) <= set(asked):
            return unasked
        self._accepted = True
        size = len(self._request.frame)
        if classic.topics:
            size -= self._forward(classic)
        if diskless:
            # Counted when it comes, not when it is answered as on brokers: what is pipelined is throttled in time.
            quotas, user = self._client.context.quotas, self._client.session.user
            self._throttle_ms = quotas.throttle_produce(user, self._request.client_id, size)
            if self._throttle_ms:
                self._client.mute(self._throttle_ms / 1000)
        named: set[tuple[str | bytes, int]] = set()
        for part in diskless:
            error_code = part.error_code
            if part.entry is not None:
                error_code = rights.error(part.entry.name, WRITE, part.entry.topic_id)
                if error_code == UNKNOWN_TOPIC_OR_PARTITION and isinstance(part.topic, bytes):
                    error_code = UNKNOWN_TOPIC_ID
            answers: list[PartitionProduced] = []
            self._topics.append(TopicProduced(part.topic, answers))
            for place, partition in enumerate(part.partitions):
                answers.append(PartitionProduced(partition.index, error_code or REQUEST_TIMED_OUT))
                if (part.topic, partition.index) in named:
                    self._refuse_again(part.entry, partition, answers, place)
                    continue
                named.add((part.topic, partition.index))
                if error_code == NONE and part.entry is not None:
                    self._append(part.entry, partition, answers, place)
        if self._open > 1 and not self._slot.done:
            self._start_timer()
        self._one_settled()
        return {}

    def _start_timer(self) -> None:
        """For the client's own limit, which counts from the request's arrival and holds for every wait."""
        if self._timeout is None and self._parsed.acks != 0:
            delay_s = max(self._parsed.timeout_ms, 0) / 1000
            self._timeout = asyncio.get_running_loop().call_later(delay_s, self._time_out)

    def _refuse_again(
        self, entry: DisklessTopic | None, partition: PartitionProduce, answers: list[PartitionProduced], place: int
    ) -> None:
        """A partition that the request has named before."""
        if entry is not None:
            holds = self._client.context.wal.holds
            holds.refused(entry.topic_id, partition.index, producer_id_of(partition.records))
        answers[place] = PartitionProduced(partition.index, INVALID_REQUEST, error_message=_TWICE)

    def _append(
        self, entry: DisklessTopic, partition: PartitionProduce, answers: list[PartitionProduced], place: int
    ) -> None:
        """Check one partition's batch and give it to the WAL buffer, or answer why not."""
        context = self._client.context
        acks, version = self._parsed.acks, self._parsed.version
        try:
            rules = context.topic_defaults.rules(entry)
            if rules.compacted:
                rules = rules._replace(partition=f"{entry.name}-{partition.index}")
            records, header = check_produced(entry, partition, rules, acks=acks, version=version)
        except RecordsError as error:
            if error.error_code == INVALID_TXN_STATE:
                context.throttled_log.warning(
                    "transactional_batch_refused",
                    topic=entry.name,
                    reason=str(error),
                    remedy="produce without transactional.id, or to a classic topic",
                )
            context.wal.holds.refused(entry.topic_id, partition.index, producer_id_of(partition.records))
            answers[place] = PartitionProduced(partition.index, error.error_code, error_message=str(error))
            return
        if context.index_watch.is_full(entry.topic_id, partition.index):
            context.stats.index_full_batches += 1
            producer = header.producer_id, header.producer_epoch, header.base_sequence
            context.wal.failures.note(entry.topic_id, partition.index, *producer)
            answers[place] = PartitionProduced(partition.index, KAFKA_STORAGE_ERROR, error_message=FULL_MESSAGE)
            self._throttle_ms = max(self._throttle_ms, FULL_THROTTLE_MS)
            return
        count_diskless(self._client, self._request.client_id, "produce")(entry.name, header.length)
        self._open += 1
        settle = partial(self._settle, answers, place, size=header.length)
        now_ms = context.wall_clock_ms()
        context.intake.append(entry.topic_id, partition.index, records, header, rules, now_ms, settle)

    def _forward(self, classic: ProduceRequest) -> int:
        """The classic part, under the client's own header; its size in bytes."""
        header_length = len(self._request.frame) - len(self._request.body)
        buffers: list[Buffer] = [self._request.frame[:header_length], *build_produce_request(classic)]
        size = sum(map(len, buffers))
        _count_produced(self._client, self._request.client_id, classic)
        expected = None
        if classic.acks != 0:
            self._open += 1
            self._classic_awaited = True
            expected = _ClassicHalf(self._request, self)
        self._client.send_upstream(buffers, expected)
        return size

    def _settle(self, answers: list[PartitionProduced], place: int, outcome: Outcome, *, size: int) -> None:
        """Note the outcome of a batch of `size` bytes."""
        error_code = outcome.error_code
        if error_code == NONE and not outcome.duplicate:
            context = self._client.context
            context.stats.stored_bytes[context.racks.counted(self._client.session, self._request.client_id)] += size
        if error_code == UNKNOWN_TOPIC_OR_PARTITION and self._parsed.version >= FIRST_TOPIC_ID:
            error_code = UNKNOWN_TOPIC_ID  # deleted meanwhile; the name may have another ID by now
        answers[place] = PartitionProduced(
            answers[place].index,
            error_code,
            outcome.base_offset,
            outcome.append_time_ms,
            outcome.log_start_offset,
            outcome.error_message,
            outcome.record_errors,
        )
        self._one_settled()

    def classic_answered(self, body: memoryview) -> None:
        """The broker's answer to the classic part."""
        self._classic_body = body
        self._classic_awaited = False
        if self._timed_out:
            self._answer()
        self._one_settled()

    def classic_lost(self) -> None:
        """End the client's connection, because the broker's ended and the outcome is unknown."""
        self._keep_charge()
        self._slot.lose()
        self._one_settled()

    def _one_settled(self) -> None:
        self._open -= 1
        if not self._open:
            self._answer()
            self._client.context.memory.give_back(self._kept_bytes)
            self._kept_bytes = 0

    def _time_out(self) -> None:
        """Answer REQUEST_TIMED_OUT for everything without an outcome, as soon as the broker has answered.

        This is the client's own limit. If nothing was accepted yet, nothing will be.
        """
        self._timed_out = True
        if not self._accepted:
            for topic, partitions, _ in self._parsed.topics:
                answers = [PartitionProduced(partition.index, REQUEST_TIMED_OUT) for partition in partitions]
                self._topics.append(TopicProduced(topic, answers))
            self._answer()
            return
        self._keep_charge()
        if not self._classic_awaited:
            self._answer()

    def _keep_charge(self) -> None:
        """The batches stay in memory until they are settled, so they stay charged whatever becomes of the slot."""
        self._kept_bytes += self._slot.charge_bytes
        self._slot.charge_bytes = 0

    def _answer(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
        if self._slot.done:
            return
        context = self._client.context
        context.stats.produce_seconds.observe(context.now() - self._began_s)
        failed = False
        for topic in self._topics:
            for partition in topic.partitions:
                if partition.error_code:
                    context.stats.partition_errors["Produce", partition.error_code] += 1
                    failed = True
        if failed and self._parsed.acks == 0:
            # As brokers do: it is all that tells the client to look where its topics are led now.
            self._client.close()
        if self._parsed.acks == 0:
            self._slot.finish()
            return
        version = self._parsed.version
        if self._classic_body is None:
            self._slot.fill([build_produce_response(version, self._topics, self._throttle_ms)])
            return
        body: list[Buffer] = merge_produce_response(self._classic_body, version, self._topics, self._throttle_ms)
        rewriter = _rewriter(self._client, self._request.client_id, version)
        self._slot.fill(rewriter(memoryview(b"".join(body))) if rewriter else body)


class _ClassicHalf:
    """Expects the broker's answer to the classic part of a mixed Produce (`upstream.Expected`)."""

    __slots__ = ("_pending", "_version", "correlation_id")

    def __init__(self, request: Request, pending: _PendingProduce) -> None:
        self.correlation_id = request.correlation_id
        self._version = request.api_version
        self._pending = pending

    def response_begins(self, size: int) -> Decision:
        """Held: it is merged."""
        return Decision.HOLD

    def response_held(self, frame: memoryview) -> None:
        """The broker's part of the answer."""
        self._pending.classic_answered(frame[response_header_length(PRODUCE, self._version, frame) :])

    def response_part(self, part: memoryview, last: bool) -> None:
        """Never streamed."""
        raise AssertionError("the answer to a classic half is held")

    def response_lost(self) -> None:
        """The broker is gone."""
        self._pending.classic_lost()


def _rewriter(client: Client, client_id: str | None, version: int) -> _Rewrite | None:
    """New leaders come with their addresses from v10 on (KIP-951)."""
    if version < _FIRST_NODE_ENDPOINTS_VERSION:
        return None
    return lambda body: rewrite_node_endpoints(PRODUCE, body, version, address_of(client, client_id))


def _count_passing(client: Client, client_id: str | None) -> CountTopic:
    """Counts records that stream through while every topic is classic, and remembers which topics those are."""
    count, remember = count_classic(client, client_id, "produce"), client.context.topics.passed

    def counted(topic: str | bytes, size: int) -> None:
        remember(topic)
        count(topic, size)

    return counted


def _count_produced(client: Client, client_id: str | None, classic: ProduceRequest) -> None:
    """Records of classic topics, by topic, between the client's rack and the broker's."""
    count = count_classic(client, client_id, "produce")
    for topic, partitions, _ in classic.topics:
        count(topic, sum(len(partition.records) for partition in partitions if partition.records is not None))
