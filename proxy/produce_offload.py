"""Produce: the classic part goes to the broker, the diskless part to the WAL buffer, and one answer comes back.

A Produce streams through unheld if its first bytes prove that all of it is for classic topics (`begin`). Otherwise
`produce` splits it: each topic is classic, diskless, or rejected (`producing/split.py`). If some are diskless, it goes
on in `producing/pending.py`.

No answer before the batch is durable and ordered: PUT, then commit, then answer (KIP-1163).
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from proxy.client.client import Client
from proxy.client.request import Request
from proxy.client.slots import BrokerSlot, Slot
from proxy.producing.classic import ClassicProduce
from proxy.producing.express import learn
from proxy.producing.parts import DisklessProduce
from proxy.producing.pending import PendingProduce
from proxy.producing.split import DisklessPart, split, split_in_steps, unsure_ids
from proxy.protocol.api_keys import PRODUCE
from proxy.telemetry.throttled_log import NAMES_SHOWN
from proxy.topics.topics import Topics
from proxy.wire.errors import ProtocolError, TooManyElements
from proxy.wire.frames import Decision
from proxy.wire.produce import FIRST_TOPIC_ID, LOWEST_VERSION, ProduceRequest, parse_produce_request
from proxy.wire.produce_prefix import client_id_of_prefix, read_only_topic, read_produce_prefix
from proxy.wire.produce_steps import parse_large_produce
from proxy.wire.produce_stream import ProduceStream, count_produced

_HEAD = struct.Struct(">hhi")
_SIZE_BYTES = 4
_MOST_AT_ONCE = 1_024
"""Topics and partitions of a request that is handled in one step."""
_MAX_PREFIX_BYTES = 131_072
"""Two strings of 32,767 bytes and some tagged fields come before the acks."""


class ProduceOffload:
    """Handler of Produce."""

    def __init__(
        self,
        *,
        topics: Topics,
        classic: ClassicProduce,
        diskless: DisklessProduce,
        keeps_s: Callable[[], float] = lambda: 30.0,
    ) -> None:
        """`keeps_s` returns how long a request without acknowledgement is kept for what it has to wait for."""
        self._topics = topics
        self._keeps_s = keeps_s
        self._classic = classic
        self._diskless = diskless

    def begin(self, client: Client, size: int, head: memoryview) -> Decision:
        """Stream a Produce of `size` bytes if it is surely for classic topics, and hold it otherwise.

        `head` is the part of it that has come. Next to diskless topics, only a request that names one topic streams:
        further names come after records, which the broker would have by then. A whole request is held, because
        streaming would save nothing.
        """
        all_classic = self._topics.nothing_diskless
        if not all_classic and len(head) == size:
            return Decision.HOLD
        _, version, correlation_id = _HEAD.unpack_from(head)
        prefix = read_produce_prefix(head, version)
        if prefix is None:
            if len(head) < min(size, _MAX_PREFIX_BYTES):
                return Decision.NEED_MORE
            raise ProtocolError("a Produce request ends before its acks, or has an endless client or transactional ID")
        if not all_classic and (decision := self._judge(head, prefix.topics_at, version)) is not Decision.STREAM:
            return decision
        client_id = client.session.client_id = client_id_of_prefix(head)
        count = self._classic.count_passing(client.session, client_id)
        stream = None
        if len(head) == size:
            count_produced(head, prefix.topics_at, version, count)
        else:
            stream = ProduceStream(version, count, begins_at=_SIZE_BYTES + prefix.topics_at)
        slot = None
        if prefix.acks != 0:
            rewrite = self._classic.rewrite(client.session, client_id, version)
            slot = BrokerSlot(client.answers, PRODUCE, version, correlation_id, rewrite)
            if stream is None:
                learn(client, client_id, head, version, prefix.topics_at, self._topics, self._classic)
        if stream is not None:
            self._topics.begin_stream(stream)
        confirmed = slot is not None and _is_by_name(version)
        client.begin_stream(PRODUCE, slot, stream, self._topics.end_stream if confirmed else self._end_any)
        return Decision.STREAM

    def _end_any(self, stream: ProduceStream) -> bool:
        """End a stream that may go to the broker also if the lease has ended meanwhile.

        It names topics by IDs, which never become another topic's, or is not acknowledged (decision 0137).
        """
        self._topics.end_stream(stream)
        return True

    def _judge(self, head: memoryview, topics_at: int, version: int) -> Decision:
        """Decide on a Produce next to diskless topics, of which more is to come than `head`."""
        try:
            topic = read_only_topic(head, topics_at, version)
        except (IndexError, struct.error):
            return Decision.NEED_MORE
        topics = self._topics
        if topic is None or not topics.is_current or topics.find(topic) is not None:
            return Decision.HOLD
        return Decision.STREAM if topics.surely_classic(topic) else Decision.HOLD

    def produce(self, client: Client, request: Request) -> Coroutine[Any, Any, None] | None:
        """Handle Produce (API key 0) while diskless topics exist, or may."""
        try:
            parsed = parse_produce_request(request.body, request.api_version, _MOST_AT_ONCE)
        except TooManyElements:
            prefix = read_produce_prefix(request.frame, request.api_version)
            assert prefix is not None, "more of it was parsed"
            return self._large(client, request, client.open_slot(request, answered=prefix.acks != 0))
        _, diskless = split(self._topics, parsed)
        _check_version(request.api_version, diskless)
        if not diskless and not self._must_confirm(request.api_version):
            self._classic.count(client.session, request.client_id, parsed)
            rewrite = self._classic.rewrite(client.session, request.client_id, request.api_version)
            client.forward(request, rewrite, answered=parsed.acks != 0)
            self._learn(client, request, parsed)
            return None
        slot = client.open_slot(request, answered=parsed.acks != 0)
        pending = PendingProduce(self._diskless, client, request, slot, parsed)
        if parsed.acks == 0 and (unsure := unsure_ids(self._topics, diskless)):
            return self._accept_later(pending, parsed, unsure)
        return None if pending.accept() else pending.ask_then_accept()

    async def _accept_later(self, pending: PendingProduce, parsed: ProduceRequest, unsure: list[bytes]) -> None:
        """Accept a Produce when it is certain what its topics are. Raises BrokerUnreachable and ProtocolError."""
        await self._settle(parsed, unsure)
        if not pending.accept():
            await pending.ask_then_accept()

    async def _settle(self, parsed: ProduceRequest, unsure: list[bytes]) -> None:
        """Wait for topics that are being created, but at most for the client's own timeout, and within the limit.

        A client that gets no answer would not send the records again, although nothing has failed.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(min(max(parsed.timeout_ms, 0) / 1000, self._keeps_s())):
                await self._topics.settle_ids(unsure)

    def _must_confirm(self, version: int) -> bool:
        """Return whether the broker's answer to classic topics must be confirmed (`producing/confirmed.py`).

        Later versions name topics by IDs, which never become another topic's. Earlier ones can't be answered here.
        """
        return _is_by_name(version) and not self._topics.is_current

    def _learn(self, client: Client, request: Request, parsed: ProduceRequest) -> None:
        """Let the next request like this one take the express lane, if it may."""
        if parsed.acks == 0 or len(parsed.topics) != 1 or len(parsed.topics[0].partitions) != 1:
            return
        version = request.api_version
        prefix = read_produce_prefix(request.frame, version)
        assert prefix is not None, "more of it was parsed"
        learn(client, request.client_id, request.frame, version, prefix.topics_at, self._topics, self._classic)

    async def _large(self, client: Client, request: Request, slot: Slot) -> None:
        """Do `produce` in turns with other work. Raises BrokerUnreachable and ProtocolError."""
        turns, session, version = self._diskless.turns, client.session, request.api_version
        parsed = await turns.run(parse_large_produce.steps(request.body, version))
        if parsed.acks == 0:
            _, diskless = await turns.run(split_in_steps(self._topics, parsed))
            if unsure := unsure_ids(self._topics, diskless):
                decoded_bytes = self._diskless.decoded_bytes(parsed)
                self._diskless.memory.take(decoded_bytes)
                try:
                    await self._settle(parsed, unsure)
                finally:
                    self._diskless.memory.give_back(decoded_bytes)
        judged = None
        while judged != (judged := (self._topics.version, self._topics.is_current)):
            # A topic may become diskless, or the lease end, between two turns.
            _, diskless = await turns.run(split_in_steps(self._topics, parsed))
        _check_version(version, diskless)
        if diskless or self._must_confirm(version):
            await PendingProduce(self._diskless, client, request, slot, parsed, large=True).accept_in_turns()
            return
        if parsed.acks != 0:
            client.forward_opened(request, slot, self._classic.rewrite(session, request.client_id, version))
        else:
            client.forward(request, answered=False)
            slot.finish()
        await turns.run(self._classic.count_in_steps(session, request.client_id, parsed))


def _is_by_name(version: int) -> bool:
    """Return whether a version names topics, and can be answered by the proxy."""
    return LOWEST_VERSION <= version < FIRST_TOPIC_ID


def _check_version(version: int, diskless: Sequence[DisklessPart]) -> None:
    """Raise ProtocolError if the request names diskless topics in a version that has records of another format."""
    if diskless and version < LOWEST_VERSION:
        # An older broker than 4.0 (KIP-896) would put the records into a shadow's log.
        named = ", ".join(str(part.topic) for part in diskless[:NAMES_SHOWN])
        raise ProtocolError(
            f"Produce v{version} to {named}: diskless topics take records of clients of Kafka 0.11 or newer"
        )
