"""The interface of the coordinator for jobs over object storage; proxies do not call it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol

from proxy.coordinator.interface_index import Row, SegmentUse
from proxy.coordinator.interface_transactions import AbortedTransaction

MAX_ROWS_PER_SWAP = 500
"""Maximum number of old rows in a swap. A swap can't be split, and the store serves no other call meanwhile."""


MAX_ENDED_PER_SWAP = 500
"""Maximum number of aborted transactions that a swap removes."""


class Swap(NamedTuple):
    """One new row in the place of neighbouring rows in a partition's index, after a merge or a compaction rewrote their
    records."""

    topic_id: bytes
    partition: int
    old: tuple[Row, ...]
    """Rows as `find` returned them, neighbours in the index, at most MAX_ROWS_PER_SWAP."""
    new: Row | None
    """Row that takes their place, within their offsets and not newer than they are; None if no record is left. A row
    that ends before the log start is dropped."""
    ended: tuple[int, ...] = ()
    """Offsets of markers of aborted transactions that the new row does not have any more: with them go the entries of
    these transactions, at most MAX_ENDED_PER_SWAP. All batches of these transactions must be gone."""


class SwapAnswer(IntEnum):
    """The outcome of a swap."""

    REPLACED = 0
    """Replaced, now or by an earlier try."""
    CHANGED = 1
    """Some old rows are missing or have changed: nothing was done."""
    GONE = 2
    """The log does not exist."""
    REFUSED = 3
    """The new row's segment is tombstoned: its object is about to be deleted."""
    LATE = 4
    """It came after `not_after_ms`: nothing was done now, but an earlier try may have replaced the rows."""


class IndexedRow(NamedTuple):
    """A row, and the figure that the index keeps with it."""

    row: Row
    running_maximum_ms: int
    """Highest maximum timestamp of the row and of all rows that were ever before it, or higher; it never falls along
    the index."""


class LogState(NamedTuple):
    """The figures that the coordinator keeps of a log, in addition to its index."""

    log_start_offset: int
    high_watermark: int
    size_bytes: int
    rows: int
    max_timestamp_ms: int
    """Highest timestamp that a record ever had, deleted records included."""
    last_stable_offset: int
    """Last stable offset in the log's record; before the log start if DeleteRecords has passed an open transaction."""
    oldest_open_offset: int
    """First offset of the oldest open transaction, by the list of these; -1 if none is open."""


class OpenTransaction(NamedTuple):
    """An open transaction of a log, by the list of these."""

    first_offset: int
    producer_id: int
    first_of_producer: int
    """First offset that the producer's own state has; -1 if it has none."""


class IndexPage(NamedTuple):
    """Part of an index, with everything in it: also rows below the log start and above the high watermark."""

    log: LogState | None
    """None if the log does not exist; some of its rows may still be there until its deletion ends."""
    rows: tuple[IndexedRow, ...]
    next_offset: int
    """First offset of the next page; -1 at the end."""
    open: tuple[OpenTransaction, ...] = ()
    """Open transactions that begin in the page's offsets."""
    aborted: tuple[AbortedTransaction, ...] = ()
    """Aborted transactions that end in the page's offsets."""


class RewritingCoordinator(Protocol):
    """Changes and checks rows (`Coordinator.rows`). Every method may raise CoordinatorUnavailable."""

    async def replace(self, swaps: Sequence[Swap], *, not_after_ms: int = 0) -> list[SwapAnswer]:
        """Replace old rows that are unchanged by new ones; answers in the order of `swaps`.

        `not_after_ms` is a `Coordinator.deadline_ms`; later the swaps are LATE. 0 for no limit. A caller
        that uploads an object and does not swap it soon must give a limit: an object that no row uses is deleted after
        some time, and then its tombstone.

        Each swap is atomic. Swaps of one partition are done in their order. A repeated swap gets the first answer again
        as long as its new row exists and it is not late. Readers are not notified: they find out when an old segment is
        deleted. If this raises, none, some or all of the swaps may have been done; all may be repeated.

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
