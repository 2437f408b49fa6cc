"""The knowledge of restarted proxies about the past, and their reaction when the store stops being fit."""

from __future__ import annotations

import asyncio
import os

import pytest
import structlog

from proxy.coordinator.connect import StoreUnfit, renew
from proxy.coordinator.interface import NO_PRODUCER_ID, CoordinatorUnavailable, PartitionRun, ProposedBatch
from proxy.coordinator.redis import RedisCoordinator
from proxy.guard.identity import IDENTITY_KEY, settle_identity, store_identity, stored_identity
from proxy.guard.remembered import keys_of, read_remembered
from proxy.storage.interface import StorageError
from tests.integration.coordinator.losses import coordinator_of

TOPIC = bytes(range(16))
BATCH = ProposedBatch(100, 2, 1_000, NO_PRODUCER_ID, -1, -1)


async def commit(coordinator: RedisCoordinator) -> int:
    (answer,) = await coordinator.commit(os.urandom(16), [PartitionRun(TOPIC, 0, 1, (BATCH,))])
    return answer.batches[0].base_offset if answer.batches else -1


# Identity


async def test_store_and_storage_get_one_identity_in_any_order(client, storage, settings) -> None:
    identities = await asyncio.gather(*(settle_identity(client, storage) for _ in range(5)))
    assert len(set(identities)) == 1
    assert await store_identity(client) == (identities[0], True)
    assert await stored_identity(storage) == identities[0]


class Dies(Exception):
    """Stands for a proxy's death."""


@pytest.mark.parametrize("step", range(1, 8))
async def test_an_identity_can_be_completed_after_its_writer_died(client, storage, step: int, monkeypatch) -> None:
    left = step

    def mortal(owner: object, name: str) -> None:
        alive = getattr(owner, name)

        async def call(*arguments: object) -> object:
            nonlocal left
            left -= 1
            if not left:
                raise Dies
            return await alive(*arguments)

        monkeypatch.setattr(owner, name, call)

    for owner, name in (
        (client, "hmget"),
        (client, "hset"),
        (client, "hsetnx"),
        (storage, "fetch"),
        (storage, "upload"),
    ):
        mortal(owner, name)
    with pytest.raises(Dies):
        await settle_identity(client, storage)
    monkeypatch.undo()
    identity = await settle_identity(client, storage)
    assert await store_identity(client) == (identity, True)
    assert await stored_identity(storage) == identity


async def test_another_stores_objects_are_rejected(client, storage, losses) -> None:
    await settle_identity(client, storage)
    losses.empty()
    with pytest.raises(StoreUnfit, match=r"redis\.url leads to a store without data .* unfence --all"):
        await settle_identity(client, storage)
    assert await store_identity(client) == (None, False), "nothing may make it look like the right one"
    await client.hset("diskless:{registry}:store", "identity", "another")
    with pytest.raises(StoreUnfit, match="don't belong together: the store has identity another"):
        await settle_identity(client, storage)


async def test_storage_without_the_stores_objects_is_rejected(client, storage) -> None:
    await settle_identity(client, storage)
    await storage.delete([IDENTITY_KEY])
    with pytest.raises(StoreUnfit, match=r"storage\.url has no objects of this store .* fix storage\.url"):
        await settle_identity(client, storage)


async def test_storage_that_can_not_be_written_is_no_verdict(client, storage, monkeypatch) -> None:
    async def refuse(*_: object) -> None:
        raise StorageError("no")

    monkeypatch.setattr(storage, "upload", refuse)
    with pytest.raises(StorageError, match="can't be written"):
        await settle_identity(client, storage)


# The stored state


async def test_a_restarted_proxy_knows_what_others_knew(start_proxy, losses) -> None:
    first = await start_proxy()
    await first.coordinator.create_logs(TOPIC, range(4))
    copy = losses.copy()
    assert await commit(first.coordinator) == 0
    await first.watch.keep_known()
    losses.restore(copy)
    second = await start_proxy()
    assert len(second.coordinator.fence.fenced) == 1, "the other shard has lost nothing"
    assert await commit(second.coordinator) == -1


async def test_a_restarted_proxy_notices_a_registry_that_lost_changes(start_proxy, losses) -> None:
    first = await start_proxy()
    copy = losses.copy()
    await first.topics.registry.reserve("a", 1, {}, "somebody")
    await first.topics.load()
    await first.watch.keep_known()
    losses.restore(copy)
    second = await start_proxy()
    assert second.topics.gone_back
    await first.topics.load()
    assert first.topics.gone_back
    await first.topics.registry.accept_loss(first.topics.version)
    for one in (first, second):
        await one.watch.look()
        assert not one.topics.gone_back
        assert one.topics.find("a") is None


async def test_a_registry_whose_newest_data_is_back_is_trusted_again(start_proxy, losses) -> None:
    proxy = await start_proxy()
    old = losses.copy()
    await proxy.topics.registry.reserve("a", 1, {}, "somebody")
    await proxy.topics.load()
    newest = losses.copy()
    losses.restore(old)
    await proxy.topics.load()
    assert proxy.topics.gone_back
    losses.restore(newest)
    await proxy.watch.look()
    assert not proxy.topics.gone_back


async def test_all_starts_and_restarts_of_a_healthy_store_fence_nothing(start_proxy, losses) -> None:
    proxy = await start_proxy()
    await proxy.coordinator.create_logs(TOPIC, range(4))
    for number in range(5):
        assert await commit(proxy.coordinator) == 2 * number
        await proxy.watch.look()
        await proxy.watch.keep_known()
        losses.restore(losses.copy())
        proxy = await start_proxy()
    assert not proxy.coordinator.fence.fenced
    assert proxy.watch.unfit is None


