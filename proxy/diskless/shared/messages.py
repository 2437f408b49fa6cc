"""The messages between a worker and the storage process."""

from __future__ import annotations

from typing import NamedTuple

from proxy.diskless.wal.outcome import Outcome
from proxy.records.batches import BatchHeader

MOST_BATCHES = 200
"""Batches or outcomes of one message, so that it fits into a channel."""


class NewSlab(NamedTuple):
    """From a worker, with a descriptor: memory in which its batches will lie."""

    slab: int
    size_bytes: int


class SlabGone(NamedTuple):
    """From a worker: it will put no batches there any more."""

    slab: int


class ProducedBatch(NamedTuple):
    """A batch for the WAL; see `WalBuffer.append`."""

    number: int
    """Number among this worker's batches."""
    topic_id: bytes
    partition: int
    slab: int
    offset: int
    header: BatchHeader
    log_append_time: bool
    patience_s: float
    markers_from: int


class Append(NamedTuple):
    """From a worker: batches, in the order of their arrival. The answers are in `Settled`."""

    batches: tuple[ProducedBatch, ...]


class Settled(NamedTuple):
    """From the storage process: the outcomes of batches, by their numbers."""

    outcomes: tuple[tuple[int, Outcome], ...]


class Refused(NamedTuple):
    """From a worker: it has rejected a batch of the producer; see `Holds.refused`."""

    topic_id: bytes
    partition: int
    producer_id: int


class Fetch(NamedTuple):
    """From a worker: a part of an object, which is answered by Fetched or NotFetched."""

    number: int
    key: str
    start: int
    end: int
    cold: bool
    """Whether it is for old records, which have a cache of their own."""


class Fetched(NamedTuple):
    """From the storage process: where the part lies. The arena's descriptor comes with its first part."""

    number: int
    arena: int
    arena_bytes: int
    offset: int
    length: int
    was_read: bool
    """Whether object storage was read for this request."""


class NotFetched(NamedTuple):
    """From the storage process: why a part can't be read."""

    number: int
    error: str
    """Name of the StorageError's class."""
    text: str


class ArenaGone(NamedTuple):
    """From the storage process: no further parts lie in the arena."""

    arena: int


class Drain(NamedTuple):
    """From a worker: it waits for all its batches, so none should wait for others. Their outcomes are the answer."""
