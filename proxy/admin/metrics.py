"""The proxy's counters under Prometheus names; read when scraped, so the hot path only adds to plain numbers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from proxy.admin.record_metrics import record_metrics, storage_cost
from proxy.apis import API_TABLE
from proxy.stats import OTHER_TOPICS, Histogram

if TYPE_CHECKING:
    from proxy.context import Context

_PREFIX = "diskless_proxy_"
MAX_TOPICS_NAMED = 20
"""Values of the label `topic`, beside the one for all others."""


class ProxyCollector(Collector):
    """Reads one context's counters."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def collect(self) -> Iterable[Metric]:
        """All metrics as they stand."""
        yield from self._traffic()
        yield from self._wal()
        yield from self._index()
        yield from self._state()

    def _traffic(self) -> Iterator[Metric]:
        stats = self._context.stats
        requests = CounterMetricFamily(f"{_PREFIX}requests", "Requests of clients.", labels=["api"])
        for api_key, count in sorted(stats.requests.items()):
            requests.add_metric([API_TABLE[api_key].name], count)
        yield requests
        moved = CounterMetricFamily(f"{_PREFIX}client_bytes", "Bytes from and to clients.", labels=["direction"])
        moved.add_metric(["received"], stats.client_bytes_received)
        moved.add_metric(["sent"], stats.client_bytes_sent)
        yield moved
        settings = self._context.settings
        yield from record_metrics(stats, settings.rack, settings.prices)
        errors = CounterMetricFamily(
            f"{_PREFIX}partition_errors", "Errors that the proxy itself answered.", labels=["api", "error_code"]
        )
        for (api, error_code), count in sorted(stats.partition_errors.items()):
            errors.add_metric([api, str(error_code)], count)
        yield errors
        throttled = CounterMetricFamily(
            f"{_PREFIX}throttled_seconds",
            "For which clients of diskless topics were muted by the brokers' quotas.",
            labels=["direction"],
        )
        for direction, seconds in stats.throttled_seconds.items():
            throttled.add_metric([direction], seconds)
        yield throttled
        yield counter("protocol_errors", "Frames that can't be read.", stats.protocol_errors)
        yield counter("tls_handshakes_failed", "TLS handshakes of clients that failed.", stats.tls_handshakes_failed)
        yield counter("upstream_failures", "Brokers that could not be reached for a client.", stats.upstream_failures)
        yield counter("connections_opened", "Client connections since the start.", stats.connections_opened)
        yield counter("connections_refused", "Client connections over a limit.", stats.connections_refused)
        yield _histogram("produce_seconds", "Produce with diskless topics, until its answer.", stats.produce_seconds)
        yield _histogram("fetch_seconds", "Fetch with diskless topics, until its answer.", stats.fetch_seconds)

    def _wal(self) -> Iterator[Metric]:
        stats, cache, coordinator = self._context.stats, self._context.cache, self._context.coordinator
        yield _histogram("upload_seconds", "Upload of a WAL segment.", stats.upload_seconds)
        yield _histogram("segment_bytes", "Size of uploaded WAL segments.", stats.segment_bytes)
        yield _histogram("commit_seconds", "Commit of a WAL segment.", stats.commit_seconds)
        yield counter("upload_failures", "Uploads that failed.", stats.upload_failures)
        yield counter("commit_failures", "Commits that failed or got no answer.", stats.commit_failures)
        yield counter("duplicate_batches", "Batches that were committed before.", stats.duplicate_batches)
        yield counter("index_full_batches", "Batches refused: their shard's index is full.", stats.index_full_batches)
        yield counter("segments_deleted", "WAL segments that nothing needed any more.", stats.segments_deleted)
        yield counter("cache_hits", "Rows found in the rack-local cache.", cache.hits)
        yield counter("cache_misses", "Rows not found in it.", cache.misses)
        yield counter("cache_evictions", "Blocks that left it for room.", cache.evictions)
        cold = self._context.cold_cache
        yield counter("storage_gets", "GETs of object storage.", cache.get_count + cold.get_count)
        yield counter("storage_bytes_read", "Bytes they brought.", cache.bytes_read + cold.bytes_read)
        yield counter("cold_storage_gets", "Those of them that were for old records.", cold.get_count)
        yield counter("cold_storage_bytes_read", "Bytes they brought.", cold.bytes_read)
        puts = sum(stats.segment_bytes.counts) + stats.upload_failures
        yield storage_cost(puts, cache.get_count + cold.get_count, self._context.settings.prices)
        coordination = CounterMetricFamily(
            f"{_PREFIX}coordination_bytes",
            "Payload from and to the coordinator's store: all that crosses racks for a diskless topic.",
            labels=["direction"],
        )
        coordination.add_metric(["sent"], coordinator.bytes_sent)
        coordination.add_metric(["received"], coordinator.bytes_received)
        yield coordination

    def _index(self) -> Iterator[Metric]:
        rows = GaugeMetricFamily(f"{_PREFIX}index_rows", "Batch coordinates in the coordinator.", labels=["shard"])
        size = GaugeMetricFamily(f"{_PREFIX}index_bytes", "Memory of the store that they take.", labels=["shard"])
        for shard, index in enumerate(self._context.index_watch.sizes):
            rows.add_metric([str(shard)], index.rows)
            size.add_metric([str(shard)], index.size_bytes)
        yield rows
        yield size
        limit = self._context.settings.redis.max_index_bytes
        yield gauge("index_bytes_limit", "Of each shard; 0 for none.", limit)

    def _state(self) -> Iterator[Metric]:
        context = self._context
        yield gauge("connections", "Open client connections.", len(context.connections))
        yield gauge("tasks", "Tasks of the event loop.", len(asyncio.all_tasks()))
        yield gauge("held_request_bytes", "Requests held in memory.", context.memory.used_bytes)
        yield gauge("held_request_bytes_limit", "Their limit.", context.memory.limit_bytes)
        yield gauge("replica_connections", "To near replicas, open or being made.", len(context.replica_connections))
        yield gauge(
            "replica_answer_bytes", "Answers of near replicas held in memory.", context.replica_memory.used_bytes
        )
        yield gauge("replica_topics", "Classic topics whose replicas are known.", len(context.replicas))
        yield gauge("replica_brokers_shunned", "Near brokers that did not answer.", len(context.shunned.brokers))
        yield gauge("wal_buffer_bytes", "In the WAL segment being filled.", context.wal.buffered_bytes)
        yield gauge("held_batches", "Out of order, waiting for what comes between.", context.wal.holds.held_batches)
        yield gauge("intake_batches", "Being looked into, or waiting behind such.", context.intake.waiting_batches)
        yield gauge("wal_segments_underway", "Segments uploading or committing.", context.wal.segments_underway)
        yield gauge("cache_bytes", "In the rack-local cache.", context.cache.used_bytes)
        yield gauge("cold_cache_bytes", "In the cache of old records.", context.cold_cache.used_bytes)
        yield gauge("diskless_topics", "Topics in the registry.", len(context.topics.all()))
        fenced = "Shards of the coordinator that are refused, as the store has lost writes of theirs."
        yield gauge("fenced_shards", fenced, len(context.coordinator.fence.fenced))
        yield gauge(
            "store_unfit",
            "1 while the coordinator's store can't be trusted with writes.",
            float(context.store_watch.unfit is not None),
        )
        yield gauge("registry_version", "Version of the registry that is loaded.", context.topics.version)
        strays = GaugeMetricFamily(
            f"{_PREFIX}stray_records",
            "Records in shadow topics' logs, produced past the proxies; told by the proxy that keeps house.",
            labels=["topic"],
        )
        for topic, count in named_topics(context.housekeeper.shadows.stray_records).items():
            strays.add_metric([topic], count)
        yield strays
        yield from self._under_replicated()
        fleet = GaugeMetricFamily(f"{_PREFIX}fleet_proxies", "Live proxies that clients are told of.", labels=["rack"])
        racks = [record.rack for record in context.fleet.records.values() if record.serving]
        for rack in sorted(set(racks)):
            fleet.add_metric([rack], racks.count(rack))
        yield fleet
        yield gauge("brokers", "Live brokers.", len(context.cluster.view.brokers))
        limits = GaugeMetricFamily(
            f"{_PREFIX}quota_limits", "The brokers' byte rate quotas that are known.", labels=["direction"]
        )
        for direction, quota in (("produce", context.quotas.produce), ("fetch", context.quotas.fetch)):
            limits.add_metric([direction], len(quota.limits))
        yield limits

    def _under_replicated(self) -> Iterator[Metric]:
        """Of topics that were made while brokers were missing; told by the proxy that completes them."""
        left = self._context.replication_keeper.completion.left
        yield gauge("under_replicated_topics", "Topics that still lack replicas they are to get.", left.topics)
        yield gauge("under_replicated_partitions", "Partitions that still lack replicas.", left.partitions)
        age_s = 0.0
        if left.oldest_since_ms is not None:
            age_s = max(0.0, (self._context.wall_clock_ms() - left.oldest_since_ms) / 1000)
        yield gauge("under_replicated_oldest_seconds", "For how long the oldest of them has lacked them.", age_s)


