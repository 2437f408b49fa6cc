"""The proxy's own state and its view of the outside, under Prometheus names: gauges, read when scraped."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client.core import Metric

from proxy import __version__
from proxy.admin.families import counter, gauge, histogram, labelled_gauge
from proxy.coordinator.clock import wall_clock_ms
from proxy.coordinator.rebuilds import Rebuilds
from proxy.coordinator.view import View
from proxy.snapshots.snapshotter import Snapshotter
from proxy.telemetry.logs import lost_lines
from proxy.telemetry.stats import OTHER_TOPICS

if TYPE_CHECKING:
    from proxy.assembly.parts import Parts

MAX_TOPICS_NAMED = 20
"""Maximum number of values of the label `topic` of stray records, in addition to the one for all others."""
MAX_PARTITIONS_NAMED = 64
"""Maximum number of values of the label `partition` of the journal's lag: those with the largest lag."""
_KIO_VERSION = metadata.version("kio")


class Buffer(NamedTuple):
    """Memory that is held for a while, and its limit."""

    name: str
    used_bytes: int
    limit_bytes: int
    setting: str
    """Setting of the limit."""


def buffers(parts: Parts) -> list[Buffer]:
    """Return the buffers of this process with a limit in bytes. Caches are usually full; the others are not.

    Workers have neither WAL nor caches of their own, and the storage process has no clients.
    """
    memory, unread, near = parts.process.memory, parts.clients.unread, parts.replicas.replica_memory
    settings = parts.process.settings
    wal = parts.diskless.buffer
    named = ("cache", "fetch.cache_bytes"), ("cold_cache", "fetch.cold_cache_bytes")
    held = [
        Buffer(name, one.used_bytes, one.capacity_bytes, setting)
        for (name, setting), one in zip(named, parts.diskless.caches, strict=False)
    ]
    if wal is not None:
        most = settings.diskless_append_buffer_max_bytes
        held.append(Buffer("wal", wal.buffered_bytes, most, "diskless.append.buffer.max.bytes"))
    if parts.diskless.server is not None:
        return held
    return [
        Buffer("held_requests", memory.used_bytes, memory.limit_bytes, "limits.max_request_bytes_in_memory"),
        Buffer("unread_answers", unread.used_bytes, unread.limit_bytes, "limits.max_unread_answer_bytes"),
        Buffer("replica_answers", near.used_bytes, near.limit_bytes, "fetch.replica_answer_bytes_max"),
        *held,
    ]


def ready_metric(*, ready: bool) -> Metric:
    """Return the metric that pages an operator: of one process, or of all workers."""
    return gauge("ready", "1 while all clients are served, as /readyz says.", float(ready))


