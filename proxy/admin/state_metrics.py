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
from proxy.process.clock import wall_clock_ms
from proxy.telemetry.logs import lost_lines
from proxy.telemetry.stats import OTHER_TOPICS

if TYPE_CHECKING:
    from proxy.assembly.parts import Parts

MAX_TOPICS_NAMED = 20
"""Maximum number of values of the label `topic` of stray records, in addition to the one for all others."""
_KIO_VERSION = metadata.version("kio")


class Buffer(NamedTuple):
    """Memory that is held for a while, and the most that may be."""

    name: str
    used_bytes: int
    limit_bytes: int
    setting: str
    """Setting that sets the limit."""


def buffers(parts: Parts) -> list[Buffer]:
    """All that have a limit of bytes. Caches are full as a rule; the others are not."""
    memory, unread, near = parts.process.memory, parts.clients.unread, parts.replicas.replica_memory
    cache, cold, settings = parts.diskless.cache, parts.diskless.cold_cache, parts.process.settings
    return [
        Buffer("held_requests", memory.used_bytes, memory.limit_bytes, "limits.max_request_bytes_in_memory"),
        Buffer("unread_answers", unread.used_bytes, unread.limit_bytes, "limits.max_unread_answer_bytes"),
        Buffer(
            "wal",
            parts.diskless.wal.buffered_bytes,
            settings.diskless_append_buffer_max_bytes,
            "diskless.append.buffer.max.bytes",
        ),
        Buffer("replica_answers", near.used_bytes, near.limit_bytes, "fetch.replica_answer_bytes_max"),
        Buffer("cache", cache.used_bytes, cache.capacity_bytes, "fetch.cache_bytes"),
        Buffer("cold_cache", cold.used_bytes, cold.capacity_bytes, "fetch.cold_cache_bytes"),
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
        "Until a certificate of the proxy's, or one that it rests on, ends; below 0 when it has.",
        ["settings"],
        [
            ((one.name,), expires.timestamp() - wall_clock_ms() / 1000)
            for one in parts.clients.certificates
            if (expires := one.expires) is not None
        ],
    )
    lag = parts.process.stats.loop_lag_seconds
    yield histogram("event_loop_lag_seconds", "How much later than due the event loop wakes a waiting task.", lag)
    yield gauge("tasks", "Tasks of the event loop.", len(asyncio.all_tasks()))
    yield gauge("connections", "Open client connections.", len(parts.clients.connections))
    underway = sum(connection.requests_underway for connection in parts.clients.connections.all())
    yield gauge("requests_underway", "Requests of clients whose answers are due.", underway)
    held = buffers(parts)
    used = [((one.name,), one.used_bytes) for one in held]
    limits = [((one.name,), one.limit_bytes) for one in held]
    yield labelled_gauge("buffer_bytes", "What is held in memory, by what for.", ["buffer"], used)
    yield labelled_gauge("buffer_bytes_limit", "The most that may be.", ["buffer"], limits)
    yield gauge("held_request_bytes", "Requests and unread answers held in memory.", parts.process.memory.used_bytes)
    yield gauge("held_request_bytes_limit", "Their limit.", parts.process.memory.limit_bytes)
    yield gauge("wal_buffer_bytes", "In the WAL segment being filled.", parts.diskless.wal.buffered_bytes)
    yield gauge("wal_segments_underway", "Segments uploading or committing.", parts.diskless.wal.segments_underway)
    yield gauge("intake_batches", "Being looked into, or waiting behind such.", parts.diskless.intake.waiting_batches)
    yield gauge("held_batches", "Out of order, waiting for what comes between.", parts.diskless.wal.holds.held_batches)
    yield gauge("cache_bytes", "In the rack-local cache.", parts.diskless.cache.used_bytes)
    yield gauge("cold_cache_bytes", "In the cache of old records.", parts.diskless.cold_cache.used_bytes)
    yield gauge("replica_connections", "To near replicas, open or being made.", len(parts.replicas.replica_connections))
    yield gauge(
        "replica_answer_bytes", "Answers of near replicas held in memory.", parts.replicas.replica_memory.used_bytes
    )


def state_metrics(parts: Parts) -> Iterator[Metric]:
    """Yield this process's view of the outside."""
    yield gauge("replica_topics", "Classic topics whose replicas are known.", len(parts.replicas.replicas))
    yield gauge("replica_brokers_shunned", "Near brokers that did not answer.", len(parts.replicas.shunned.brokers))
    yield gauge("diskless_topics", "Topics in the registry.", len(parts.topics.topics.all()))
    yield gauge("registry_version", "Version of the registry that is loaded.", parts.topics.topics.version)
    fenced = "Shards of the coordinator that are refused, as the store has lost writes of theirs."
    yield gauge("fenced_shards", fenced, len(parts.stores.coordinator.fence.fenced))
    paused = "1 while this proxy keeps house and may not delete what is due; its log says why."
    yield gauge("housekeeping_paused", paused, float(parts.housekeeping.housekeeper.is_paused))
    yield gauge(
        "store_unfit",
        "1 while the coordinator's store can't be trusted with writes.",
        float(parts.guard.store_watch.unfit is not None),
    )
    yield labelled_gauge(
        "stray_records",
        "Records in placeholder topics' logs, produced past the proxies; reported by the proxy that keeps house.",
        ["topic"],
        [
            ((topic,), count)
            for topic, count in named_topics(parts.housekeeping.housekeeper.shadows.stray_records).items()
        ],
    )
    yield from _under_replicated(parts)
    racks = [record.rack for record in parts.routing.fleet.records.values() if record.serving]
    yield labelled_gauge(
        "fleet_proxies",
        "Live proxies that clients learn of.",
        ["rack"],
        [((rack,), racks.count(rack)) for rack in sorted(set(racks))],
    )
    yield gauge("brokers", "Live brokers.", len(parts.brokers.cluster.view.brokers))
    ports = parts.brokers.broker_ports
    dark = "Live brokers that clients do not learn of, because their port cannot be bound here."
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
    yield gauge("under_replicated_topics", "Topics that still lack replicas they are to get.", left.topics)
    yield gauge("under_replicated_partitions", "Partitions that still lack replicas.", left.partitions)
    age_s = 0.0
    if left.oldest_since_ms is not None:
        age_s = max(0.0, (wall_clock_ms() - left.oldest_since_ms) / 1000)
    yield gauge("under_replicated_oldest_seconds", "For how long the oldest of them has lacked them.", age_s)


def named_topics(counts: Mapping[str, int]) -> dict[str, int]:
    """The topics with the most, MAX_TOPICS_NAMED of them; the others' sum as one."""
    most = sorted(counts, key=lambda topic: (-counts[topic], topic))
    named = {topic: counts[topic] for topic in sorted(most[:MAX_TOPICS_NAMED])}
    if rest := sum(counts[topic] for topic in most[MAX_TOPICS_NAMED:]):
        named[OTHER_TOPICS] = rest
    return named
