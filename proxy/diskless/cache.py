"""The rack-local cache: aligned blocks of WAL segments in memory, read once however many readers want them.

Batches lie in segments without offsets. A row says which offsets its bytes have, so they are patched in the cached
bytes themselves when the row is first read, and from then on never written again: transports keep them uncopied. Those
of merged objects have their offsets, and are only looked at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

from proxy.coordinator.interface import Row
from proxy.diskless.get_count import caused_by_nobody, note_get
from proxy.diskless.kept_blocks import Block, BlockKey, KeptBlocks, PatchedRun
from proxy.diskless.parts import NotRead, PartReader
from proxy.diskless.wal.segment import segment_key, segment_of
from proxy.records.batches import BatchBounds, RecordsError, check_offsets, is_patched_otherwise, patch_offsets
from proxy.storage.interface import StorageError

RUN_BYTES = 500
"""Memory that a cached run takes in addition to its bytes and its batches (`BATCH_BYTES` each)."""
BATCH_BYTES = 200
_AHEAD_SHARE = 4
"""One part in this many of the capacity may hold blocks that were read ahead and that nobody has used yet."""
_LIKELY_DECAY = 8
"""Weight of a smaller block: its size moves the expected size of the next block by one part in this many."""


class BlockCache:
    """Reads rows by way of blocks of `block_bytes`, and keeps at most `capacity_bytes` of the last used ones.

    A segment smaller than a block is read whole in one GET. No more blocks are read at a time than fit in full. A block
    that is being read counts with the recent size of blocks: otherwise reads from a storage of small segments would
    push out everything, to make room that they do not need. A run that crosses blocks is joined into an entry of its
    own. Only while it is joined may it exceed the capacity. `max_gets` is the maximum number of reads at a time, if
    fewer than fit.

    `merged_block_bytes` is the block size for merged objects, in which the next read is likely to be after the current
    one. The size is smaller if `max_gets` blocks would not fit. It is halved as long as there is no room for two blocks
    of each segment in the cache (the one being read and the one before, with the runs that cross them). Each of these
    may have its own reader, which would find the rest of its block evicted for other readers.

    `leader_epoch` is the constant partition leader epoch of all batches.
    """

    def __init__(
        self,
        reads: PartReader,
        *,
        capacity_bytes: int,
        block_bytes: int,
        merged_block_bytes: int | None = None,
        max_gets: int | None = None,
        leader_epoch: int = 0,
    ) -> None:
        self._reads = reads
        self.capacity_bytes = capacity_bytes
        self._block_bytes = min(block_bytes, capacity_bytes)
        most = max(self._block_bytes, capacity_bytes // (max_gets or 1))
        self._merged_sizes = [self._block_bytes if merged_block_bytes is None else min(merged_block_bytes, most)]
        """Sizes of blocks of merged objects, the largest first."""
        while self._merged_sizes[-1] >= 2 * self._block_bytes:
            self._merged_sizes.append(self._merged_sizes[-1] // 2)
        self._likely_bytes = {size: size for size in (self._block_bytes, *self._merged_sizes)}
        """Expected bytes of a block, by its nominal size: the largest recent size, because many segments are
        smaller."""
        self._leader_epoch = leader_epoch
        self._entries = KeptBlocks()
        self._loading: dict[BlockKey, asyncio.Task[Block]] = {}
        self._ahead: dict[BlockKey, int] = {}
        """Bytes of what was read ahead, as expected while it is being read, until somebody uses it. All of it is in
        memory or being read."""
        self._largest_block_bytes = max(self._likely_bytes)
        self._max_gets = max_gets
        self._block_reads = asyncio.Semaphore(self._most_reads)
        self.used_bytes = 0
        """Bytes of entries, plus those reserved for blocks that are being read or joined."""
        self.hits = 0
        self.misses = 0
        self.get_count = 0
        self.bytes_read = 0
        self.evictions = 0
        self.ahead_count = 0
        self.ahead_unused = 0

    def cached(self, row: Row) -> PatchedRun | None:
        """Return the row's batches if they are in memory, at once."""
        key = self._key(row)
        entry = self._entries.use(key)
        if entry is None:
            return None
        self._ahead.pop(key, None)
        try:
            run = self._patched(key, entry, row)
        except StorageError:
            return None  # forgotten by now: `run` reads it again, and raises if that is no better
        self.hits += 1
        return run

    def has(self, row: Row) -> bool:
        """Return whether the row is in memory, or is being read."""
        key = self._key(row)
        return key in self._entries or key in self._loading

    def block_of(self, row: Row) -> Hashable:
        """Return a key of the block that the row needs: rows with the same key come with the same read."""
        return self._key(row)

    def likely_bytes(self, row: Row) -> int:
        """Return the expected size of the row's block once it is read."""
        _, position, length, size = self._key(row)
        is_block = length == size and not position % size
        return self._likely_bytes[size] if is_block else self._likely_bytes[size] + length

    async def run(self, row: Row) -> PatchedRun:
        """Return the row's batches, from object storage if they are not in memory.

        Raises ObjectMissing if the segment is gone (its coordinates are stale), StorageError if it can't be read or
        does not hold what the row says. Failures are not cached. A cancelled reader does not affect the others.
        """
        run = self.cached(row)
        if run is not None:
            return run
        self.misses += 1
        key = self._key(row)
        return self._patched(key, await self._entry(key), row)

    def read_ahead(self, row: Row) -> bool:
        """Begin to read a row that somebody is likely to want soon, unless it is in memory; False if there is no room.

        Nobody is to wait for it: it takes at most half of the reads at a time, and a share of the capacity.
        """
        if self.has(row):
            return True
        key, size = self._key(row), self.likely_bytes(row)
        if 2 * (len(self._loading) + 1) > self._most_reads or sum(self._ahead.values()) + size > self._most_ahead_bytes:
            return False
        self.ahead_count += 1
        self._ahead[key] = size
        with caused_by_nobody():
            self._begin(key)
        return True

    def insert(self, segment: bytes, data: bytearray) -> None:
        """Keep a segment of our own that has just been uploaded. `data` is the cache's from now on."""
        if not self._make_room(len(data)):
            return
        view, size = memoryview(data), self._block_bytes
        keys = tuple((segment, start, size, size) for start in range(0, len(data), size))
        for key in keys:
            entry = Block(key[1], view[key[1] : key[1] + size])
            entry.siblings = keys if len(keys) > 1 else ()
            self._keep(key, entry)

    def forget(self, key: str, start: int, end: int) -> None:
        """Give up a part of an object as `PartReader` gave it: it is no longer in memory that is shared."""
        size = end - start
        self._forget((segment_of(key), start, size, size))

    def resize(self, capacity_bytes: int) -> None:
        """Keep at most this much from now on, and at least one block, because blocks keep their size."""
        self.capacity_bytes = max(capacity_bytes, self._largest_block_bytes)
        self._block_reads = asyncio.Semaphore(self._most_reads)  # in addition to those under way
        self._make_room(0)

    async def close(self) -> None:
        """End the reads under way, whose readers get StorageError, and forget everything."""
        loading = list(self._loading.values())
        for task in loading:
            task.cancel()
        await asyncio.gather(*loading, return_exceptions=True)
        for key in list(self._entries):
            self._forget(key)

    @property
    def _most_reads(self) -> int:
        fit = max(1, self.capacity_bytes // self._largest_block_bytes)
        return fit if self._max_gets is None else min(fit, self._max_gets)

    @property
    def _most_ahead_bytes(self) -> int:
        return self.capacity_bytes // _AHEAD_SHARE

    def _key(self, row: Row) -> BlockKey:
        if not row.offsets_in_place or len(self._merged_sizes) == 1:
            return _key_of(row, self._merged_sizes[0] if row.offsets_in_place else self._block_bytes)
        keys = [_key_of(row, size) for size in self._merged_sizes]
        for key in keys:
            if key in self._entries or key in self._loading:
                return key
        segments = self._entries.segments_with({key[0] for key in self._loading} | {row.segment})
        return next((key for key in keys if 2 * segments * key[3] <= self.capacity_bytes), keys[-1])

    async def _entry(self, key: BlockKey) -> Block:
        """Return the entry of `key`: from memory, by the read of it that is under way, or by a new one."""
        self._ahead.pop(key, None)
        if (entry := self._entries.use(key)) is not None:
            return entry
        task = self._loading.get(key) or self._begin(key)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled() and not _being_cancelled():
                raise StorageError("the cache was closed while a segment was being read") from None
            raise

    def _begin(self, key: BlockKey) -> asyncio.Task[Block]:
        _, position, length, size = key
        is_block = length == size and not position % size
        task = asyncio.create_task(self._read_block(key) if is_block else self._join_blocks(key))
        self._loading[key] = task
        task.add_done_callback(lambda done: self._loaded(key, done))
        return task

    def _loaded(self, key: BlockKey, task: asyncio.Task[Block]) -> None:
        del self._loading[key]
        if self._ahead.pop(key, None) is not None and (entry := self._entries.get(key)) is not None:
            self._ahead[key] = entry.size_bytes
        if not task.cancelled():
            task.exception()  # seen here, as all readers may have been cancelled by now

    async def _read_block(self, key: BlockKey) -> Block:
        segment, position, length, size = key
        async with self._block_reads:
            reserved = self._likely_bytes[size]
            self._make_room(reserved)
            self.used_bytes += reserved
            try:
                data, was_read = await self._reads.read(segment_key(segment), position, position + length)
            except NotRead:
                raise
            except StorageError:
                self._count_get()
                raise
            finally:
                self.used_bytes -= reserved
            if was_read:
                self._count_get()
                self.bytes_read += len(data)
            likely = self._likely_bytes[size]
            self._likely_bytes[size] = max(len(data), likely - likely // _LIKELY_DECAY)
            self._make_room(len(data))
            entry = Block(position, bytearray(data) if isinstance(data, bytes) else data)
            return self._keep(key, entry)

    def _count_get(self) -> None:
        self.get_count += 1
        note_get()

    async def _join_blocks(self, key: BlockKey) -> Block:
        segment, position, length, size = key
        fits = self._make_room(length)
        self.used_bytes += length
        try:
            joined = memoryview(bytearray(length))
            done = 0
            for start in range(position - position % size, position + length, size):
                block = await self._entry((segment, start, size, size))
                skipped = position + done - start
                part = block.data[skipped : skipped + length - done]
                joined[done : done + len(part)] = part
                done += len(part)
                if len(block.data) < size:
                    break
        finally:
            self.used_bytes -= length
        entry = Block(position, joined[:done])
        return self._keep(key, entry) if fits else entry

    def _patched(self, key: BlockKey, entry: Block, row: Row) -> PatchedRun:
        """Return the row's part of an entry with its offsets set.

        Raises StorageError if the part does not match the row.
        """
        place = (row.position, row.length)
        known = entry.runs.get(place)
        if known is not None and _is_as_placed(known, row):
            return known
        start = row.position - entry.position
        run = entry.data[start : start + row.length]
        if not row.offsets_in_place and (
            known is not None or is_patched_otherwise(run, row.base_offset, _log_append_time(row))
        ):
            run = memoryview(bytearray(run))  # transports, here or in another process, may hold it as it is
        try:
            if len(run) < row.length:
                raise StorageError(f"is cut off: {len(run)} of {row.length} bytes are there")
            batches = tuple(self._batches(run, row))
        except (RecordsError, StorageError) as error:
            self._forget(key)
            raise StorageError(
                f"segment {segment_key(row.segment)}, position {row.position}, length {row.length}, for offsets "
                f"{row.base_offset} to {row.last_offset}: {error}"
            ) from error
        patched = PatchedRun(run.toreadonly(), batches)
        if known is None:
            entry.runs[place] = patched
            self._entries.note_read(key, entry, row)
            self._grow(key, entry, RUN_BYTES + BATCH_BYTES * len(batches))
        return patched

    def _batches(self, run: memoryview, row: Row) -> list[BatchBounds]:
        """Raises RecordsError and StorageError."""
        if row.offsets_in_place:
            return check_offsets(run, row.base_offset, row.last_offset)
        log_append_time_ms = _log_append_time(row)
        batches = patch_offsets(run, row.base_offset, self._leader_epoch, log_append_time_ms)
        if not batches or batches[-1].last_offset != row.last_offset:
            raise StorageError("holds another number of records")
        return batches

    def _grow(self, key: BlockKey, entry: Block, size: int) -> None:
        if self._entries.get(key) is entry:
            entry.size_bytes += size
            self.used_bytes += size
            self._make_room(0)

    def _keep(self, key: BlockKey, entry: Block) -> Block:
        if key not in self._entries:
            self.used_bytes += entry.size_bytes
        return self._entries.keep(key, entry)

    def _make_room(self, size: int) -> bool:
        """Evict entries until `size` bytes more fit; return False if they can't."""
        while self.used_bytes + size > self.capacity_bytes and self._entries:
            self._forget(self._entries.next_to_go(self.capacity_bytes))
            self.evictions += 1
        return self.used_bytes + size <= self.capacity_bytes

    def _forget(self, key: BlockKey) -> None:
        entry = self._entries.pop(key)
        if self._ahead.pop(key, None) is not None:
            self.ahead_unused += 1
        if entry is not None:
            self.used_bytes -= entry.size_bytes
            for sibling in entry.siblings:
                self._forget(sibling)


def _log_append_time(row: Row) -> int | None:
    return row.append_time_ms if row.log_append_time else None


def _key_of(row: Row, size: int) -> BlockKey:
    start = row.position - row.position % size
    if row.position + row.length <= start + size:
        return row.segment, start, size, size
    return row.segment, row.position, row.length, size


def _is_as_placed(run: PatchedRun, row: Row) -> bool:
    first = run.batches[0].base_offset
    if row.offsets_in_place:
        return first >= row.base_offset and run.batches[-1].last_offset == row.last_offset
    return first == row.base_offset


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
