"""When the background work is done, and by whom: one proxy of the fleet holds the lease, whoever takes it first.

Losing the lease in the middle, or dying, is harmless: every step may be repeated, and by two proxies at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import structlog

from proxy.cluster import Cluster
from proxy.config import Settings
from proxy.coordinator.interface import CoordinatorUnavailable, FleetStore
from proxy.coordinator.lease import hold_lease
from proxy.housekeeping.broker_defaults import DefaultsRefused, retention_defaults
from proxy.housekeeping.garbage import GarbageCollector
from proxy.housekeeping.index import IndexPacker
from proxy.housekeeping.producers import ProducerExpiry
from proxy.housekeeping.retention import UNBOUNDED, Retention, RetentionDefaults
from proxy.housekeeping.shadows import Shadows
from proxy.storage.interface import StorageError
from proxy.upstream import BrokerUnreachable
from proxy.wire.errors import ProtocolError

log = structlog.get_logger()

LEASE = "housekeeping"
_POLL_S = 1.0


class Housekeeper:
    """Holds the lease when it can, and then does what is due.

    `fenced`: which shards of the coordinator are, and why. As long as any is, nothing is done: what to delete, and what
    is of use to whoever mends it, is not certain.
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
    ) -> None:
        self._fenced = fenced
        self._store = fleet_store
        self._identity = identity
        self._cluster = cluster
        self._retention = retention
        self._garbage = garbage
        self._garbage_interval_s = settings.garbage.interval_ms / 1000
        self.shadows = shadows
        self.holds_lease = False
        self._fallback = RetentionDefaults(settings.default_retention_ms, -1)
        self._defaults: RetentionDefaults | None = None
        self._work: list[tuple[str, float, Callable[[], Awaitable[object]]]] = [
            ("retention", settings.log_retention_check_interval_ms / 1000, self._retain),
            ("index", settings.redis.pack_interval_ms / 1000, index.sweep),
            ("producers", settings.producer_id_expiration_check_interval_ms / 1000, producers.sweep),
            ("garbage", settings.garbage.interval_ms / 1000, self._collect),
            ("shadows", settings.brokers.metadata_refresh_ms / 1000, shadows.compare),
            ("stray records", settings.brokers.stray_records_interval_ms / 1000, shadows.look_for_strays),
            ("orphans", settings.garbage.orphan_sweep_interval_ms / 1000, garbage.sweep_orphans),
        ]

    async def keep_house(self) -> None:
        """For ever: what is due, as long as the lease is held. Failures are logged once until they end."""
        loop = asyncio.get_running_loop()
        # The first round begins after each one's interval: a restart is no reason to do everything at once.
        due_s = {name: loop.time() + interval_s for name, interval_s, _ in self._work}
        failing: dict[str, type[Exception]] = {}
        while True:
            await asyncio.sleep(_POLL_S)
            await self._hold()
            for name, interval_s, work in self._work:
                if not self.holds_lease or self._fenced() or loop.time() < due_s[name]:
                    continue
                try:
                    await work()
                    failing.pop(name, None)
                except (CoordinatorUnavailable, StorageError, BrokerUnreachable, ProtocolError) as error:
                    if name not in failing:
                        log.warning("housekeeping_failed", work=name, reason=str(error), remedy="it is tried again")
                    failing[name] = type(error)
                except Exception as error:
                    # One piece of work, and one odd answer, must not end all the others: on every proxy in turn.
                    if failing.get(name) is not type(error):
                        log.exception(
                            "housekeeping_broken",
                            work=name,
                            reason=f"{type(error).__name__}: {error}",
                            remedy="it is tried again, and all else goes on; report it with this trace",
                        )
                    failing[name] = type(error)
                due_s[name] = loop.time() + interval_s

    async def _hold(self) -> None:
        self.holds_lease = await hold_lease(self._store, LEASE, self._identity)
        if not self.holds_lease:
            self.shadows.lease_lost()

    async def _collect(self) -> None:
        """However much there is, until the time of a round is over: other work is due, too."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._garbage_interval_s

        async def goes_on() -> bool:
            await self._hold()
            return self.holds_lease and not self._fenced() and loop.time() < until_s

        await self._garbage.collect(goes_on)

    async def _retain(self) -> None:
        try:
            self._defaults = await retention_defaults(self._cluster)
        except DefaultsRefused as error:
            if self._defaults is None:
                log.warning(
                    "broker_defaults_refused",
                    reason=str(error),
                    used_retention_ms=self._fallback.retention_ms,
                    remedy="let the proxy's principal describe the configs of the cluster, or set default_retention_ms",
                )
                self._defaults = self._fallback
        except (BrokerUnreachable, ProtocolError) as error:
            if self._defaults is None:
                log.warning(
                    "broker_defaults_unknown", reason=str(error), effect="topics' own retention holds, no default"
                )
        await self._retention.sweep(self._defaults or UNBOUNDED)
