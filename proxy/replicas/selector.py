"""Whether the brokers redirect consumers to replicas by themselves: their config `replica.selector.class` (KIP-392)."""

from __future__ import annotations

import asyncio

import structlog

from proxy.brokers.broker_defaults import DefaultsRefused, broker_configs
from proxy.brokers.cluster import Cluster
from proxy.brokers.upstream import BrokerUnreachable
from proxy.telemetry.outage import Outage
from proxy.wire.errors import ProtocolError

log = structlog.get_logger()

_SELECTOR_CLASS = "replica.selector.class"


class ReplicaSelector:
    """Asks one of the brokers now and again: their configs are taken to be alike."""

    def __init__(self, cluster: Cluster, *, interval_s: float) -> None:
        self._cluster = cluster
        self.interval_s = interval_s
        self._outage = Outage()
        self.redirects = False
        """True if brokers redirect a consumer that names a rack. False until a broker has answered, and if the proxy
        may not ask: its own near reads are right in either case."""

    async def refresh(self) -> None:
        """Ask, or keep the last answer. Failures are logged once until they end."""
        try:
            configs = await broker_configs(self._cluster, (_SELECTOR_CLASS,))
        except (BrokerUnreachable, ProtocolError, DefaultsRefused) as error:
            if self._outage.begins():
                log.warning(
                    "replica_selector_unknown",
                    reason=str(error),
                    effect="clients that name their rack are served by the last known selector, or by near reads",
                    remedy="allow the proxy's principal to describe the configs of the cluster",
                )
            return
        self._outage.ends()
        self.redirects = bool(configs.get(_SELECTOR_CLASS))

    async def follow(self) -> None:
        """Refresh forever."""
        while True:
            await asyncio.sleep(self.interval_s)
            await self.refresh()