def named_topics(counts: Mapping[str, int]) -> dict[str, int]:
    """The topics with the most, MAX_TOPICS_NAMED of them; the others' sum as one."""
    most = sorted(counts, key=lambda topic: (-counts[topic], topic))
    named = {topic: counts[topic] for topic in sorted(most[:MAX_TOPICS_NAMED])}
    if rest := sum(counts[topic] for topic in most[MAX_TOPICS_NAMED:]):
        named[OTHER_TOPICS] = rest
    return named


def counter(name: str, text: str, value: float) -> Metric:
    """One without labels; the prefix is put before `name`, and `_total` behind it."""
    return CounterMetricFamily(_PREFIX + name, text, value=value)


def gauge(name: str, text: str, value: float) -> Metric:
    """One without labels; the prefix is put before `name`."""
    return GaugeMetricFamily(_PREFIX + name, text, value=value)


def _histogram(name: str, text: str, histogram: Histogram) -> Metric:
    cumulated, buckets = 0, []
    for bound, count in zip([*histogram.bounds, float("inf")], histogram.counts, strict=True):
        cumulated += count
        buckets.append(("+Inf" if bound == float("inf") else str(float(bound)), float(cumulated)))
    return HistogramMetricFamily(_PREFIX + name, text, buckets=buckets, sum_value=histogram.total)
