"""The brokers' configs that apply to topics that leave a config unset, as far as produces depend on them.

Every proxy reads them now and again, because brokers' configs may change while they run; DescribeConfigs of a topic
shows the same. Until a broker has answered, and if the proxy may not read them, Kafka's own defaults are used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import structlog

from proxy.brokers.broker_defaults import DefaultsRefused, broker_configs
from proxy.brokers.cluster import Cluster
from proxy.brokers.upstream import BrokerUnreachable
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.diskless.produce_rules import LEVEL_CONFIGS, NO_BOUND_MS, ProduceRules, rules_of
from proxy.telemetry.outage import Outage
from proxy.wire.errors import ProtocolError

log = structlog.get_logger()

OF_BROKERS = {
    "message.max.bytes": "max.message.bytes",
    "compression.type": "compression.type",
    "log.cleanup.policy": "cleanup.policy",
    "log.message.timestamp.type": "message.timestamp.type",
    "log.message.timestamp.difference.max.ms": "message.timestamp.difference.max.ms",
    "log.message.timestamp.before.max.ms": "message.timestamp.before.max.ms",
    "log.message.timestamp.after.max.ms": "message.timestamp.after.max.ms",
    **{name: name for name in LEVEL_CONFIGS.values()},
}
"""Configs of topics by the brokers' names for their defaults."""
_DIFFERENCE_MAX = "message.timestamp.difference.max.ms"
_AFTER_MAX = "message.timestamp.after.max.ms"
_REPLICATION_FACTOR = "default.replication.factor"
_MAX_REMEMBERED = 10_000


class TopicDefaults:
    """Keeps the brokers' defaults, and the rules of topics that follow from them and the topics' own configs."""

    def __init__(self, cluster: Cluster, *, interval_s: float) -> None:
        self._cluster = cluster
        self.interval_s = interval_s
        self._outage = Outage()
        self.replication_factor = 0
        """`default.replication.factor`; 0 if it is not known."""
        self._defaults: dict[str, str] = {}
        self._rules: dict[bytes, tuple[Mapping[str, str], ProduceRules]] = {}

    def rules(self, entry: DisklessTopic) -> ProduceRules:
        """Return the demands of the topic's configs on a produced batch."""
        known = self._rules.get(entry.topic_id)
        if known is not None and known[0] is entry.configs:
            return known[1]
        if len(self._rules) >= _MAX_REMEMBERED:
            self._rules.clear()
        configs = self._defaults | entry.configs
        if self._defaults and _DIFFERENCE_MAX not in self._defaults:  # brokers of 4.0 and newer don't know it
            configs.pop(_DIFFERENCE_MAX, None)
        rules = rules_of(configs)
        self._rules[entry.topic_id] = entry.configs, rules
        return rules

    async def load(self) -> None:
        """Read them from a broker.

        Raises BrokerUnreachable, ProtocolError and DefaultsRefused, and then changes nothing.
        """
        values = await broker_configs(self._cluster, (*OF_BROKERS, _REPLICATION_FACTOR))
        self.replication_factor = int(values.get(_REPLICATION_FACTOR) or 0)
        defaults = {OF_BROKERS[name]: one for name, one in values.items() if name in OF_BROKERS and one is not None}
        # Brokers that don't know it (before KIP-937) have no such bound.
        defaults.setdefault(_AFTER_MAX, str(NO_BOUND_MS))
        rules_of(defaults)
        if defaults != self._defaults:
            self._defaults = defaults
            self._rules.clear()

    async def refresh(self) -> None:
        """Load them, or keep the last ones. Failures are logged once until they end."""
        try:
            await self.load()
        except (BrokerUnreachable, ProtocolError, DefaultsRefused, ValueError) as error:
            if self._outage.begins():
                log.warning(
                    "topic_defaults_unknown",
                    reason=str(error),
                    effect="a config that a topic does not set has Kafka's own default, or the last known "
                    "default of the brokers",
                    remedy="allow the proxy's principal to describe the configs of the cluster",
                )
        else:
            self._outage.ends()

    async def follow(self) -> None:
        """Refresh forever."""
        while True:
            await asyncio.sleep(self.interval_s)
            await self.refresh()
