"""The diskless log: what is produced into it, and what is read from it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from proxy.assembly.process_parts import ProcessParts
from proxy.assembly.room import RoomParts, Work
from proxy.assembly.store_parts import StoreParts
from proxy.config import Settings
from proxy.coordinator.clock import wall_clock_ms
from proxy.diskless.cache import BlockCache
from proxy.diskless.coordinates import Coordinates
from proxy.diskless.diskless_reader import DisklessReader
from proxy.diskless.index_watch import IndexWatch
from proxy.diskless.parts import DirectReads, PartReader
from proxy.diskless.row_reader import RowReader
from proxy.diskless.shared.blocks import SharedBlocks, SharedCaches
from proxy.diskless.shared.link import StorageLink
from proxy.diskless.shared.reads_client import SharedReads
from proxy.diskless.shared.server import StorageServer
from proxy.diskless.shared.wal_client import RemoteWal
from proxy.diskless.time_lookup import TimeLookup
from proxy.diskless.wal.buffer import WalBuffer
from proxy.diskless.wal.intake import Intake
from proxy.diskless.wal.interface import SegmentCache, Wal
from proxy.diskless.wal.pace import PutBudget
from proxy.process.sharing import Sharing

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
    wal: Wal
    """It takes the batches of this process."""
    buffer: WalBuffer | None
    """The WAL, if this process has it."""
    intake: Intake
    link: StorageLink | None
    """The link of a worker to the storage process."""
    shared: SharedCaches | None
    """The caches of the storage process."""
    server: StorageServer | None
    """The storage process's side of the links."""

    def background(self) -> Iterable[Work]:
        """Return the work that keeps a worker connected to the storage process."""
        if self.link is not None:
            yield self.link.keep()

    def background_on_store(self) -> Iterable[Work]:
        """Return the work that follows other proxies' commits, and the size of the index."""
        yield self.reader.coordinates.follow()
        yield self.index_watch.keep_watching()

    @property
    def caches(self) -> Sequence[BlockCache | SharedBlocks]:
        """Return the caches whose memory this process holds, that of old records last; none in a worker."""
        if self.link is not None:
            return ()
        return self.shared or (self.cache, self.cold_cache)

    async def close(self) -> None:
        """Stop intake and WAL before what they use."""
        await self.intake.close()
        if self.server is not None:
            self.server.close()
        await self.wal.close()
        if self.link is not None:
            self.link.close()
        self.time_lookup.close()
        for cache in (self.cache, self.cold_cache, *(self.shared or ())):
            await cache.close()

    def take_settings(self, changed: Collection[str]) -> None:
        """Apply the limits of reads, caches, WAL and intake."""
        settings, fetch = self.settings, self.settings.fetch
        processes = _processes(settings)
        self.cache.resize(fetch.cache_bytes // processes)
        self.cold_cache.resize(fetch.cold_cache_bytes // processes)
        self.rows.cold_after_ms = fetch.cold_after_ms
        self.reader.coordinates.max_age_s = fetch.coordinates_max_age_ms / 1000
        self.reader.shortest_wait_s = fetch.shortest_read_wait_ms / 1000
        self.reader.read_ahead_bytes = fetch.read_ahead_bytes
        self.time_lookup.max_batch_bytes = fetch.max_decompressed_batch_bytes
        self.intake.max_decompressed_bytes = settings.max_decompressed_batch_bytes
        self.intake.max_records = settings.max_prepared_batch_records
        if self.shared is not None:
            self.shared.tail.resize(fetch.cache_bytes)
            self.shared.cold.resize(fetch.cold_cache_bytes)
        if self.buffer is not None:
            self._take_settings_of_buffer(self.buffer, changed)

    def _take_settings_of_buffer(self, buffer: WalBuffer, changed: Collection[str]) -> None:
        settings = self.settings
        buffer.timer.interval_s = settings.diskless_append_commit_interval_ms / 1000
        buffer.timer.budget.per_second = _puts_per_second(settings)
        buffer.timer.max_underway = settings.diskless_append_underway
        buffer.max_bytes = settings.diskless_append_buffer_max_bytes
        buffer.commit_timeout_s = settings.diskless_append_commit_timeout_ms / 1000
        buffer.holds.hold_s = settings.out_of_order_hold_ms / 1000
        buffer.holds.max_batches = settings.max_held_batches
        if _UPLOADS in changed:
            buffer.allow_uploads(settings.diskless_append_max_uploads)


def _puts_per_second(settings: Settings) -> float:
    """Return the budget of a proxy for uploads of segments."""
    return settings.diskless_append_puts_per_second or 1000 / settings.diskless_append_commit_interval_ms


def _processes(settings: Settings) -> int:
    """Return the number of processes that share the memory of the caches."""
    return 1 if settings.workers == 1 else settings.workers + 1


def build_diskless(process: ProcessParts, stores: StoreParts, sharing: Sharing | None = None) -> DisklessParts:
    """Build the parts; nothing is read or written yet. `sharing`: of a proxy with workers."""
    settings, fetch = process.settings, process.settings.fetch
    coordinator = stores.coordinator
    link = remote = shared = buffer = server = None
    reads: tuple[PartReader, PartReader]
    if sharing is None:
        reads = (DirectReads(stores.storage),) * 2
    elif sharing.is_storage:
        sizes = fetch.cache_bytes, fetch.cold_cache_bytes
        reads = shared = SharedCaches(*(SharedBlocks(stores.storage, capacity_bytes=size) for size in sizes))
    else:
        link = StorageLink(sharing.address)
        remote = SharedReads(link)
        reads = remote.reader(cold=False), remote.reader(cold=True)
    processes = _processes(settings)
    cache = BlockCache(reads[0], capacity_bytes=fetch.cache_bytes // processes, block_bytes=fetch.block_bytes)
    cold_cache = BlockCache(
        reads[1],
        capacity_bytes=fetch.cold_cache_bytes // processes,
        block_bytes=fetch.cold_block_bytes,
        merged_block_bytes=fetch.merged_block_bytes,
        max_gets=fetch.cold_max_gets,
    )
    if remote is not None:
        remote.on_gone += [cache.forget, cold_cache.forget]
    rows = RowReader(cache, cold_cache, cold_after_ms=fetch.cold_after_ms, now_ms=wall_clock_ms)
    reader = DisklessReader(
        Coordinates(coordinator, max_age_s=fetch.coordinates_max_age_ms / 1000),
        rows,
        process.throttled_log,
        shortest_wait_s=fetch.shortest_read_wait_ms / 1000,
        read_ahead_bytes=fetch.read_ahead_bytes,
    )
    wal: Wal
    if link is not None:
        wal = RemoteWal(link, reader.coordinates.note)
    else:
        wal = buffer = _build_buffer(process, stores, cache if shared is None else shared.tail, reader.coordinates)
        if sharing is not None and shared is not None:
            server = StorageServer(sharing.address, buffer, shared)
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
        buffer=buffer,
        intake=Intake(
            wal,
            process.memory,
            max_decompressed_bytes=settings.max_decompressed_batch_bytes,
            max_records=settings.max_prepared_batch_records,
            threads=settings.compression_threads,
        ),
        link=link,
        shared=shared,
        server=server,
    )


def _build_buffer(
    process: ProcessParts, stores: StoreParts, cache: SegmentCache, coordinates: Coordinates
) -> WalBuffer:
    settings = process.settings
    return WalBuffer(
        stores.storage,
        stores.coordinator,
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
        heard=coordinates.note_committed,
    )
