"""WAL segments, object storage, the caches before it and the coordinator, under Prometheus names.

The list of KIP-1163 is included; `docs/metrics.md` compares it with ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from proxy.admin.families import counter, gauge, histogram, labelled_counter
from proxy.admin.record_metrics import storage_cost

if TYPE_CHECKING:
    from proxy.assembly.parts import Parts


def wal_metrics(parts: Parts) -> Iterator[Metric]:
    """All of them."""
    yield from _writes(parts)
    yield from _reads(parts)
    yield from _rollups(parts)
    coordinator = parts.stores.coordinator
    yield labelled_counter(
        "coordination_bytes",
        "Payload from and to the coordinator's store: all that crosses racks for a diskless topic.",
        ["direction"],
        [(("sent",), coordinator.bytes_sent), (("received",), coordinator.bytes_received)],
    )


def _writes(parts: Parts) -> Iterator[Metric]:
    stats = parts.process.stats
    yield counter("uploads", "WAL segments that object storage has taken.", stats.upload_seconds.count)
    yield counter("upload_bytes", "Bytes of them.", stats.segment_bytes.total)
    yield counter("upload_failures", "Uploads that failed.", stats.upload_failures)
    yield histogram("upload_seconds", "Upload of a WAL segment.", stats.upload_seconds)
    yield histogram("segment_bytes", "Size of uploaded WAL segments.", stats.segment_bytes)
    yield counter("commits", "WAL segments that the coordinator has committed.", stats.commit_seconds.count)
    yield counter("commit_failures", "Commits that failed or got no answer.", stats.commit_failures)
    yield histogram("commit_seconds", "Commit of a WAL segment.", stats.commit_seconds)
    yield counter("duplicate_batches", "Batches that were committed before.", stats.duplicate_batches)
    yield counter("index_full_batches", "Batches refused: their shard's index is full.", stats.index_full_batches)
    yield counter(
        "refused_unseen_batches",
        "Batches refused, to be produced again: their shard is fenced, or their segment came too late to be committed.",
        stats.refused_unseen_batches,
    )
    yield counter("segments_deleted", "WAL segments that nothing needed any more.", stats.segments_deleted)


def _reads(parts: Parts) -> Iterator[Metric]:
    stats, cache, cold = parts.process.stats, parts.diskless.cache, parts.diskless.cold_cache
    gets = cache.get_count + cold.get_count
    yield counter("cache_hits", "Rows found in the rack-local cache.", cache.hits)
    yield counter("cache_misses", "Rows not found in it.", cache.misses)
    yield counter("cache_evictions", "Blocks that left it for room.", cache.evictions)
    yield counter("cold_cache_hits", "Rows found in the cache of old records.", cold.hits)
    yield counter("cold_cache_misses", "Rows not found in it.", cold.misses)
    yield counter("storage_gets", "GETs of records.", gets)
    yield counter("storage_bytes_read", "Bytes they brought.", cache.bytes_read + cold.bytes_read)
    yield counter("cold_storage_gets", "Those of them that were for old records.", cold.get_count)
    yield counter("cold_storage_bytes_read", "Bytes they brought.", cold.bytes_read)
    yield histogram("storage_get_seconds", "GETs of object storage, whatever for.", stats.storage_get_seconds)
    yield histogram(
        "fetch_storage_gets",
        "GETs that a Fetch with diskless topics caused; what is cached or being read already takes none.",
        stats.fetch_storage_gets,
    )
    yield labelled_counter(
        "storage_errors",
        "Operations of object storage that failed, after their retries; a missing object is no failure.",
        ["operation"],
        [((operation,), count) for operation, count in stats.storage_errors.items()],
    )
    puts = stats.segment_bytes.count + stats.upload_failures
    yield storage_cost(stats.ledger, puts, gets, parts.process.settings.prices)


def _rollups(parts: Parts) -> Iterator[Metric]:
    rollups = parts.accounting.rollups
    yield counter("rollups_written", "Rollups of the traffic that object storage has.", rollups.written)
    yield counter("rollups_dropped", "Rollups given up, as too many waited for it.", rollups.dropped)
    yield gauge("rollups_waiting", "Rollups in memory that object storage has not taken yet.", rollups.waiting)
