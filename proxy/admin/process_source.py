"""What one process tells of itself: whether it is ready, and its metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import Metric

from proxy.admin.api.question import Question, Told
from proxy.admin.api.tell import tell
from proxy.admin.metrics import ProxyCollector
from proxy.config import Settings
from proxy.coordinator.fence import REMEDY
from proxy.telemetry.logs import set_log_level
from proxy.telemetry.recent import RECENT_ERRORS

if TYPE_CHECKING:
    from proxy.assembly.parts import Parts


def process_registry() -> CollectorRegistry:
    """A registry with what holds for any process: `process_*` and `python_*`."""
    registry = CollectorRegistry()
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    return registry


class ProcessSource:
    """`source.AdminSource` for one process.

    `why_not_ready` gives the reason for a 503 of `/readyz`, or None, `why_not_serving` that of `/servez`; `stop` begins
    a drain.
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
        """Those of the proxy."""
        return self._parts.process.settings

    async def why_not_ready(self) -> str | None:
        """What keeps clients from being served; None where all is well."""
        return self._why_not_ready()

    async def why_not_serving(self) -> str | None:
        """What keeps clients from being let in at all; None from the start's end until a drain."""
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
        """The metrics page."""
        return generate_latest(self._registry)

    async def tell(self, question: Question) -> list[Told]:
        """What this process says."""
        return [Told(None, await tell(self._parts, question))]

    def drain(self) -> None:
        """Begin a drain; once."""
        if not self._stopping:
            self._stopping = True
            self._stop()

    async def set_log_level(self, level: str) -> None:
        """Write lines of that level and above from now on."""
        set_log_level(level)

    def own_metrics(self) -> list[Metric]:
        """The metrics of the proxy, without those of the process."""
        return list(self._collector.collect())

    def process_metrics(self) -> list[Metric]:
        """The metrics of the process."""
        return list(self._process.collect())
