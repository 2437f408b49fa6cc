"""A real store that can lose data, object storage in a directory, and proxies that check both."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import yaml
from redis.asyncio import Redis

from proxy import config
from proxy.coordinator.cluster import Store
from proxy.coordinator.connect import connect
from proxy.coordinator.redis import RedisCoordinator
from proxy.coordinator.registry import RedisTopicRegistry
from proxy.guard.watch import StoreWatch
from proxy.storage.file import FileStorage
from proxy.topics.topics import Topics
from tests.integration.coordinator.losses import Losses, coordinator_of
from tests.integration.coordinator.stores import Store as Server

SHARDS = 2


@pytest.fixture
def settings(losable: Server, losses: Losses) -> config.Redis:
    return config.Redis(url=losable.url, shards=SHARDS, settle_ms=0, check_interval_ms=10, remember_interval_ms=10)


@pytest.fixture
async def storage(tmp_path: Path) -> AsyncIterator[FileStorage]:
    storage = FileStorage(config.Storage(url=(tmp_path / "wal").as_uri()))
    await storage.open()
    yield storage
    await storage.close()


@pytest.fixture
async def client(settings: config.Redis) -> AsyncIterator[Redis]:
    client = await connect(settings)
    yield client
    await client.aclose()


@dataclass
class Proxy:
    """The part of a proxy that checks the store."""

    coordinator: RedisCoordinator
    topics: Topics
    watch: StoreWatch


async def proxy_of(client: Store, settings: config.Redis, storage: FileStorage) -> Proxy:
    """Start a proxy."""
    coordinator = coordinator_of(client, settings)
    topics = Topics(RedisTopicRegistry(client, settings), lease_runs=lambda: True)
    watch = StoreWatch(settings, client, coordinator, storage, topics, lambda: True)
    await watch.open()
    await topics.load()
    return Proxy(coordinator, topics, watch)


@pytest.fixture
def start_proxy(client: Redis, settings: config.Redis, storage: FileStorage) -> Callable[[], Awaitable[Proxy]]:
    return partial(proxy_of, client, settings, storage)


@pytest.fixture
def config_file(tmp_path: Path, settings: config.Redis) -> Path:
    path = tmp_path / "proxy.yaml"
    document = {
        "rack": "rack-a",
        "brokers": {"bootstrap": ["127.0.0.1:1"]},
        "redis": settings.model_dump(),
        "journal": {"mode": "off"},
        "storage": {"url": (tmp_path / "wal").as_uri()},
    }
    path.write_text(yaml.safe_dump(document))
    return path
