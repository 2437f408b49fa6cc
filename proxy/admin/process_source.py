"""The report of one process about itself: whether it is ready, and its metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import Metric

from proxy.admin.api.collect import collect
from proxy.admin.api.question import ProcessAnswer, Question
from proxy.admin.metrics import ProxyCollector
from proxy.config import Settings
from proxy.coordinator.fence import REMEDY
from proxy.telemetry.logs import set_log_level
from proxy.telemetry.recent import RECENT_ERRORS

if TYPE_CHECKING:
    from proxy.assembly.parts import Parts


def process_registry() -> CollectorRegistry:
    """Return a registry with the metrics that any process has: `process_*` and `python_*`."""
    registry = CollectorRegistry()
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    return registry


class ProcessSource:
    """`source.AdminSource` for one process.

    `why_not_ready` returns the reason for a 503 of `/readyz`, or None. `why_not_serving` does the same for `/servez`.
    `stop` begins a drain.
    """

    def __init__(
        self,
        parts: Parts,
        why_not_ready: Callable[[], str | None],
        stop: Callable[[], None] = lambda: None,
        *,
        why_not_serving: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._parts = parts
        self._why_not_ready = why_not_ready
        self._why_not_serving = why_not_serving
        self._stop = stop
        self._stopping = False
        RECENT_ERRORS.maximum = parts.process.settings.admin.recent_errors_max
        self._process = process_registry()
        self._registry = CollectorRegistry()
        self._collector = ProxyCollector(parts, ready=lambda: why_not_ready() is None)
        self._registry.register(self._collector)
        self._registry.register(self._process)

    @property
    def settings(self) -> Settings:
        """Settings of the proxy."""
        return self._parts.process.settings

    async def why_not_ready(self) -> str | None:
        """Return why clients are not served; None if they are."""
        return self._why_not_ready()

    async def why_not_serving(self) -> str | None:
        """Return why no clients are accepted at all; None between the end of the start and a drain."""
        return self._why_not_serving()

    async def remark(self) -> str | None:
        """Return a problem that someone should look at although clients are served; None if there is none."""
        remarks = [self._fenced(), self._parts.brokers.broker_ports.remark]
        return ". And ".join(remark for remark in remarks if remark is not None) or None

    def _fenced(self) -> str | None:
        fenced = self._parts.stores.coordinator.fence.fenced
        if not fenced:
            return None
        shard, why = min(fenced.items())
        shards = self._parts.process.settings.redis.shards
        return f"coordinator: {len(fenced)} of {shards} shards fenced ({shard}: {why}); {REMEDY}"

    async def metrics(self) -> bytes:
        """Return the metrics page."""
        return generate_latest(self._registry)

    async def answers(self, question: Question) -> list[ProcessAnswer]:
        """Return the answer of this process."""
        return [ProcessAnswer(None, await collect(self._parts, question))]

    def drain(self) -> None:
        """Begin a drain; a second call changes nothing."""
        if not self._stopping:
            self._stopping = True
            self._stop()

    async def set_log_level(self, level: str) -> None:
        """Log lines of that level and above from now on."""
        set_log_level(level)

    def own_metrics(self) -> list[Metric]:
        """Return the metrics of the proxy, without those of the process."""
        return list(self._collector.collect())

    def process_metrics(self) -> list[Metric]:
        """Return the metrics of the process."""
        return list(self._process.collect())
