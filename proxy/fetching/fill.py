"""The last step of a Fetch that the proxy answers: quota, limits, what is counted, and the response itself."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from proxy.accounting import count_fetched
from proxy.errors import NONE
from proxy.fetching.answer import CLASSIC, DISKLESS, Answer, Piece, cut, empty_response, merge
from proxy.fetching.asked import DisklessAsked, Key, keys_of
from proxy.fetching.replica import ReplicaReply
from proxy.replicas.answers import ReplicaAnswer
from proxy.replicas.choice import LeaderReason
from proxy.slots import Slot
from proxy.wire.fetch import TopicFetch
from proxy.wire.primitives import Buffer

if TYPE_CHECKING:
    from proxy.connection import ClientConnection

_MS_PER_S = 1000


class Filling:
    """Of one Fetch. `topics` are the request's, each partition once."""

    def __init__(
        self,
        connection: ClientConnection,
        client_id: str | None,
        version: int,
        topics: list[TopicFetch],
        diskless: list[DisklessAsked],
        max_bytes: int,
    ) -> None:
        self._connection = connection
        self._context = connection.context
        self._client_id = client_id
        self._version = version
        self._topics = topics
        self._names = {asked.topic: entry.name for asked, entry in diskless if entry is not None}
        self._max_bytes = max_bytes

    def throttled(self, slot: Slot) -> bool:
        """Answer a client that is over its quota already; whether it is."""
        throttle_ms = self._context.quotas.throttle_fetch(self._connection, self._client_id, 1)
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
        """Answer with what the sources had in the last round; `held` is released when the client has taken it."""

        def release() -> None:
            for answer in held:
                answer.release()

        slot.let_go = release
        told_ms = max((reply.throttle_ms for reply in replies), default=0)
        if told_ms:
            # As the replica's broker would do with a connection of the client's own (KIP-219).
            self._connection.mute(told_ms / _MS_PER_S)
            slot.fill(empty_response(self._version, told_ms))
            return
        if len(replies) == 1 and not answers and (whole := replies[0].whole(self._version)) is not None:
            self._fill_whole(slot, replies[0], whole)
        else:
            self._fill_merged(slot, [*answers, *(reply.answer(self._version) for reply in replies)], reasons)

    def _fill_whole(self, slot: Slot, reply: ReplicaReply, whole: list[Buffer]) -> None:
        """The usual case: one replica had all of it."""
        throttle_ms = self._context.quotas.throttle_fetch(self._connection, self._client_id, reply.record_bytes)
        if throttle_ms:
            slot.fill(empty_response(self._version, throttle_ms))
            return
        rack = self._context.racks.counted(self._connection, self._client_id)
        count = count_fetched(self._connection, self._client_id, CLASSIC, reply.serving)
        for topic, size in reply.by_topic:
            count(topic, size)
        self._context.stats.near_read_bytes[rack, reply.serving] += reply.record_bytes
        slot.fill(whole)

    def _fill_merged(self, slot: Slot, answers: list[Answer], reasons: dict[Key, LeaderReason]) -> None:
        pieces: dict[Key, Piece] = {}
        for answer in answers:
            pieces |= answer.pieces
        free_bytes = self._context.unread.free_bytes
        if sum(answer.kind == CLASSIC for answer in answers) > 1:
            # A single broker's first batch may come on top of a diskless half, as brokers always give one.
            pieces = cut(self._version, keys_of(self._topics), pieces, min(self._max_bytes, free_bytes))
        elif sum(answer.record_bytes for answer in answers) > free_bytes:
            # Clients that read slowly hold the rest of the memory: this one gets less, and asks again.
            pieces = cut(self._version, keys_of(self._topics), pieces, free_bytes)
        own = sum(pieces[key].record_bytes for answer in answers if answer.own for key in answer.pieces)
        throttle_ms = self._context.quotas.throttle_fetch(self._connection, self._client_id, own)
        brokers_ms = max((answer.throttle_ms for answer in answers), default=0)
        if throttle_ms or (brokers_ms and not all(answer.pieces for answer in answers)):
            # Over a quota nothing is answered, as on brokers: the client asks for the same again.
            slot.fill(empty_response(self._version, max(throttle_ms, brokers_ms)))
            return
        self._count(answers, pieces, reasons)
        slot.fill(merge(self._version, self._topics, pieces, answers, brokers_ms))

    def _count(self, answers: list[Answer], pieces: dict[Key, Piece], reasons: dict[Key, LeaderReason]) -> None:
        stats = self._context.stats
        rack = self._context.racks.counted(self._connection, self._client_id)
        for answer in answers:
            sizes = defaultdict[str | bytes, int](int)
            for key in answer.pieces:
                piece = pieces[key]
                sizes[key[0]] += piece.record_bytes
                if answer.kind == DISKLESS and piece.error_code != NONE:
                    stats.partition_errors["Fetch", piece.error_code] += 1
                elif key in reasons and not answer.own:
                    stats.leader_reads[reasons[key]] += 1
                    stats.leader_read_bytes[reasons[key]] += piece.record_bytes
            count = count_fetched(self._connection, self._client_id, answer.kind, answer.serving)
            for topic, size in sizes.items():
                count(self._names.get(topic, topic), size)
            if answer.own and answer.kind == CLASSIC:
                stats.near_read_bytes[rack, answer.serving] += sum(sizes.values())
