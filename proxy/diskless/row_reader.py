"""The source of a row's bytes: the rack-local cache of the tail or, for old rows, a small cache next to it.

All readers of old data share the budget of the small cache (bytes, and GETs at a time) and do not use the tail's cache:
a reader that goes through a whole log would evict from it what all others are about to read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress

from proxy.coordinator.interface import Row
from proxy.coordinator.packing_transactions import marker_of
from proxy.diskless.cache import BlockCache
from proxy.diskless.kept_blocks import PatchedRun
from proxy.records.batches import BatchBounds, control_batch
from proxy.storage.interface import StorageError

_LEADER_EPOCH = 0
_READS_AT_A_TIME = 32
"""Maximum number of blocks that one answer requests from the caches at a time. It bounds what a cancelled reader leaves
under way."""


def marker_run(row: Row) -> PatchedRun:
    """Return the control batch of a transaction's marker, whose row has no object."""
    marker = marker_of(row)
    batch = control_batch(
        row.base_offset,
        _LEADER_EPOCH,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        coordinator_epoch=marker.coordinator_epoch,
        committed=marker.committed,
        timestamp_ms=marker.timestamp_ms,
        log_append_time=marker.log_append_time,
    )
    return PatchedRun(memoryview(batch), (BatchBounds(0, len(batch), row.base_offset, row.last_offset),))


class RowReader:
    """Reads rows. `cold_after_ms`: rows that were appended longer ago are old; `now_ms`: milliseconds since 1970."""

    def __init__(self, tail: BlockCache, cold: BlockCache, *, cold_after_ms: int, now_ms: Callable[[], int]) -> None:
        self._tail = tail
        self._cold = cold
        self.cold_after_ms = cold_after_ms
        self._now_ms = now_ms

    def cached(self, row: Row) -> PatchedRun | None:
        """Return the row's batches if they are in memory, at once; always those of a marker. An old row may still be in
        the tail's cache."""
        if row.is_marker:
            return marker_run(row)
        run = self._tail.cached(row)
        if run is None and self._is_cold(row):
            run = self._cold.cached(row)
        return run

    async def run(self, row: Row) -> PatchedRun:
        """Return the row's batches; raises as `BlockCache.run` does: ObjectMissing and StorageError."""
        if row.is_marker:
            return marker_run(row)
        if not self._is_cold(row):
            return await self._tail.run(row)
        return self._tail.cached(row) or await self._cold.run(row)

    def read_ahead(self, rows: Iterable[Row]) -> None:
        """Begin to read rows that are likely to be wanted soon, in this order, until a cache has no room."""
        for row in rows:
            if row.is_marker or self._tail.has(row):
                continue
            if not self.cache_of(row).read_ahead(row):
                return

    def cache_of(self, row: Row) -> BlockCache:
        """Return the cache that reads the row if it is in none."""
        return self._cold if self._is_cold(row) else self._tail

    def _is_cold(self, row: Row) -> bool:
        return self._now_ms() - row.append_time_ms > self.cold_after_ms


class HeldRows:
    """The rows of one answer, held until it is made: what others read meanwhile may push them out of the caches.

    As many are read as the caches can hold, so that a reader of many segments does not read them in vain.
    """

    def __init__(self, reader: RowReader) -> None:
        self._reader = reader
        self._found: dict[Row, PatchedRun | StorageError] = {}
        self._missing: dict[tuple[BlockCache, Hashable], list[Row]] = {}
        self._room: dict[BlockCache, int] = {}
        """Bytes that may still be read, if any are left."""
        self._ahead: list[Row] = []

    def want(self, row: Row) -> bool:
        """Hold the row, or have `load` read it; False if its cache can't hold all that would be read."""
        run = self._reader.cached(row)
        if run is not None:
            self._found[row] = run
            return True
        cache = self._reader.cache_of(row)
        block = cache, cache.block_of(row)
        rows = self._missing.get(block)
        if rows is not None:
            rows.append(row)
            return True
        size = cache.likely_bytes(row)
        room = self._room.get(cache)
        if room is not None and size > room:
            return False
        self._room[cache] = (cache.capacity_bytes if room is None else room) - size
        self._missing[block] = [row]
        return True

    def want_next(self, rows: Iterable[Row]) -> None:
        """Have `load` begin to read rows that the next answers are likely to need, after those of this one."""
        self._ahead.extend(rows)

    @property
    def had_to_read(self) -> bool:
        """Return whether a row that was wanted was not in memory."""
        return bool(self._missing)

    async def load(self, timeout_s: float) -> None:
        """Read the missing rows in the order in which they were wanted, until time is up."""
        if not self._missing:
            self._reader.read_ahead(self._ahead)
            return
        blocks = iter(self._missing.values())

        async def work() -> None:
            for rows in blocks:
                for row in rows:
                    await self._load(row)

        async def read_ahead() -> None:
            self._reader.read_ahead(self._ahead)

        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s), asyncio.TaskGroup() as group:
                for _ in range(min(len(self._missing), _READS_AT_A_TIME)):
                    group.create_task(work())
                group.create_task(read_ahead())

    async def any_of(self, rows: Sequence[Row]) -> None:
        """Wait until one of these rows is read or can't be read, for any time: an unresponsive read holds up no other.

        In addition to the first row, only wanted rows are read, because there is no room for others.
        """
        if not rows or any(row in self._found or self._reader.cached(row) is not None for row in rows):
            return
        wanted = {row for of_block in self._missing.values() for row in of_block}
        some = [rows[0], *(row for row in rows[1:] if row in wanted)][:_READS_AT_A_TIME]
        reading = [asyncio.create_task(self._load(row)) for row in some]
        try:
            done, _ = await asyncio.wait(reading, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                one.result()
        finally:
            for one in reading:
                one.cancel()
            await asyncio.gather(*reading, return_exceptions=True)

    def get(self, row: Row) -> PatchedRun | None:
        """Return the row's batches if they are here or in memory.

        Raises what reading them raised: see `RowReader.run`.
        """
        found = self._found.get(row)
        if isinstance(found, StorageError):
            raise found
        return found or self._reader.cached(row)

    async def _load(self, row: Row) -> None:
        try:
            self._found[row] = self._reader.cached(row) or await self._reader.run(row)
        except StorageError as error:
            self._found[row] = error
