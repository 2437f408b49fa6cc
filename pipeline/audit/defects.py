"""The kinds of defects that an audit can find, by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple

from proxy.coordinator.interface import Row

MAX_SUSPICIONS = 100_000
"""Maximum number of suspicions of one kind that are checked again; each takes some 500 bytes of the driver's memory."""


class Defect(StrEnum):
    """One way in which coordinator and objects can disagree."""

    MISSING_OBJECT = "missing_object"
    """A row names an object that is not there."""
    SHORT_OBJECT = "short_object"
    """A row names bytes after an object's end."""
    CORRUPT_BATCH = "corrupt_batch"
    """Bytes of a row are no record batches, or their CRC is another."""
    WRONG_OFFSETS = "wrong_offsets"
    """The batches of a row take other offsets than the row says."""
    UNKNOWN_FORMAT = "unknown_format"
    """An object's first byte is not that of the format that its rows are of."""
    WRONG_MAX_TIMESTAMP = "wrong_max_timestamp"
    """A row's maximum timestamp, or a running maximum, is not that of the records: lookups by time go wrong."""
    OVERLAPPING_ROWS = "overlapping_rows"
    """Two rows of a log hold the same offset."""
    OVERLAPPING_BYTES = "overlapping_bytes"
    """Two rows name the same bytes of an object."""
    GAP = "gap"
    """Offsets between the log start and the high watermark that no row holds, in a log that is not compacted."""
    ROW_BEYOND_HIGH_WATERMARK = "row_beyond_high_watermark"
    """A row in the index that no reader is shown."""
    ROW_BELOW_LOG_START = "row_below_log_start"
    """A row that was to be freed and stays."""
    WRONG_LAST_STABLE_OFFSET = "wrong_last_stable_offset"
    """A log's last stable offset is not that of its oldest open transaction, or of its end: readers of committed
    records get too much or too little."""
    WRONG_OPEN_TRANSACTION = "wrong_open_transaction"
    """An open transaction begins at no row, or elsewhere than its producer says: it may never end."""
    WRONG_ABORTED_TRANSACTION = "wrong_aborted_transaction"
    """An aborted transaction without its marker, or a marker without its transaction: readers of committed records get
    what was aborted, or miss what was committed."""
    WRONG_LOG_SIZE = "wrong_log_size"
    """A log's bytes or rows are not those of its index."""
    WRONG_USED_BYTES = "wrong_used_bytes"
    """A shard counts other bytes or rows of an object than its rows name: it is deleted too early, or never."""
    ORPHAN_OBJECT = "orphan_object"
    """An object that nothing names, and that the collection of garbage should have deleted by now."""
    TOMBSTONED_IN_USE = "tombstoned_in_use"
    """Rows name an object that is about to be deleted."""
    UNREADABLE = "unreadable"
    """Something could not be looked at: a shard that is fenced, a task that failed for good."""


class Log(NamedTuple):
    """One partition of a diskless topic."""

    topic: str
    topic_id: bytes
    partition: int
    leaves_gaps: bool = False
    """Whether it is (or was) compacted: offsets of which nothing is left are no loss then."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Suspicion(NamedTuple):
    """A disagreement found at the first look."""

    defect: Defect
    text: str
    log: Log | None = None
    offset: int = 0
    """Offset in the log from which a page of the index shows it again."""
    row: Row | None = None
    segment: bytes = b""
    shard: int = -1

    @property
    def where(self) -> str:
        """For people: log and offset, or object."""
        if self.log is None:
            return self.segment.hex() or (f"shard {self.shard}" if self.shard >= 0 else "")
        return f"{self.log}@{self.row.base_offset if self.row is not None else self.offset}"


class Suspicions:
    """The suspicions of one audit, a bounded number of each kind."""

    def __init__(self) -> None:
        self._by_defect: dict[Defect, list[Suspicion]] = {}
        self.left_out: Counter[Defect] = Counter()
        """Beyond MAX_SUSPICIONS."""

    def add(self, suspicions: Iterable[Suspicion]) -> None:
        """More of them."""
        for suspicion in suspicions:
            known = self._by_defect.setdefault(suspicion.defect, [])
            if len(known) < MAX_SUSPICIONS:
                known.append(suspicion)
            else:
                self.left_out[suspicion.defect] += 1

    def of(self, *defects: Defect) -> Iterator[Suspicion]:
        """Yield the suspicions of these kinds."""
        for defect in defects:
            yield from self._by_defect.get(defect, ())

    def __len__(self) -> int:
        return sum(map(len, self._by_defect.values()))
