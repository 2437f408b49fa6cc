"""The coordinator and the registry that a proxy's settings describe, for proxies and for jobs and commands."""

from __future__ import annotations

from functools import partial

from proxy.config import Settings
from proxy.coordinator.cluster import Store
from proxy.coordinator.interface_journal import Journal
from proxy.coordinator.interface_snapshots import Snapshots
from proxy.coordinator.redis import RedisCoordinator
from proxy.coordinator.registry import RedisTopicRegistry
from proxy.coordinator.registry_from_journal import RegistryFromJournal
from proxy.coordinator.view import View


def coordinator_on(
    client: Store, settings: Settings, journal: Journal | None = None, snapshots: Snapshots | None = None
) -> RedisCoordinator:
    """Return a coordinator on the shared client of `connect.py`; nothing is sent yet.

    `journal`: the journal of `settings.journal`; None if it has none. `snapshots`: its snapshots, with which a rebuild
    begins.
    """
    return RedisCoordinator(
        client,
        settings.redis,
        producer_id_expiration_ms=settings.producer_id_expiration_ms,
        producer_batches_remembered=settings.producer_batches_remembered,
        journal=journal,
        snapshots=snapshots,
    )


def registry_on(client: Store, settings: Settings, coordinator: RedisCoordinator) -> RedisTopicRegistry:
    """Return the registry next to a coordinator; nothing is sent yet."""
    return RedisTopicRegistry(client, settings.redis, view=coordinator.view)


def registry_from_journal(
    view: View | None, journal: Journal | None, snapshots: Snapshots | None
) -> RegistryFromJournal | None:
    """Return the reader of the registry for the time in which the store is away; None without a journal."""
    if view is None or journal is None:
        return None
    return RegistryFromJournal(journal, view.registry, snapshots, partial(view.require, view.registry))
