"""A deployment has one journal, and a journal has one deployment: the note in object storage says which."""

from __future__ import annotations

import pytest
from redis.asyncio import Redis

from proxy import config
from proxy.coordinator.connect import StoreUnfit
from proxy.coordinator.registry import RedisTopicRegistry
from proxy.guard.journal_identity import JOURNAL_KEY, check_no_journal, settle_journal
from proxy.storage.interface import ObjectStorage
from tests.support.memory_journal import MemoryJournal

PARTITIONS = 4


async def test_the_first_proxy_notes_the_journal_and_others_agree(client: Redis, storage: ObjectStorage) -> None:
    journal = MemoryJournal()
    await check_no_journal(storage)
    await settle_journal(client, storage, journal, PARTITIONS)
    await journal.append(3, b"a record")
    await settle_journal(client, storage, journal, PARTITIONS)
    assert bytes(await storage.fetch(JOURNAL_KEY, 0, 100)) == journal.identity.hex().encode()
    with pytest.raises(StoreUnfit, match="has a journal"):
        await check_no_journal(storage)


async def test_a_journal_of_another_deployment_is_rejected(client: Redis, storage: ObjectStorage) -> None:
    journal = MemoryJournal()
    await journal.append(0, b"a record")
    with pytest.raises(StoreUnfit, match="another deployment's"):
        await settle_journal(client, storage, journal, PARTITIONS)


async def test_a_recreated_journal_is_rejected(client: Redis, storage: ObjectStorage) -> None:
    await settle_journal(client, storage, MemoryJournal(), PARTITIONS)
    with pytest.raises(StoreUnfit, match="recreated"):
        await settle_journal(client, storage, MemoryJournal(), PARTITIONS)


async def test_a_store_that_was_written_without_a_journal_is_rejected(
    client: Redis, storage: ObjectStorage, settings: config.Redis
) -> None:
    await RedisTopicRegistry(client, settings).reserve("a", 1, {}, "me")
    with pytest.raises(StoreUnfit, match="begun without a journal"):
        await settle_journal(client, storage, MemoryJournal(), PARTITIONS)


async def test_a_proxy_that_starts_at_the_same_time_is_not_taken_for_a_stranger(
    client: Redis, storage: ObjectStorage
) -> None:
    journal = MemoryJournal()
    end = journal.end

    async def end_after_the_other_one_has_begun(partition: int) -> int:
        if not journal.records[0]:
            other = MemoryJournal()
            other.identity = journal.identity
            await settle_journal(client, storage, other, PARTITIONS)
            await journal.append(0, b"a record")
        return await end(partition)

    journal.end = end_after_the_other_one_has_begun  # type: ignore[method-assign]
    await settle_journal(client, storage, journal, PARTITIONS)
