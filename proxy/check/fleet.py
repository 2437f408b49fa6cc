"""Checks of what all proxies share: names, the identity of store and objects, the Kafka cluster of both."""

from __future__ import annotations

from collections.abc import Collection

from proxy.check.findings import Finding, Kind, error, from_error, ok
from proxy.check.ports import doubles
from proxy.config import Settings
from proxy.coordinator.cluster import Store
from proxy.coordinator.interface_fleet import ProxyRecord
from proxy.coordinator.registry import RedisTopicRegistry
from proxy.guard.identity import store_identity, stored_identity, strangers
from proxy.storage.interface import ObjectStorage


def check_names(settings: Settings, fleet: Collection[ProxyRecord]) -> list[Finding]:
    """Check that no live proxy has this name and other addresses. `fleet` has all live proxies."""
    for proxy_id, addresses in doubles(settings, fleet).items():
        text = f"{settings.identity} is the name of a live proxy at {addresses} ({proxy_id})"
        return [error(Kind.FLEET, "proxy_id", text, "give each proxy a name of its own")]
    by_rack: dict[str, set[str]] = {}
    for record in fleet:
        by_rack.setdefault(record.rack, set()).add(record.proxy_id.rpartition("#")[0])
    proxies = ", ".join(f"{len(names)} in {rack}" for rack, names in sorted(by_rack.items()))
    return [ok(Kind.FLEET, "proxy_id", f"{settings.identity}; live proxies: {proxies or 'none'}")]


async def check_identity(store: Store, storage: ObjectStorage) -> list[Finding]:
    """Return whether the store and the objects belong together. Raises StorageError and CoordinatorUnavailable."""
    in_storage = await stored_identity(storage)  # first, as it was in the store before
    in_store, confirmed = await store_identity(store)
    if problem := strangers(in_store, in_storage, confirmed=confirmed):
        return [from_error(Kind.FLEET, "", problem)]
    if in_store is None:
        return [ok(Kind.FLEET, "redis.url", "the store and the objects under storage.url are new")]
    return [ok(Kind.FLEET, "redis.url", f"the store and the objects under storage.url belong together ({in_store})")]


async def check_cluster(settings: Settings, store: Store, cluster_id: str) -> list[Finding]:
    """Return whether the store's topics are of that Kafka cluster. Raises CoordinatorUnavailable."""
    known = await RedisTopicRegistry(store, settings.redis).cluster_id()
    if known is None or not cluster_id or known == cluster_id:
        return [
            ok(Kind.FLEET, "brokers.bootstrap", f"the store's topics belong to Kafka cluster {known or cluster_id}")
        ]
    text = f"leads to Kafka cluster {cluster_id}, but the store's topics belong to cluster {known}"
    return [error(Kind.FLEET, "brokers.bootstrap", text, "fix brokers.bootstrap or redis.url")]
