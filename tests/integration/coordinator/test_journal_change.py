"""A journal begins with the data of a store, and ends; commands that were broken off anywhere are repeated."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from redis.asyncio import Redis

from proxy import config
from proxy.config import Settings
from proxy.coordinator import adoption, scripts
from proxy.coordinator.connect import StoreUnfit
from proxy.coordinator.interface import CoordinatorUnavailable, FindRequest, PartitionRun
from proxy.coordinator.redis import RedisCoordinator
from proxy.coordinator.registry import RedisTopicRegistry
from proxy.coordinator.shards import STORE_KEY, shard_prefix
from proxy.guard.identity import settle_identity, store_identity
from proxy.guard.journal_change import FIRST, Change, begin_journal, end_journal, restore
from proxy.guard.journal_identity import check_no_journal, settle_journal, stored_journal
from proxy.guard.remembered import Remembered, read_sides, remember
from proxy.protocol.errors import KAFKA_STORAGE_ERROR
from proxy.snapshots.snapshotter import Snapshotter
from proxy.snapshots.stored import FOLDER, StoredSnapshots
from proxy.storage.file import FileStorage
from proxy.storage.interface import Buffer
from tests.integration.coordinator.contract import TOPIC, commit, idempotent, plain, reported
from tests.support.memory_journal import MemoryJournal

SHARDS = 3
GAP = 1000
PARTITIONS = 20
"""Partitions of the topic: they are in two of the shards; the third one is empty."""


class BrokenOff(Exception):
    """The command was killed."""


class Steps:
    """Counts what a command changes, and breaks it off before one of these steps."""

    def __init__(self) -> None:
        self.left: int | None = None

    def take(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise BrokenOff


class Storage(FileStorage):
    steps: Steps

    async def upload(self, key: str, data: Buffer, length: int) -> None:
        self.steps.take()
        await super().upload(key, data, length)

    async def delete(self, keys: Sequence[str]) -> None:
        self.steps.take()
        await super().delete(keys)


class SteppedJournal(MemoryJournal):
    def __init__(self, steps: Steps) -> None:
        super().__init__()
        self.steps = steps

    async def append(self, partition: int, value: bytes) -> Any:
        self.steps.take()
        return await super().append(partition, value)

    async def trim(self, partition: int, before: int) -> int:
        self.steps.take()
        return await super().trim(partition, before)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    steps, run = Steps(), scripts.run

    async def stepped(*arguments: Any) -> Any:
        steps.take()
        return await run(*arguments)

    monkeypatch.setattr(adoption, "scripts", SimpleNamespace(run=stepped, Call=scripts.Call))
    return steps


@pytest.fixture
async def storage(tmp_path: Path, client: Redis, steps: Steps) -> AsyncIterator[Storage]:
    directory = tmp_path / "bucket"
    directory.mkdir()
    storage = Storage(config.Storage(url=directory.as_uri()))
    storage.steps = steps
    await storage.open()
    await settle_identity(client, storage)
    yield storage
    await storage.close()


@pytest.fixture
def change(client: Redis, settings: config.Redis, storage: Storage, steps: Steps) -> Change:
    everything = Settings(
        rack="rack-a",
        brokers=config.Brokers(bootstrap=("127.0.0.1:1",)),
        redis=settings,
        storage=config.Storage(url="file:///unused"),
    )
    return Change(everything, client, storage, SteppedJournal(steps))


class Proxy:
    """The parts of a proxy that use the store; without a journal, the store is the order."""

    def __init__(self, change: Change, journal: MemoryJournal | None) -> None:
        snapshots = None if journal is None else StoredSnapshots(change.storage, journal)
        self.coordinator = RedisCoordinator(
            change.client,
            change.settings.redis,
            producer_id_expiration_ms=86_400_000,
            producer_batches_remembered=5,
            journal=journal,
            snapshots=snapshots,
        )
        self.registry = RedisTopicRegistry(change.client, change.settings.redis, view=self.coordinator.view)
        self.snapshots = snapshots
        self.journal = journal

    async def take_snapshots(self) -> None:
        assert self.coordinator.view is not None
        assert self.snapshots is not None
        assert self.journal is not None
        every_record = config.Journal(snapshot_records=1)
        await Snapshotter(every_record, self.coordinator.view, self.journal, self.snapshots).sweep()


async def fill(proxy: Proxy) -> None:
    """Write logs, records, a producer, and topics."""
    await proxy.coordinator.create_logs(TOPIC, range(PARTITIONS))
    await proxy.registry.reserve("one", 3, {"a": "b"}, "me")
    runs = [PartitionRun(TOPIC, partition, 1, (plain(3), idempotent(0, 2))) for partition in range(PARTITIONS)]
    await proxy.coordinator.commit(os.urandom(16), runs)
    await proxy.registry.reserve("two", 1, {}, "me")


async def contents(proxy: Proxy) -> object:
    """Return what clients can read."""
    requests = [FindRequest(TOPIC, partition, 0, 1 << 30) for partition in range(PARTITIONS)]
    answers = await proxy.coordinator.find(requests)
    return answers, (await proxy.registry.load()).topics, await proxy.coordinator.describe(TOPIC, range(PARTITIONS))


async def assert_goes_on(proxy: Proxy) -> None:
    """Offsets go on where they ended, and a batch that was stored is not stored again."""
    assert reported(await commit(proxy.coordinator, plain(1))) == [(0, 5, False)]
    assert reported(await commit(proxy.coordinator, idempotent(0, 2))) == [(0, 3, True)]
    assert reported(await commit(proxy.coordinator, idempotent(2, 1))) == [(0, 6, False)]
    await proxy.registry.reserve("three", 1, {}, "me")


async def assert_a_journal_holds_it(change: Change, journal: MemoryJournal, before: object) -> None:
    """A proxy finds the data, also after the store lost everything."""
    await settle_journal(change.client, change.storage, journal, change.partitions)
    assert await contents(Proxy(change, journal)) == before
    await empty(change)
    assert await contents(Proxy(change, journal)) == before
    await assert_goes_on(Proxy(change, journal))
    after = await contents(Proxy(change, journal))
    await empty(change)
    assert await contents(Proxy(change, journal)) == after


async def empty(change: Change) -> None:
    """Lose all but the identity, which a proxy's watch gives to an emptied store."""
    kept: dict[bytes, bytes] = await change.client.hgetall(STORE_KEY)  # type: ignore[assignment]
    await change.client.flushall()
    await change.client.hset(STORE_KEY, mapping=dict(kept))


