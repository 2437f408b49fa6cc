"""A Produce with diskless topics, until it is answered.

1. The client's right to write is read from its own broker, once per connection and short time. If the batches belong
   to a transaction of version 2, their partitions are added to it, once per transaction.
2. Every diskless batch is checked as a broker checks it, and appended; a bad one fails alone, with Kafka's error code.
3. When all outcomes are there, including the broker's for the classic part, the answer is built. Requests don't wait
   for each other: up to the client's in-flight limit are buffered and uploaded while earlier ones still are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial

from proxy.client.client import Client
from proxy.client.request import Request
from proxy.client.slots import Slot
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.diskless.wal.outcome import Outcome
from proxy.process.turns import finish
from proxy.producing.admission import Refused, admit
from proxy.producing.answers import TWICE, all_timed_out, placed_in_steps
from proxy.producing.parts import DisklessProduce
from proxy.producing.rights import ProducerRights
from proxy.producing.split import DisklessPart, Named, split, split_in_steps
from proxy.producing.transaction import Added, transaction_of
from proxy.protocol.errors import (
    INVALID_REQUEST,
    NONE,
    REQUEST_TIMED_OUT,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from proxy.records.batches import producer_id_of, producer_of
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
from proxy.wire.produce_steps import build_large_produce, build_large_produce_response
from proxy.wire.steps import Steps, at_once, in_slices


class PendingProduce:
    """One Produce request whose outcomes come in one by one."""

    __slots__ = (
        "_accepted",
        "_answering",
        "_began_s",
        "_classic_awaited",
        "_classic_body",
        "_client",
        "_failed",
        "_kept_bytes",
        "_large",
        "_of",
        "_open",
        "_parsed",
        "_request",
        "_rights",
        "_slot",
        "_throttle_ms",
        "_timed_out",
        "_timeout",
        "_topics",
        "_transaction",
    )

    def __init__(
        self,
        of: DisklessProduce,
        client: Client,
        request: Request,
        slot: Slot,
        parsed: ProduceRequest,
        *,
        large: bool = False,
    ) -> None:
        """`large`: it names so much that it is accepted and answered in turns with other work."""
        self._of = of
        self._client = client
        self._request = request
        self._slot = slot
        self._parsed = parsed
        self._rights = ProducerRights(client, parsed.transactional_id, topics=of.rights, ids=of.transactional_ids)
        self._transaction = transaction_of(of.additions, parsed)
        self._large = large
        self._answering = False
        self._failed = False
        """True if the answer has an error."""
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
        of.charge_decoded(slot, parsed)

    async def ask_then_accept(self) -> None:
        """Ask the brokers what the client may write, and add partitions to its transaction; then accept.

        Raises BrokerUnreachable and ProtocolError.
        """
        self._start_timer()
        accepted = False
        while not accepted:
            await self._rights.ask(self._client, self._request)
            if self._transaction is not None:
                await self._transaction.add(self._client, self._request)
            if self._timed_out:
                for part in split(self._of.topics, self._parsed)[1]:
                    self._take(part, self._rights.error_of(part), part.partitions, [], 0, set())
                return
            accepted = self.accept()

    def accept(self) -> bool:
        """Send the classic part on, and append the diskless part; False if the client's rights must be read first, or
        partitions be added to its transaction.

        Whether a topic is classic is judged here, in the same step that forwards it: an earlier judgement may be older
        than a registry version that this proxy has acknowledged since.
        """
        of = self._of
        classic, diskless = split(of.topics, self._parsed)
        if not self._rights.are_known(diskless):
            return False
        if self._transaction is not None and not at_once(self._transaction.look(diskless, self._rights)):
            return False
        self._accepted = True
        self._send_on(classic, build_produce_request(classic) if classic.topics else [], diskless)
        of.classic.count(self._client.session, self._request.client_id, classic)
        named: set[Named] = set()
        for part in diskless:
            error_code = self._rights.error_of(part)
            placed = error_code or REQUEST_TIMED_OUT
            answers = [PartitionProduced(partition.index, placed) for partition in part.partitions]
            self._topics.append(TopicProduced(part.topic, answers))
            self._take(part, error_code, part.partitions, answers, 0, named)
        if self._open > 1 and not self._slot.done:
            self._start_timer()
        self._one_settled()
        return True

    async def accept_in_turns(self) -> None:
        """Do `ask_then_accept` in turns. Raises BrokerUnreachable and ProtocolError."""
        self._start_timer()
        of, judged = self._of, None
        while judged != (judged := (of.topics.version, of.topics.is_current)):
            # A topic may become diskless, or the lease end, between two turns.
            classic, diskless = await of.turns.run(split_in_steps(of.topics, self._parsed))
            if not self._rights.are_known(diskless):
                await self._rights.ask(self._client, self._request)
            transaction = self._transaction
            if transaction is not None and not await of.turns.run(transaction.look(diskless, self._rights)):
                await transaction.add(self._client, self._request)
            frame = await of.turns.run(build_large_produce(classic)) if classic.topics else []
            errors = [self._rights.error_of(part) for part in diskless]
            self._topics = await of.turns.run(placed_in_steps(diskless, errors))
            if self._timed_out:
                await of.turns.run(self._take_all(diskless, errors))
                return
        self._accepted = True
        self._send_on(classic, frame, diskless)
        try:
            await of.turns.run(of.classic.count_in_steps(self._client.session, self._request.client_id, classic))
            await of.turns.run(self._take_all(diskless, errors))
        except BaseException:
            self._keep_charge()
            raise
        finally:
            self._one_settled()

    def _send_on(self, classic: ProduceRequest, body: list[Buffer], diskless: list[DisklessPart]) -> None:
        """Forward the classic part, whose `body` was built, and count the rest towards the client's quota."""
        size = len(self._request.frame)
        if classic.topics:
            size -= self._forward(classic, body)
        if diskless:
            # Counted when it comes, not when it is answered as on brokers: what is pipelined is throttled in time.
            quotas, user = self._of.quotas, self._client.session.user
            self._throttle_ms = quotas.throttle_produce(user, self._request.client_id, size)
            if self._throttle_ms:
                self._client.mute(self._throttle_ms / 1000)

    def _take_all(self, parts: Iterable[DisklessPart], errors: Iterable[int]) -> Steps[None]:
        """Do `_take` for all topics, with pauses."""
        named: set[Named] = set()
        for part, error_code, topic in zip(parts, errors, self._topics, strict=True):
            place = 0
            for some in in_slices(part.partitions):
                self._take(part, error_code, some, topic.partitions, place, named)
                place += len(some)
                yield

    def _take(
        self,
        part: DisklessPart,
        error_code: int,
        partitions: Iterable[PartitionProduce],
        answers: list[PartitionProduced],
        first: int,
        named: set[Named],
    ) -> None:
        """Append batches of a topic; the answer to the first one is at `first`. `named` has those that came before.

        Batches that fail for now are only noted: if a later one of the producer passed, they would never be in order.
        Those of a client without the right are not: they would stop the producer whose ID they name.
        """
        denied = error_code == TOPIC_AUTHORIZATION_FAILED
        for place, partition in enumerate(partitions, first):
            if self._timed_out or (part.entry is not None and error_code != NONE and not denied):
                if part.entry is not None and not denied:
                    self._of.intake.not_stored(part.entry.topic_id, partition.index, *producer_of(partition.records))
                continue
            if (part.topic, partition.index) in named:
                self._refuse_again(part.entry, partition, answers, place)
                continue
            named.add((part.topic, partition.index))
            if error_code == NONE and part.entry is not None:
                self._append(part.entry, partition, answers, place)

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
        answers[place] = PartitionProduced(partition.index, INVALID_REQUEST, error_message=TWICE)

    def _append(
        self, entry: DisklessTopic, partition: PartitionProduce, answers: list[PartitionProduced], place: int
    ) -> None:
        """Check one partition's batch and give it to the WAL buffer, or answer why not."""
        of, log = self._of, (entry.topic_id, partition.index)
        admitted = admit(of, entry, partition, self._parsed, self._rights, self._transaction)
        if isinstance(admitted, Refused):
            answers[place] = admitted.answer
            self._throttle_ms = max(self._throttle_ms, admitted.throttle_ms)
            return
        records, header, rules, markers_from, added = admitted
        of.accounts.diskless(self._client.session, self._request.client_id, "produce")(entry.name, header.length)
        self._open += 1
        settle = partial(self._settle, answers, place, size=header.length, added=added)
        of.intake.append(*log, records, header, rules, of.wall_clock_ms(), settle, markers_from=markers_from)

    def _forward(self, classic: ProduceRequest, body: list[Buffer]) -> int:
        """Send the classic part, under the client's own header, and return its size in bytes."""
        header_length = len(self._request.frame) - len(self._request.body)
        buffers: list[Buffer] = [self._request.frame[:header_length], *body]
        size = sum(map(len, buffers))
        if classic.acks == 0:
            self._client.send_upstream(buffers, None)
            return size
        self._open += 1
        self._classic_awaited = True
        answered, lost = self._classic_answered, self._classic_lost
        self._of.classic.send(self._client, self._request, classic, buffers, answered, lost)
        return size

    def _settle(
        self, answers: list[PartitionProduced], place: int, outcome: Outcome, *, size: int, added: Added | None = None
    ) -> None:
        """Note the outcome of a batch of `size` bytes."""
        error_code = outcome.error_code if added is None else added.error_of(outcome.error_code)
        if error_code == NONE and not outcome.duplicate:
            self._of.stats.stored_bytes[self._of.racks.counted(self._client.session, self._request.client_id)] += size
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
        if self._slot.done or self._answering:
            return
        self._answering = True
        self._of.stats.produce_seconds.observe(self._of.now() - self._began_s)
        if self._large:
            finish(self._answer_in_steps())
            return
        topics = self._topics if self._accepted else all_timed_out(self._parsed)
        for topic in topics:
            self._count(topic.partitions)
        if self._parsed.acks == 0:
            self._end_unanswered()
        elif self._classic_body is None:
            self._slot.fill([build_produce_response(self._parsed.version, topics, self._throttle_ms)])
        else:
            self._fill_merged(topics)

    def _answer_in_steps(self) -> Steps[None]:
        topics = self._topics if self._accepted else all_timed_out(self._parsed)
        for topic in topics:
            for some in in_slices(topic.partitions):
                self._count(some)
                yield
        if self._parsed.acks == 0:
            self._end_unanswered()
        elif self._classic_body is None:
            body = yield from build_large_produce_response(self._parsed.version, topics, self._throttle_ms)
            self._slot.fill([body])
        else:
            self._fill_merged(topics)

    def _count(self, partitions: Iterable[PartitionProduced]) -> None:
        """Count the errors of an answer."""
        for partition in partitions:
            if partition.error_code:
                self._of.stats.partition_errors["Produce", partition.error_code] += 1
                self._failed = True

    def _end_unanswered(self) -> None:
        """End a request with acks=0."""
        if self._failed:
            # As brokers do: after this end the client looks where its topics are led now.
            self._client.close()
        self._slot.finish()

    def _fill_merged(self, topics: list[TopicProduced]) -> None:
        """Answer with the broker's part and the proxy's."""
        assert self._classic_body is not None
        version = self._parsed.version
        body: list[Buffer] = merge_produce_response(self._classic_body, version, topics, self._throttle_ms)
        rewrite = self._of.classic.rewrite(self._client.session, self._request.client_id, version)
        self._slot.fill(rewrite(memoryview(b"".join(body))) if rewrite is not None else body)
