"""What the diskless coordinator promises to jobs over object storage; proxies themselves have no use for it."""

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
    """The part of `interface.Coordinator`: every method may raise CoordinatorUnavailable."""

    async def replace(self, swaps: Sequence[Swap], *, not_after_ms: int = 0) -> list[SwapAnswer]:
        """Put new rows in the place of old ones that are unchanged; answers in the order of `swaps`.

        `not_after_ms`: by the store's clock; later the swaps are LATE. 0 for no limit. Whoever uploads an object and
        does not swap it soon must have one: in time an object that no row uses is deleted, tombstone and all.

        Each swap is atomic; those of one partition are done in their order. A repeated one is answered as the first
        time as long as its new row is there and it is not late. Readers are not told: they find out when an old segment
        is deleted. Raises ValueError where a new row can't take the place of the old ones.
        """

    async def compacted(self, logs: Sequence[tuple[bytes, int]]) -> list[int]:
        """Up to where these logs (topic ID, partition) have been compacted: the first dirty offset; 0 where never."""

    async def mark_compacted(self, marks: Sequence[tuple[bytes, int, int]]) -> None:
        """Raise that offset: (topic ID, partition, offset). It never falls, and goes with its log."""

    async def index_page(self, topic_id: bytes, partition: int, from_offset: int) -> IndexPage:
        """Rows of a log that end at `from_offset` or behind it, as the index has them."""

    async def used_segments(self, shard: int, place: bytes = b"0") -> tuple[list[tuple[bytes, SegmentUse]], bytes]:
        """Some of the segments that one shard has in use, and the place to go on from, `b"0"` at the end.

        Each that is in use from the first call to the last comes at least once; others may.
        """

    async def tombstones_of(self, shard: int, limit: int) -> list[bytes]:
        """Segments that are tombstoned in one shard, since when ever; at most so many, the oldest first."""

    async def correct_use(self, shard: int, segment: bytes, expected: SegmentUse, counted: SegmentUse) -> bool:
        """Set what one shard says of a segment's use, if that is what was expected (zeros: nothing); whether it was.

        Without rows it becomes garbage; with some it is none any more.
        """
