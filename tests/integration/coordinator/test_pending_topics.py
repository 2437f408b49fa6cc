"""Stored wishes of topics that lack replicas, on the real store."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from redis.asyncio import Redis

from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_registry import NO_TOPIC_ID
from proxy.creation.replication import store as module
from proxy.creation.replication.interface import Pending
from proxy.creation.replication.store import RedisPendingTopics

ID = b"\xff\x00" * 8


@pytest.fixture
def pending_topics(client: Redis) -> RedisPendingTopics:
    return RedisPendingTopics(client, lambda: "cluster")


def wish(pending_id: str, since_ms: int = 1, **values) -> Pending:
    return Pending(pending_id, "töpic", 3, 2, since_ms, **values)


async def test_the_life_of_a_wish(pending_topics: RedisPendingTopics) -> None:
    assert await pending_topics.all() == ()
    intent, other = wish("1", 2, owner="öwner", shadow=True), wish("2", 1)
    await pending_topics.remember([intent, other])
    assert await pending_topics.all() == (other, intent)
    bound = await pending_topics.bind(intent, ID)
    assert bound == replace(intent, topic_id=ID)
    assert intent.is_intent
    assert not bound.is_intent
    assert await pending_topics.all() == (other, bound)
    await pending_topics.forget([intent, other])
    assert await pending_topics.all() == ()
    await pending_topics.forget([intent])
    await pending_topics.forget([])


async def test_an_exact_assignment_is_kept_as_it_was_asked_for(pending_topics: RedisPendingTopics) -> None:
    exact = replace(wish("1"), replication_factor=0, assignment=((3, 1), (2, 3)), first_partition=4)
    await pending_topics.remember([exact])
    (kept,) = await pending_topics.all()
    assert kept == exact
    assert kept.topic_id == NO_TOPIC_ID
    assert [kept.wanted(partition) for partition in (3, 4, 5, 6)] == [None, (3, 1), (2, 3), None]
    assert wish("2").wanted(0) == wish("2").wanted(99) == 3


async def test_a_removed_wish_can_be_bound_and_an_existing_one_replaced(
    pending_topics: RedisPendingTopics,
) -> None:
    await pending_topics.bind(wish("1"), ID)
    await pending_topics.remember([wish("1", 5)])
    assert await pending_topics.all() == (wish("1", 5),)


async def test_only_an_unchanged_wish_is_replaced(client: Redis, pending_topics: RedisPendingTopics) -> None:
    await pending_topics.remember([wish("1")])
    (key,) = await client.keys("*replication*")
    packed = await client.hget(key, "1")
    await client.hset(key, "1", packed[:-1] + b', "colour": "red"}')  # by a newer release
    raised = replace(wish("1"), made_replicas=3)
    assert await pending_topics.change(wish("1"), raised)
    assert await pending_topics.all() == (raised,)
    assert not await pending_topics.change(wish("1"), replace(wish("1"), made_replicas=4))
    assert await pending_topics.all() == (raised,)
    await pending_topics.forget([raised])
    assert not await pending_topics.change(raised, wish("1"))
    assert await pending_topics.all() == ()


async def test_a_wish_that_is_removed_just_before_a_change_stays_removed(
    client: Redis, pending_topics: RedisPendingTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    await pending_topics.remember([wish("1")])
    evaluate = client.evalsha

    async def forget_first(*arguments: Any) -> Any:
        await pending_topics.forget([wish("1")])
        return await evaluate(*arguments)

    monkeypatch.setattr(client, "evalsha", forget_first)
    assert not await pending_topics.change(wish("1"), replace(wish("1"), made_replicas=3))
    assert await pending_topics.all() == ()


async def test_clusters_share_nothing(client: Redis, pending_topics: RedisPendingTopics) -> None:
    await pending_topics.remember([wish("1")])
    assert await RedisPendingTopics(client, lambda: "another").all() == ()


async def test_without_the_clusters_id_nothing_is_written(client: Redis) -> None:
    with pytest.raises(CoordinatorUnavailable, match="cluster's ID"):
        await RedisPendingTopics(client, lambda: "").remember([wish("1")])
    assert await client.keys("*replication*") == []


async def test_the_number_of_wishes_is_limited(
    pending_topics: RedisPendingTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_PENDING", 2)
    await pending_topics.remember([wish("1"), wish("2")])
    with pytest.raises(CoordinatorUnavailable, match="at most 2"):
        await pending_topics.remember([wish("3")])
    assert len(await pending_topics.all()) == 2


async def test_the_bytes_of_wishes_are_limited(
    pending_topics: RedisPendingTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = replace(wish("large"), assignment=((1, 2, 3),) * 1_000)
    await pending_topics.remember([large])
    size = len(module._pack(large))
    monkeypatch.setattr(module, "MAX_BYTES", 2 * size)
    await pending_topics.remember([wish("small")])
    with pytest.raises(CoordinatorUnavailable, match="bytes"):
        await pending_topics.remember([replace(large, pending_id="2nd")])
    await pending_topics.remember([wish("small too")])
    assert {one.pending_id for one in await pending_topics.all()} == {"large", "small", "small too"}
    monkeypatch.setattr(module, "MAX_BYTES", 3 * size)
    await pending_topics.remember([replace(large, pending_id="2nd")])


async def test_fields_of_a_newer_release_are_left_out(client: Redis, pending_topics: RedisPendingTopics) -> None:
    await pending_topics.remember([wish("1")])
    (key,) = await client.keys("*replication*")
    packed = await client.hget(key, "1")
    await client.hset(key, "1", packed[:-1] + b', "colour": "red"}')
    assert await pending_topics.all() == (wish("1"),)


async def test_a_missing_store_is_reported(client: Redis, pending_topics: RedisPendingTopics) -> None:
    await client.config_set("maxmemory", "1")
    try:
        with pytest.raises(CoordinatorUnavailable, match="out of memory"):
            await pending_topics.remember([wish("1")])
    finally:
        await client.config_set("maxmemory", "0")
