"""A primary that lives on as a replica: it closes no connection, while the name in redis.url leads elsewhere."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from redis.asyncio import Redis

from proxy import config
from proxy.coordinator.connect import connect
from proxy.coordinator.interface import NO_PRODUCER_ID, Announcement, PartitionRun, ProposedBatch
from proxy.coordinator.redis import RedisCoordinator
from proxy.coordinator.registry import RedisTopicRegistry
from proxy.guard.remembered import read_sides
from proxy.guard.watch import StoreWatch
from proxy.topics.topics import Topics
from tests.integration.coordinator.conftest import Store
from tests.integration.coordinator.losses import LOSABLE, coordinator_of
from tests.integration.guard.conftest import Proxy
from tests.support.server_name import Name

TOPIC = bytes(range(16))
BATCH = ProposedBatch(100, 2, 1_000, NO_PRODUCER_ID, -1, -1)


@asynccontextmanager
async def proxy_at(url: str, storage, *, waits: bool = False) -> AsyncIterator[tuple[Proxy, Redis]]:
    settings = config.Redis(url=url, shards=1, settle_ms=0, timeout_ms=1_000, check_interval_ms=10)
    client = await connect(settings)
    try:
        coordinator = coordinator_of(client, settings)
        topics = Topics(RedisTopicRegistry(client, settings), lease_runs=lambda: True)
        watch = StoreWatch(settings, client, coordinator, storage, topics, lambda: True)
        if not waits:
            await watch.open()
        yield Proxy(coordinator, topics, watch), client
    finally:
        await client.aclose()


async def commit(coordinator: RedisCoordinator) -> int:
    (answer,) = await coordinator.commit(os.urandom(16), [PartitionRun(TOPIC, 0, 1, (BATCH,))])
    return answer.batches[0].base_offset if answer.batches else -1


async def replicaof(store: Store, *of: object) -> None:
    client = Redis(port=store.port)
    await client.execute_command("REPLICAOF", *of)
    await client.aclose()


async def write_and_promote(proxy: Proxy, client: Redis, new: Store) -> None:
    """Make a commit that both servers have, before they part."""
    await proxy.coordinator.create_logs(TOPIC, [0])
    assert await commit(proxy.coordinator) == 0
    assert await client.execute_command("WAIT", 1, 10_000) == 1
    await replicaof(new, "NO", "ONE")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 (nothing announces it)
            await asyncio.sleep(0.01)


@pytest.fixture
def pair(start_store: Callable[..., Store]) -> tuple[Store, Store]:
    primary = start_store(*LOSABLE)
    return primary, start_store("--replicaof", f"127.0.0.1 {primary.port}", "--repl-diskless-sync-delay", "0")


async def test_a_proxy_follows_the_name(pair: tuple[Store, Store], storage) -> None:
    old, new = pair
    async with Name(old.port) as name, proxy_at(name.url, storage) as (proxy, client):
        heard: list[Announcement | None] = []

        async def listen() -> None:
            async for announcement in proxy.coordinator.announcements():
                heard.append(announcement)  # noqa: PERF401 (it never ends)

        listening = asyncio.create_task(listen())
        await until(lambda: bool(heard))
        await write_and_promote(proxy, client, new)
        name.leads_to = new.port
        await replicaof(old, "127.0.0.1", new.port)
        await proxy.watch.look()
        assert "the server is a replica" in (proxy.watch.unfit or "")
        await proxy.watch.look()
        assert proxy.watch.unfit is None
        assert await commit(proxy.coordinator) == 2
        await until(lambda: heard.count(None) == 2)
        old.kill()
        assert await commit(proxy.coordinator) == 4
        await until(lambda: heard[-1] is not None and heard[-1].high_watermark == 6)
        assert heard.count(None) == 2, "it has not heard the last one by another reconnect"
        listening.cancel()


@pytest.mark.parametrize("hears", [True, False])
async def test_the_last_writes_of_the_old_primary_are_missed_however_much_was_written_since(
    pair: tuple[Store, Store], storage, hears: bool
) -> None:
    old, new = pair
    async with Name(old.port) as name, proxy_at(name.url, storage) as (proxy, client):
        await write_and_promote(proxy, client, new)
        assert await commit(proxy.coordinator) == 2, "of which the new primary never hears"
        async with proxy_at(new.url, storage) as (other, _):
            for number in range(3):
                assert await commit(other.coordinator) == 2 + 2 * number
            name.leads_to = new.port
            await replicaof(old, "127.0.0.1", new.port)
            if hears:
                (seen,) = await other.coordinator.shards.look()
                proxy.coordinator.fence.learn(0, seen.state)
            for _ in range(2):
                await proxy.watch.look()
            assert await commit(other.coordinator) == -1
            assert list(other.coordinator.fence.fenced) == [0]


async def test_a_write_that_is_known_only_from_an_announcement_is_missed(pair: tuple[Store, Store], storage) -> None:
    """The second server got the write and announced it; the third never had it, and its writer is dead."""
    old, new = pair
    async with Name(old.port) as name, proxy_at(name.url, storage) as (proxy, client):
        await write_and_promote(proxy, client, new)
        async with proxy_at(old.url, storage) as (writer, _):
            await client.execute_command("DEBUG", "CHANGE-REPL-ID")  # as after a start
            assert await commit(writer.coordinator) == 2
            (seen,) = await writer.coordinator.shards.look()
        proxy.coordinator.fence.learn(0, seen.state)
        assert proxy.coordinator.fence.newest(0).sequence < seen.state.sequence
        name.leads_to = new.port
        await replicaof(old, "127.0.0.1", new.port)
        for _ in range(2):
            await proxy.watch.look()
        assert await commit(proxy.coordinator) == -1


async def test_stored_knowledge_of_another_life_is_checked_before_it_is_removed(
    pair: tuple[Store, Store], storage
) -> None:
    """The proxy that knew is dead; its stored state is the only evidence of the loss."""
    old, new = pair
    async with proxy_at(old.url, storage) as (proxy, client):
        await write_and_promote(proxy, client, new)
        async with proxy_at(new.url, storage) as (other, _):
            assert await commit(proxy.coordinator) == 2
            await proxy.watch.keep_known()
            for number in range(3):
                assert await commit(other.coordinator) == 2 + 2 * number
            await other.watch.keep_known()
            assert list(other.coordinator.fence.fenced) == [0]
            assert await commit(other.coordinator) == -1
            sides = await read_sides(storage, other.watch._identity)
            assert sides[proxy.watch._side].shards[0] == proxy.coordinator.fence.newest(0), "it is still kept"


async def test_what_another_side_stores_meanwhile_is_not_removed(pair: tuple[Store, Store], storage) -> None:
    """This side has asked its store for the state that the other one had stored before."""
    old, new = pair
    async with proxy_at(old.url, storage) as (left, client), proxy_at(new.url, storage, waits=True) as (right, _):
        await write_and_promote(left, client, new)
        await right.watch.open()
        await left.watch.keep_known()
        ask_for = right.watch._ask_for

        async def slowly(sides: Any) -> list[str]:
            complete = await ask_for(sides)
            assert complete == [left.watch._side]
            assert await commit(left.coordinator) == 2
            await left.watch.keep_known()
            return complete

        right.watch._ask_for = slowly
        await right.watch.keep_known()
        sides = await read_sides(storage, left.watch._identity)
        assert sides[left.watch._side].shards[0] == left.coordinator.fence.newest(0)


@pytest.mark.parametrize("first", ["left", "right"])
async def test_both_of_two_primaries_learn_of_the_other_in_any_order(
    pair: tuple[Store, Store], storage, first: str
) -> None:
    """Their lease holders store their state at the same time, again and again.

    It does not matter which side wrote last.
    """
    old, new = pair
    async with proxy_at(old.url, storage) as (left, client), proxy_at(new.url, storage, waits=True) as (right, _):
        await write_and_promote(left, client, new)
        await right.watch.open()
        if first == "right":
            assert await commit(right.coordinator) == 2
        for number in range(3):
            assert await commit(left.coordinator) == 2 + 2 * number
        if first == "left":
            assert await commit(right.coordinator) == 2
        for _ in range(3):
            await asyncio.gather(left.watch.keep_known(), right.watch.keep_known())
        for side, count in ((left, "1 of its writes are gone, with 2"), (right, "3 of its writes are gone, with 6")):
            assert count in side.coordinator.fence.fenced[0]
            assert await commit(side.coordinator) == -1


async def test_the_state_of_a_server_that_is_gone_is_removed_once_the_store_has_all_of_it(
    pair: tuple[Store, Store], storage
) -> None:
    old, new = pair
    async with proxy_at(old.url, storage) as (proxy, client):
        await write_and_promote(proxy, client, new)
        await proxy.watch.keep_known()
        async with proxy_at(new.url, storage) as (other, _):
            assert await commit(other.coordinator) == 2
            await other.watch.keep_known()
            assert (await read_sides(storage, other.watch._identity)).keys() == {other.watch._side}
