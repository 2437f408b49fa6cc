"""The leaders' part of a Fetch: requested from the client's own broker, as the client, without a session.

An unresponsive broker is waited for as a client of its own would wait. If other sources have something for the same
Fetch, the wait is short. The broker's partitions are then answered as partitions without news. All of them are in the
answer, because Java's consumer drops an answer without a session that lacks one, and an error would make clients
request metadata at every Fetch. Only if the client has never got a high watermark of a partition, it gets an error that
makes it look for the leader: without a high watermark, librdkafka believes that the partition is read to its end.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable

from proxy.brokers.cluster import Cluster
from proxy.brokers.upstream import BrokerUnreachable
from proxy.client.client import Client
from proxy.client.request import Request
from proxy.config import Brokers
from proxy.fetching.answer import CLASSIC, Answer, Piece, piece_of
from proxy.fetching.asked import Key
from proxy.fetching.watermarks import Ends
from proxy.process.memory import MemoryBudget
from proxy.process.turns import Turns
from proxy.process.unfinished import drop
from proxy.protocol.api_keys import FETCH
from proxy.protocol.errors import NONE, NOT_LEADER_OR_FOLLOWER
from proxy.replicas.answers import AwaitedAnswer, ReplicaAnswer
from proxy.routing.addresses import Addresses
from proxy.wire.endpoints import rewrite_endpoint_section
from proxy.wire.fetch import (
    FIRST_REPLICA_TAG,
    FIRST_SESSION,
    NO_SESSION,
    FetchRequest,
    TopicFetch,
    build_fetch_request_in_steps,
)
from proxy.wire.fetch_response import PartitionFetched
from proxy.wire.fetch_walk import FetchWalk, response_tail, walk_fetch_response
from proxy.wire.primitives import INT32, NO_TAGS
from proxy.wire.steps import Pace, Result, Steps, at_once, in_slices

FIRST_NODE_ENDPOINTS_VERSION = 16
_SESSION = struct.Struct(">ii")
_SESSION_AT = 17
"""Position of session ID and epoch in a request from v7 on, after replica ID, waits and limits, and isolation level."""


class LeaderSilence:
    """Time since which a connection's broker owes an answer that nobody waits for any more."""

    def __init__(self) -> None:
        self.since_s: float | None = None
        self.received_bytes = 0
        """How much the broker had said until then."""


class LeaderReads:
    """The parts that reading from leaders needs. `memory` is the budget of brokers' answers."""

    def __init__(
        self,
        brokers: Brokers,
        *,
        cluster: Cluster,
        addresses: Addresses,
        memory: MemoryBudget,
        turns: Turns,
        now: Callable[[], float],
    ) -> None:
        """`now`: monotonic seconds."""
        self.turns = turns
        self.brokers = brokers
        self.cluster = cluster
        self.addresses = addresses
        self.memory = memory
        self.now = now


