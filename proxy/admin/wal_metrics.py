"""WAL segments, object storage, the caches before it and the coordinator, under Prometheus names.

The list of KIP-1163 is included; `docs/metrics.md` compares it with ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from proxy.admin.families import counter, gauge, histogram, labelled_counter, labelled_histogram
from proxy.admin.record_metrics import storage_cost
from proxy.coordinator.call_times import CALL_BOUNDS_S, CallTimes
from proxy.coordinator.cluster import Cluster, Store, call_times, number_of_primaries
from proxy.telemetry.stats import Histogram

if TYPE_CHECKING:
    from proxy.assembly.parts import Parts


def wal_metrics(parts: Parts) -> Iterator[Metric]:
    """Yield all metrics of WAL segments, object storage, caches and the coordinator."""
    yield from _writes(parts)
    yield from _reads(parts)
    yield from _rollups(parts)
    coordinator = parts.stores.coordinator
    yield labelled_counter(
        "coordination_bytes",
        "Payload from and to the coordinator's store; for diskless topics, only this payload crosses racks.",
        ["direction"],
        [(("sent",), coordinator.bytes_sent), (("received",), coordinator.bytes_received)],
    )
    yield from _store(parts.stores.store)


def _store(store: Store) -> Iterator[Metric]:
    yield gauge("redis_nodes", "Servers of the coordinator's store that take writes.", number_of_primaries(store))
    redirects = store.redirects if isinstance(store, Cluster) else {}
    yield labelled_counter(
        "redis_redirects",
        "Answers of a cluster's servers that another server has the slot, or that the slot is being moved.",
        ["kind"],
        [((kind,), count) for kind, count in redirects.items()],
    )
    yield labelled_histogram(
        "coordinator_call_seconds",
        "Time of script calls, by server of the coordinator's store. Calls that are sent together count once.",
        ["node"],
        [((node,), _histogram(times)) for node, times in sorted(call_times(store).items())],
    )


def _histogram(times: CallTimes) -> Histogram:
    counted = Histogram(CALL_BOUNDS_S)
    counted.counts, counted.total = times.counts, times.total_s
    return counted


def _writes(parts: Parts) -> Iterator[Metric]:
    stats = parts.process.stats
    yield counter("uploads", "WAL segments that were uploaded.", stats.upload_seconds.count)
    yield counter("upload_bytes", "Bytes of uploaded WAL segments.", stats.segment_bytes.total)
    yield counter("upload_failures", "Uploads that failed.", stats.upload_failures)
    text = "Uploads that were begun again under a second name (`storage.hedge_after_ms`)."
    yield counter("uploads_hedged", text, stats.uploads_hedged)
    yield histogram("upload_seconds", "Time to upload a WAL segment.", stats.upload_seconds)
    yield histogram("segment_bytes", "Size of uploaded WAL segments.", stats.segment_bytes)
    yield counter("commits", "WAL segments that the coordinator has committed.", stats.commit_seconds.count)
    yield counter("commit_failures", "Commits that failed or got no answer.", stats.commit_failures)
    yield histogram("commit_seconds", "Time to commit a WAL segment.", stats.commit_seconds)
    yield histogram(
        "journal_append_seconds",
        "Time from an append to the journal until its brokers acknowledged it.",
        stats.journal_append_seconds,
    )
    yield counter("journal_bytes", "Bytes of records that the journal's brokers acknowledged.", stats.journal_bytes)
    yield counter("duplicate_batches", "Batches that were committed before.", stats.duplicate_batches)
    yield counter(
        "index_full_batches",
        "Batches that were rejected because their shard's index is full.",
        stats.index_full_batches,
    )
    yield counter(
        "refused_unseen_batches",
        "Batches that were rejected and have to be produced again: their shard is fenced, or their segment was "
        "uploaded too late.",
        stats.refused_unseen_batches,
    )
    yield counter(
        "segments_deleted",
        "WAL segments that were deleted, because no batch in them is needed any more.",
        stats.segments_deleted,
    )


def _reads(parts: Parts) -> Iterator[Metric]:
    stats, cache, cold = parts.process.stats, parts.diskless.cache, parts.diskless.cold_cache
    gets = cache.get_count + cold.get_count
    yield counter("cache_hits", "Rows found in the rack-local cache.", cache.hits)
    yield counter("cache_misses", "Rows not found in the rack-local cache.", cache.misses)
    yield counter("cache_evictions", "Blocks that were evicted from the rack-local cache.", cache.evictions)
    yield counter("cold_cache_hits", "Rows found in the cache of old records.", cold.hits)
    yield counter("cold_cache_misses", "Rows not found in the cache of old records.", cold.misses)
    yield counter("storage_gets", "GETs of records.", gets)
    ahead, unused = cache.ahead_count + cold.ahead_count, cache.ahead_unused + cold.ahead_unused
    yield counter("storage_reads_ahead", "Blocks of records that were read before anyone requested them.", ahead)
    yield counter("storage_reads_ahead_unused", "Those of them that were evicted before anyone did.", unused)
    yield counter("storage_bytes_read", "Bytes that GETs of records returned.", cache.bytes_read + cold.bytes_read)
    yield counter("cold_storage_gets", "GETs of old records.", cold.get_count)
    yield counter("cold_storage_bytes_read", "Bytes that GETs of old records returned.", cold.bytes_read)
    yield histogram(
        "storage_get_seconds", "Time of a GET from object storage, for any purpose.", stats.storage_get_seconds
    )
    yield histogram(
        "fetch_storage_gets",
        "GETs that a Fetch with diskless topics caused. Records that are cached, or already being read, need none.",
        stats.fetch_storage_gets,
    )
    yield labelled_counter(
        "storage_errors",
        "Operations of object storage that failed after all retries; a missing object is not a failure.",
        ["operation"],
        [((operation,), count) for operation, count in stats.storage_errors.items()],
    )
    puts = stats.segment_bytes.count + stats.upload_failures + stats.uploads_hedged
    yield storage_cost(stats.ledger, puts, gets, parts.process.settings.prices)


def _rollups(parts: Parts) -> Iterator[Metric]:
    rollups = parts.accounting.rollups
    yield counter("rollups_written", "Rollups of the traffic that were written to object storage.", rollups.written)
    yield counter(
        "rollups_dropped", "Rollups that were dropped because too many waited to be written.", rollups.dropped
    )
    yield gauge("rollups_waiting", "Rollups in memory that are not written to object storage yet.", rollups.waiting)