async def test_a_journal_begins_with_the_data_of_a_store(change: Change) -> None:
    guarded = Proxy(change, None)
    await fill(guarded)
    before = await contents(guarded)
    await begin_journal(change)
    with pytest.raises(CoordinatorUnavailable, match=r"set journal\.mode: required"):
        await commit(guarded.coordinator, plain())
    with pytest.raises(StoreUnfit, match="has a journal"):
        await check_no_journal(change.storage)
    assert isinstance(change.journal, MemoryJournal)
    await assert_a_journal_holds_it(change, change.journal, before)


async def test_a_journal_that_lost_its_records_is_followed_by_another_one(change: Change) -> None:
    lost = MemoryJournal()
    await settle_journal(change.client, change.storage, lost, change.partitions)
    await fill(Proxy(change, lost))
    await Proxy(change, lost).take_snapshots()
    before = await contents(Proxy(change, lost))
    await begin_journal(change)
    assert isinstance(change.journal, MemoryJournal)
    await assert_a_journal_holds_it(change, change.journal, before)
    kept = [stored.key async for stored in change.storage.objects(FOLDER)]
    assert kept
    assert not [key for key in kept if lost.identity.hex() in key]
    with pytest.raises(CoordinatorUnavailable, match="view of another journal"):
        await commit(Proxy(change, lost).coordinator, plain())


@pytest.mark.parametrize("journal_before", [False, True])
async def test_a_beginning_that_is_broken_off_is_repeated(change: Change, steps: Steps, journal_before: bool) -> None:
    earlier = MemoryJournal() if journal_before else None
    if earlier is not None:
        await settle_journal(change.client, change.storage, earlier, change.partitions)
    await fill(Proxy(change, earlier))
    before = await contents(Proxy(change, earlier))
    assert isinstance(change.journal, MemoryJournal)
    for number in range(1000):
        steps.left = number
        try:
            await begin_journal(change)
        except BrokenOff:
            steps.left = None
            if await stored_journal(change.storage) != change.journal.identity.hex():
                with pytest.raises(StoreUnfit):
                    await settle_journal(change.client, change.storage, change.journal, change.partitions)
        else:
            break
    assert number > 2 * change.partitions
    steps.left = None
    await assert_a_journal_holds_it(change, change.journal, before)


