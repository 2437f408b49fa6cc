"""A registry that has lost a change is noticed, even if another change has got the same version since."""

from __future__ import annotations

import asyncio
import struct

import pytest

from proxy.coordinator.fleet_store import RedisFleetStore
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_fleet import ProxyRecord
from proxy.coordinator.interface_registry import NO_CHANGE, RegistryChange
from proxy.coordinator.registry import RedisTopicRegistry
from proxy.coordinator.shards import partition_key, shard_of, shard_prefix
from tests.integration.coordinator.losses import coordinator_of

ONE = b"1" * 16


async def with_a_live_topic(start_proxy):
    """Return two proxies that have loaded the same registry."""
    first, second = await start_proxy(), await start_proxy()
    await first.topics.registry.reserve("a", 1, {"retention.ms": "3600000"}, "somebody")
    await first.topics.registry.activate("a", ONE, 1)
    for one in (first, second):
        await one.topics.load()
    return first, second


async def test_another_change_of_the_same_version_is_another_change(start_proxy, losses) -> None:
    first, second = await with_a_live_topic(start_proxy)
    copy = losses.copy()
    await first.topics.registry.configure("a", first.topics.change, {"retention.ms": "7200000"})
    await first.topics.load()
    losses.restore(copy)
    await second.topics.registry.configure("a", second.topics.change, {"retention.ms": "-1"})
    await second.topics.load()
    assert first.topics.version == second.topics.version
    await first.topics.look_again()
    assert first.topics.gone_back, "it must not keep house by configs that were replaced"
    await second.topics.load()
    assert second.topics.gone_back, "the registry is fenced for all"
    with pytest.raises(CoordinatorUnavailable, match=r"is fenced: a proxy knows its change 3, .* coordinator unfence"):
        await second.topics.registry.reserve("b", 1, {}, "somebody")
    await second.topics.registry.accept_loss(1_000_003)
    for one in (first, second):
        await one.watch.look()
        assert not one.topics.gone_back
        topic = one.topics.find("a")
        assert topic is not None
        assert topic.configs == {"retention.ms": "-1"}


async def test_configs_that_were_read_before_a_loss_are_not_written_after_it(start_proxy, losses) -> None:
    first, second = await with_a_live_topic(start_proxy)
    copy = losses.copy()
    await first.topics.registry.reserve("b", 1, {}, "somebody")
    read = (await first.topics.registry.load()).change
    losses.restore(copy)
    await second.topics.registry.reserve("c", 1, {}, "somebody")
    with pytest.raises(CoordinatorUnavailable, match="is fenced"):
        await first.topics.registry.configure("a", read, {"retention.ms": "-1"})


async def test_a_name_that_was_reserved_after_a_loss_is_acknowledged_by_no_proxy_that_knows_another_past(
    start_proxy, losses, client
) -> None:
    first, second = await with_a_live_topic(start_proxy)
    fleet = RedisFleetStore(client)
    copy = losses.copy()
    await first.topics.registry.reserve("lost", 1, {}, "somebody")
    await first.topics.load()
    losses.restore(copy)
    await second.topics.registry.reserve("orders", 1, {}, "somebody")
    await second.topics.load()
    records = [
        ProxyRecord(name, "rack-a", (), one.topics.version, registry_mark=one.topics.change.mark.hex())
        for name, one in (("first", first), ("second", second))
    ]
    await fleet.beat(records[0], 60_000)
    beaten = (await fleet.beat(records[1], 60_000)).records
    assert [record.registry_version for record in beaten] == [-1, second.topics.version]
    await first.topics.load()
    assert not first.topics.surely_classic("orders")


async def test_older_changes_of_the_same_past_are_known(start_proxy, client) -> None:
    first, _ = await with_a_live_topic(start_proxy)
    old = first.topics.change
    for name in ("b", "c"):
        await first.topics.registry.reserve(name, 1, {}, "somebody")
    record = ProxyRecord("old", "rack-a", (), old.version, registry_mark=old.mark.hex())
    assert (await RedisFleetStore(client).beat(record, 60_000)).records == (record,)
    assert (await first.topics.registry.load(old)).why_fenced == ""
    assert (await first.topics.registry.load(NO_CHANGE)).why_fenced == ""
    assert (await first.topics.registry.load(old._replace(mark=b"anothers"), looks=True)).why_fenced != ""
    assert (await first.topics.registry.load()).why_fenced == "", "a look notes nothing"