def process_state(parts: Parts, *, ready: bool) -> Iterator[Metric]:
    """Yield the state of this process; `ready` says whether clients are served."""
    versions = (__version__, _KIO_VERSION, platform.python_version(), parts.process.settings.rack)
    labels = ["version", "kio", "python", "rack"]
    yield labelled_gauge("build_info", "1, with the versions and the rack of this proxy.", labels, [(versions, 1)])
    yield ready_metric(ready=ready)
    yield counter("log_lines_lost", "Log lines that could not be written, as on a full disk.", lost_lines())
    yield labelled_gauge(
        "certificate_expiry_seconds",
        "Seconds until a certificate of the proxy, or of its chain, expires; below 0 after that.",
        ["settings"],
        [
            ((one.name,), expires.timestamp() - wall_clock_ms() / 1000)
            for one in parts.clients.certificates
            if (expires := one.expires) is not None
        ],
    )
    lag = parts.process.stats.loop_lag_seconds
    yield histogram("event_loop_lag_seconds", "Delay with which the event loop wakes a waiting task.", lag)
    yield gauge("tasks", "Tasks of the event loop.", lambda: len(asyncio.all_tasks()))
    yield gauge("connections", "Open client connections.", len(parts.clients.connections))
    yield gauge(
        "requests_underway",
        "Requests of clients that are not answered yet.",
        lambda: sum(connection.requests_underway for connection in parts.clients.connections.all()),
    )
    held = buffers(parts)
    used = [((one.name,), one.used_bytes) for one in held]
    limits = [((one.name,), one.limit_bytes) for one in held]
    yield labelled_gauge("buffer_bytes", "Bytes held in memory, by buffer.", ["buffer"], used)
    yield labelled_gauge(
        "buffer_bytes_limit", "Limit of the bytes that are held in memory, by buffer.", ["buffer"], limits
    )
    yield gauge("held_request_bytes", "Requests and unread answers held in memory.", parts.process.memory.used_bytes)
    most_held = 0 if parts.diskless.server is not None else parts.process.memory.limit_bytes
    yield gauge("held_request_bytes_limit", "Limit of held_request_bytes.", most_held)
    wal = parts.diskless.buffer
    buffered = 0 if wal is None else wal.buffered_bytes
    yield gauge("wal_buffer_bytes", "Bytes in the WAL segment that is being filled.", buffered)
    yield gauge(
        "wal_segments_underway",
        "WAL segments that are being uploaded or committed.",
        0 if wal is None else wal.segments_underway,
    )
    yield gauge(
        "upload_budget_per_second",
        "Budget for uploads of WAL segments (`diskless.append.puts.per.second`). Full segments may exceed it.",
        0 if wal is None else wal.timer.budget.per_second,
    )
    yield gauge(
        "intake_batches",
        "Batches that are being checked, or that wait for such a check.",
        parts.diskless.intake.waiting_batches,
    )
    yield gauge(
        "held_batches",
        "Batches out of order that wait for the batches before them.",
        0 if wal is None else wal.holds.held_batches,
    )
    cached = [one.used_bytes for one in parts.diskless.caches] or [0, 0]
    yield gauge("cache_bytes", "Bytes in the rack-local cache.", cached[0])
    yield gauge("cold_cache_bytes", "Bytes in the cache of old records.", cached[1])
    yield gauge(
        "replica_connections", "Connections to near replicas, open or opening.", len(parts.replicas.replica_connections)
    )
    yield gauge(
        "replica_answer_bytes", "Answers of near replicas held in memory.", parts.replicas.replica_memory.used_bytes
    )


def _view_metrics(view: View | None) -> Iterator[Metric]:
    behind = "Shards, and the registry, that this proxy is bringing up to the journal's end."
    yield gauge("views_unproved", behind, 0 if view is None else len(view.unproved))
    helped = "Records of the journal that this proxy has applied for others, or again after the store had lost them."
    yield counter("journal_helped_records", helped, 0 if view is None else view.helped_records)
    rebuilds = Rebuilds() if view is None else view.rebuilds
    text = "Seconds that the rebuild of a shard by this proxy has taken so far; without one, seconds of the last one."
    yield gauge("rebuild_seconds", text, rebuilds.seconds)
    yield counter("rebuilds", "Rebuilds of shards, and of the registry, by this proxy.", rebuilds.done)


def _snapshot_metrics(snapshotter: Snapshotter | None) -> Iterator[Metric]:
    """Yield the state of the snapshots; reported by the proxy that keeps house."""
    overdue_s = 0.0 if snapshotter is None else snapshotter.overdue_seconds
    text = "Seconds for which a snapshot of the store has been due; reported by the proxy that keeps house."
    yield gauge("snapshot_overdue_seconds", text, overdue_s)
    size = 0 if snapshotter is None else snapshotter.size_bytes
    yield gauge("snapshot_bytes", "Bytes of the newest snapshots; reported by the proxy that keeps house.", size)
    behind = 0 if snapshotter is None else max(snapshotter.behind.values(), default=0)
    text = "Records that a rebuild applies after the snapshot, of the partition of the journal with the most."
    yield gauge("journal_records_after_snapshot", text, behind)
    lag = {} if snapshotter is None else snapshotter.lag
    most = sorted(sorted(lag, key=lambda one: -lag[one])[:MAX_PARTITIONS_NAMED])
    yield labelled_gauge(
        "journal_lag_records",
        "Records of the journal that the store has not applied for seconds; reported by the proxy that keeps house.",
        ["partition"],
        [((str(one),), lag[one]) for one in most],
    )
    failed = 0 if snapshotter is None else snapshotter.failed
    yield counter("snapshots_failed", "Snapshots that could not be taken; they are retried.", failed)