async def test_without_a_snapshot_a_rebuild_fails_and_does_not_begin_with_nothing(change: Change) -> None:
    await fill(Proxy(change, None))
    await begin_journal(change)
    await change.storage.delete([stored.key async for stored in change.storage.objects(FOLDER)])
    await empty(change)
    assert isinstance(change.journal, MemoryJournal)
    with pytest.raises(CoordinatorUnavailable, match="begins at position"):
        await contents(Proxy(change, change.journal))


async def test_a_journal_in_use_is_not_begun_again(change: Change) -> None:
    assert isinstance(change.journal, MemoryJournal)
    await settle_journal(change.client, change.storage, change.journal, change.partitions)
    await fill(Proxy(change, change.journal))
    with pytest.raises(StoreUnfit, match="nothing to begin"):
        await begin_journal(change)
    assert change.journal.starts[0] == 0, "no record was deleted"
    await end_journal(change)
    await begin_journal(change._replace(journal=MemoryJournal()))
    with pytest.raises(StoreUnfit, match="nothing to begin"):
        await begin_journal(change._replace(journal=await noted_journal(change)))


async def noted_journal(change: Change) -> MemoryJournal:
    """Return a journal that was trimmed and has the noted identity."""
    journal = MemoryJournal()
    journal.identity = bytes.fromhex(await stored_journal(change.storage) or "")
    for partition in range(change.partitions):
        journal.starts[partition] = FIRST
    return journal


async def test_a_journal_of_another_deployment_is_left_alone(change: Change) -> None:
    await fill(Proxy(change, None))
    await change.journal.append(2, b"a record of another deployment")
    with pytest.raises(StoreUnfit, match="not this deployment's"):
        await begin_journal(change)
    await commit(Proxy(change, None).coordinator, plain())


async def test_a_fenced_shard_is_not_handed_over(change: Change) -> None:
    await fill(Proxy(change, None))
    await change.client.hset(f"{shard_prefix(1)}meta", "fenced", "it went back")
    with pytest.raises(StoreUnfit, match="shard 1 is fenced"):
        await begin_journal(change)


async def test_a_store_that_lost_its_data_with_the_journal_is_not_handed_over(change: Change) -> None:
    lost = MemoryJournal()
    await settle_journal(change.client, change.storage, lost, change.partitions)
    await fill(Proxy(change, lost))
    await Proxy(change, lost).take_snapshots()
    await empty(change)
    with pytest.raises(StoreUnfit, match="has lost its data"):
        await begin_journal(change)


async def test_there_must_be_data(change: Change) -> None:
    await change.client.flushall()
    assert await store_identity(change.client) == (None, False)
    with pytest.raises(StoreUnfit, match="no data yet"):
        await begin_journal(change)


async def test_a_journal_ends_and_the_store_is_the_order(change: Change) -> None:
    assert isinstance(change.journal, MemoryJournal)
    await remember(change.storage, "ab", Remembered((await store_identity(change.client))[0] or ""))
    await settle_journal(change.client, change.storage, change.journal, change.partitions)
    await fill(Proxy(change, change.journal))
    await Proxy(change, change.journal).take_snapshots()
    before = await contents(Proxy(change, change.journal))
    await empty(change)  # the store is behind: it is brought up first
    await end_journal(change)
    await check_no_journal(change.storage)
    assert not await read_sides(change.storage, (await store_identity(change.client))[0] or "")
    assert not [stored.key async for stored in change.storage.objects(FOLDER)]
    guarded = Proxy(change, None)
    assert await contents(guarded) == before
    with pytest.raises(CoordinatorUnavailable, match="begun without a journal"):
        await commit(Proxy(change, change.journal).coordinator, plain())
    await assert_goes_on(guarded)


async def test_a_loss_right_after_the_end_is_noticed(change: Change) -> None:
    assert isinstance(change.journal, MemoryJournal)
    await settle_journal(change.client, change.storage, change.journal, change.partitions)
    await fill(Proxy(change, change.journal))
    await end_journal(change)
    guarded = Proxy(change, None)
    await contents(guarded)
    await empty(change)
    (answer,) = await guarded.coordinator.commit(os.urandom(16), [PartitionRun(TOPIC, 0, 1, (plain(),))])
    assert answer.error_code == KAFKA_STORAGE_ERROR
    assert guarded.coordinator.fence.fenced


