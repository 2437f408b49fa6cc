"""A store that cannot be trusted with commits is rejected in one line that names the reason and the remedy."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import pytest
import structlog
from redis.asyncio import Redis

from proxy import config
from proxy.coordinator.connect import StoreUnfit, connect
from proxy.coordinator.fitness import check_fitness, fitness
from proxy.coordinator.fleet_store import RedisFleetStore
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.layout import check_store
from tests.integration.coordinator.conftest import Store
from tests.integration.coordinator.losses import coordinator_of
from tests.support.ports import free_port


@pytest.fixture
async def opened(start_store: Callable[..., Store]) -> AsyncIterator[Callable]:
    clients: list[Redis] = []

    async def open_store(*options: str, **more: object) -> tuple[Redis, config.Redis, Store]:
        store = start_store(*options)
        settings = config.Redis(url=store.url, **more)
        clients.append(await connect(settings))
        return clients[-1], settings, store

    yield open_store
    for client in clients:
        await client.aclose()


async def refusal(client: Redis, settings: config.Redis) -> str:
    with pytest.raises(StoreUnfit) as refused:
        await check_store(client, settings)
    assert "\n" not in str(refused.value)
    return str(refused.value)


async def test_a_fit_store_is_accepted_again_and_again(client: Redis, settings: config.Redis) -> None:
    await check_store(client, settings)
    await check_store(client, settings)


async def test_the_number_of_shards_stays(client: Redis, settings: config.Redis) -> None:
    await check_store(client, settings)
    text = await refusal(client, settings.model_copy(update={"shards": 8}))
    assert "data with 3 shards, not 8; set redis.shards to 3" in text
    await check_store(client, settings)


async def test_eviction_is_rejected(opened) -> None:
    client, settings, store = await opened("--maxmemory-policy", "allkeys-lru")
    text = await refusal(client, settings)
    assert f"127.0.0.1:{store.port}: maxmemory-policy is allkeys-lru" in text
    assert "set it to noeviction" in text


async def test_a_missing_append_only_file_is_rejected_if_it_is_required(opened) -> None:
    client, settings, _ = await opened("--appendonly", "no")
    assert "appendonly is no" in await refusal(client, settings)
    await check_store(client, settings.model_copy(update={"durability": "trusted"}))


@pytest.mark.parametrize(("fsync", "least"), [("no", "everysec"), ("everysec", "always")])
async def test_less_fsync_than_required_is_rejected(opened, fsync: str, least: str) -> None:
    client, settings, _ = await opened("--appendfsync", fsync, require_append_fsync=least)
    text = await refusal(client, settings)
    assert f"appendfsync is {fsync}" in text
    assert f"redis.require_append_fsync allows; set it to {least}" in text
    await check_store(client, settings.model_copy(update={"require_append_fsync": fsync}))
    await check_store(client, settings.model_copy(update={"durability": "trusted"}))


async def test_a_view_of_a_journal_needs_no_append_only_file(opened) -> None:
    client, settings, _ = await opened("--appendonly", "no")
    await check_store(client, settings, is_view=True)
    client, settings, _ = await opened("--appendfsync", "no", require_append_fsync="always")
    await check_store(client, settings, is_view=True)
    client, settings, _ = await opened("--appendonly", "no", "--maxmemory-policy", "allkeys-lru")
    with pytest.raises(StoreUnfit, match="maxmemory-policy is allkeys-lru"):
        await check_store(client, settings, is_view=True)


async def test_memory_is_full_beyond_maxmemory_only(opened) -> None:
    client, settings, _ = await opened()
    assert not (await fitness(client, settings)).memory_is_full
    await client.config_set("maxmemory", "1gb")
    assert not (await fitness(client, settings)).memory_is_full
    await client.config_set("maxmemory", "100kb")
    assert (await fitness(client, settings)).memory_is_full


async def test_a_replica_is_rejected(opened) -> None:
    _, _, primary = await opened()
    client, settings, _ = await opened("--replicaof", f"127.0.0.1 {primary.port}")
    assert f"the server is a replica (of 127.0.0.1:{primary.port})" in await refusal(client, settings)


async def test_a_life_of_the_server_is_distinguished_from_others(opened) -> None:
    client, settings, store = await opened()
    first = await check_fitness(client, settings)
    assert await check_fitness(client, settings) == first
    store.stop()
    store.start()
    with suppress(CoordinatorUnavailable):  # the connection broke
        await check_fitness(client, settings)
    assert await check_fitness(client, settings) != first


async def test_a_user_without_the_right_to_info_works_without_it(opened) -> None:
    client, _, store = await opened()
    await client.acl_setuser(
        "small",
        enabled=True,
        passwords=["+word"],
        keys=["diskless:*"],
        channels=["diskless:*"],
        commands=["+@all", "-info"],
    )
    settings = config.Redis(url=f"redis://small:word@127.0.0.1:{store.port}/0", shards=2)
    small = await connect(settings)
    with structlog.testing.capture_logs() as logged:
        await check_store(small, settings)
    assert [entry["command"] for entry in logged] == ["INFO"]
    coordinator = coordinator_of(small, settings)
    await coordinator.create_logs(bytes(range(16)), range(20))
    await coordinator.shards.touch([0, 1])
    assert not coordinator.fence.fenced
    await client.flushdb()
    await coordinator.shards.touch([0, 1])
    assert coordinator.fence.fenced.keys() == {0, 1}
    await small.aclose()


async def test_a_cluster_node_is_rejected(opened) -> None:
    client, settings, _ = await opened("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    assert "node of a cluster" in await refusal(client, settings)


async def without(client: Redis, store: Store, *commands: str) -> tuple[Redis, config.Redis]:
    """Return a client and settings of a user who may not run these commands."""
    await client.acl_setuser(
        "small",
        enabled=True,
        passwords=["+word"],
        keys=["diskless:*"],
        channels=["diskless:*"],
        commands=["+@all", *commands],
    )
    settings = config.Redis(url=f"redis://small:word@127.0.0.1:{store.port}/0")
    return await connect(settings), settings


WEAK = [
    (("--maxmemory-policy", "volatile-lru"), "maxmemory-policy is volatile-lru"),
    (("--appendonly", "no"), "appendonly is no"),
]


@pytest.mark.parametrize(("options", "refused"), WEAK)
async def test_a_store_whose_user_may_not_run_config_is_judged_by_info(opened, options, refused: str) -> None:
    client, _, store = await opened(*options)
    small, settings = await without(client, store, "-config")
    assert refused in await refusal(small, settings)
    await small.aclose()


@pytest.mark.parametrize(("options", "refused"), WEAK)
async def test_a_store_that_has_renamed_config_is_judged_by_info(opened, options, refused: str) -> None:
    client, settings, _ = await opened(*options, "--rename-command", "CONFIG", "")
    assert refused in await refusal(client, settings)


async def test_a_fit_store_that_may_not_be_asked_causes_a_warning(opened) -> None:
    client, _, store = await opened()
    small, settings = await without(client, store, "-config")
    with structlog.testing.capture_logs() as logged:
        await check_store(small, settings)
    await small.aclose()
    (warning,) = logged
    assert (warning["log_level"], warning["command"]) == ("warning", "CONFIG GET")
    assert warning["remedy"] == "check by hand that appendfsync is at least everysec (redis.require_append_fsync)"
    assert "word" not in str(warning)


async def test_a_store_that_reports_nothing_is_rejected_unless_somebody_vouches_for_it(opened) -> None:
    client, _, store = await opened()
    small, settings = await without(client, store, "-config", "-info")
    assert "shows neither by CONFIG GET (" in await refusal(small, settings)
    with structlog.testing.capture_logs() as logged:
        await check_store(small, settings.model_copy(update={"durability": "trusted"}))
    await small.aclose()
    (remedy,) = (one["remedy"] for one in logged if one["command"] == "CONFIG GET")
    assert remedy == "check by hand that maxmemory-policy is noeviction"


async def test_wrong_credentials_and_a_store_that_is_down(opened) -> None:
    _, settings, store = await opened()
    wrong = settings.model_copy(update={"url": f"redis://nobody:secret@127.0.0.1:{store.port}/0"})
    client = await connect(wrong)
    with pytest.raises(CoordinatorUnavailable, match="rejects the proxy's credentials") as refused:
        await check_store(client, wrong)
    assert "secret" not in str(refused.value)
    await client.aclose()
    store.stop()
    client = await connect(settings)
    with pytest.raises(CoordinatorUnavailable, match="check that the store runs"):
        await check_store(client, settings)
    with pytest.raises(CoordinatorUnavailable, match="while leaving the fleet"):
        await RedisFleetStore(client).leave("a")
    await client.aclose()
