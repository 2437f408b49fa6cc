"""What a reload tells the parts that keep a setting by themselves; all others read theirs at each use."""

from __future__ import annotations

from collections.abc import Callable, Collection

from proxy.assembly.context import Context
from proxy.config import Settings
from proxy.process import open_files

_Tell = Callable[[Context, Settings], None]


def tell_parts(context: Context, changed: Collection[str]) -> None:
    """Have the parts go by what `context.settings` says now of the settings in `changed` (dotted paths)."""
    for paths, tell in _TOLD:
        if not paths.isdisjoint(changed):
            tell(context, context.settings)


def _client_connections(context: Context, settings: Settings) -> None:
    context.connections.max_connections = open_files.max_connections(settings)


def _memory(context: Context, settings: Settings) -> None:
    context.memory.resize(settings.limits.max_request_bytes_in_memory)
    context.replica_memory.resize(settings.fetch.replica_answer_bytes_max)


def _caches(context: Context, settings: Settings) -> None:
    context.cache.resize(settings.fetch.cache_bytes)
    context.cold_cache.resize(settings.fetch.cold_cache_bytes)
    context.rows.cold_after_ms = settings.fetch.cold_after_ms


def _reads(context: Context, settings: Settings) -> None:
    context.reader.coordinates.max_age_s = settings.fetch.coordinates_max_age_ms / 1000
    context.reader.shortest_wait_s = settings.fetch.shortest_read_wait_ms / 1000
    context.time_lookup.max_batch_bytes = settings.fetch.max_decompressed_batch_bytes


def _replicas(context: Context, settings: Settings) -> None:
    context.shunned.shun_s = settings.fetch.replica_shun_ms / 1000
    context.replicas.max_topics = settings.fetch.replica_topics_remembered
    context.log_ends.interval_s = settings.fetch.replica_compare_interval_ms / 1000
    context.log_ends.max_partitions = settings.fetch.replica_partitions_compared


def _brokers(context: Context, settings: Settings) -> None:
    context.replicas.interval_s = settings.brokers.metadata_refresh_ms / 1000
    context.replica_selector.interval_s = settings.brokers.defaults_refresh_ms / 1000
    context.topic_defaults.interval_s = settings.brokers.defaults_refresh_ms / 1000


def _wal(context: Context, settings: Settings) -> None:
    context.wal.interval_s = settings.diskless_append_commit_interval_ms / 1000
    context.stats.pace(settings.diskless_append_commit_interval_ms)
    context.wal.max_bytes = settings.diskless_append_buffer_max_bytes
    context.wal.commit_timeout_s = settings.diskless_append_commit_timeout_ms / 1000
    context.wal.holds.hold_s = settings.out_of_order_hold_ms / 1000
    context.wal.holds.max_batches = settings.max_held_batches
    context.intake.max_decompressed_bytes = settings.max_decompressed_batch_bytes
    context.intake.max_records = settings.max_prepared_batch_records


def _uploads(context: Context, settings: Settings) -> None:
    context.wal.allow_uploads(settings.diskless_append_max_uploads)


def _counted_topics(context: Context, settings: Settings) -> None:
    context.stats.max_counted_topics = settings.limits.max_counted_topics


def _racks(context: Context, settings: Settings) -> None:
    context.racks.take_settings()


def _background(context: Context, settings: Settings) -> None:
    context.completion.partitions_at_once = settings.replication.partitions_at_once
    context.replication_keeper.interval_s = settings.replication.check_interval_ms / 1000
    context.rollup_expiry.retention_ms = settings.rollups.retention_ms


_TOLD: tuple[tuple[frozenset[str], _Tell], ...] = tuple(
    (frozenset(paths.split()), tell)
    for paths, tell in (
        ("limits.max_connections fetch.read_near_replicas", _client_connections),
        ("limits.max_request_bytes_in_memory fetch.replica_answer_bytes_max", _memory),
        ("fetch.cache_bytes fetch.cold_cache_bytes fetch.cold_after_ms", _caches),
        ("fetch.coordinates_max_age_ms fetch.shortest_read_wait_ms fetch.max_decompressed_batch_bytes", _reads),
        (
            "fetch.replica_shun_ms fetch.replica_topics_remembered fetch.replica_compare_interval_ms "
            "fetch.replica_partitions_compared",
            _replicas,
        ),
        ("brokers.metadata_refresh_ms brokers.defaults_refresh_ms", _brokers),
        (
            "diskless_append_commit_interval_ms diskless_append_buffer_max_bytes diskless_append_commit_timeout_ms "
            "out_of_order_hold_ms max_held_batches max_decompressed_batch_bytes max_prepared_batch_records",
            _wal,
        ),
        ("diskless_append_max_uploads", _uploads),
        ("limits.max_counted_topics", _counted_topics),
        ("racks.client_id_keys racks.by_network", _racks),
        ("replication.partitions_at_once replication.check_interval_ms rollups.retention_ms", _background),
    )
)
"""By the settings of which any has changed."""

SETTINGS_TOLD = frozenset[str]().union(*(paths for paths, _ in _TOLD))
"""All of them, as dotted paths."""
