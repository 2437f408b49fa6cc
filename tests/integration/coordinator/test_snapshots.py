"""Snapshots in object storage: they are taken, the journal is trimmed, and an emptied store is rebuilt from them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from pathlib import Path

import pytest
import redis as blocking_redis
from redis.asyncio import Redis

from proxy import config
from proxy.coordinator import loading
from proxy.coordinator.copying import CopyGivenUp, copy_shard
from proxy.coordinator.interface import CoordinatorUnavailable, DeleteRequest, PartitionRun
from proxy.coordinator.journal_records import RULES
from proxy.coordinator.redis import RedisCoordinator
from proxy.coordinator.registry import RedisTopicRegistry
from proxy.coordinator.shards import partition_key, shard_of, shard_prefix
from proxy.snapshots import stored as stored_module
from proxy.snapshots.snapshotter import Snapshotter
from proxy.snapshots.stored import StoredSnapshots
from proxy.snapshots.verdict import examine_snapshots
from proxy.storage.file import FileStorage
from proxy.storage.interface import Buffer, StorageError
from tests.integration.coordinator.conftest import Store
from tests.integration.coordinator.contract import TOPIC, commit, idempotent, plain, reported
from tests.integration.coordinator.test_view import commit_and_die, found, wipe
from tests.support.memory_journal import MemoryJournal
from tests.support.memory_snapshots import MemorySnapshot, MemorySnapshots
from tests.support.view_digest import digest_of

SHARDS = 3
SHARD = shard_of(partition_key(TOPIC, 0), SHARDS)


class Dying(FileStorage):
    """Storage whose proxy ends after some writes."""

    writes_left: int | None = None

    def _count(self) -> None:
        if self.writes_left is not None:
            self.writes_left -= 1
            if self.writes_left < 0:
                raise StorageError("the proxy ended")

    async def upload(self, key: str, data: Buffer, length: int) -> None:
        self._count()
        await super().upload(key, data, length)

    async def delete(self, keys: Sequence[str]) -> None:
        self._count()
        await super().delete(keys)


class Proxy:
    """The parts of a proxy that use the view and its snapshots."""

    def __init__(self, client: Redis, settings: config.Redis, journal: MemoryJournal, storage: FileStorage) -> None:
        self.snapshots = StoredSnapshots(storage, journal)
        self.coordinator = RedisCoordinator(
            client,
            settings,
            producer_id_expiration_ms=86_400_000,
            producer_batches_remembered=5,
            journal=journal,
            snapshots=self.snapshots,
        )
        assert self.coordinator.view is not None
        self.view = self.coordinator.view
        self.registry = RedisTopicRegistry(client, settings, view=self.view)
        every_record = config.Journal(snapshot_records=1)
        self.snapshotter = Snapshotter(every_record, self.view, journal, self.snapshots)


@pytest.fixture
async def storage(tmp_path: Path) -> AsyncIterator[Dying]:
    directory = tmp_path / "bucket"
    directory.mkdir()
    storage = Dying(config.Storage(url=directory.as_uri()))
    await storage.open()
    yield storage
    await storage.close()


@pytest.fixture
def make_proxy(client: Redis, settings: config.Redis, journal: MemoryJournal, storage: Dying):
    return lambda: Proxy(client, settings, journal, storage)


async def filled(make_proxy, snapshots: int = 2) -> Proxy:
    """Return a proxy whose partitions have that many snapshots, and records after the newest one."""
    proxy = make_proxy()
    await proxy.coordinator.create_logs(TOPIC, range(4))
    await proxy.registry.reserve("one", 3, {"a": "b"}, "me")
    for number in range(snapshots):
        for partition in range(4):
            await proxy.coordinator.commit(
                bytes([number, partition]) * 8,
                [PartitionRun(TOPIC, partition, 1, (plain(3), idempotent(number * 2, 2)))],
            )
        await proxy.registry.reserve(f"more {number}", 1, {}, "me")
        await proxy.snapshotter.sweep()
    await commit(proxy.coordinator, plain(5))
    await proxy.registry.reserve("last", 1, {}, "me")
    return proxy


async def test_a_wiped_store_is_rebuilt_from_a_snapshot_and_the_records_after_it(
    make_proxy, client: Redis, store: Store, journal: MemoryJournal
) -> None:
    proxy = await filled(make_proxy)
    before, topics = await digest_of(client, proxy.coordinator, SHARDS), await proxy.registry.load()
    assert journal.starts[SHARD] > 0, "the journal was trimmed"
    assert journal.starts[SHARDS] > 0, "and the registry's partition"
    wipe(store)
    newcomer = make_proxy()
    assert await digest_of(client, newcomer.coordinator, SHARDS) == before
    snapshot = await newcomer.registry.load()
    assert (snapshot, snapshot.mark) == (topics, topics.mark)
    assert newcomer.view.helped_records < 5
    (again,) = await newcomer.coordinator.commit(
        bytes([1, 0]) * 8, [PartitionRun(TOPIC, 0, 1, (plain(3), idempotent(2, 2)))]
    )
    assert reported(again.batches) == [(0, 5, False), (0, 8, False)], "the retry of a commit before the snapshot"
    assert reported(await commit(newcomer.coordinator, plain(1))) == [(0, 15, False)]


async def test_partitions_of_a_topic_that_grows_begin_after_lost_offsets_in_a_rebuilt_store(
    make_proxy, client: Redis, store: Store, journal: MemoryJournal
) -> None:
    """The place was noted by `unfence`, before the shard became a view of the journal."""
    proxy = make_proxy()
    await proxy.coordinator.create_logs(TOPIC, range(4))
    for shard in range(SHARDS):
        await client.hset(f"{shard_prefix(shard)}raised", "", (1_000).to_bytes(8, "big"))
    await filled(make_proxy)
    wipe(store)
    newcomer = make_proxy()
    await newcomer.coordinator.create_logs(TOPIC, [5], growing=True)
    (log,) = await newcomer.coordinator.describe(TOPIC, [5])
    assert log is not None
    assert log.log_start_offset == 1_000


async def test_pages_of_another_primary_are_in_no_snapshot(make_proxy, client: Redis) -> None:
    """It has not applied the same records, and has begun no copy with this token."""
    proxy = await filled(make_proxy)
    pages = 0

    async def keep(_: bytes) -> None:
        nonlocal pages
        pages += 1
        if pages == 1:
            await client.hset(f"{shard_prefix(SHARD)}meta", "snapshot", "C" + "0" * 70)

    with pytest.raises(CopyGivenUp):
        await copy_shard(proxy.view, SHARD, 100, keep)
    assert pages == 1


async def test_answers_to_commits_are_in_a_snapshot_of_a_rebuilt_store(
    make_proxy, client: Redis, store: Store, journal: MemoryJournal
) -> None:
    await filled(make_proxy)
    for _ in range(2):
        wipe(store)
        proxy = make_proxy()
        await commit(proxy.coordinator, plain(1))
        await proxy.snapshotter.sweep()
        await proxy.snapshotter.sweep()
    assert journal.starts[SHARD] > 10, "the records of these commits are gone"
    wipe(store)
    (again,) = await make_proxy().coordinator.commit(
        bytes([1, 0]) * 8, [PartitionRun(TOPIC, 0, 1, (plain(3), idempotent(2, 2)))]
    )
    assert reported(again.batches) == [(0, 5, False), (0, 8, False)]


async def test_segments_whose_answers_do_not_count_any_more_are_dropped(
    make_proxy, client: Redis, journal: MemoryJournal
) -> None:
    """The list of segments is bounded by the commits of an hour, and of the time between two snapshots."""
    now_ms = [time.time_ns() // 1_000_000]
    journal._clock_ms = lambda: now_ms[0]
    proxy = make_proxy()
    await proxy.coordinator.create_logs(TOPIC, range(1))
    for number in range(5):
        await proxy.coordinator.commit(bytes([number]) * 16, [PartitionRun(TOPIC, 0, 1, (plain(1),))])
        now_ms[0] += 7_200_000
    await proxy.snapshotter.sweep()
    assert await client.zrange(f"{shard_prefix(SHARD)}answered", 0, -1) == [bytes([4]) * 16]


async def test_a_store_that_is_older_than_the_journal_loads_a_snapshot(
    make_proxy, client: Redis, store: Store, journal: MemoryJournal
) -> None:
    proxy = make_proxy()
    await proxy.coordinator.create_logs(TOPIC, range(4))
    await commit(proxy.coordinator, plain(1))
    copy = {key: await client.dump(key) async for key in client.scan_iter()}
    for _ in range(3):
        await commit(proxy.coordinator, plain(3))
        await proxy.snapshotter.sweep()
    before = await digest_of(client, proxy.coordinator, SHARDS)
    assert journal.starts[SHARD] > 2
    wipe(store)
    for key, dumped in copy.items():
        await client.restore(key, 0, dumped)
    await client.hdel(f"{shard_prefix(SHARD)}meta", "proved")
    assert await digest_of(client, make_proxy().coordinator, SHARDS) == before


async def test_the_check_sees_that_a_trimmed_journal_lacks_its_snapshots(
    make_proxy, journal: MemoryJournal, storage: Dying
) -> None:
    await filled(make_proxy)
    whole = await examine_snapshots(storage, journal, SHARDS + 1)
    assert [one.problem for one in whole] == [None] * (SHARDS + 1)
    assert {len(one.positions) for one in whole if one.end} == {2}
    assert sum(one.records_after for one in whole) == 2, "a commit, and a topic"
    keys = [stored.key async for stored in storage.objects(f"coordinator/snapshots/{journal.identity.hex()}/{SHARD}/")]
    await storage.delete(keys)
    problems = {one.partition: one.problem for one in await examine_snapshots(storage, journal, SHARDS + 1)}
    assert "it has no readable snapshot: an emptied store can't be rebuilt" in (problems.pop(SHARD) or "")
    assert set(problems.values()) == {None}


async def test_records_of_a_proxy_that_ended_are_applied_by_the_proxy_that_keeps_house(
    make_proxy, journal: MemoryJournal
) -> None:
    proxy = make_proxy()
    await proxy.coordinator.create_logs(TOPIC, range(4))
    await proxy.snapshotter.sweep()
    await commit_and_die(lambda: make_proxy().coordinator)
    await proxy.snapshotter.sweep()
    assert proxy.snapshotter.lag[SHARD] == 0, "it is not late yet"
    assert proxy.view.applied(SHARD) < len(journal.records[SHARD])
    await proxy.snapshotter.sweep()
    assert (proxy.snapshotter.lag[SHARD], proxy.view.helped_records) == (0, 1)
    assert (await found(proxy.coordinator)).high_watermark == 5


async def test_records_that_cannot_be_applied_are_reported_until_they_are(
    make_proxy, journal: MemoryJournal, store: Store
) -> None:
    proxy = make_proxy()
    await proxy.coordinator.create_logs(TOPIC, range(4))
    for _ in range(2):
        await proxy.snapshotter.sweep()
    await commit_and_die(lambda: make_proxy().coordinator)
    proxy.snapshotter._settings = config.Journal()  # no snapshot is due
    await proxy.snapshotter.sweep()
    store.stop()
    for _ in range(2):
        await proxy.snapshotter.sweep()
        assert proxy.snapshotter.lag[SHARD] == 1
    store.start()
    await proxy.snapshotter.sweep()
    assert proxy.snapshotter.lag[SHARD] == 0


async def test_a_damaged_snapshot_is_passed_over(
    make_proxy, client: Redis, store: Store, storage: Dying, tmp_path: Path
) -> None:
    proxy = await filled(make_proxy)
    before = await digest_of(client, proxy.coordinator, SHARDS)
    newest, older = await proxy.snapshots.kept(SHARD)
    part = tmp_path / "bucket" / newest.manifest.parts[-1].key
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    wipe(store)
    newcomer = make_proxy()
    assert await digest_of(client, newcomer.coordinator, SHARDS) == before
    part.unlink()
    assert [kept.key for kept in await proxy.snapshots.kept(SHARD)] == [older.key]
    (tmp_path / "bucket" / older.key).write_bytes(b"{}")
    wipe(store)
    with pytest.raises(CoordinatorUnavailable, match="the journal begins at position"):
        await found(make_proxy().coordinator)


async def test_a_writer_may_end_between_any_two_steps(
    make_proxy, client: Redis, store: Store, storage: Dying, journal: MemoryJournal, monkeypatch
) -> None:
    monkeypatch.setattr(stored_module, "PART_BYTES", 100)
    monkeypatch.setattr(stored_module, "ABANDONED_MS", -60_000)
    proxy = await filled(make_proxy)
    for steps in range(200):
        await commit(proxy.coordinator, plain(1))
        storage.writes_left = steps
        successor = make_proxy()
        with suppress(StorageError):
            await successor.snapshotter.sweep()
        is_through = storage.writes_left >= 0
        storage.writes_left = None
        before = await digest_of(client, proxy.coordinator, SHARDS)
        wipe(store)
        assert await digest_of(client, make_proxy().coordinator, SHARDS) == before
        if is_through:
            break
    assert steps > 5
    assert is_through
    await commit(proxy.coordinator, plain(1))
    await proxy.snapshotter.sweep()
    kept = await proxy.snapshots.kept(SHARD)
    assert len(kept) == 2
    assert journal.starts[SHARD] == kept[1].manifest.position
    own = {one.key for one in kept} | {part.key for one in kept for part in one.manifest.parts}
    assert {one.key async for one in storage.objects(proxy.snapshots.folder(SHARD))} == own, "nothing is left over"


async def test_proxies_that_rebuild_at_once_load_one_snapshot(make_proxy, client: Redis, store: Store) -> None:
    proxy = await filled(make_proxy)
    before = await digest_of(client, proxy.coordinator, SHARDS)
    for _ in range(5):
        wipe(store)
        proxies = [make_proxy() for _ in range(4)]
        answers = await asyncio.gather(*(found(one.coordinator) for one in proxies))
        assert {answer.high_watermark for answer in answers} == {15}
        assert await digest_of(client, proxies[0].coordinator, SHARDS) == before


async def test_a_load_whose_proxy_ends_is_taken_over(make_proxy, client: Redis, store: Store, monkeypatch) -> None:
    monkeypatch.setattr(loading, "STOPPED_S", 0.3)
    proxy = await filled(make_proxy)
    before = await digest_of(client, proxy.coordinator, SHARDS)
    for pages in range(3):
        wipe(store)
        dying = make_proxy()
        run, left = dying.view._loader._run, pages

        async def die(name: str, partition: int, arguments: tuple[bytes, ...], run=run):
            nonlocal left
            if name == "load_page" and partition == SHARD:
                left -= 1
                if left < 0:
                    raise CoordinatorUnavailable("it died")
            return await run(name, partition, arguments)

        dying.view._loader._run = die
        with pytest.raises(CoordinatorUnavailable, match="it died"):
            await found(dying.coordinator)
        assert await digest_of(client, make_proxy().coordinator, SHARDS) == before


@pytest.mark.parametrize("has_run", [False, True], ids=["before it ran", "after it ran"])
@pytest.mark.parametrize("failing", ["load_begin", "load_page"])
async def test_a_load_that_failed_is_begun_again_by_its_own_proxy(
    make_proxy, client: Redis, store: Store, monkeypatch, failing: str, has_run: bool
) -> None:
    """A call timed out. Nobody else is there who could take the load over."""
    monkeypatch.setattr(loading, "STOPPED_S", inf)
    proxy = await filled(make_proxy)
    before = await digest_of(client, proxy.coordinator, SHARDS)
    wipe(store)
    loader = make_proxy()
    run, failures = loader.view._loader._run, 0

    async def fail(name: str, partition: int, arguments: tuple[bytes, ...]):
        nonlocal failures
        is_failing = name == failing and partition == SHARD and failures < 2
        if has_run or not is_failing:
            reply = await run(name, partition, arguments)
        if is_failing:
            failures += 1
            raise CoordinatorUnavailable("it timed out")
        return reply

    loader.view._loader._run = fail
    async with asyncio.timeout(60):
        for _ in range(2):
            with pytest.raises(CoordinatorUnavailable, match="it timed out"):
                await found(loader.coordinator)
        assert await digest_of(client, loader.coordinator, SHARDS) == before


async def test_a_store_that_is_wiped_while_it_is_loaded_is_loaded_again(
    make_proxy, client: Redis, store: Store
) -> None:
    proxy = await filled(make_proxy)
    before = await digest_of(client, proxy.coordinator, SHARDS)
    wipe(store)
    loader = make_proxy()
    run, wipes = loader.view._loader._run, 0

    async def wipe_after_a_page(name: str, partition: int, arguments: tuple[bytes, ...]):
        nonlocal wipes
        reply = await run(name, partition, arguments)
        if name == "load_page" and wipes < 3:
            wipes += 1
            wipe(store)
        return reply

    loader.view._loader._run = wipe_after_a_page
    assert await digest_of(client, loader.coordinator, SHARDS) == before
    assert wipes == 3


async def test_pages_that_a_server_has_lost_are_noticed(make_proxy, client: Redis, store: Store) -> None:
    """A failover to a replica that was behind loses the newest pages."""
    proxy = await filled(make_proxy)
    before = await digest_of(client, proxy.coordinator, SHARDS)
    wipe(store)
    loader = make_proxy()
    run, is_lost = loader.view._loader._run, False

    async def lose_a_page(name: str, partition: int, arguments: tuple[bytes, ...]):
        nonlocal is_lost
        with blocking_redis.Redis(port=store.port) as blocking:
            copy = {key: blocking.dump(key) for key in blocking.keys(f"{shard_prefix(SHARD)}*")}
            reply = await run(name, partition, arguments)
            if name == "load_page" and partition == SHARD and len(copy) > 2 and not is_lost:
                is_lost = True
                blocking.delete(*blocking.keys(f"{shard_prefix(SHARD)}*"))
                for key, dumped in copy.items():
                    blocking.restore(key, 0, dumped)
        return reply

    loader.view._loader._run = lose_a_page
    assert await digest_of(client, loader.coordinator, SHARDS) == before
    assert is_lost


async def test_an_empty_shard_gets_no_snapshot_and_an_unchanged_one_no_further(make_proxy, storage: Dying) -> None:
    proxy = make_proxy()
    await proxy.snapshotter.sweep()
    assert [one async for one in storage.objects("coordinator/")] == []
    await proxy.coordinator.create_logs(TOPIC, range(4))
    for _ in range(3):
        await proxy.snapshotter.sweep()
    assert len(await proxy.snapshots.kept(SHARD)) == 1


async def test_a_snapshot_of_a_newer_release_is_left_alone(make_proxy, tmp_path: Path, client, store) -> None:
    proxy = await filled(make_proxy)
    before = await digest_of(client, proxy.coordinator, SHARDS)
    newest, older = await proxy.snapshots.kept(SHARD)
    manifest = tmp_path / "bucket" / newest.key
    manifest.write_text(manifest.read_text().replace(f'"rules": {RULES}', f'"rules": {RULES + 1}'))
    assert [kept.key for kept in await proxy.snapshots.kept(SHARD)] == [older.key]
    wipe(store)
    assert await digest_of(client, make_proxy().coordinator, SHARDS) == before
    assert manifest.is_file()


async def test_what_changes_while_a_shard_is_copied_is_in_the_snapshot(
    make_proxy, client: Redis, store: Store, journal: MemoryJournal
) -> None:
    """Each operation comes after each page once."""
    both = [(TOPIC, 0), (TOPIC, 1)]
    for idle_pages in range(14):
        wipe(store)
        for partition in range(SHARDS + 1):
            journal.records[partition].clear()
        proxy = make_proxy()
        coordinator = proxy.coordinator
        await coordinator.create_logs(TOPIC, range(3))
        for number in range(60):
            runs = [PartitionRun(*log, 1, (plain(1),)) for log in both]
            await coordinator.commit(number.to_bytes(16, "big"), runs)
        await coordinator.commit(bytes(15) + b"p", [PartitionRun(TOPIC, 2, 1, (idempotent(0, 2),))])
        operations = [
            partial(commit, coordinator, idempotent(0, 2)),
            partial(coordinator.pack_rows, both, 0),
            partial(coordinator.delete_records, [DeleteRequest(TOPIC, 0, 45)]),
            partial(coordinator.delete_logs, TOPIC, [2]),
            partial(coordinator.delete_records, [DeleteRequest(TOPIC, 1, 45)]),
            partial(coordinator.tombstone, [number.to_bytes(16, "big") for number in (3, 50)]),
            partial(coordinator.rows.mark_compacted, [(TOPIC, 0, 50)]),
            partial(coordinator.release, [(3).to_bytes(16, "big")]),
            partial(commit, coordinator, plain(1)),
        ]
        pages: list[bytes] = []

        async def keep(page: bytes, pages=pages, operations=operations, idle_pages=idle_pages) -> None:
            pages.append(page)
            if len(pages) > idle_pages and operations:
                await operations.pop(0)()

        copied = await copy_shard(proxy.view, SHARD, 1, keep)
        assert copied is not None
        live = await digest_of(client, coordinator, SHARDS)
        wipe(store)
        newcomer = make_proxy()
        snapshots = MemorySnapshots()
        snapshots.taken[SHARD].append(MemorySnapshot(copied.position, copied.state, pages))
        newcomer.view._loader._snapshots = snapshots
        assert await digest_of(client, newcomer.coordinator, SHARDS) == live