async def test_an_end_that_is_broken_off_is_repeated(change: Change, steps: Steps) -> None:
    assert isinstance(change.journal, MemoryJournal)
    await settle_journal(change.client, change.storage, change.journal, change.partitions)
    await fill(Proxy(change, change.journal))
    before = await contents(Proxy(change, change.journal))
    for number in range(1000):
        steps.left = number
        try:
            await end_journal(change)
        except BrokenOff:
            steps.left = None
            with pytest.raises(StoreUnfit):
                await check_no_journal(change.storage)
        else:
            break
    assert number > 0
    steps.left = None
    assert await contents(Proxy(change, None)) == before
    await assert_goes_on(Proxy(change, None))


async def test_there_and_back(change: Change) -> None:
    await fill(Proxy(change, None))
    before = await contents(Proxy(change, None))
    for _ in range(2):
        turn = change._replace(journal=MemoryJournal())
        await begin_journal(turn)
        assert isinstance(turn.journal, MemoryJournal)
        assert await contents(Proxy(change, turn.journal)) == before
        await end_journal(turn)
        assert await contents(Proxy(change, None)) == before
    await assert_goes_on(Proxy(change, None))


async def test_a_deployment_without_a_journal_has_none_to_end(change: Change) -> None:
    await fill(Proxy(change, None))
    with pytest.raises(StoreUnfit, match="has no journal"):
        await end_journal(change)


async def test_a_store_that_was_lost_with_its_journal_goes_back_to_snapshots(change: Change, steps: Steps) -> None:
    lost = MemoryJournal()
    await settle_journal(change.client, change.storage, lost, change.partitions)
    await fill(Proxy(change, lost))
    await Proxy(change, lost).take_snapshots()
    await commit(Proxy(change, lost).coordinator, plain(4))  # offsets 5 to 8, which no snapshot has
    await change.client.flushall()
    for number in range(1000):
        steps.left = number
        try:
            restored = await restore(change, GAP)
            steps.left = None
            await begin_journal(change)
        except BrokenOff:
            steps.left = None
        else:
            break
    assert number == SHARDS
    assert restored[-1].from_snapshot
    assert max(one.position for one in restored[:-1]) > 0
    assert isinstance(change.journal, MemoryJournal)
    await settle_journal(change.client, change.storage, change.journal, change.partitions)
    proxy = Proxy(change, change.journal)
    (answer,) = await proxy.coordinator.find([FindRequest(TOPIC, 0, 0, 1 << 30)])
    assert [(row.base_offset, row.last_offset) for row in answer.rows] == [(0, 4)]
    assert answer.high_watermark >= 5 + GAP
    (batch,) = await commit(proxy.coordinator, plain(1))
    assert batch.base_offset == answer.high_watermark
    assert reported(await commit(proxy.coordinator, idempotent(0, 2))) == [(0, 3, True)]
    assert {topic.name for topic in (await proxy.registry.load()).topics} == {"one", "two"}
    after = await contents(proxy)
    await empty(change)
    assert await contents(Proxy(change, change.journal)) == after


async def test_of_store_and_snapshot_the_newer_one_counts(change: Change) -> None:
    lost = MemoryJournal()
    await settle_journal(change.client, change.storage, lost, change.partitions)
    await fill(Proxy(change, lost))
    await Proxy(change, lost).take_snapshots()
    await commit(Proxy(change, lost).coordinator, plain(4))
    restored = await restore(change, GAP)
    assert not any(one.from_snapshot for one in restored)
    await begin_journal(change)
    assert isinstance(change.journal, MemoryJournal)
    (answer,) = await Proxy(change, change.journal).coordinator.find([FindRequest(TOPIC, 0, 0, 1 << 30)])
    assert answer.rows[-1].last_offset == 8


async def test_without_a_journal_there_is_nothing_to_restore(change: Change) -> None:
    await fill(Proxy(change, None))
    with pytest.raises(StoreUnfit, match="no snapshots to restore"):
        await restore(change, GAP)
