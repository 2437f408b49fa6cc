"""Data of a newer release is rejected in one line, or ignored if that is safe."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
import structlog
from redis.asyncio import Redis
from typer.testing import CliRunner

from proxy import __version__, config
from proxy.cli import app
from proxy.config import load_settings
from proxy.coordinator.connect import StoreUnfit
from proxy.coordinator.fleet_store import RedisFleetStore
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_fleet import ProxyRecord
from proxy.coordinator.interface_registry import UNKNOWN_STATE
from proxy.coordinator.layout import FORMAT_VERSION, check_store
from proxy.coordinator.registry import RedisTopicRegistry
from proxy.coordinator.shards import FLEET_PREFIX, REGISTRY_PREFIX, STORE_KEY
from proxy.guard.identity import IDENTITY_KEY, settle_identity
from proxy.guard.remembered import FORMAT, keys_of
from proxy.inspection.stores import open_stores
from proxy.storage.file import FileStorage
from tests.integration.coordinator.losses import coordinator_of
from tests.integration.guard.test_watch import TOPIC, commit
from tests.support.standard_error import own_lines

NEWER = FORMAT_VERSION + 1


async def newer_layout(client: Redis, release: str = "99.1.0") -> None:
    await client.hset(STORE_KEY, mapping={"format": NEWER, "release": release})


async def refusal(client: Redis, settings: config.Redis) -> str:
    with pytest.raises(StoreUnfit) as refused:
        await check_store(client, settings)
    assert "\n" not in str(refused.value)
    return str(refused.value)


# The store


async def test_a_store_of_a_newer_format_is_rejected_by_name_and_left_unchanged(client, settings) -> None:
    await check_store(client, settings)
    assert await client.hget(STORE_KEY, "release") == __version__.encode()
    await newer_layout(client)
    before = await client.hgetall(STORE_KEY)
    text = await refusal(client, settings)
    assert f"data of format {NEWER}, but this release ({__version__}) reads only format {FORMAT_VERSION}" in text
    assert "run release 99.1.0" in text
    assert await client.hgetall(STORE_KEY) == before


async def test_an_older_format_is_rejected_too(client, settings) -> None:
    await check_store(client, settings)
    await client.hset(STORE_KEY, "format", FORMAT_VERSION - 1)
    assert "run the release that wrote it" in await refusal(client, settings)


@pytest.mark.parametrize("newest", ["99.1.0", "0.1.1", "0.10.0"])
async def test_the_release_before_leaves_the_name_of_the_newest_one(client, settings, newest: str) -> None:
    """Both releases use one store in a rolling upgrade."""
    await check_store(client, settings)
    await client.hset(STORE_KEY, "release", newest)
    await check_store(client, settings)
    assert await client.hget(STORE_KEY, "release") == newest.encode()


async def test_a_format_that_is_raised_under_a_proxy_stops_it_and_nobody_else(start_proxy, client, settings) -> None:
    proxy = await start_proxy()
    await check_store(client, settings)
    await proxy.coordinator.create_logs(TOPIC, range(2))
    newer_proxy = coordinator_of(client, settings)
    await newer_layout(client)
    with structlog.testing.capture_logs() as logged:
        for _ in range(2):
            await proxy.watch.look()
    assert [entry["event"] for entry in logged] == ["store_unfit"]
    for ask in (commit(proxy.coordinator), proxy.coordinator.describe(TOPIC, [0])):
        with pytest.raises(CoordinatorUnavailable, match=rf"data of format {NEWER}.* run release 99\.1\.0"):
            await ask
    assert await commit(newer_proxy) == 0, "a proxy that knows the layout continues"
    await client.hset(STORE_KEY, "format", FORMAT_VERSION)
    await proxy.watch.look()
    assert await commit(proxy.coordinator) == 2


async def test_tools_and_jobs_reject_a_newer_format(client, settings, config_file: Path) -> None:
    await check_store(client, settings)
    await newer_layout(client)
    with pytest.raises(StoreUnfit, match=f"data of format {NEWER}"):
        async with open_stores(load_settings(config_file)):
            pass


@pytest.mark.parametrize("command", [("coordinator", "check"), ("coordinator", "unfence", "--all", "--yes")])
async def test_commands_end_with_one_line(start_proxy, client, settings, config_file: Path, command) -> None:
    await start_proxy()
    await check_store(client, settings)
    await newer_layout(client)
    before = {key: await client.dump(key) for key in await client.keys()}
    done = await asyncio.to_thread(CliRunner().invoke, app, [*command, "--config", str(config_file)])
    assert done.exit_code == 1
    (line,) = own_lines(done.stderr)
    assert line.startswith("error: redis.url ")
    assert line.endswith("run release 99.1.0, or use an empty store")
    assert {key: await client.dump(key) for key in await client.keys()} == before


# The store's content


async def test_a_topic_in_an_unknown_state_is_neither_live_nor_classic(start_proxy, client, settings) -> None:
    proxy = await start_proxy()
    registry = RedisTopicRegistry(client, settings)
    for name, topic_id in (("known", bytes([1] * 16)), ("newer", bytes([2] * 16))):
        await registry.reserve(name, 1, {}, "somebody")
        await registry.activate(name, topic_id, 1)
    entry = await client.hget(f"{REGISTRY_PREFIX}topics", "newer")
    await client.hset(f"{REGISTRY_PREFIX}topics", "newer", bytes([9]) + entry[1:])
    with structlog.testing.capture_logs() as logged:
        for _ in range(2):
            await proxy.topics.load()
    assert [(entry["event"], entry["topic"]) for entry in logged] == [("topic_of_newer_release", "newer")]
    assert {topic.name: topic.state for topic in proxy.topics.all()} == {"known": "live", "newer": UNKNOWN_STATE}
    assert proxy.topics.live_logs() == [(bytes([1] * 16), 0)]
    assert proxy.topics.find("newer") is not None, "so its records are not taken for those of a classic topic"


async def test_unknown_fields_of_a_newer_proxy_are_ignored(client) -> None:
    fleet = RedisFleetStore(client)
    await fleet.beat(ProxyRecord("newer", "rack-a", (), 3), 60_000)
    lease = await client.hget(f"{FLEET_PREFIX}leases", "newer")
    record_at = lease.index(b'{"')
    record = json.loads(lease[record_at:]) | {"speaks": ["tomorrow"]}
    await client.hset(f"{FLEET_PREFIX}leases", "newer", lease[:record_at] + json.dumps(record).encode())
    records = (await fleet.beat(ProxyRecord("own", "rack-b", (), 3), 60_000)).records
    assert [one.proxy_id for one in records] == ["newer", "own"]


# Object storage


async def put(storage: FileStorage, key: str, data: bytes) -> None:
    await storage.delete([key])
    await storage.upload(key, data, len(data))


async def test_an_identity_of_another_form_is_rejected(client, storage) -> None:
    await settle_identity(client, storage)
    await put(storage, IDENTITY_KEY, b"2 0123456789abcdef of a newer form")
    with pytest.raises(StoreUnfit, match=rf"{IDENTITY_KEY} has '2 .* run the release that wrote it") as refused:
        await settle_identity(client, storage)
    assert "\n" not in str(refused.value)


async def test_the_stored_state_of_a_newer_release_is_neither_ignored_nor_overwritten(start_proxy, storage) -> None:
    proxy = await start_proxy()
    await proxy.coordinator.create_logs(TOPIC, range(2))
    await proxy.watch.keep_known()
    key = keys_of(proxy.watch._side)[0]
    newer = json.dumps({"format": FORMAT + 1, "what": "nobody knows yet"}).encode()
    await put(storage, key, newer)
    await commit(proxy.coordinator)
    with pytest.raises(
        StoreUnfit,
        match=rf"{key} has format {FORMAT + 1}, but this release .* reads only "
        f"format {FORMAT}",
    ):
        await proxy.watch.keep_known()
    assert await storage.fetch(key) == newer
    with pytest.raises(StoreUnfit, match=f"{key} has format {FORMAT + 1}"):
        await start_proxy()