class LeaderSource:
    """The broker that the client's connection is to."""

    def __init__(
        self,
        of: LeaderReads,
        client: Client,
        request: Request,
        parsed: FetchRequest,
        record: Callable[[str | bytes, int, int, int], None],
        last_recorded: Callable[[str | bytes, int], Ends | None],
        silence: LeaderSilence,
        hold: Callable[[ReplicaAnswer], None],
        *,
        large: bool = False,
    ) -> None:
        """Take `parsed`, which names the rack that brokers may redirect to (KIP-392), or none.

        `record` is called with high watermarks and last stable offsets, and `last_recorded` returns them. `silence` is
        the connection's. `hold` is called with each answer that takes memory. `large`: the work is done in turns.
        """
        self._large = large
        self._of = of
        self._hold = hold
        self._record = record
        self._last_recorded = last_recorded
        self._silence = silence
        self._client = client
        self._request = request
        self._parsed = parsed
        self._serving = of.cluster.rack_of(client.session.node_id)

    async def ask(
        self,
        topics: list[TopicFetch],
        *,
        wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        patience_s: float | None = None,
    ) -> Answer:
        """Ask once. Raises BrokerUnreachable and ProtocolError.

        An answer that does not begin within `wait_ms` and `brokers.request_timeout_ms` ends the connection; one that
        does not within `patience_s` leaves the partitions without news.
        """
        version = self._parsed.version
        half = self._parsed._replace(
            max_wait_ms=wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            session_id=0,
            session_epoch=NO_SESSION,
            topics=topics,
            forgotten=[],
        )
        answer = await self._answer(await self._do(build_fetch_request_in_steps(half)), wait_ms / 1000, patience_s)
        if answer is None:
            return Answer(CLASSIC, self._serving, False, await self._do(self._all_without_news(topics)), 0, True)
        self._hold(answer)
        walk = await self._do(walk_fetch_response.steps(answer.body, version))
        pieces, size, failed = await self._do(self._pieces(walk))
        settled = failed or walk.error_code != NONE or walk.throttle_ms > 0
        tail = response_tail(walk)
        if version >= FIRST_NODE_ENDPOINTS_VERSION and tail != NO_TAGS:
            tail = rewrite_endpoint_section(tail, self._of.addresses.of(self._client.session, self._request.client_id))
        return Answer(
            CLASSIC, self._serving, False, pieces, size, settled, walk.throttle_ms, walk.error_code, tail or NO_TAGS
        )

    async def _do(self, steps: Steps[Result]) -> Result:
        """Do the work at once, or in turns with other work if the request is large."""
        return await self._of.turns.run(steps) if self._large else at_once(steps)

    def _pieces(self, walk: FetchWalk) -> Steps[tuple[dict[Key, Piece], int, bool]]:
        """Return the partitions' answers, the bytes of their records, and whether one has an error."""
        pieces, size, failed, pace = dict[Key, Piece](), 0, False, Pace()
        for topic, partitions in walk.topics:
            for some in in_slices(partitions):
                for partition in some:
                    size += partition.record_bytes
                    failed = failed or partition.error_code != NONE
                    self._record(topic, partition.index, partition.high_watermark, partition.last_stable_offset)
                    pieces[topic, partition.index] = Piece(
                        partition.error_code, partition.record_bytes, [walk.body[partition.start : partition.end]]
                    )
                if pace.pauses(len(some)):
                    yield
        return pieces, size, failed

    def _all_without_news(self, topics: list[TopicFetch]) -> Steps[dict[Key, Piece]]:
        pieces, pace = dict[Key, Piece](), Pace()
        for topic, partitions, _ in topics:
            for some in in_slices(partitions):
                pieces |= {(topic, one.index): self._no_news(topic, one.index) for one in some}
                if pace.pauses(len(some)):
                    yield
        return pieces

    async def _answer(self, body: bytes, wait_s: float, patience_s: float | None) -> ReplicaAnswer | None:
        """None if it does not come within `patience_s`; one that has begun may take its time."""
        of, silence = self._of, self._silence
        if silence.received_bytes != self._client.upstream_bytes:
            silence.since_s = None
        asked_s = of.now() if silence.since_s is None else silence.since_s
        limit_s = asked_s + wait_s + of.brokers.request_timeout_ms / 1000 - of.now()
        pause_s = limit_s if patience_s is None else min(limit_s, patience_s)
        awaited = AwaitedAnswer(of.memory, self._client.resume_upstream)
        question = asyncio.ensure_future(self._client.ask(self._request, FETCH, self._parsed.version, body, awaited))
        try:
            while True:
                seen_bytes = self._client.upstream_bytes
                await asyncio.wait([question], timeout=max(pause_s, 0.0))
                if question.done():
                    silence.since_s = None
                    return ReplicaAnswer(question.result(), of.memory, awaited.take())
                if self._client.upstream_bytes == seen_bytes:
                    break
        finally:
            drop(question)
            awaited.give_up()
        silence.since_s, silence.received_bytes = asked_s, self._client.upstream_bytes
        if patience_s is None or patience_s >= limit_s:
            raise BrokerUnreachable("the broker does not answer a Fetch")
        return None

    def _no_news(self, topic: str | bytes, partition: int) -> Piece:
        aborted = () if self._parsed.isolation_level else None
        ends = self._last_recorded(topic, partition)
        if ends is None:
            return piece_of(PartitionFetched(partition, NOT_LEADER_OR_FOLLOWER, -1, -1, -1, (), 0, aborted))
        return piece_of(PartitionFetched(partition, NONE, *ends, -1, (), 0, aborted))


def without_session(request: Request, parsed: FetchRequest) -> Request:
    """Return the request of a client without a session of the broker's; the same request if it wants none."""
    if parsed.version < FIRST_SESSION or (parsed.session_id == 0 and parsed.session_epoch == NO_SESSION):
        return request
    at = _SESSION_AT if parsed.version < FIRST_REPLICA_TAG else _SESSION_AT - INT32.size
    body = bytearray(request.body)
    body[at : at + _SESSION.size] = _SESSION.pack(0, NO_SESSION)
    return request.with_body(bytes(body))
