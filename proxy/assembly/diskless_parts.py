"""The diskless log: what is produced into it, and what is read from it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from proxy.assembly.process_parts import ProcessParts
from proxy.assembly.room import RoomParts, Work
from proxy.assembly.store_parts import StoreParts
from proxy.config import Settings
from proxy.diskless.cache import BlockCache
from proxy.diskless.coordinates import Coordinates
from proxy.diskless.diskless_reader import DisklessReader
from proxy.diskless.index_watch import IndexWatch
from proxy.diskless.row_reader import RowReader
from proxy.diskless.time_lookup import TimeLookup
from proxy.diskless.wal.buffer import WalBuffer
from proxy.diskless.wal.intake import Intake
from proxy.diskless.wal.pace import PutBudget
from proxy.process.clock import wall_clock_ms

_SHORTEST_COMMIT_AGE_MS = 1_000
_UPLOADS = "diskless_append_max_uploads"


@dataclass(frozen=True, slots=True)
class DisklessParts(RoomParts):
    """WAL, caches and readers of diskless topics."""

    settings: Settings
    index_watch: IndexWatch
    cache: BlockCache
    """Blocks of recent segments."""
    cold_cache: BlockCache
    """Blocks of old segments."""
    rows: RowReader
    reader: DisklessReader
    time_lookup: TimeLookup
    wal: WalBuffer
    intake: Intake

    def background_on_store(self) -> Iterable[Work]:
        """Return the work that follows other proxies' commits, and the size of the index."""
        yield self.reader.coordinates.follow()
        yield self.index_watch.keep_watching()

    async def close(self) -> None:
        """Stop intake and WAL before what they use."""
        await self.intake.close()
        await self.wal.close()
        self.time_lookup.close()
        await self.cache.close()
        await self.cold_cache.close()

    def take_settings(self, changed: Collection[str]) -> None:
        """Apply the limits of reads, caches, WAL and intake."""
        settings, fetch = self.settings, self.settings.fetch
        self.cache.resize(fetch.cache_bytes)
        self.cold_cache.resize(fetch.cold_cache_bytes)
        self.rows.cold_after_ms = fetch.cold_after_ms
        self.reader.coordinates.max_age_s = fetch.coordinates_max_age_ms / 1000
        self.reader.shortest_wait_s = fetch.shortest_read_wait_ms / 1000
        self.reader.read_ahead_bytes = fetch.read_ahead_bytes
        self.time_lookup.max_batch_bytes = fetch.max_decompressed_batch_bytes
        self.wal.timer.interval_s = settings.diskless_append_commit_interval_ms / 1000
        self.wal.timer.budget.per_second = _puts_per_second(settings)
        self.wal.timer.max_underway = settings.diskless_append_underway
        self.wal.max_bytes = settings.diskless_append_buffer_max_bytes
        self.wal.commit_timeout_s = settings.diskless_append_commit_timeout_ms / 1000
        self.wal.holds.hold_s = settings.out_of_order_hold_ms / 1000
        self.wal.holds.max_batches = settings.max_held_batches
        self.intake.max_decompressed_bytes = settings.max_decompressed_batch_bytes
        self.intake.max_records = settings.max_prepared_batch_records
        if _UPLOADS in changed:
            self.wal.allow_uploads(settings.diskless_append_max_uploads)


def _puts_per_second(settings: Settings) -> float:
    """Return the budget of this process for uploads of segments."""
    if settings.diskless_append_puts_per_second:
        return settings.diskless_append_puts_per_second / settings.workers
    return 1000 / settings.diskless_append_commit_interval_ms


def build_diskless(process: ProcessParts, stores: StoreParts) -> DisklessParts:
    """Build the parts; nothing is read or written yet."""
    settings, fetch = process.settings, process.settings.fetch
    storage, coordinator = stores.storage, stores.coordinator
    cache = BlockCache(storage, capacity_bytes=fetch.cache_bytes, block_bytes=fetch.block_bytes)
    cold_cache = BlockCache(
        storage,
        capacity_bytes=fetch.cold_cache_bytes,
        block_bytes=fetch.cold_block_bytes,
        merged_block_bytes=fetch.merged_block_bytes,
        max_gets=fetch.cold_max_gets,
    )
    rows = RowReader(cache, cold_cache, cold_after_ms=fetch.cold_after_ms, now_ms=wall_clock_ms)
    reader = DisklessReader(
        Coordinates(coordinator, max_age_s=fetch.coordinates_max_age_ms / 1000),
        rows,
        process.throttled_log,
        shortest_wait_s=fetch.shortest_read_wait_ms / 1000,
        read_ahead_bytes=fetch.read_ahead_bytes,
    )
    wal = WalBuffer(
        storage,
        coordinator,
        cache,
        process.stats,
        interval_s=settings.diskless_append_commit_interval_ms / 1000,
        budget=PutBudget(_puts_per_second(settings)),
        max_underway=settings.diskless_append_underway,
        max_bytes=settings.diskless_append_buffer_max_bytes,
        max_uploads=settings.diskless_append_max_uploads,
        commit_timeout_s=settings.diskless_append_commit_timeout_ms / 1000,
        # The other half is left for clocks that differ.
        max_age_s=max(settings.garbage.orphan_age_ms / 2, _SHORTEST_COMMIT_AGE_MS) / 1000,
        grace_s=settings.garbage.further_rows_within_ms / 1000,
        hedge_after_s=settings.storage.hedge_after_ms / 1000,
        out_of_order_hold_s=settings.out_of_order_hold_ms / 1000,
        max_held_batches=settings.max_held_batches,
        heard=reader.coordinates.note_committed,
    )
    return DisklessParts(
        settings=settings,
        index_watch=IndexWatch(coordinator, settings.redis),
        cache=cache,
        cold_cache=cold_cache,
        rows=rows,
        reader=reader,
        time_lookup=TimeLookup(
            coordinator,
            rows,
            process.throttled_log,
            max_rows=fetch.time_lookup_max_rows,
            max_batch_bytes=fetch.max_decompressed_batch_bytes,
        ),
        wal=wal,
        intake=Intake(
            wal,
            process.memory,
            max_decompressed_bytes=settings.max_decompressed_batch_bytes,
            max_records=settings.max_prepared_batch_records,
            threads=settings.compression_threads,
        ),
    )
