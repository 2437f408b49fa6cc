"""The last step of a Fetch that the proxy answers: quota, counters, and the response itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from proxy.accounting.accounting import Accounts
from proxy.client.client import Client
from proxy.client.slots import Slot
from proxy.connection.unread import UnreadAnswers
from proxy.fetching.answer import CLASSIC, DISKLESS, Answer, Piece, cut, empty_response, merge, merge_in_steps
from proxy.fetching.asked import DisklessAsked, Key
from proxy.fetching.replica import ReplicaReply
from proxy.protocol.errors import NONE
from proxy.quotas.quotas import Quotas
from proxy.replicas.answers import ReplicaAnswer
from proxy.replicas.choice import LeaderReason
from proxy.routing.racks import Racks
from proxy.telemetry.stats import Stats
from proxy.wire.fetch import TopicFetch
from proxy.wire.primitives import Buffer
from proxy.wire.steps import Steps, at_once, in_slices

_MS_PER_S = 1000


class Answering:
    """The parts that the last step of a Fetch needs."""

    def __init__(
        self, *, accounts: Accounts, quotas: Quotas, racks: Racks, stats: Stats, unread: UnreadAnswers
    ) -> None:
        self.accounts = accounts
        self.quotas = quotas
        self.racks = racks
        self.stats = stats
        self.unread = unread


class Filling:
    """Builds the response of one Fetch. `topics` are the request's, each partition once."""

    def __init__(
        self,
        of: Answering,
        client: Client,
        client_id: str | None,
        version: int,
        topics: list[TopicFetch],
        diskless: list[DisklessAsked],
        max_bytes: int,
    ) -> None:
        self._of = of
        self._client = client
        self._client_id = client_id
        self._version = version
        self._topics = topics
        self._names = {asked.topic: entry.name for asked, entry in diskless if entry is not None}
        self._max_bytes = max_bytes

    def throttled(self, slot: Slot) -> bool:
        """Answer a client that is over its quota already; whether it is."""
        throttle_ms = self._throttle(1)
        if throttle_ms:
            slot.fill(empty_response(self._version, throttle_ms))
        return throttle_ms > 0

    def fill(
        self,
        slot: Slot,
        answers: list[Answer],
        replies: list[ReplicaReply],
        reasons: dict[Key, LeaderReason],
        held: list[ReplicaAnswer],
    ) -> None:
        """Answer with the data of the last round; `held` is released when the client has taken it."""
        merging = self._begin(slot, answers, replies, held)
        if merging is None:
            return
        pieces: dict[Key, Piece] = {}
        for answer in merging:
            pieces |= answer.pieces
        pieces = at_once(self._cut(merging, pieces))
        own = sum(pieces[key].record_bytes for answer in merging if answer.own for key in answer.pieces)
        throttle_ms = self._throttle_ms(slot, merging, own)
        if throttle_ms is not None:
            for answer in merging:
                self._count(answer, answer.pieces, pieces, reasons)
            slot.fill(merge(self._version, self._topics, pieces, merging, throttle_ms))

    def fill_in_steps(
        self,
        slot: Slot,
        answers: list[Answer],
        replies: list[ReplicaReply],
        reasons: dict[Key, LeaderReason],
        held: list[ReplicaAnswer],
    ) -> Steps[None]:
        """Do `fill` with pauses."""
        merging = self._begin(slot, answers, replies, held)
        return self._merge(slot, merging, reasons)

    def _merge(self, slot: Slot, answers: list[Answer] | None, reasons: dict[Key, LeaderReason]) -> Steps[None]:
        if answers is None:
            return
        pieces: dict[Key, Piece] = {}
        keys = [list(answer.pieces) for answer in answers]
        for answer in answers:
            pieces |= answer.pieces
            yield
        pieces, own = (yield from self._cut(answers, pieces)), 0
        for answer, all_keys in zip(answers, keys, strict=True):
            for some in in_slices(all_keys if answer.own else ()):
                own += sum(pieces[key].record_bytes for key in some)
                yield
        throttle_ms = self._throttle_ms(slot, answers, own)
        if throttle_ms is None:
            return
        for answer, all_keys in zip(answers, keys, strict=True):
            for some in in_slices(all_keys):
                self._count(answer, some, pieces, reasons)
                yield
        slot.fill((yield from merge_in_steps(self._version, self._topics, pieces, answers, throttle_ms)))

    def _begin(
        self, slot: Slot, answers: list[Answer], replies: list[ReplicaReply], held: list[ReplicaAnswer]
    ) -> list[Answer] | None:
        """Return the answers that are to be merged; None if the slot is filled."""

        def release() -> None:
            for answer in held:
                answer.release()

        slot.let_go = release
        throttle_ms = max((reply.throttle_ms for reply in replies), default=0)
        if throttle_ms:
            # As the replica's broker would do with a connection of the client's own (KIP-219).
            self._client.mute(throttle_ms / _MS_PER_S)
            slot.fill(empty_response(self._version, throttle_ms))
            return None
        if len(replies) == 1 and not answers and (whole := replies[0].whole(self._version)) is not None:
            self._fill_whole(slot, replies[0], whole)
            return None
        return [*answers, *(reply.answer(self._version) for reply in replies)]

    def _fill_whole(self, slot: Slot, reply: ReplicaReply, whole: list[Buffer]) -> None:
        """The usual case: one replica had all of it."""
        throttle_ms = self._throttle(reply.record_bytes)
        if throttle_ms:
            slot.fill(empty_response(self._version, throttle_ms))
            return
        rack = self._of.racks.counted(self._client.session, self._client_id)
        count = self._of.accounts.fetched(self._client.session, self._client_id, CLASSIC, reply.serving)
        for topic, size in reply.by_topic:
            count(topic, size)
        self._of.stats.near_read_bytes[rack, reply.serving] += reply.record_bytes
        slot.fill(whole)

    def _throttle(self, size: int) -> int:
        """Return the throttle time of the client's own quota; if it is not 0, the client is muted."""
        throttle_ms = self._of.quotas.throttle_fetch(self._client.session.user, self._client_id, size)
        if throttle_ms:
            self._client.mute(throttle_ms / _MS_PER_S)
        return throttle_ms

    def _cut(self, answers: list[Answer], pieces: dict[Key, Piece]) -> Steps[dict[Key, Piece]]:
        free_bytes = self._of.unread.free_bytes
        if sum(answer.kind == CLASSIC for answer in answers) > 1:
            # A single broker's first batch may come on top of a diskless half, as brokers always give one.
            return (yield from cut(self._version, self._topics, pieces, min(self._max_bytes, free_bytes)))
        if sum(answer.record_bytes for answer in answers) > free_bytes:
            # Clients that read slowly hold the rest of the memory: this one gets less, and asks again.
            return (yield from cut(self._version, self._topics, pieces, free_bytes))
        return pieces

    def _throttle_ms(self, slot: Slot, answers: list[Answer], own_bytes: int) -> int | None:
        """Return the brokers' throttle time; None if the slot is filled, as the client is over a quota."""
        throttle_ms = self._throttle(own_bytes)
        brokers_ms = max((answer.throttle_ms for answer in answers), default=0)
        if throttle_ms or (brokers_ms and not all(answer.pieces for answer in answers)):
            # Over a quota nothing is answered, as on brokers: the client asks for the same again.
            slot.fill(empty_response(self._version, max(throttle_ms, brokers_ms)))
            return None
        return brokers_ms

    def _count(
        self, answer: Answer, keys: Iterable[Key], pieces: dict[Key, Piece], reasons: dict[Key, LeaderReason]
    ) -> None:
        """Count partitions of an answer."""
        stats = self._of.stats
        sizes = defaultdict[str | bytes, int](int)
        for key in keys:
            piece = pieces[key]
            sizes[key[0]] += piece.record_bytes
            if answer.kind == DISKLESS and piece.error_code != NONE:
                stats.partition_errors["Fetch", piece.error_code] += 1
            elif key in reasons and not answer.own:
                stats.leader_reads[reasons[key]] += 1
                stats.leader_read_bytes[reasons[key]] += piece.record_bytes
        count = self._of.accounts.fetched(self._client.session, self._client_id, answer.kind, answer.serving)
        for topic, size in sizes.items():
            count(self._names.get(topic, topic), size)
        if answer.own and answer.kind == CLASSIC:
            rack = self._of.racks.counted(self._client.session, self._client_id)
            stats.near_read_bytes[rack, answer.serving] += sum(sizes.values())
