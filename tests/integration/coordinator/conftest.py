"""Coordinators on a real server, on a real cluster, and in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import redis as blocking_redis
from redis.asyncio import Redis

from proxy import config
from proxy.coordinator.cluster import Cluster
from proxy.coordinator.connect import connect
from proxy.coordinator.interface import Coordinator
from proxy.coordinator.redis import RedisCoordinator
from proxy.coordinator.registry import RedisTopicRegistry
from proxy.coordinator.view import View
from tests.coordinator_model import ModelCoordinator
from tests.integration.coordinator.clusters import StoreCluster
from tests.integration.coordinator.contract import TOPIC
from tests.integration.coordinator.stores import Store as Store
from tests.support.memory_journal import MemoryJournal


@pytest.fixture(scope="session")
def session_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = Store(tmp_path_factory.mktemp("store"))
    store.start()
    yield store
    store.stop()


@pytest.fixture
def store(session_store: Store) -> Store:
    """Return the shared, empty store; tests must not stop it."""
    with blocking_redis.Redis(port=session_store.port) as client:
        client.flushall()
        client.script_flush()
    return session_store


@pytest.fixture
def settings(store: Store) -> config.Redis:
    return config.Redis(url=store.url, shards=3)


@pytest.fixture
async def client(settings: config.Redis) -> AsyncIterator[Redis]:
    client = await connect(settings)
    yield client
    await client.aclose()


MakeCoordinator = Callable[..., RedisCoordinator]


@pytest.fixture
def make_coordinator(client: Redis, settings: config.Redis) -> MakeCoordinator:
    """Return a coordinator like another proxy's; by default its producers never expire."""

    def make(*, producer_id_expiration_ms: int = 86_400_000, producer_batches_remembered: int = 5) -> RedisCoordinator:
        return RedisCoordinator(
            client,
            settings,
            producer_id_expiration_ms=producer_id_expiration_ms,
            producer_batches_remembered=producer_batches_remembered,
        )

    return make


@pytest.fixture
def journal() -> MemoryJournal:
    return MemoryJournal()


@pytest.fixture
def make_view(client: Redis, settings: config.Redis, journal: MemoryJournal) -> MakeCoordinator:
    """Return a coordinator like another proxy's, whose store is a view of the journal."""

    def make(*, producer_id_expiration_ms: int = 86_400_000, producer_batches_remembered: int = 5) -> RedisCoordinator:
        return RedisCoordinator(
            client,
            settings,
            producer_id_expiration_ms=producer_id_expiration_ms,
            producer_batches_remembered=producer_batches_remembered,
            journal=journal,
        )

    return make


@pytest.fixture
def make_registry_view(
    client: Redis, settings: config.Redis, journal: MemoryJournal
) -> Callable[[], RedisTopicRegistry]:
    """Return a registry like another proxy's, whose store is a view of the journal."""

    def make() -> RedisTopicRegistry:
        return RedisTopicRegistry(client, settings, view=View(client, settings, journal))

    return make


@pytest.fixture(scope="session")
def session_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreCluster]:
    with StoreCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def cluster(session_cluster: StoreCluster) -> StoreCluster:
    """Return the shared, empty cluster of three primaries; tests must not stop its servers."""
    session_cluster.empty()
    return session_cluster


@pytest.fixture
async def cluster_client(cluster: StoreCluster) -> AsyncIterator[Cluster]:
    client = await connect(config.Redis(url=cluster.url))
    assert isinstance(client, Cluster)
    yield client
    await client.aclose()


@pytest.fixture
def make_on_cluster(cluster: StoreCluster, cluster_client: Cluster) -> MakeCoordinator:
    """Return a coordinator like another proxy's, on a cluster."""
    settings = config.Redis(url=cluster.url, shards=3)

    def make(*, journal: MemoryJournal | None = None, **changes: int) -> RedisCoordinator:
        options = {"producer_id_expiration_ms": 86_400_000, "producer_batches_remembered": 5} | changes
        return RedisCoordinator(cluster_client, settings, journal=journal, **options)

    return make


@pytest.fixture
def make_view_on_cluster(make_on_cluster: MakeCoordinator, journal: MemoryJournal) -> MakeCoordinator:
    return partial(make_on_cluster, journal=journal)


_MAKERS = {
    "real": "make_coordinator",
    "view": "make_view",
    "cluster": "make_on_cluster",
    "cluster_view": "make_view_on_cluster",
}


@pytest.fixture(params=["model", *_MAKERS])
def make(request: pytest.FixtureRequest):
    if request.param == "model":
        return ModelCoordinator
    return request.getfixturevalue(_MAKERS[request.param])


@pytest.fixture
async def coordinator(make) -> Coordinator:
    coordinator = make()
    await coordinator.create_logs(TOPIC, range(4))
    return coordinator


@pytest.fixture
def with_replicas(tmp_path: Path) -> Iterator[StoreCluster]:
    with StoreCluster(tmp_path / "cluster", replicas=True) as cluster:
        yield cluster
