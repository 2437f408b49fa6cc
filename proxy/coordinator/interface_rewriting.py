"""The interface of the coordinator for jobs over object storage; proxies do not call it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from proxy.coordinator.interface import Row, SegmentUse

MAX_ROWS_PER_SWAP = 500
"""A swap can't be cut, and the store serves nobody else meanwhile."""


class Swap(NamedTuple):
    """One row in the place of neighbours in a partition's index: what a merge or a compaction has written anew."""

    topic_id: bytes
    partition: int
    old: tuple[Row, ...]
    """As `find` told them, one behind the other in the index, at most MAX_ROWS_PER_SWAP."""
    new: Row | None
    """What takes their place, within their offsets and not newer than they are; None where nothing is left of them. One
    that ends before the log start is not kept."""


class SwapAnswer(IntEnum):
    """What became of a swap."""

    REPLACED = 0
    """Now, or by an earlier try."""
    CHANGED = 1
    """The old rows are not there any more, not all of them, or not as they were: nothing was done."""
    GONE = 2
    """The log does not live."""
    REFUSED = 3
    """The new row's segment is tombstoned: its object is about to be deleted."""
    LATE = 4
    """It came after `not_after_ms`: nothing was done now, though by an earlier try it may have been."""


class IndexedRow(NamedTuple):
    """A row and what the index keeps beside it."""

    row: Row
    running_maximum_ms: int
    """The highest maximum timestamp of it and of what was ever before it, or higher; it never falls along the index."""


class LogState(NamedTuple):
    """What the coordinator keeps of a log, beside its index."""

    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    size_bytes: int
    rows: int
    max_timestamp_ms: int
    """The highest that a record ever had, also of those that are deleted."""


class IndexPage(NamedTuple):
    """Some of an index, with everything that is in it: also below the log start and beyond the high watermark."""

    log: LogState | None
    """None where the log does not live; rows may be left of it all the same, until its deletion ends."""
    rows: tuple[IndexedRow, ...]
    next_offset: int
    """Where the next page begins; -1 at the end."""


class RewritingCoordinator(Protocol):
    """Changes and checks rows (`Coordinator.rows`). Every method may raise CoordinatorUnavailable."""

    async def replace(self, swaps: Sequence[Swap], *, not_after_ms: int = 0) -> list[SwapAnswer]:
        """Replace old rows that are unchanged by new ones; answers in the order of `swaps`.

        `not_after_ms`: by the store's clock (`store_time_ms`); later the swaps are LATE. 0 for no limit. A caller that
        uploads an object and does not swap it soon must give one: in time an object that no row uses is deleted, and so
        is its tombstone.

        Each swap is atomic; those of one partition are done in their order. A repeated swap has the answer of the first
        time as long as its new row is there and it is not late. Readers are not notified: they find out when an old
        segment is deleted. If this raises, none, some or all of the swaps may have been done; all may be repeated.

        Raises ShardFenced; and ValueError, with nothing done, if the old rows are none, too many or not in order,
        or if the new row is not within their offsets, newer than they are, or of another kind than a merge makes.
        """

    async def compacted(self, logs: Sequence[tuple[bytes, int]]) -> list[int]:
        """Return the first dirty offset of each of these logs (topic ID, partition); 0 if none was compacted."""

    async def mark_compacted(self, marks: Sequence[tuple[bytes, int, int]]) -> None:
        """Raise the first dirty offset of logs: (topic ID, partition, offset), to the high watermark at most.

        It never falls, and is deleted with its log. No error if a log does not exist.
        """

    async def index_page(self, topic_id: bytes, partition: int, from_offset: int) -> IndexPage:
        """Return rows of a log that end at `from_offset` or after it, as the index has them."""

    async def used_segments(self, shard: int, place: bytes = b"0") -> tuple[list[tuple[bytes, SegmentUse]], bytes]:
        """Return some of the segments that one shard has in use, and the place to go on from: `b"0"` at the end.

        Each segment that is in use from the first call to the last comes at least once; others may.
        """

    async def tombstones_of(self, shard: int, limit: int) -> list[bytes]:
        """Return segments that are tombstoned in one shard, at most `limit`, the oldest first."""

    async def correct_use(self, shard: int, segment: bytes, expected: SegmentUse, counted: SegmentUse) -> bool:
        """Set one shard's use of a segment if it is as expected (zeros: none); return whether it was.

        Without rows the segment becomes garbage of that shard; with rows it is neither garbage nor tombstoned there.
        """
