"""Answers of the sources, and how several answers become the client's one.

Every partition's answer is a *piece*, encoded for the client's version, with its records by reference. Pieces stand in
the request's order, and what exceeds `max_bytes` in sum is cut as one broker would have done it (KIP-74).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from proxy.accounting.accounting import Kind
from proxy.fetching.asked import Key
from proxy.protocol.errors import NONE
from proxy.wire.fetch import FIRST_FLEXIBLE, PartitionFetch, TopicFetch, write_topic
from proxy.wire.fetch_response import PartitionFetched, parse_partition, write_partition
from proxy.wire.fetch_walk import response_head
from proxy.wire.primitives import NO_TAGS, Buffer, write_count
from proxy.wire.steps import Steps, in_slices

DISKLESS: Final = "diskless"
CLASSIC: Final = "classic"
_BATCH_HEAD = struct.Struct(">8xi")
"""Field of a record batch: the length of the bytes after it."""


class Piece(NamedTuple):
    """The answer for one partition: encoded already, or still to be."""

    error_code: int
    record_bytes: int
    encoded: list[Buffer]
    fetched: PartitionFetched | None = None
    """Answer to encode, instead of `encoded`."""


def piece_of(fetched: PartitionFetched) -> Piece:
    """Return an answer of the proxy's own."""
    return Piece(fetched.error_code, max(fetched.records_length, 0), [], fetched)


class Answer(NamedTuple):
    """The answer of one source in one round."""

    kind: Kind
    """CLASSIC or DISKLESS."""
    serving: str
    """The rack that it comes from."""
    own: bool
    """Whether the proxy read it on its own, so that the client's quota is the proxy's to hold."""
    pieces: dict[Key, Piece]
    record_bytes: int
    settled: bool
    """True if waiting for more is useless: an error, a throttled client, or limits that let no more through."""
    throttle_ms: int = 0
    error_code: int = NONE
    tail: Buffer = NO_TAGS
    """Bytes after the topics, from v12 on."""
    unavailable: bool = False
    """Whether some partitions have KAFKA_STORAGE_ERROR, and the others nothing: later they may have something."""


def merge(
    version: int, topics: Sequence[TopicFetch], pieces: dict[Key, Piece], answers: Iterable[Answer], throttle_ms: int
) -> list[Buffer]:
    """Return the whole response, with session 0, in the order of `topics`, each partition of which is there once."""
    merged = _Merged(version, answers, throttle_ms)
    parts = [(asked.topic, found) for asked in topics if (found := _found(asked.topic, asked.partitions, pieces))]
    merged.begin(len(parts))
    for topic, found in parts:
        merged.begin_topic(topic, len(found))
        merged.add(found)
        merged.end_topic()
    return merged.end()


def merge_in_steps(
    version: int, topics: Sequence[TopicFetch], pieces: dict[Key, Piece], answers: Iterable[Answer], throttle_ms: int
) -> Steps[list[Buffer]]:
    """Do `merge` with pauses."""
    merged = _Merged(version, answers, throttle_ms)
    parts = []
    for asked in topics:
        found: list[Piece] = []
        for some in in_slices(asked.partitions):
            found += _found(asked.topic, some, pieces)
            yield
        if found:
            parts.append((asked.topic, found))
    merged.begin(len(parts))
    for topic, found in parts:
        merged.begin_topic(topic, len(found))
        for few in in_slices(found):
            merged.add(few)
            yield
        merged.end_topic()
    return merged.end()


def _found(topic: str | bytes, partitions: Iterable[PartitionFetch], pieces: dict[Key, Piece]) -> list[Piece]:
    return [piece for partition in partitions if (piece := pieces.get((topic, partition.index))) is not None]


class _Merged:
    """A response that is being written."""

    __slots__ = ("_buffers", "_flexible", "_small", "_tail", "_version")

    def __init__(self, version: int, answers: Iterable[Answer], throttle_ms: int) -> None:
        error_code, tail = NONE, memoryview(NO_TAGS)
        for answer in answers:
            error_code = error_code or answer.error_code
            tail = memoryview(answer.tail) if answer.tail != NO_TAGS else tail
        self._version, self._tail, self._flexible = version, tail, version >= FIRST_FLEXIBLE
        self._small, self._buffers = bytearray(response_head(version, throttle_ms, error_code)), list[Buffer]()

    def begin(self, topics: int) -> None:
        self._small += write_count(topics, self._flexible)

    def begin_topic(self, topic: str | bytes, partitions: int) -> None:
        self._small += write_topic(topic, self._version)
        self._small += write_count(partitions, self._flexible)

    def add(self, pieces: Iterable[Piece]) -> None:
        version, small, buffers = self._version, self._small, self._buffers
        for piece in pieces:
            if piece.fetched is not None:
                write_partition(piece.fetched, version, small, buffers)
            elif piece.record_bytes:
                buffers.append(bytes(small))
                buffers += piece.encoded
                small.clear()
            else:
                for buffer in piece.encoded:
                    small += buffer

    def end_topic(self) -> None:
        if self._flexible:
            self._small += NO_TAGS

    def end(self) -> list[Buffer]:
        if self._flexible:
            self._small += self._tail
        if self._small:
            self._buffers.append(bytes(self._small))
        return self._buffers


def empty_response(version: int, throttle_ms: int) -> list[Buffer]:
    """Return the response for a throttled client (KIP-219): nothing but the time."""
    return merge(version, (), {}, (), throttle_ms)


def cut(
    version: int, topics: Sequence[TopicFetch], pieces: dict[Key, Piece], max_bytes: int
) -> Steps[dict[Key, Piece]]:
    """Keep as many records as `max_bytes` allows in the order of `topics`, which is the request's; always the first
    batch.

    A partition's part may end within a batch, except for the first batch. Brokers' answers do the same, and clients
    ignore such a rest.
    """
    left = max_bytes
    if sum(piece.record_bytes for piece in pieces.values()) <= left:
        return pieces
    yield
    pieces, first = dict(pieces), True
    for asked in topics:
        for some in in_slices(asked.partitions):
            for partition in some:
                key = asked.topic, partition.index
                piece = pieces.get(key)
                if piece is None or not piece.record_bytes:
                    continue
                if piece.record_bytes > left:
                    piece = pieces[key] = _shortened(version, piece, left, first_exempt=first)
                left = max(left - piece.record_bytes, 0)
                first = False
            yield
    return pieces


def _shortened(version: int, piece: Piece, size: int, *, first_exempt: bool) -> Piece:
    fetched = piece.fetched or parse_partition(b"".join(piece.encoded), version)
    records = memoryview(b"".join(fetched.records))
    first_bytes = len(records)
    if first_bytes >= _BATCH_HEAD.size:
        first_bytes = _BATCH_HEAD.size + _BATCH_HEAD.unpack_from(records)[0]
    if size < first_bytes:
        # Nothing in place of a part of a batch, as brokers (`firstEntryIncomplete`): Java's consumer fails over one.
        size = first_bytes if first_exempt else 0
    records = records[:size]
    return piece_of(fetched._replace(records=(records,), records_length=len(records)))