def state_metrics(parts: Parts) -> Iterator[Metric]:
    """Yield this process's view of the brokers, the fleet and the coordinator."""
    yield gauge("replica_topics", "Classic topics whose replicas are known.", len(parts.replicas.replicas))
    yield gauge("replica_brokers_shunned", "Near brokers that did not answer.", len(parts.replicas.shunned.brokers))
    yield gauge("diskless_topics", "Topics in the registry.", len(parts.topics.topics.all()))
    yield gauge("registry_version", "Version of the registry that is loaded.", parts.topics.topics.version)
    fenced = "Shards of the coordinator that are fenced, because the store has lost some of their writes."
    yield gauge("fenced_shards", fenced, len(parts.stores.coordinator.fence.fenced))
    yield from _view_metrics(parts.stores.coordinator.view)
    yield from _snapshot_metrics(parts.housekeeping.snapshotter)
    paused = "1 while this proxy does the housekeeping and may not delete objects; its log says why."
    yield gauge("housekeeping_paused", paused, float(parts.housekeeping.housekeeper.is_paused))
    yield gauge(
        "store_unfit",
        "1 while the coordinator's store can't be trusted with writes.",
        float(parts.guard.store_watch.unfit is not None),
    )
    yield labelled_gauge(
        "stray_records",
        "Records in the logs of placeholder topics, which were not produced through the proxies; reported by "
        "the proxy that does the housekeeping.",
        ["topic"],
        [
            ((topic,), count)
            for topic, count in named_topics(parts.housekeeping.housekeeper.shadows.stray_records).items()
        ],
    )
    yield gauge(
        "classic_topics_named_diskless",
        "Classic topics whose names default_diskless_topics matches; reported by the proxy that keeps house.",
        len(parts.housekeeping.named_diskless.topics),
    )
    yield from _under_replicated(parts)
    racks = [record.rack for record in parts.routing.fleet.records.values() if record.serving]
    yield labelled_gauge(
        "fleet_proxies",
        "Live proxies whose addresses clients get.",
        ["rack"],
        [((rack,), racks.count(rack)) for rack in sorted(set(racks))],
    )
    yield gauge("brokers", "Live brokers.", len(parts.brokers.cluster.view.brokers))
    ports = parts.brokers.broker_ports
    dark = "Live brokers whose addresses clients do not get, because their port cannot be bound here."
    yield gauge("brokers_without_port", dark, len(ports.without_port))
    unlisted = "Live brokers that joined outside of broker_node_ids; their port was bound while the proxy ran."
    yield gauge("brokers_unlisted", unlisted, len(ports.unlisted))
    yield labelled_gauge(
        "quota_limits",
        "The brokers' byte rate quotas that are known.",
        ["direction"],
        [
            (("produce",), len(parts.clients.quotas.produce.limits)),
            (("fetch",), len(parts.clients.quotas.fetch.limits)),
        ],
    )


def _under_replicated(parts: Parts) -> Iterator[Metric]:
    """Yield topics that were created while brokers were missing; reported by the proxy that completes them."""
    left = parts.creation.replication_keeper.completion.left
    yield gauge(
        "under_replicated_topics", "Topics that still lack some of the replicas that were requested.", left.topics
    )
    yield gauge("under_replicated_partitions", "Partitions that still lack replicas.", left.partitions)
    age_s = 0.0
    if left.oldest_since_ms is not None:
        age_s = max(0.0, (wall_clock_ms() - left.oldest_since_ms) / 1000)
    yield gauge("under_replicated_oldest_seconds", "Seconds since the oldest of these topics was created.", age_s)


def named_topics(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the MAX_TOPICS_NAMED topics with the most records by name, and the sum of the others as one."""
    most = sorted(counts, key=lambda topic: (-counts[topic], topic))
    named = {topic: counts[topic] for topic in sorted(most[:MAX_TOPICS_NAMED])}
    if rest := sum(counts[topic] for topic in most[MAX_TOPICS_NAMED:]):
        named[OTHER_TOPICS] = rest
    return named
