"""The metrics of several workers, summed up as those of one proxy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from proxy.admin.families import counter, gauge, plain_family
from proxy.admin.state_metrics import ready_metric

SEEN_BY_ALL: Mapping[str, Callable[[float, float], float]] = {
    "diskless_proxy_build_info": max,
    "diskless_proxy_certificate_expiry_seconds": min,
    "diskless_proxy_diskless_topics": min,
    "diskless_proxy_registry_version": min,
    "diskless_proxy_fleet_proxies": max,
    "diskless_proxy_brokers": min,
    "diskless_proxy_brokers_without_port": max,
    "diskless_proxy_brokers_unlisted": max,
    "diskless_proxy_fenced_shards": max,
    "diskless_proxy_views_unproved": max,
    "diskless_proxy_snapshot_overdue_seconds": max,
    "diskless_proxy_snapshot_bytes": max,
    "diskless_proxy_journal_records_after_snapshot": max,
    "diskless_proxy_journal_lag_records": max,
    "diskless_proxy_rebuild_seconds": max,
    "diskless_proxy_housekeeping_paused": max,
    "diskless_proxy_store_unfit": max,
    "diskless_proxy_redis_nodes": max,
    "diskless_proxy_stray_records": max,
    "diskless_proxy_classic_topics_named_diskless": max,
    "diskless_proxy_under_replicated_topics": max,
    "diskless_proxy_under_replicated_partitions": max,
    "diskless_proxy_under_replicated_oldest_seconds": max,
    "diskless_proxy_quota_limits": min,
    "diskless_proxy_replica_brokers_shunned": max,
    "diskless_proxy_transaction_oldest_seconds": max,
    "diskless_proxy_markers_unread_seconds": max,
    "diskless_proxy_index_rows": max,
    "diskless_proxy_index_bytes": max,
    "diskless_proxy_index_bytes_limit": max,
}
"""Gauges of outside state that every worker sees: the page shows the value of the worker that is furthest behind."""
REPORTED_BY_PARENT = frozenset({"diskless_proxy_ready"})
"""Gauges that the parent reports itself, for all workers together, also for silent ones."""
ADDED_UP = frozenset(
    f"diskless_proxy_{name}"
    for name in (
        "connections",
        "tasks",
        "requests_underway",
        "buffer_bytes",
        "buffer_bytes_limit",
        "held_request_bytes",
        "held_request_bytes_limit",
        "replica_connections",
        "replica_answer_bytes",
        "replica_topics",
        "wal_buffer_bytes",
        "wal_segments_underway",
        "upload_budget_per_second",
        "rollups_waiting",
        "held_batches",
        "intake_batches",
        "cache_bytes",
        "cold_cache_bytes",
        "transactions_open",
        "markers_followed",
    )
)
"""Gauges that are sums over the workers."""


@dataclass(frozen=True, slots=True)
class WorkerMetrics:
    """The metrics of one worker."""

    worker: str
    own: list[Metric]
    process: list[Metric]


def metrics_page(workers: Iterable[WorkerMetrics], *, ready: bool, running: int, restarts: int) -> bytes:
    """Return the metrics page: sums over the workers, and the metrics of each process with the label `worker`.

    `ready`: the answer of /readyz; `running`: number of workers that run now; `restarts`: number of restarts of
    workers.
    """
    workers = list(workers)
    registry = CollectorRegistry()
    registry.register(_Collected([ready_metric(ready=ready), *summed([_without_parents(one.own) for one in workers])]))
    registry.register(_Collected(_side_by_side({one.worker: one.process for one in workers})))
    registry.register(_Collected(worker_metrics(running=running, restarts=restarts)))
    return generate_latest(registry)


def worker_metrics(*, running: int, restarts: int) -> list[Metric]:
    """Return the metrics that only a parent of workers has."""
    return [
        gauge("workers", "Workers that run.", running),
        counter("worker_restarts", "Workers that ended by themselves.", restarts),
    ]


def _without_parents(metrics: list[Metric]) -> list[Metric]:
    return [metric for metric in metrics if metric.name not in REPORTED_BY_PARENT]


class _Collected(Collector):
    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def summed(pages: Iterable[list[Metric]]) -> list[Metric]:
    """Return the pages of several workers as one.

    Counters and histograms are added up by their labels; for gauges see `SEEN_BY_ALL` and `ADDED_UP`.
    """
    metrics: dict[str, Metric] = {}
    values: dict[str, dict[tuple[Any, ...], float]] = {}
    for page in pages:
        for metric in page:
            metrics.setdefault(metric.name, metric)
            together = SEEN_BY_ALL.get(metric.name, float.__add__)
            summed = values.setdefault(metric.name, {})
            for sample in metric.samples:
                key = (sample.name, *sample.labels.items())
                value = float(sample.value)
                summed[key] = together(summed[key], value) if key in summed else value
    return [
        plain_family(
            name,
            metric.documentation,
            metric.type,
            [Sample(key[0], dict(key[1:]), value) for key, value in values[name].items()],
        )
        for name, metric in metrics.items()
    ]


def _side_by_side(pages: Mapping[str, list[Metric]]) -> list[Metric]:
    metrics: dict[str, Metric] = {}
    samples: dict[str, list[Sample]] = {}
    for worker, page in pages.items():
        for metric in page:
            metrics.setdefault(metric.name, metric)
            samples.setdefault(metric.name, []).extend(
                Sample(sample.name, {**sample.labels, "worker": worker}, sample.value) for sample in metric.samples
            )
    return [plain_family(name, metric.documentation, metric.type, samples[name]) for name, metric in metrics.items()]
