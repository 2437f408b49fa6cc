"""One Fetch that the proxy answers, from its first round to the merged answer.

A single classic source gets the client's own `max_wait`, `min_bytes` and limits: one long poll. Several sources are
asked at the same time, in rounds: at first without waiting, then for 5 ms, 10 ms and so on up to `fetch.mixed_wait_ms`
(right away for that long, if the last Fetch got nothing). The rounds end when `min_bytes` or as much as the limits
allow are there, when something fails, or when time is up. A partition that a replica can't answer is the leader's for
the rest of the Fetch, and the leader is asked for it in the same round.

If diskless partitions can't be read at the moment (KAFKA_STORAGE_ERROR), a Fetch that has nothing continues for a short
time, in which they are retried and other partitions may have news.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from proxy.client.client import Client
from proxy.client.slots import Slot
from proxy.config import Settings
from proxy.diskless.get_count import count_gets
from proxy.fetching.answer import Answer
from proxy.fetching.asked import FetchAsked, Key, keys_of, only
from proxy.fetching.diskless import DisklessReads, DisklessSource
from proxy.fetching.fill import Answering, Filling
from proxy.fetching.forward import Forwarding
from proxy.fetching.leader import LeaderReads, LeaderSource
from proxy.fetching.replica import ReplicaReads, ReplicaReply, ReplicaSource
from proxy.fetching.route import Route, Routes
from proxy.fetching.watermarks import Ends
from proxy.process.turns import Turns, finish
from proxy.process.waiting import wait_at_most
from proxy.quotas.quotas import Quotas
from proxy.replicas.answers import ReplicaAnswer
from proxy.replicas.choice import LeaderReason
from proxy.telemetry.stats import Stats
from proxy.wire.fetch import NO_SESSION, build_fetch_request
from proxy.wire.steps import AT_A_TIME, LARGE_BYTES, Steps, emptied

_FIRST_WAIT_S = 0.005
_UNAVAILABLE_WAIT_S = 0.25
"""Time before KAFKA_STORAGE_ERROR is answered, as far as the client waits. Java's consumer retries at once, and would
do so a thousand times a second while the coordinator refuses connections."""
_DISKLESS = "diskless"
_LEADER = "leader"
"""Names of the sources other than replicas, which go by their node ID."""


class Sources:
    """The parts that every Fetch needs that the proxy answers."""

    def __init__(
        self,
        settings: Settings,
        *,
        routes: Routes,
        diskless: DisklessReads,
        replicas: ReplicaReads,
        leaders: LeaderReads,
        answering: Answering,
        forwarding: Forwarding,
        quotas: Quotas,
        stats: Stats,
        turns: Turns,
        now: Callable[[], float],
    ) -> None:
        """`now`: monotonic seconds."""
        self.settings = settings
        self.routes = routes
        self.diskless = diskless
        self.replicas = replicas
        self.leaders = leaders
        self.answering = answering
        self.forwarding = forwarding
        self.quotas = quotas
        self.stats = stats
        self.turns = turns
        self.now = now


class Fetching:
    """One Fetch, until it is answered."""

    def __init__(self, of: Sources, client: Client, asked: FetchAsked, route: Route) -> None:
        """`route` is that of the classic topics."""
        request, parsed, topics, diskless = asked.request, asked.parsed, asked.topics, asked.diskless
        self._of = of
        self._client = client
        self._request = request
        self._parsed = parsed
        self._topics = topics
        self._classic = asked.classic
        self._router = of.routes.of(client.session)
        self._known = route.known
        self._near = dict(route.near)
        self._leader_topics = route.leader
        self._reasons = dict(route.reasons)
        self._large = len(request.body) > LARGE_BYTES
        self._diskless: DisklessSource | None = None
        if diskless:
            self._diskless = DisklessSource(of.diskless, client, diskless, parsed, large=self._large)
        self._held: list[ReplicaAnswer] = []
        """Answers whose memory is to be given back."""
        self._diskless_first = bool(diskless) and topics[0].topic == diskless[0].asked.topic
        self._leader = LeaderSource(
            of.leaders,
            client,
            request,
            parsed,
            self._note_leader_ends,
            self._last_recorded,
            self._router.leader_silence,
            self._held.append,
            large=self._large,
        )
        self._replicas: dict[int, ReplicaSource] = {}
        settings = of.settings
        self._available_bytes = of.quotas.fetch.available_bytes(client.session.user, request.client_id)
        limit = min(parsed.max_bytes, settings.fetch.max_bytes, settings.limits.max_response_bytes_per_connection)
        self._max_bytes = int(min(limit, self._available_bytes))
        # Nothing is not enough, even over a quota: the client waits for records, and is throttled when they come.
        self._min_bytes = min(parsed.min_bytes, limit, max(self._max_bytes, 1))
        self._filling = Filling(
            of.answering, client, request.client_id, parsed.version, topics, diskless, self._max_bytes
        )
        self._sizes: dict[str | int, int] = {}
        """Record bytes that each source had in the last round."""
        self._due_s = of.now() + parsed.max_wait_ms / 1000

    async def answer(self, slot: Slot) -> None:
        """Read, wait while there is too little, answer. Raises BrokerUnreachable and ProtocolError."""
        began_s = self._of.now()
        due_s = self._due_s = began_s + self._parsed.max_wait_ms / 1000
        if self._near and self._available_bytes <= 0 and self._filling.throttled(slot):
            # Nothing is read that may not be answered.
            return
        if self._diskless is None:
            try:
                await self._collect(slot, due_s, None)
            finally:
                self._release()
            return
        gets = count_gets()
        await self._diskless.check(self._request)
        listened, news = self._diskless.partitions, asyncio.Event()
        coordinates, turns = self._of.diskless.reader.coordinates, self._of.turns
        try:
            if self._large:
                await turns.run(_in_steps(coordinates.listen, listened, news))
            else:
                coordinates.listen(listened, news)
            await self._collect(slot, due_s, news)
        finally:
            self._release()
            if self._large:
                finish(self._end(listened, news))
            else:
                coordinates.unlisten(listened, news)
        self._of.stats.fetch_seconds.observe(self._of.now() - began_s)
        self._of.stats.fetch_storage_gets.observe(len(gets))

    async def _collect(self, slot: Slot, due_s: float, news: asyncio.Event | None) -> None:
        """Round after round, until the answer is due; then give it."""
        now, longest_s = self._of.now, self._of.settings.fetch.mixed_wait_ms / 1000
        until_s, unavailable_until_s = due_s, min(due_s, now() + _UNAVAILABLE_WAIT_S)
        wait_s, trust_ends = 0.0, False
        if self._diskless is None and self._router.idle:
            wait_s = longest_s
        while True:
            if news is not None:
                news.clear()
            left_s = max(0.0, until_s - now())
            alone = self._diskless is None and len(self._near) + bool(self._leader_topics) <= 1
            ends_s = now() + (left_s if alone else min(wait_s, left_s))
            answers, replies = await self._ask_all(ends_s, left_s, alone=alone, trust_ends=trust_ends)
            absorbed = {key: reason for reply in replies for key, reason in reply.absorbed.items()}
            if alone and not absorbed:
                await self._fill(slot, answers, replies)
                return
            if absorbed:
                self._move_to_leader(absorbed)
                if not self._near and self._diskless is None:
                    # Nothing is left but the leader: it is asked for all of it, as long as the client waits.
                    self._release()
                    if all(reply.walk is None for reply in replies):
                        # No replica is there, for other clients neither: nothing of all that is held.
                        self._forward(slot)
                        return
                    continue
            size = sum(answer.record_bytes for answer in answers) + sum(reply.record_bytes for reply in replies)
            settled = any(answer.settled for answer in answers) or any(
                reply.throttle_ms or reply.fenced for reply in replies
            )
            if absorbed:
                moved = only(self._classic, absorbed)
                rest = await self._leader.ask(
                    moved, wait_ms=0, min_bytes=0, max_bytes=self._max_bytes, patience_s=self._patience_s
                )
                answers.append(rest)
                size += rest.record_bytes
                settled = settled or rest.settled
            unavailable = any(answer.unavailable for answer in answers)
            until_s = unavailable_until_s if unavailable else due_s
            if size >= self._min_bytes or settled or (unavailable and size) or until_s <= now():
                self._router.idle = not size and not settled
                await self._fill(slot, answers, replies)
                return
            self._release()
            trust_ends = not unavailable
            wait_s = longest_s if unavailable else min(max(2 * wait_s, _FIRST_WAIT_S), longest_s)
            await self._wait(news, until_s, ends_s)

    async def _ask_all(
        self, ends_s: float, left_s: float, *, alone: bool, trust_ends: bool
    ) -> tuple[list[Answer], list[ReplicaReply]]:
        """Ask every source once. Raises BrokerUnreachable and ProtocolError.

        The half (diskless or classic) that the request names first has the first call on the bytes, so that neither
        starves if the client rotates its partitions.
        """
        diskless: Answer | None = None
        size = 0
        if self._diskless is not None and self._diskless_first:
            diskless = await self._diskless.ask(max_bytes=self._max_bytes, wait_s=left_s, trust_ends=trust_ends)
            size = diskless.record_bytes
            if diskless.settled or size >= self._min_bytes:
                ends_s = 0.0
        classic = await self._ask_classic(ends_s, max(self._max_bytes - size, 0), alone=alone)
        if self._diskless is not None and diskless is None:
            size = sum(one.record_bytes for one in classic)
            diskless = await self._diskless.ask(
                max_bytes=max(self._max_bytes - size, 0), first_exempt=not size, wait_s=left_s, trust_ends=trust_ends
            )
        answers = [one for one in classic if isinstance(one, Answer)]
        self._sizes[_DISKLESS] = diskless.record_bytes if diskless is not None else 0
        if diskless is not None:
            answers.append(diskless)
        return answers, [one for one in classic if isinstance(one, ReplicaReply)]

    async def _ask_classic(self, ends_s: float, max_bytes: int, *, alone: bool) -> list[Answer | ReplicaReply]:
        """Return the brokers, all at the same time.

        Each may take all of the bytes; partitions mostly set a lower limit.
        """
        if self._large:
            await self._of.turns.next()
        wait_ms = int(max(0.0, ends_s - self._of.now()) * 1000)
        missing = self._min_bytes - sum(self._sizes.values())
        asked: dict[str | int, Coroutine[Any, Any, Answer | ReplicaReply]] = {}
        for source in (*self._near, *([_LEADER] if self._leader_topics else ())):
            # A source that is not alone is to wait until it alone has what all of them lack.
            min_bytes = self._min_bytes if alone else max(1, self._sizes.get(source, 0) + missing)
            limits = {"wait_ms": wait_ms, "min_bytes": min_bytes, "max_bytes": max_bytes}
            if isinstance(source, int):
                asked[source] = self._replica(source).ask(self._near[source], **limits)
            else:
                asked[source] = self._leader.ask(
                    self._leader_topics, **limits, patience_s=None if alone else self._patience_s
                )
        answered = await _all(list(asked.values()))
        self._sizes = {source: one.record_bytes for source, one in zip(asked, answered, strict=True)}
        return answered

    @property
    def _patience_s(self) -> float:
        """How long a leader that hangs may hold up what others have."""
        grace_s = self._of.settings.fetch.replica_grace_ms / 1000
        left_s = self._due_s - self._of.now()
        return max(left_s, 0.0) + grace_s

    def _replica(self, broker: int) -> ReplicaSource:
        source = self._replicas.get(broker)
        if source is None:
            source = self._replicas[broker] = ReplicaSource(
                self._of.replicas,
                self._client.session,
                self._request.client_id,
                self._parsed,
                broker,
                self._known,
                self._router.watermarks,
                self._held.append,
            )
        return source

    def _note_leader_ends(self, topic: str | bytes, partition: int, high_watermark: int, last_stable: int) -> None:
        """Record the leader's high watermark so that no replica answer goes below it. An error comes without one."""
        known = self._known.get(topic)
        state = known.partitions.get(partition) if known is not None else None
        if known is None or state is None:
            return
        watermarks = self._router.watermarks
        if high_watermark < 0:
            watermarks.forget(known.topic_id, partition)
        else:
            watermarks.record(known.topic_id, partition, state.leader_epoch, high_watermark, last_stable)

    def _last_recorded(self, topic: str | bytes, partition: int) -> Ends | None:
        known = self._known.get(topic)
        return None if known is None else self._router.watermarks.last(known.topic_id, partition)

    def _move_to_leader(self, absorbed: dict[Key, LeaderReason]) -> None:
        self._reasons |= absorbed
        self._leader_topics = only(self._classic, self._reasons)
        near = {
            broker: only(topics, {key for key in keys_of(topics) if key not in absorbed})
            for broker, topics in self._near.items()
        }
        self._near = {broker: topics for broker, topics in near.items() if topics}

    async def _wait(self, news: asyncio.Event | None, due_s: float, ends_s: float) -> None:
        """Wait for news of the diskless half; if brokers are asked too, no longer than to the end of the round.

        Brokers have waited themselves, except for brokers that had too little and so answered at once.
        """
        until_s = due_s if not (self._near or self._leader_topics) else min(due_s, ends_s)
        wait_s = until_s - self._of.now()
        if wait_s <= 0:
            return
        if news is None:
            await asyncio.sleep(wait_s)
            return
        await wait_at_most(news, wait_s)

    def _forward(self, slot: Slot) -> None:
        """The client's own request, for the rest of its time, and without a session."""
        left_ms = max(int((self._due_s - self._of.now()) * 1000), 0)
        parsed = self._parsed._replace(max_wait_ms=left_ms, session_id=0, session_epoch=NO_SESSION, forgotten=[])
        request = self._request.with_body(build_fetch_request(parsed))
        self._of.forwarding.forward(self._client, request, self._reasons, slot=slot)

    async def _fill(self, slot: Slot, answers: list[Answer], replies: list[ReplicaReply]) -> None:
        held, self._held[:] = list(self._held), []
        if self._large:
            await self._of.turns.run(self._filling.fill_in_steps(slot, answers, replies, self._reasons, held))
            await self._of.turns.run(emptied(*(answer.pieces for answer in answers)))
        else:
            self._filling.fill(slot, answers, replies, self._reasons, held)

    def _end(self, listened: list[tuple[bytes, int]], news: asyncio.Event) -> Steps[None]:
        """Listen no more, and free what is known of very many partitions, with pauses."""
        assert self._diskless is not None
        yield from _in_steps(self._of.diskless.reader.coordinates.unlisten, listened, news)
        topics = (*self._parsed.topics, *self._topics, *self._classic)
        yield from emptied(*(topic.partitions for topic in topics), *self._diskless.known)

    def _release(self) -> None:
        for answer in self._held:
            answer.release()
        self._held.clear()


def _in_steps(
    call: Callable[[list[tuple[bytes, int]], asyncio.Event], object],
    partitions: list[tuple[bytes, int]],
    news: asyncio.Event,
) -> Steps[None]:
    for start in range(0, len(partitions), AT_A_TIME):
        call(partitions[start : start + AT_A_TIME], news)
        yield


async def _all(
    asked: list[Coroutine[Any, Any, Answer | ReplicaReply]],
) -> list[Answer | ReplicaReply]:
    """Return all results. If one raises, raise its exception when all have ended."""
    if len(asked) <= 1:
        return [await one for one in asked]
    results = await asyncio.gather(*asked, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]
