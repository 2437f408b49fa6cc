"""Finds the segments whose objects may be deleted: those whose tombstones are old enough in every shard.

The shards list their oldest tombstones. Their lists need not agree: a shard whose time stands still, after its leader's
clock was ahead for a moment, gives the same time to many. So each shard is asked about each segment, or two lists that
have nothing in common would stop the deletion for good.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from proxy.coordinator.packing_state import REPLY_HEADER_BYTES

_MISSING, _OLD = 0, 1


def oldest_of(lists: Iterable[Sequence[bytes]], limit: int) -> list[bytes]:
    """Return at most `limit` segments of the shards' lists: first those that are in most of them."""
    counts = Counter(chain.from_iterable(lists))
    return [segment for segment, _ in counts.most_common(limit)]


def batched(segments: Sequence[bytes], size: int) -> Iterator[Sequence[bytes]]:
    """Yield the segments in parts of that size."""
    for start in range(0, len(segments), size):
        yield segments[start : start + size]


class Tombstoned:
    """Collects what the shards say of segments."""

    def __init__(self) -> None:
        self.everywhere: list[bytes] = []
        """Segments whose tombstones are old enough in all shards."""
        self._halves: list[bytes] = []
        """Segments that some shard has not tombstoned."""
        self._young: list[bytes] = []

    def take(self, segments: Sequence[bytes], replies: Sequence[bytes]) -> None:
        """Take the shards' replies of `tombstoned.lua` about these segments."""
        for segment, *flags in zip(segments, *(reply[REPLY_HEADER_BYTES:] for reply in replies), strict=True):
            if _MISSING in flags:
                self._halves.append(segment)
            elif all(flag == _OLD for flag in flags):
                self.everywhere.append(segment)
            else:
                self._young.append(segment)

    @property
    def to_tombstone_again(self) -> list[bytes]:
        """Return the halves, and a young one: a shard to which nobody writes has no time by which tombstones become
        old."""
        return self._halves + self._young[:1]
