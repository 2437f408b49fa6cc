"""The coordinator that a proxy's settings describe, for proxies and for jobs and commands on their stores."""

from __future__ import annotations

from redis.asyncio import Redis

from proxy.config import Settings
from proxy.coordinator.redis import RedisCoordinator


def coordinator_on(client: Redis, settings: Settings) -> RedisCoordinator:
    """Return a coordinator on the shared client of `connect.py`; nothing is sent yet."""
    return RedisCoordinator(
        client,
        settings.redis,
        producer_id_expiration_ms=settings.producer_id_expiration_ms,
        producer_batches_remembered=settings.producer_batches_remembered,
    )
