"""Split ranges of offsets into tasks. Pure; follows Spark's `KafkaOffsetRangeCalculator` if options ask for cuts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from pyspark.sql.datasource import InputPartition

_SMALL_SHARE = 4
"""Ranges that are together no larger than a split divided by this share a task: a task of its own costs more than
reading them in turn, and their segments are read once. Larger ones do not share, because tasks run in parallel."""


class LogRange(NamedTuple):
    """Offsets of one partition."""

    topic: str
    topic_id: bytes
    partition: int
    start: int
    end: int
    """Exclusive."""
    size_bytes: int = 0
    """Approximate bytes of the rows that hold them."""

    @property
    def name(self) -> str:
        """Return the partition's name as Kafka writes it."""
        return f"{self.topic}-{self.partition}"


class Split(InputPartition):
    """Ranges that one task reads."""

    def __init__(self, ranges: tuple[LogRange, ...]) -> None:
        super().__init__(None)
        self.ranges = ranges


def arrange(
    pieces: Sequence[LogRange], *, split_bytes: int, min_partitions: int | None, max_records: int | None
) -> list[tuple[LogRange, ...]]:
    """Return the ranges of each task: every offset of the pieces once, those of a task ascending by partition.

    `pieces` are no larger than a split, as far as rows allow. A task has at most `max_records` offsets. There are at
    least `min_partitions` tasks (as long as there are that many offsets): the largest pieces are cut. With neither
    option, small pieces share a task.
    """
    wanted = [piece for piece in pieces if piece.end > piece.start]
    if max_records is not None:
        wanted = [part for piece in wanted for part in _cut(piece, -(-(piece.end - piece.start) // max_records))]
    if min_partitions is not None and len(wanted) < min_partitions:
        wanted = _cut_to(wanted, min_partitions)
    if max_records is not None or min_partitions is not None:
        return [(piece,) for piece in wanted]
    return list(_packed(wanted, max(1, split_bytes // _SMALL_SHARE)))


def _packed(pieces: Iterable[LogRange], most_bytes: int) -> Iterable[tuple[LogRange, ...]]:
    together: list[LogRange] = []
    size_bytes = 0
    for piece in pieces:
        if together and size_bytes + piece.size_bytes > most_bytes:
            yield tuple(together)
            together, size_bytes = [], 0
        together.append(piece)
        size_bytes += piece.size_bytes
    if together:
        yield tuple(together)


def _cut_to(pieces: Sequence[LogRange], count: int) -> list[LogRange]:
    """Cut into at least `count` pieces, each range by its share of all offsets."""
    total = sum(piece.end - piece.start for piece in pieces)
    parts: list[LogRange] = []
    for piece in pieces:
        share = -(-count * (piece.end - piece.start) // total)
        parts += _cut(piece, share)
    return parts


def _cut(piece: LogRange, count: int) -> list[LogRange]:
    """Cut into `count` pieces of nearly the same number of offsets, or as many as there are offsets."""
    offsets = piece.end - piece.start
    count = min(count, offsets)
    edges = [piece.start + offsets * place // count for place in range(count + 1)]
    return [
        piece._replace(start=start, end=end, size_bytes=piece.size_bytes // count) for start, end in pairwise(edges)
    ]