async def test_the_state_is_stored_while_the_lease_is_held(start_proxy, storage, client) -> None:
    proxy = await start_proxy()
    await proxy.coordinator.create_logs(TOPIC, range(4))
    watching = asyncio.create_task(proxy.watch.keep_watching())
    identity = await stored_identity(storage) or ""

    async def kept() -> None:
        while (await read_remembered(storage, identity)).shards != proxy.coordinator.fence.states():  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async with asyncio.timeout(20):
        await kept()
        await commit(proxy.coordinator)
        await kept()
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching
    assert {stored.key async for stored in storage.objects()} == {IDENTITY_KEY, *keys_of(proxy.watch._side)}


# A store that stops being fit


@pytest.mark.parametrize(
    ("setting", "wrong", "right"),
    [
        ("maxmemory-policy", "allkeys-lru", "noeviction"),
        ("appendonly", "no", "yes"),
        ("appendfsync", "no", "everysec"),
    ],
)
async def test_settings_that_become_wrong_stop_commits_until_they_are_fixed(
    start_proxy, client, setting: str, wrong: str, right: str
) -> None:
    proxy = await start_proxy()
    await proxy.coordinator.create_logs(TOPIC, range(4))
    await client.config_set(setting, wrong)
    try:
        with structlog.testing.capture_logs() as logged:
            for _ in range(3):
                await proxy.watch.look()
                with pytest.raises(CoordinatorUnavailable, match=f"{setting} is {wrong}.* set it to"):
                    await commit(proxy.coordinator)
    finally:
        await client.config_set(setting, right)
    assert [entry["event"] for entry in logged] == ["store_unfit"]
    await proxy.watch.look()
    assert await commit(proxy.coordinator) == 0


async def test_a_command_that_the_store_rejects_while_proxies_run_is_named(start_proxy, client) -> None:
    proxy = await start_proxy()
    await proxy.coordinator.create_logs(TOPIC, range(4))
    await client.execute_command("ACL", "SETUSER", "default", "-zadd")
    try:
        with pytest.raises(CoordinatorUnavailable, match=r"rejects a command .*zadd"):
            await commit(proxy.coordinator)
        await proxy.watch.look()
        assert "the store rejects ZADD" in (proxy.watch.unfit or "")
        with pytest.raises(CoordinatorUnavailable, match="the store rejects ZADD"):
            await commit(proxy.coordinator)
    finally:
        await client.execute_command("ACL", "SETUSER", "default", "+@all")
    await proxy.watch.look()
    assert proxy.watch.unfit is None
    assert await commit(proxy.coordinator) == -1, "the shard is fenced: its commit stopped halfway"


async def test_the_commands_of_another_server_are_tried_before_it_is_written_to(start_proxy, client, losses) -> None:
    proxy = await start_proxy()
    await proxy.coordinator.create_logs(TOPIC, range(4))
    copy = losses.copy()
    try:
        await client.execute_command("ACL", "SETUSER", "default", "-append")
        await proxy.watch.look()
        assert proxy.watch.unfit is None, "nothing has changed as far as this proxy can know"
        losses.restore(copy)
        await proxy.watch.look()
        assert "the store rejects APPEND" in (proxy.watch.unfit or "")
    finally:
        await client.execute_command("ACL", "SETUSER", "default", "+@all")
    await proxy.watch.look()
    assert await commit(proxy.coordinator) == 0


async def test_a_store_that_was_replaced_by_another_one(start_proxy, client, losses) -> None:
    proxy = await start_proxy()
    losses.empty()
    await proxy.watch.look()
    assert "the store has identity None" in str(proxy.watch.unfit)
    with pytest.raises(CoordinatorUnavailable, match="it was emptied"):
        await proxy.coordinator.create_logs(TOPIC, range(4))


async def test_checks_continue_while_object_storage_hangs(start_proxy, losses, storage, monkeypatch) -> None:
    proxy = await start_proxy()
    await proxy.coordinator.create_logs(TOPIC, range(4))
    hangs = asyncio.Event()

    async def hang(*_: object) -> None:
        hangs.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(storage, "fetch", hang)
    watching = asyncio.create_task(proxy.watch.keep_watching())
    async with asyncio.timeout(20):
        await hangs.wait()
        losses.empty()
        while not proxy.coordinator.fence.fenced:  # noqa: ASYNC110 (nothing announces it)
            await asyncio.sleep(0.01)
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching


async def test_the_store_of_another_deployment_is_left_alone_and_not_read(
    start_proxy, losses, client, settings
) -> None:
    proxy = await start_proxy()
    await proxy.coordinator.create_logs(TOPIC, range(4))
    own = losses.copy()
    losses.empty()
    await client.hset("diskless:{registry}:store", "identity", "0b" * 16)
    healthy = coordinator_of(client, settings)
    await healthy.create_logs(TOPIC, range(4))
    await proxy.watch.look()
    assert f"the store has identity {'0b' * 16}" in (proxy.watch.unfit or "")
    with pytest.raises(CoordinatorUnavailable, match="leads to the store of another deployment"):
        await proxy.coordinator.describe(TOPIC, [0])
    assert await commit(healthy) == 0
    losses.restore(own)
    await proxy.watch.look()
    assert proxy.watch.unfit is None
    assert await commit(proxy.coordinator) == 0


async def test_a_renewed_connection_carries_no_further_call(client) -> None:
    await asyncio.gather(*(client.ping() for _ in range(5)))
    before = {int(one["id"]) for one in await client.client_list()}
    assert len(before) > 1
    await renew(client)
    after = await asyncio.gather(*(client.client_id() for _ in range(10)))
    assert not before & set(after)
