"""Brokers, store and storage as the first checks have reached them, for later checks."""

from __future__ import annotations

from dataclasses import dataclass, field

from proxy.brokers.cluster import Cluster
from proxy.coordinator.cluster import Store
from proxy.storage.interface import ObjectStorage


@dataclass(slots=True)
class Reached:
    """None is what could not be reached: a finding says why."""

    cluster: Cluster | None = None
    """With its view of the live brokers."""
    store: Store | None = None
    """The coordinator's store, fit for commits or not."""
    storage: ObjectStorage | None = None
    """Open."""
    ahead_ms: dict[str, int] = field(default_factory=dict)
    """How far other clocks are ahead of this machine's, by the setting that names their machine."""

    async def close(self) -> None:
        """Let go of all connections."""
        if self.cluster is not None:
            self.cluster.service.close()
        if self.store is not None:
            await self.store.aclose()
        if self.storage is not None:
            await self.storage.close()
