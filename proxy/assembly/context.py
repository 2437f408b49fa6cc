"""Everything a connection works with, put together once per process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import redis.asyncio

from proxy.accounting.rollups.counted import totals
from proxy.accounting.rollups.expiry import RollupExpiry
from proxy.accounting.rollups.writer import RollupWriter
from proxy.accounting.topic_names import TopicNames
from proxy.brokers.cluster import Cluster
from proxy.config import Settings
from proxy.connection.connections import Connections
from proxy.connection.unread import UnreadAnswers
from proxy.coordinator.by_settings import coordinator_on
from proxy.coordinator.fleet_store import RedisFleetStore
from proxy.coordinator.registry import RedisTopicRegistry
from proxy.creation.auto_creation import OnDemand
from proxy.creation.replication.completion import Completion
from proxy.creation.replication.creation import UnderReplicatedTopics
from proxy.creation.replication.keeper import ReplicationKeeper
from proxy.creation.replication.store import RedisPendingTopics
from proxy.creation.reservations import Reservations
from proxy.diskless.cache import BlockCache
from proxy.diskless.coordinates import Coordinates
from proxy.diskless.diskless_reader import DisklessReader
from proxy.diskless.index_watch import IndexWatch
from proxy.diskless.row_reader import RowReader
from proxy.diskless.time_lookup import TimeLookup
from proxy.diskless.wal.buffer import WalBuffer
from proxy.diskless.wal.intake import Intake
from proxy.guard.watch import StoreWatch
from proxy.housekeeping.garbage import GarbageCollector
from proxy.housekeeping.housekeeper import Housekeeper
from proxy.housekeeping.index import IndexPacker
from proxy.housekeeping.producers import ProducerExpiry
from proxy.housekeeping.retention import Retention
from proxy.housekeeping.shadows import Shadows
from proxy.process.broker_ports import BrokerPorts
from proxy.process.memory import MemoryBudget
from proxy.process.turns import Turns
from proxy.quotas.quotas import Quotas
from proxy.replicas.knowledge import Replicas
from proxy.replicas.log_ends import LogEnds
from proxy.replicas.near import NearBrokers
from proxy.replicas.pool import ReplicaConnections
from proxy.replicas.selector import ReplicaSelector
from proxy.replicas.shunned import Shunned
from proxy.routing.fleet import Fleet
from proxy.routing.leaders import LeaderChoice
from proxy.routing.racks import Racks
from proxy.storage.counted import CountedStorage
from proxy.storage.interface import ObjectStorage
from proxy.telemetry.stats import Stats
from proxy.telemetry.throttled_log import ThrottledLog
from proxy.topics.topic_defaults import TopicDefaults
from proxy.topics.topics import Topics

if TYPE_CHECKING:
    from proxy.handlers import Handler
    from proxy.security.tls import TlsFiles


_SHORTEST_COMMIT_AGE_MS = 1_000
_REPLICAS_ANSWER_WITHIN_S = 3.0
"""A broker that has not told leaders and replicas by then is not asked again before the others."""


class Context:
    """The parts of one proxy. Made inside the event loop; nothing in it has connected to anything yet."""

    def __init__(
        self,
        settings: Settings,
        storage: ObjectStorage,
        store: redis.asyncio.Redis,
        handlers: Mapping[int, Handler],
    ) -> None:
        self.settings = settings
        self.handlers = handlers
        self.now: Callable[[], float] = asyncio.get_running_loop().time
        """Monotonic seconds."""
        self.throttled_log = ThrottledLog(self.now)
        self.started_ms = self.wall_clock_ms()
        self.stats = Stats(settings.limits.max_counted_topics, settings.diskless_append_commit_interval_ms)
        self.quotas = Quotas(self.now, self.stats.throttled_seconds)
        self.memory = MemoryBudget(settings.limits.max_request_bytes_in_memory)
        self.connections = Connections(settings.limits, self.stats)
        self.unread = UnreadAnswers(self.memory, settings.limits, self.connections.end_slowest)
        self.broker_ports = BrokerPorts(settings)
        self.cluster = Cluster(settings, self.broker_ports.take_brokers)
        self.turns = Turns(settings.limits.long_work_slice_ms / 1000)
        self.storage = storage = CountedStorage(storage, self.stats)
        self.certificates: Sequence[TlsFiles] = ()
        """Those that the process shows to clients and brokers; for the metrics."""
        self.store = store
        self.coordinator = coordinator_on(store, settings)
        self.index_watch = IndexWatch(self.coordinator, settings.redis)
        self.topics = Topics(RedisTopicRegistry(store, settings.redis), lease_runs=lambda: self.fleet.lease_runs())
        fleet_store = RedisFleetStore(store)
        self.fleet = Fleet(
            settings,
            fleet_store,
            registry_change=lambda: self.topics.obeyed,
            reload=self.topics.load,
            node_ids=self.broker_ports.node_ids,
        )
        self.racks = Racks(
            settings, fleet_racks=self.fleet.racks, view=lambda: self.cluster.view, now=lambda: self.now()
        )
        self.leader_choice = LeaderChoice(settings.leader_choice)
        self.api_versions_learnt: dict[int, bytes] = {}
        """The body of the last answer to ApiVersions without error, by version, as clients were told it."""
        self.near_brokers = NearBrokers(settings.rack, self.cluster)
        self.shunned = Shunned(self.now, shun_s=settings.fetch.replica_shun_ms / 1000)
        # Its own connection: what clients' Fetches wait for does not stand in line behind other questions. A replica
        # that is cut off goes on calling itself in sync: those are not asked first of whom it is said.
        self.replicas_service = self.cluster.connection_to_any(_REPLICAS_ANSWER_WITHIN_S, near_first=False)
        self.replicas = Replicas(
            self.replicas_service.ask,
            self.now,
            interval_s=settings.brokers.metadata_refresh_ms / 1000,
            max_topics=settings.fetch.replica_topics_remembered,
        )
        self.log_ends = LogEnds(
            self.cluster.connection_to,
            self.replicas.peek,
            self.near_brokers,
            interval_s=settings.fetch.replica_compare_interval_ms / 1000,
            max_partitions=settings.fetch.replica_partitions_compared,
        )
        self.topic_names = TopicNames(self.stats, self.topics, self.cluster.service.ask, self.now)
        self.replica_selector = ReplicaSelector(self.cluster, interval_s=settings.brokers.defaults_refresh_ms / 1000)
        self.replica_memory = MemoryBudget(settings.fetch.replica_answer_bytes_max)
        self.replica_connections = ReplicaConnections(
            self.cluster,
            settings.fetch,
            self.shunned,
            self.replica_memory,
            self.now,
            longest_read_s=settings.brokers.request_timeout_ms / 1000,
        )
        self.cache = BlockCache(
            storage, capacity_bytes=settings.fetch.cache_bytes, block_bytes=settings.fetch.block_bytes
        )
        self.cold_cache = BlockCache(
            storage,
            capacity_bytes=settings.fetch.cold_cache_bytes,
            block_bytes=settings.fetch.cold_block_bytes,
            merged_block_bytes=settings.fetch.merged_block_bytes,
            max_gets=settings.fetch.cold_max_gets,
        )
        self.rows = RowReader(
            self.cache, self.cold_cache, cold_after_ms=settings.fetch.cold_after_ms, now_ms=self.wall_clock_ms
        )
        self.reader = DisklessReader(
            Coordinates(self.coordinator, max_age_s=settings.fetch.coordinates_max_age_ms / 1000),
            self.rows,
            self.throttled_log,
            shortest_wait_s=settings.fetch.shortest_read_wait_ms / 1000,
        )
        self.time_lookup = TimeLookup(
            self.coordinator,
            self.rows,
            self.throttled_log,
            max_rows=settings.fetch.time_lookup_max_rows,
            max_batch_bytes=settings.fetch.max_decompressed_batch_bytes,
        )
        self.wal = WalBuffer(
            storage,
            self.coordinator,
            self.cache,
            self.stats,
            interval_s=settings.diskless_append_commit_interval_ms / 1000,
            max_bytes=settings.diskless_append_buffer_max_bytes,
            max_uploads=settings.diskless_append_max_uploads,
            commit_timeout_s=settings.diskless_append_commit_timeout_ms / 1000,
            # Half of it is left for clocks that differ.
            max_age_s=max(settings.garbage.orphan_age_ms / 2, _SHORTEST_COMMIT_AGE_MS) / 1000,
            grace_s=settings.garbage.further_rows_within_ms / 1000,
            out_of_order_hold_s=settings.out_of_order_hold_ms / 1000,
            max_held_batches=settings.max_held_batches,
            heard=self.reader.coordinates.note_committed,
        )
        self.topic_defaults = TopicDefaults(self.cluster, interval_s=settings.brokers.defaults_refresh_ms / 1000)
        self.intake = Intake(
            self.wal,
            self.memory,
            max_decompressed_bytes=settings.max_decompressed_batch_bytes,
            max_records=settings.max_prepared_batch_records,
            threads=settings.compression_threads,
        )

        self.store_watch = StoreWatch(
            settings.redis, store, self.coordinator, storage, self.topics, lambda: self.housekeeper.holds_lease
        )
        self.pending_topics = RedisPendingTopics(store, lambda: self.cluster.cluster_id)
        self.under_replicated = UnderReplicatedTopics(self)
        self.on_demand = OnDemand(lambda: self.now())
        self.reservations = Reservations(self)
        self.rollups = RollupWriter(
            settings.rollups,
            storage,
            settings.identity,
            settings.rack,
            totals=lambda: totals(self),
            settle_all=self.stats.settle_all,
            now_ms=self.wall_clock_ms,
        )
        self.rollup_expiry = RollupExpiry(
            storage, retention_ms=settings.rollups.retention_ms, now_ms=self.wall_clock_ms
        )
        self.housekeeper = Housekeeper(
            settings,
            fleet_store,
            self.fleet.identity,
            self.cluster,
            Retention(self.coordinator, self.topics),
            GarbageCollector(self.coordinator, storage, settings.garbage, self.stats),
            Shadows(
                self.cluster,
                self.topics,
                self.reservations,
                confirm_s=settings.brokers.deleted_topics_confirm_ms / 1000,
            ),
            IndexPacker(self.coordinator, self.topics, age_ms=settings.redis.pack_age_ms),
            ProducerExpiry(self.coordinator, self.topics),
            fenced=lambda: self.coordinator.fence.fenced,
            gone_back=lambda: self.topics.gone_back,
            store_ahead_ms=self._store_ahead_ms,
            rollups=self.rollup_expiry,
        )
        self.completion = Completion(
            self.cluster,
            self.pending_topics,
            owners=lambda: self.fleet.records.keys(),
            now_ms=self.wall_clock_ms,
            confirm_s=settings.brokers.deleted_topics_confirm_ms / 1000,
            settle_s=(settings.fleet.lease_ms + settings.fleet.create_topic_timeout_ms) / 1000,
            partitions_at_once=settings.replication.partitions_at_once,
        )
        self.replication_keeper = ReplicationKeeper(
            self.completion,
            fleet_store,
            self.fleet.identity,
            self.cluster,
            interval_s=settings.replication.check_interval_ms / 1000,
        )
        self.offsets_away_since_s: float | None = None
        """Since when the coordinator has not answered who asked for offsets; None where it did, the last time."""
        self._seen_through: set[asyncio.Task[None]] = set()

    def _store_ahead_ms(self) -> int:
        """How far the clock of the coordinator's store is ahead of this one; 0 where it is not known."""
        store_time_ms = self.coordinator.store_time_ms()
        return 0 if store_time_ms is None else store_time_ms - self.wall_clock_ms()

    async def see_through(self, work: Coroutine[Any, Any, None]) -> None:
        """Wait for work that goes on if the one who waits is cancelled."""
        task = asyncio.get_running_loop().create_task(work)
        self._seen_through.add(task)
        task.add_done_callback(self._seen_through.discard)
        await asyncio.shield(task)

    async def finish(self) -> None:
        """Wait for what `see_through` has begun."""
        await asyncio.gather(*self._seen_through, return_exceptions=True)

    @staticmethod
    def wall_clock_ms() -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000
