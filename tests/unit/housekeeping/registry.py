"""A registry as a proxy has loaded it."""

from __future__ import annotations

from typing import Any

from proxy.coordinator.interface_registry import DisklessTopic, RegistrySnapshot
from proxy.topics.topics import Topics


def topics_of(*entries: DisklessTopic) -> Topics:
    """Return the topics of a proxy that has read these entries."""
    store: Any = None
    topics = Topics(store, lease_runs=lambda: True)
    topics.take(RegistrySnapshot(1, entries))
    return topics
