"""The blocks that a cache keeps in memory, and which of them goes first.

A reader that is behind would push out the very blocks that it needs next if the least recently used block always went
first: those are older than the blocks that it has just read. So blocks whose records have all been read go before the
others, as soon as they take more than a share of the cache. The share is for readers that follow closely. Now and then
the least recently used block goes all the same: otherwise blocks that nobody ever reads would stay.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from proxy.coordinator.interface import Row
from proxy.diskless.wal.segment import SEGMENT_OVERHEAD_BYTES
from proxy.records.batches import BatchBounds

_READ_SHARE = 4
"""Blocks that were read to the end go first if they take more than one part in this many of the capacity."""
_OLDEST_EVERY = 4
"""One time in this many, the least recently used block goes."""


class PatchedRun(NamedTuple):
    """The batches of one row as readers get them. `data` is read-only and never changes."""

    data: memoryview
    batches: tuple[BatchBounds, ...]


BlockKey = tuple[bytes, int, int, int]
"""Segment, position and length: of an aligned block (nominal), or of a run that crosses blocks. No run that crosses has
a block's position and length, so both live in one table. Then the size of blocks in that segment."""


class Block:
    """Bytes of one segment from `position` on, and the runs in them that have been patched."""

    __slots__ = ("data", "position", "runs", "siblings", "size_bytes", "unread_bytes")

    def __init__(self, position: int, data: bytearray | memoryview) -> None:
        self.position = position
        self.data = memoryview(data)
        self.size_bytes = self.unread_bytes = len(data)
        self.runs: dict[tuple[int, int], PatchedRun] = {}
        self.siblings: tuple[BlockKey, ...] = ()
        """Blocks of the same buffer, whose memory is free only when all of them go."""


class KeptBlocks:
    """The blocks by key."""

    def __init__(self) -> None:
        self._by_use: OrderedDict[BlockKey, Block] = OrderedDict()
        """The least recently used block first."""
        self._read: OrderedDict[BlockKey, None] = OrderedDict()
        """The blocks of which every record has been read, in the same order."""
        self._read_bytes = 0
        self._gone = 0
        """Number of blocks that had to go."""
        self._of_segment = Counter[bytes]()

    def __contains__(self, key: BlockKey) -> bool:
        return key in self._by_use

    def __bool__(self) -> bool:
        return bool(self._by_use)

    def __iter__(self) -> Iterator[BlockKey]:
        """Yield the keys, that of the least recently used block first."""
        return iter(self._by_use)

    def values(self) -> Iterable[Block]:
        """Return the blocks, the least recently used one first."""
        return self._by_use.values()

    def get(self, key: BlockKey) -> Block | None:
        """Return a block if it is here; this is no use of it."""
        return self._by_use.get(key)

    def use(self, key: BlockKey) -> Block | None:
        """Return a block if it is here, the most recently used one from now on."""
        block = self._by_use.get(key)
        if block is not None:
            self._by_use.move_to_end(key)
            if key in self._read:
                self._read.move_to_end(key)
        return block

    def keep(self, key: BlockKey, block: Block) -> Block:
        """Keep a block, unless there is one already, whose runs may be in use; return the one that is kept."""
        kept = self._by_use.setdefault(key, block)
        if kept is block:
            self._of_segment[key[0]] += 1
        self.use(key)
        return kept

    def note_read(self, key: BlockKey, block: Block, row: Row) -> None:
        """Note that a row of a block has been read for the first time."""
        block.unread_bytes -= row.length
        if block.unread_bytes <= SEGMENT_OVERHEAD_BYTES and self.get(key) is block and key not in self._read:
            self._read[key] = None
            self._read_bytes += len(block.data)

    def pop(self, key: BlockKey) -> Block | None:
        """Take a block out; None if it is not here."""
        block = self._by_use.pop(key, None)
        if block is None:
            return None
        if key in self._read:
            del self._read[key]
            self._read_bytes -= len(block.data)
        self._of_segment[key[0]] -= 1
        if not self._of_segment[key[0]]:
            del self._of_segment[key[0]]
        return block

    def next_to_go(self, capacity_bytes: int) -> BlockKey:
        """Return the key of the block to evict next. There must be one; `pop` takes it out."""
        self._gone += 1
        read_first = len(self._read) > 1 and _READ_SHARE * self._read_bytes > capacity_bytes
        return next(iter(self._read if read_first and self._gone % _OLDEST_EVERY else self._by_use))

    def segments_with(self, more: Iterable[bytes]) -> int:
        """Return the number of segments that have a block here or are among `more`, which are distinct."""
        return len(self._of_segment) + sum(segment not in self._of_segment for segment in more)
