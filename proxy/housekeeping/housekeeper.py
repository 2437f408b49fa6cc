"""The schedule of the background work: one proxy of the fleet, the first to take it, holds the lease and does the work.

The lease is renewed during the work, and work whose lease is lost ends. Losing the lease in the middle, or dying, is
harmless: every step may be repeated, and by two proxies at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import structlog

from proxy.accounting.rollups.expiry import INTERVAL_MS as ROLLUPS_INTERVAL_MS
from proxy.accounting.rollups.expiry import RollupExpiry
from proxy.brokers.broker_defaults import DefaultsRefused, RetentionDefaults, retention_defaults
from proxy.brokers.cluster import Cluster
from proxy.brokers.upstream import BrokerUnreachable
from proxy.config import Settings
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_fleet import FleetStore
from proxy.coordinator.lease import Lease, LeaseLost
from proxy.housekeeping.garbage import GarbageCollector
from proxy.housekeeping.index import IndexPacker
from proxy.housekeeping.named_diskless import NamedDiskless
from proxy.housekeeping.old_markers import OldMarkers
from proxy.housekeeping.old_markers import interval_ms as old_markers_interval_ms
from proxy.housekeeping.producers import ProducerExpiry
from proxy.housekeeping.retention import UNKNOWN, Retention
from proxy.housekeeping.shadows import Shadows
from proxy.snapshots.snapshotter import CHECK_MS, Snapshotter
from proxy.storage.interface import StorageError
from proxy.wire.errors import ProtocolError

log = structlog.get_logger()

LEASE = "housekeeping"
CLOCKS_APART_MS = 60_000
"""From here on `diskless-proxy check` calls clocks that differ an error, too."""
_DELETES_NO_RECORDS = {"index", "stray records", "diskless names", "rollups"}
_POLL_S = 1.0


class Housekeeper:
    """Holds the lease when it can, and then does the work that is due.

    `fenced` returns the fenced shards of the coordinator, with reasons. As long as there are any, nothing is done: it
    is uncertain what to delete, and what an operator needs for the repair. `gone_back` says whether the registry has
    lost changes; then only work that deletes no records is done. `store_ahead_ms` is how far the clock of the
    coordinator's store, by which records age, is ahead of this one.
    """

    def __init__(
        self,
        settings: Settings,
        fleet_store: FleetStore,
        identity: str,
        cluster: Cluster,
        retention: Retention,
        garbage: GarbageCollector,
        shadows: Shadows,
        index: IndexPacker,
        producers: ProducerExpiry,
        *,
        fenced: Callable[[], Mapping[int, str]],
        gone_back: Callable[[], bool] = lambda: False,
        store_ahead_ms: Callable[[], int] = lambda: 0,
        rollups: RollupExpiry | None = None,
        named_diskless: NamedDiskless | None = None,
        snapshotter: Snapshotter | None = None,
        old_markers: OldMarkers | None = None,
    ) -> None:
        self._fenced = fenced
        self._gone_back = gone_back
        self._cluster = cluster
        self._retention = retention
        self._garbage = garbage
        self._settings = settings
        self.shadows = shadows
        self._named_diskless = named_diskless
        self._snapshotter = snapshotter
        self._lease = Lease(fleet_store, LEASE, identity, self._forget)
        self._defaults: RetentionDefaults | None = None
        self._refused = False
        """True if the brokers have refused to return their defaults."""
        self._store_ahead_ms = store_ahead_ms
        self._clocks_differ = False
        self._work: list[tuple[str, Callable[[], int], Callable[[], Awaitable[object]]]] = [
            ("retention", lambda: settings.log_retention_check_interval_ms, self._retain),
            ("index", lambda: settings.redis.pack_interval_ms, index.sweep),
            ("producers", lambda: settings.producer_id_expiration_check_interval_ms, producers.sweep),
            ("garbage", lambda: settings.garbage.interval_ms, self._collect),
            ("shadows", lambda: settings.brokers.metadata_refresh_ms, shadows.compare),
            ("stray records", lambda: settings.brokers.stray_records_interval_ms, shadows.look_for_strays),
            ("orphans", lambda: settings.garbage.orphan_sweep_interval_ms, garbage.sweep_orphans),
        ]
        """Name, interval in milliseconds, and function of each kind of work."""
        if rollups is not None:
            self._work.append(("rollups", lambda: ROLLUPS_INTERVAL_MS, rollups.sweep))
        if snapshotter is not None:
            self._work.append(
                ("snapshots", lambda: min(CHECK_MS, settings.journal.snapshot_interval_ms), snapshotter.sweep)
            )
        if old_markers is not None:
            kept_ms = old_markers.kept_ms
            self._work.append(("old markers", lambda: old_markers_interval_ms(kept_ms), old_markers.delete))
        if named_diskless is not None:
            every = settings.brokers
            self._work.append(("diskless names", lambda: every.stray_records_interval_ms, named_diskless.look))

    async def keep_house(self) -> None:
        """Do the due work as long as the lease is held, forever. Failures are logged once until they end."""
        loop = asyncio.get_running_loop()
        # The first round begins after each one's interval: a restart is no reason to do everything at once.
        done_s = dict.fromkeys((name for name, _, _ in self._work), loop.time())
        failing: dict[str, type[Exception]] = {}
        while True:
            await asyncio.sleep(_POLL_S)
            await self._lease.renew()
            for name, interval_ms, work in self._work:
                due_s = done_s[name] + interval_ms() / 1000
                if not self.holds_lease or not self._may_do(name) or loop.time() < due_s:
                    continue
                try:
                    await self._lease.work(work)
                    failing.pop(name, None)
                except LeaseLost as lost:
                    log.warning("housekeeping_lease_lost", work=name, reason=str(lost), remedy="none")
                except (CoordinatorUnavailable, StorageError, BrokerUnreachable, ProtocolError) as error:
                    if name not in failing:
                        log.warning("housekeeping_failed", work=name, reason=str(error), remedy="none; it is retried")
                    failing[name] = type(error)
                except Exception as error:
                    # One piece of work, and one odd answer, must not end all the others: on every proxy in turn.
                    if failing.get(name) is not type(error):
                        log.exception(
                            "housekeeping_broken",
                            work=name,
                            reason=f"{type(error).__name__}: {error}",
                            remedy="report it with this trace; it is retried, and other work continues",
                        )
                    failing[name] = type(error)
                done_s[name] = loop.time()

    def _forget(self) -> None:
        """Drop what was found: another proxy looks from now on."""
        self.shadows.lease_lost()
        if self._named_diskless is not None:
            self._named_diskless.forget()
        if self._snapshotter is not None:
            self._snapshotter.forget()

    @property
    def holds_lease(self) -> bool:
        """Whether this proxy keeps house."""
        return self._lease.held

    @property
    def is_paused(self) -> bool:
        """Whether this proxy keeps house, and something keeps it from deleting what is due; the log says what."""
        return self.holds_lease and (not self._may_do("retention") or self._clocks_differ or self.shadows.foreign)

    def _may_do(self, name: str) -> bool:
        return not self._fenced() and (name in _DELETES_NO_RECORDS or not self._gone_back())

    async def _collect(self) -> None:
        """However much there is, until the time of a round is over: other work is due, too."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._settings.garbage.interval_ms / 1000

        async def goes_on() -> bool:
            return self.holds_lease and self._may_do("garbage") and loop.time() < until_s

        await self._garbage.collect(goes_on)

    def _is_clock_wrong(self) -> bool:
        """The store's, or this one: a store that has jumped days ahead would free all records that are younger."""
        ahead_ms = self._store_ahead_ms()
        differ = abs(ahead_ms) > CLOCKS_APART_MS
        if differ and not self._clocks_differ:
            log.error(
                "clocks_differ",
                store_ahead_ms=ahead_ms,
                reason="the clock of the coordinator's store and this machine's are far apart; the age of "
                "records is measured by the store's clock",
                effect="no record is deleted because of its age or of the size of its log",
                remedy="set both clocks by NTP, and compare them with `diskless-proxy check`",
            )
        self._clocks_differ = differ
        return differ

    async def _retain(self) -> None:
        if self._is_clock_wrong() or not await self.shadows.decides(self._cluster.cluster_id):
            return
        try:
            self._defaults = await retention_defaults(self._cluster)
        except DefaultsRefused as error:
            if self._defaults is None and not self._refused:
                self._refused = True
                log.warning(
                    "broker_defaults_refused",
                    reason=str(error),
                    used_retention_ms=self._settings.default_retention_ms,
                    effect="topics without a cleanup.policy of their own are treated as `delete`, even if the "
                    "brokers' default differs",
                    remedy="allow the proxy's principal to describe the configs of the cluster, or set "
                    "default_retention_ms, and the cleanup.policy of topics to be compacted",
                )
        except (BrokerUnreachable, ProtocolError) as error:
            if self._defaults is None and not self._refused:
                log.warning(
                    "broker_defaults_unknown",
                    reason=str(error),
                    effect="records are deleted only from topics that set `cleanup.policy` and their retention "
                    "themselves",
                )
        fallback = RetentionDefaults(self._settings.default_retention_ms, -1) if self._refused else UNKNOWN
        await self._retention.sweep(self._defaults or fallback)
