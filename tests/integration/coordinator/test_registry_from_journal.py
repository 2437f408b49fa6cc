"""The registry, read from the journal, is what the scripts make of it in the store."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress

import pytest
from redis.asyncio import Redis

from proxy import config
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_registry import NO_TOPIC_ID, RegistryChange, RegistryChanged, TopicReserved
from proxy.coordinator.registry import RedisTopicRegistry
from proxy.coordinator.registry_from_journal import RegistryFromJournal
from proxy.coordinator.view import View
from tests.support.memory_journal import MemoryJournal
from tests.support.memory_snapshots import MemorySnapshots

NAMES = ("orders", "Ünicode")
IDS = (b"1" * 16, b"2" * 16)
OWNERS = ("öwner", "another")
CHANGES_PER_HISTORY = 60
TRIMS_PER_HISTORY = 3


async def change(registry: RedisTopicRegistry, chance: random.Random) -> None:
    """Call one operation, with arguments that fit now and then."""
    name, topic_id, owner = chance.choice(NAMES), chance.choice(IDS), chance.choice(OWNERS)
    read = (await registry.load()).change
    if not chance.randrange(3):
        read = RegistryChange(read.version - 1)
    with suppress(TopicReserved, RegistryChanged, CoordinatorUnavailable):
        match chance.randrange(5):
            case 0:
                await registry.reserve(name, chance.randrange(1, 5), {"retention.ms": str(chance.randrange(3))}, owner)
            case 1:
                await registry.activate(name, topic_id, chance.randrange(1, 5))
            case 2:
                await registry.configure(name, read, {"retention.ms": str(chance.randrange(3))})
            case 3:
                await registry.begin_delete(name, chance.choice((b"", topic_id)))
            case 4:
                await registry.remove(name, chance.choice((b"", topic_id, NO_TOPIC_ID)), chance.choice(("", owner)))


@pytest.mark.parametrize("seed", range(4))
async def test_a_history_gives_the_same_registry(
    client: Redis, settings: config.Redis, journal: MemoryJournal, seed: int
) -> None:
    chance, snapshots = random.Random(seed), MemorySnapshots()
    view = View(client, settings, journal, snapshots)
    registry = RedisTopicRegistry(client, settings, view=view)

    def reader() -> RegistryFromJournal:
        return RegistryFromJournal(journal, view.registry, snapshots, lambda position: None)

    follows = reader()
    for number in range(CHANGES_PER_HISTORY):
        await change(registry, chance)
        if number % (CHANGES_PER_HISTORY // TRIMS_PER_HISTORY) == 0:
            copied = await snapshots.take(view, view.registry)
            if copied is not None:
                journal.starts[view.registry] = copied.position
        for one in (follows, *([] if number % 5 else [reader()])):
            found = await one.read()
            stored = await registry.load()
            assert (found, found.mark) == (stored, stored.mark)
    assert found.version > CHANGES_PER_HISTORY // 10, "few operations changed anything"


async def test_a_change_that_the_store_does_not_have_yet_counts(
    client: Redis, settings: config.Redis, journal: MemoryJournal, make_registry_view: Callable[[], RedisTopicRegistry]
) -> None:
    """A proxy has appended the reservation, and has ended before it applied that."""
    view = View(client, settings, journal)
    registry = RedisTopicRegistry(client, settings, view=view)
    await registry.reserve("orders", 1, {}, "öwner")
    await client.flushall()
    await make_registry_view().load()
    journal.records[view.registry].append(journal.records[view.registry][0]._replace(position=1))
    reader = RegistryFromJournal(journal, view.registry, None, lambda position: view.require(view.registry, position))
    await client.flushall()
    found = await reader.read()
    assert [topic.name for topic in found.topics] == ["orders"]
    assert await registry.load() == found, "the store is brought up to what this proxy knows"


async def test_a_record_of_a_newer_release_is_not_passed_over(
    client: Redis, settings: config.Redis, journal: MemoryJournal
) -> None:
    view = View(client, settings, journal)
    reader = RegistryFromJournal(journal, view.registry, None, lambda position: None)
    await reader.read()
    await journal.append(view.registry, b"\xff" * 20)
    with pytest.raises(CoordinatorUnavailable, match="format 255"):
        await reader.read()


async def test_without_the_journal_it_is_unavailable(
    client: Redis, settings: config.Redis, journal: MemoryJournal
) -> None:
    reader = RegistryFromJournal(journal, settings.shards, None, lambda position: None)
    journal.away = "no leader"
    with pytest.raises(CoordinatorUnavailable, match="no leader"):
        await reader.read()
