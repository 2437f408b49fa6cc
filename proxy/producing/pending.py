"""A Produce with diskless topics, until it is answered.

1. The client's right to write is read from its own broker, once per connection and short time.
2. Every diskless batch is checked as a broker checks it, and appended; a bad one fails alone, with Kafka's error code.
3. When all outcomes are there, including the broker's for the classic part, the answer is built. Requests don't wait
   for each other: up to the client's in-flight limit are buffered and uploaded while earlier ones still are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from functools import partial

from proxy.accounting.accounting import Accounts
from proxy.client.client import Client
from proxy.client.request import Request
from proxy.client.rights import WRITE, ClientRights
from proxy.client.slots import Slot
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.diskless.index_watch import FULL_MESSAGE, FULL_THROTTLE_MS, IndexWatch
from proxy.diskless.produce_checks import check_produced
from proxy.diskless.wal.intake import Intake
from proxy.diskless.wal.outcome import Outcome
from proxy.process.memory import MemoryBudget
from proxy.producing.classic import ClassicHalf, ClassicProduce
from proxy.producing.split import split
from proxy.protocol.errors import (
    INVALID_REQUEST,
    INVALID_TXN_STATE,
    KAFKA_STORAGE_ERROR,
    NONE,
    REQUEST_TIMED_OUT,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from proxy.quotas.quotas import Quotas
from proxy.records.batches import RecordsError, producer_id_of
from proxy.routing.racks import Racks
from proxy.telemetry.stats import Stats
from proxy.telemetry.throttled_log import ThrottledLog
from proxy.topics.topic_defaults import TopicDefaults
from proxy.topics.topics import Topics
from proxy.wire.primitives import Buffer
from proxy.wire.produce import (
    FIRST_TOPIC_ID,
    PartitionProduce,
    PartitionProduced,
    ProduceRequest,
    TopicProduced,
    build_produce_request,
    build_produce_response,
    merge_produce_response,
)

_TWICE = "the request has records for this partition already: send what follows in another request"


class DisklessProduce:
    """The parts that every Produce with diskless topics needs."""

    def __init__(
        self,
        *,
        classic: ClassicProduce,
        topics: Topics,
        topic_defaults: TopicDefaults,
        rights: ClientRights,
        quotas: Quotas,
        index_watch: IndexWatch,
        intake: Intake,
        accounts: Accounts,
        racks: Racks,
        stats: Stats,
        memory: MemoryBudget,
        throttled_log: ThrottledLog,
        now: Callable[[], float],
        wall_clock_ms: Callable[[], int],
    ) -> None:
        """`now`: monotonic seconds."""
        self.classic = classic
        self.topics = topics
        self.topic_defaults = topic_defaults
        self.rights = rights
        self.quotas = quotas
        self.index_watch = index_watch
        self.intake = intake
        self.accounts = accounts
        self.racks = racks
        self.stats = stats
        self.memory = memory
        self.throttled_log = throttled_log
        self.now = now
        self.wall_clock_ms = wall_clock_ms


class PendingProduce:
    """One Produce request whose outcomes come in one by one."""

    def __init__(
        self, of: DisklessProduce, client: Client, request: Request, slot: Slot, parsed: ProduceRequest
    ) -> None:
        self._of = of
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
        self._began_s = of.now()

    async def ask_then_accept(self, unasked: dict[str, bytes]) -> None:
        """Ask the brokers what the client may write, then accept. Raises BrokerUnreachable."""
        self._start_timer()
        asked: set[str] = set()
        while unasked:
            await self._of.rights.of(self._client.session).ask(self._client, self._request, unasked)
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
        classic, diskless = split(self._of.topics, self._parsed)
        rights = self._of.rights.of(self._client.session)
        unasked = rights.unasked({part.entry.name: part.entry.topic_id for part in diskless if part.entry is not None})
        if not set(unasked) <= set(asked):
            return unasked
        self._accepted = True
        size = len(self._request.frame)
        if classic.topics:
            size -= self._forward(classic)
        if diskless:
            # Counted when it comes, not when it is answered as on brokers: what is pipelined is throttled in time.
            quotas, user = self._of.quotas, self._client.session.user
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
        """Start the timer of the client's own limit: it counts from the request's arrival, and for every wait."""
        if self._timeout is None and self._parsed.acks != 0:
            delay_s = max(self._parsed.timeout_ms, 0) / 1000
            self._timeout = asyncio.get_running_loop().call_later(delay_s, self._time_out)

    def _refuse_again(
        self, entry: DisklessTopic | None, partition: PartitionProduce, answers: list[PartitionProduced], place: int
    ) -> None:
        """Reject a partition that the request has named before."""
        if entry is not None:
            self._of.intake.refused(entry.topic_id, partition.index, producer_id_of(partition.records))
        answers[place] = PartitionProduced(partition.index, INVALID_REQUEST, error_message=_TWICE)

    def _append(
        self, entry: DisklessTopic, partition: PartitionProduce, answers: list[PartitionProduced], place: int
    ) -> None:
        """Check one partition's batch and give it to the WAL buffer, or answer why not."""
        of, acks, version = self._of, self._parsed.acks, self._parsed.version
        try:
            rules = of.topic_defaults.rules(entry)
            if rules.compacted:
                rules = rules._replace(partition=f"{entry.name}-{partition.index}")
            records, header = check_produced(entry, partition, rules, acks=acks, version=version)
        except RecordsError as error:
            if error.error_code == INVALID_TXN_STATE:
                of.throttled_log.warning(
                    "transactional_batch_refused",
                    topic=entry.name,
                    reason=str(error),
                    remedy="produce without transactional.id, or to a classic topic",
                )
            of.intake.refused(entry.topic_id, partition.index, producer_id_of(partition.records))
            answers[place] = PartitionProduced(partition.index, error.error_code, error_message=str(error))
            return
        if of.index_watch.is_full(entry.topic_id, partition.index):
            of.stats.index_full_batches += 1
            producer = header.producer_id, header.producer_epoch, header.base_sequence
            of.intake.not_stored(entry.topic_id, partition.index, *producer)
            answers[place] = PartitionProduced(partition.index, KAFKA_STORAGE_ERROR, error_message=FULL_MESSAGE)
            self._throttle_ms = max(self._throttle_ms, FULL_THROTTLE_MS)
            return
        of.accounts.diskless(self._client.session, self._request.client_id, "produce")(entry.name, header.length)
        self._open += 1
        settle = partial(self._settle, answers, place, size=header.length)
        now_ms = of.wall_clock_ms()
        of.intake.append(entry.topic_id, partition.index, records, header, rules, now_ms, settle)

    def _forward(self, classic: ProduceRequest) -> int:
        """Send the classic part, under the client's own header, and return its size in bytes."""
        header_length = len(self._request.frame) - len(self._request.body)
        buffers: list[Buffer] = [self._request.frame[:header_length], *build_produce_request(classic)]
        size = sum(map(len, buffers))
        self._of.classic.count(self._client.session, self._request.client_id, classic)
        expected = None
        if classic.acks != 0:
            self._open += 1
            self._classic_awaited = True
            expected = ClassicHalf(self._request, self._classic_answered, self._classic_lost)
        self._client.send_upstream(buffers, expected)
        return size

    def _settle(self, answers: list[PartitionProduced], place: int, outcome: Outcome, *, size: int) -> None:
        """Note the outcome of a batch of `size` bytes."""
        error_code = outcome.error_code
        if error_code == NONE and not outcome.duplicate:
            rack = self._of.racks.counted(self._client.session, self._request.client_id)
            self._of.stats.stored_bytes[rack] += size
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

    def _classic_answered(self, body: memoryview) -> None:
        """Take the broker's answer to the classic part."""
        self._classic_body = body
        self._classic_awaited = False
        if self._timed_out:
            self._answer()
        self._one_settled()

    def _classic_lost(self) -> None:
        """End the client's connection, because the broker's ended and the outcome is unknown."""
        self._keep_charge()
        self._slot.lose()
        self._one_settled()

    def _one_settled(self) -> None:
        self._open -= 1
        if not self._open:
            self._answer()
            self._of.memory.give_back(self._kept_bytes)
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
        stats = self._of.stats
        stats.produce_seconds.observe(self._of.now() - self._began_s)
        failed = False
        for topic in self._topics:
            for partition in topic.partitions:
                if partition.error_code:
                    stats.partition_errors["Produce", partition.error_code] += 1
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
        rewrite = self._of.classic.rewrite(self._client.session, self._request.client_id, version)
        self._slot.fill(rewrite(memoryview(b"".join(body))) if rewrite is not None else body)
