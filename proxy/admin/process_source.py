"""What one process tells of itself: whether it is ready, and its metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import Metric

from proxy.admin.metrics import ProxyCollector
from proxy.coordinator.fence import REMEDY

if TYPE_CHECKING:
    from proxy.context import Context


def process_registry() -> CollectorRegistry:
    """A registry with what holds for any process: `process_*` and `python_*`."""
    registry = CollectorRegistry()
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    return registry


class ProcessSource:
    """`http.AdminSource` for one context. `why_not_ready` gives the reason for a 503 of `/readyz`, or None."""

    def __init__(self, context: Context, why_not_ready: Callable[[Context], str | None]) -> None:
        self._context = context
        self._why_not_ready = why_not_ready
        self._process = process_registry()
        self._registry = CollectorRegistry()
        self._registry.register(ProxyCollector(context))
        self._registry.register(self._process)

    async def why_not_ready(self) -> str | None:
        """What keeps clients from being served; None where all is well."""
        return self._why_not_ready(self._context)

    async def remark(self) -> str | None:
        """What someone should see to though clients are served; None where there is nothing."""
        fenced = self._context.coordinator.fence.fenced
        if not fenced:
            return None
        shard, why = min(fenced.items())
        shards = self._context.settings.redis.shards
        return f"coordinator: {len(fenced)} of {shards} shards fenced ({shard}: {why}); {REMEDY}"

    async def metrics(self) -> bytes:
        """The metrics page."""
        return generate_latest(self._registry)

    def own_metrics(self) -> list[Metric]:
        """The metrics of the proxy, without those of the process."""
        return list(ProxyCollector(self._context).collect())

    def process_metrics(self) -> list[Metric]:
        """The metrics of the process."""
        return list(self._process.collect())