async def test_a_server_that_was_promoted_takes_no_change_before_proxies_said_what_they_know(
    start_proxy, losses, client, settings
) -> None:
    first, _ = await with_a_live_topic(start_proxy)
    copy = losses.copy()
    await first.topics.registry.reserve("lost", 1, {}, "somebody")
    await first.topics.load()
    losses.restore(copy)
    stranger = RedisTopicRegistry(client, settings.model_copy(update={"settle_ms": 2_000}))
    change = asyncio.create_task(stranger.reserve("b", 1, {}, "somebody"))
    while not await client.hexists("diskless:{registry}:meta", "settling"):  # noqa: ASYNC110 (nothing announces it)
        await asyncio.sleep(0.01)
    await first.watch.look()
    with pytest.raises(CoordinatorUnavailable, match="is fenced"):
        await change
    assert "b" not in {topic.name for topic in (await stranger.load()).topics}


async def test_a_promotion_that_lost_nothing_only_takes_a_while(start_proxy, losses, client, settings) -> None:
    first, _ = await with_a_live_topic(start_proxy)
    losses.restore(losses.copy())
    stranger = RedisTopicRegistry(client, settings.model_copy(update={"settle_ms": 50}))
    await first.watch.look()
    assert await stranger.reserve("b", 1, {}, "somebody") == 3
    assert await stranger.reserve("c", 1, {}, "somebody") == 4
    assert not first.topics.gone_back


async def test_the_registry_of_another_deployment_is_not_fenced(start_proxy, losses, client) -> None:
    first, _ = await with_a_live_topic(start_proxy)
    losses.empty()
    await client.hset("diskless:{registry}:store", "identity", "0b" * 16)
    with pytest.raises(CoordinatorUnavailable, match="leads to the store of another deployment"):
        await first.topics.load()
    assert not await client.hexists("diskless:{registry}:meta", "fenced")


async def test_a_registry_that_was_emptied_is_fenced(start_proxy, losses, client, settings) -> None:
    first, _ = await with_a_live_topic(start_proxy)
    losses.empty()
    await first.topics.load()
    assert first.topics.gone_back
    assert first.topics.find("a") is not None, "what is known stays known"
    with pytest.raises(CoordinatorUnavailable, match="is fenced"):
        await RedisTopicRegistry(client, settings).reserve("b", 1, {}, "somebody")


@pytest.mark.parametrize("command", ["spublish", "hset", "hdel"])
async def test_a_change_that_stopped_halfway_loses_no_topic(start_proxy, client, command: str) -> None:
    first, _ = await with_a_live_topic(start_proxy)
    registry = first.topics.registry
    await client.execute_command("ACL", "SETUSER", "default", f"-{command}")
    try:
        for change in (
            registry.configure("a", first.topics.change, {"retention.ms": "-1"}),
            registry.begin_delete("a", ONE),
        ):
            with pytest.raises(CoordinatorUnavailable):
                await change
    finally:
        await client.execute_command("ACL", "SETUSER", "default", "+@all")
    assert [topic.name for topic in (await registry.load()).topics] == ["a"]


async def test_the_mark_of_a_change_is_remembered_in_object_storage(start_proxy, losses) -> None:
    first, second = await with_a_live_topic(start_proxy)
    copy = losses.copy()
    await first.topics.registry.reserve("lost", 1, {}, "somebody")
    await first.topics.load()
    await first.watch.keep_known()
    losses.restore(copy)
    await second.topics.registry.reserve("b", 1, {}, "somebody")
    third = await start_proxy()
    assert isinstance(third.topics.remembered, RegistryChange)
    assert third.topics.remembered.version == third.topics.version
    assert third.topics.gone_back


async def test_a_clock_that_is_set_back_makes_no_settling_period_longer(start_proxy, losses, client, settings) -> None:
    await with_a_live_topic(start_proxy)
    losses.restore(losses.copy())
    life = (await client.info("replication"))["master_replid"][:16]
    seconds, _ = await client.time()
    an_hour_ahead = life.encode() + ((seconds + 3_600) * 1000).to_bytes(8, "big")
    shard = shard_of(partition_key(ONE, 0), settings.shards)
    state = struct.pack(">8sQI5Q40s", b"incarnat", 0, settings.shards, *[0] * 5, bytes(40))
    await client.hset("diskless:{registry}:meta", "settling", an_hour_ahead)
    await client.hset(shard_prefix(shard) + "meta", mapping={"settling": an_hour_ahead, "state": state})
    changed = settings.model_copy(update={"settle_ms": 50})
    assert await RedisTopicRegistry(client, changed).reserve("b", 1, {}, "somebody") == 3
    await coordinator_of(client, changed).create_logs(ONE, [0])
