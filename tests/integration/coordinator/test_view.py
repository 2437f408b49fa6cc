"""A store that is a view of a journal applies records in order, and is only behind if it has lost writes."""

from __future__ import annotations

import asyncio
import os

import pytest
import redis as blocking_redis
from redis.asyncio import Redis

from proxy import config
from proxy.coordinator.connect import connect
from proxy.coordinator.interface import CoordinatorUnavailable, DeleteRequest, FindRequest, LogAnswer, PartitionRun
from proxy.coordinator.interface_journal import Appended
from proxy.coordinator.interface_registry import TopicReserved
from proxy.coordinator.journal_records import RULES, JournalledCall, pack_record
from proxy.coordinator.redis import RedisCoordinator
from proxy.coordinator.shards import partition_key, shard_of, shard_prefix
from tests.integration.coordinator.conftest import MakeCoordinator, Store
from tests.integration.coordinator.contract import TOPIC, commit, idempotent, plain, reported
from tests.support.memory_journal import MemoryJournal

STORAGE_ERROR, QUOTA_EXCEEDED = 56, 89
SHARD = shard_of(partition_key(TOPIC, 0), 3)
META = f"{shard_prefix(SHARD)}meta"


async def found(coordinator: RedisCoordinator, offset: int = 0) -> LogAnswer:
    (answer,) = await coordinator.find([FindRequest(TOPIC, 0, offset, 1 << 30)])
    return answer


def wipe(store: Store) -> None:
    with blocking_redis.Redis(port=store.port) as client:
        client.flushall()


@pytest.fixture
async def proxies(make_view: MakeCoordinator) -> tuple[RedisCoordinator, RedisCoordinator]:
    first, second = make_view(), make_view()
    await first.create_logs(TOPIC, range(4))
    return first, second


class Dying(Exception):
    """The proxy ends before it applies its record."""


async def commit_and_die(make_view: MakeCoordinator, segment: bytes = b"") -> None:
    """Append a commit to the journal by a proxy that does not apply it."""
    dying = make_view()
    assert dying.view is not None

    async def die(shard: int, appended: Appended, call: JournalledCall) -> bytes:
        raise CoordinatorUnavailable("it died")

    dying.view.apply = die  # type: ignore[method-assign]
    run = PartitionRun(TOPIC, 0, 1, (plain(5),))
    with pytest.raises(CoordinatorUnavailable):
        await dying.commit(segment or os.urandom(16), [run])


async def test_the_next_proxy_applies_the_record_of_a_proxy_that_died(proxies, make_view) -> None:
    first, second = proxies
    await commit(first, plain(2))
    await commit_and_die(make_view)
    assert reported(await commit(second, plain(1))) == [(0, 7, False)]
    assert second.view.helped_records == 1
    assert [row.base_offset for row in (await found(first)).rows] == [0, 2, 7]


async def test_a_proxy_gets_the_answer_of_its_record_if_another_one_applied_it(proxies, make_view, journal) -> None:
    first, second = proxies
    slow = make_view()
    segment = os.urandom(16)
    apply = slow.view.apply

    async def apply_late(shard: int, appended: Appended, call: JournalledCall) -> bytes:
        assert reported(await commit(second, plain(1))) == [(0, 5, False)]
        return await apply(shard, appended, call)

    slow.view.apply = apply_late
    assert reported(await commit(slow, plain(5), segment=segment)) == [(0, 0, False)]
    assert second.view.helped_records == 1
    records = len(journal.records[SHARD])
    assert reported(await commit(first, plain(5), segment=segment)) == [(0, 0, False)], "a retry"
    assert len(journal.records[SHARD]) == records + 1


async def test_a_trim_that_another_proxy_applied_is_answered(proxies, make_view) -> None:
    first, second = proxies
    await commit(first, plain(5), plain(5))
    slow = make_view()
    apply = slow.view.apply

    async def apply_late(shard: int, appended: Appended, call: JournalledCall) -> bytes:
        await commit(second, plain(1))
        return await apply(shard, appended, call)

    slow.view.apply = apply_late
    (answer,) = await slow.delete_records([DeleteRequest(TOPIC, 0, 4)])
    assert answer == (0, 4)


async def test_a_store_that_is_emptied_is_rebuilt_by_the_next_write(proxies, store: Store) -> None:
    first, second = proxies
    before = await commit(first, plain(3), idempotent(0, 2))
    wipe(store)
    assert reported(await commit(second, idempotent(2, 1))) == [(0, 5, False)]
    assert reported(await commit(first, idempotent(0, 2))) == [(0, before[1].base_offset, True)]
    assert [row.base_offset for row in (await found(second)).rows] == [0, 5]


async def test_a_store_that_is_emptied_is_rebuilt_by_the_next_read(proxies, store: Store, make_view) -> None:
    first, _ = proxies
    await commit(first, plain(3))
    before = await found(first)
    wipe(store)
    assert await found(first) == before
    wipe(store)
    newcomer = make_view()
    assert await found(newcomer) == before, "a proxy that knows nothing yet"
    assert newcomer.view.helped_records == len(before.rows) + 1


async def test_reads_wait_for_nothing_while_the_server_stays(proxies, journal) -> None:
    first, second = proxies
    await commit(first, plain(3))
    await found(first)
    await found(second)
    reads = journal.reads
    journal.away = "no leader"
    assert (await found(first)).high_watermark == 3
    assert (await found(second)).high_watermark == 3
    assert journal.reads == reads


async def test_nothing_is_answered_from_a_store_that_may_lack_records(proxies, store: Store, journal) -> None:
    first, _ = proxies
    await commit(first, plain(3))
    wipe(store)
    journal.away = "no leader"
    with pytest.raises(CoordinatorUnavailable, match="no leader"):
        await found(first)
    journal.away = None
    assert (await found(first)).high_watermark == 3


async def test_a_commit_that_the_journal_rejects_did_nothing(proxies, journal) -> None:
    first, _ = proxies
    journal.away = "no leader"
    (answer,) = await first.commit(os.urandom(16), [PartitionRun(TOPIC, 0, 1, (plain(3),))])
    assert answer.error_code == STORAGE_ERROR
    (trimmed,) = await first.delete_records([DeleteRequest(TOPIC, 0, 0)])
    assert trimmed.error_code == STORAGE_ERROR
    with pytest.raises(CoordinatorUnavailable, match="no leader"):
        await first.create_logs(TOPIC, [7])
    journal.away = None
    assert reported(await commit(first, plain(1))) == [(0, 0, False)]


async def test_a_record_that_is_in_the_journal_twice_counts_once(proxies, journal) -> None:
    first, _ = proxies
    segment = os.urandom(16)
    run = PartitionRun(TOPIC, 0, 1, (plain(3), idempotent(0, 2)))
    journal.lost_replies = 1
    with pytest.raises(CoordinatorUnavailable, match="nobody knows"):
        await first.commit(segment, [run])
    (answer,) = await first.commit(segment, [run])
    assert reported(answer.batches) == [(0, 0, False), (0, 3, False)]
    assert (await found(first)).high_watermark == 5


async def test_a_record_that_comes_too_late_does_nothing(client: Redis, settings: config.Redis) -> None:
    journal = MemoryJournal(lambda: 1_000_000)
    coordinator = RedisCoordinator(
        client, settings, producer_id_expiration_ms=1000, producer_batches_remembered=5, journal=journal
    )
    await coordinator.create_logs(TOPIC, [0])
    run = PartitionRun(TOPIC, 0, 1, (plain(3),))
    journal.ahead_ms[SHARD] = 70_000
    (late,) = await coordinator.commit(os.urandom(16), [run], not_after_ms=coordinator.deadline_ms(60_000) or 0)
    assert late.error_code == STORAGE_ERROR
    (in_time,) = await coordinator.commit(os.urandom(16), [run], not_after_ms=coordinator.deadline_ms(60_000) or 0)
    assert reported(in_time.batches) == [(0, 0, False)]


async def test_a_shard_in_which_a_script_stopped_halfway_is_rebuilt(proxies, client: Redis) -> None:
    first, second = proxies
    await commit(first, plain(3))
    before = await found(first)
    await client.hset(META, "unfinished", "commit")
    await client.hdel(f"{shard_prefix(SHARD)}logs", partition_key(TOPIC, 0))
    assert await found(second) == before
    assert reported(await commit(first, plain(1))) == [(0, 3, False)]


@pytest.mark.parametrize("beyond", [0, 1_000])
async def test_rows_beyond_a_logs_end_are_removed_as_the_journal_has_none_there(
    proxies, client: Redis, beyond: int
) -> None:
    """Something wrote to the store past the scripts. Readers would get these rows once the log has their offsets."""
    first, second = proxies
    await commit(first, plain(3))
    before = await found(first)
    rows_key = f"{shard_prefix(SHARD)}rows"
    (row,) = await client.zrange(rows_key, 0, -1)
    await client.zadd(rows_key, {row[:20] + (3 + beyond).to_bytes(8, "big") + row[28:]: 0})
    await first.pack_rows([(TOPIC, 0), (TOPIC, 1)], 0)
    assert await client.zrange(rows_key, 0, -1) == [row]
    assert await found(second) == before
    assert reported(await commit(second, plain(2))) == [(0, 3, False)]
    assert [(one.base_offset, one.last_offset) for one in (await found(first)).rows] == [(0, 2), (3, 4)]


async def test_records_that_are_no_calls_are_skipped(proxies, journal) -> None:
    first, _ = proxies
    good = pack_record(JournalledCall("commit", (b"", b"")))
    for value in (b"", b"x", good[:-1], good.replace(b"commit", b"unfenc"), good[:3] + bytes(9) + b"\7"):
        await journal.append(SHARD, value)
    assert reported(await commit(first, plain(1))) == [(0, 0, False)]


async def test_a_record_of_a_newer_release_is_not_passed_over(proxies, journal) -> None:
    first, _ = proxies
    assert (await found(first)).high_watermark == 0
    await journal.append(SHARD, b"\1" + (RULES + 1).to_bytes(2, "big") + bytes(9))
    with pytest.raises(CoordinatorUnavailable, match=f"rules {RULES + 1}; this release knows 1 and {RULES}"):
        await first.commit(os.urandom(16), [PartitionRun(TOPIC, 0, 1, (plain(3),))])
    assert (await found(first)).high_watermark == 0


async def test_records_are_applied_even_if_memory_is_short(proxies, client: Redis) -> None:
    first, _ = proxies
    used = int((await client.info("memory"))["used_memory"])
    await client.config_set("maxmemory", used // 2)
    try:
        assert reported(await commit(first, plain(3))) == [(0, 0, False)]
    finally:
        await client.config_set("maxmemory", 0)


async def test_two_primaries_compute_the_same(proxies, journal, tmp_path, settings: config.Redis) -> None:
    first, _ = proxies
    other_store = Store(tmp_path)
    other_store.start()
    client = await connect(settings.model_copy(update={"url": other_store.url}))
    try:
        second = RedisCoordinator(
            client, settings, producer_id_expiration_ms=86_400_000, producer_batches_remembered=5, journal=journal
        )
        offsets: list[int] = []
        for number in range(20):
            side = (first, second)[number % 2]
            ((error, offset, _),) = reported(await commit(side, plain(2)))
            assert error == 0
            offsets.append(offset)
        assert offsets == list(range(0, 40, 2))
        assert (await found(first, 5)).rows == (await found(second, 5)).rows[: len((await found(first, 5)).rows)]
        assert (await found(second)).high_watermark == 40
    finally:
        await client.aclose()
        other_store.stop()


async def test_a_server_that_is_started_again_is_proved_before_it_answers(
    make_view, tmp_path, settings: config.Redis, journal
) -> None:
    own_store = Store(tmp_path, "--appendfsync", "no")
    own_store.start()
    client = await connect(settings.model_copy(update={"url": own_store.url}))
    try:
        coordinator = RedisCoordinator(
            client, settings, producer_id_expiration_ms=86_400_000, producer_batches_remembered=5, journal=journal
        )
        await coordinator.create_logs(TOPIC, [0])
        await commit(coordinator, plain(3))
        own_store.kill()
        own_store.start()
        reads = journal.reads
        while True:
            try:
                answer = await found(coordinator)
            except CoordinatorUnavailable:
                await asyncio.sleep(0.05)  # the client's connections were cut
                continue
            break
        assert answer.high_watermark == 3
        assert await client.hget(META, "proved")
        assert journal.reads >= reads
    finally:
        await client.aclose()
        own_store.stop()


async def test_a_store_without_a_journal_is_not_taken_for_a_view(make_coordinator, make_view) -> None:
    guarded, view = make_coordinator(), make_view()
    await guarded.create_logs(TOPIC, [0])
    with pytest.raises(CoordinatorUnavailable, match="begun without a journal"):
        await view.create_logs(TOPIC, [1])


async def test_a_view_is_not_written_without_the_journal(make_coordinator, make_view) -> None:
    view, guarded = make_view(), make_coordinator()
    await view.create_logs(TOPIC, [0])
    with pytest.raises(CoordinatorUnavailable, match="is a view of a journal"):
        await guarded.create_logs(TOPIC, [1])


async def test_a_view_of_another_journal_is_not_written(make_view, client: Redis, settings: config.Redis) -> None:
    await make_view().create_logs(TOPIC, [0])
    other = RedisCoordinator(
        client, settings, producer_id_expiration_ms=1000, producer_batches_remembered=5, journal=MemoryJournal()
    )
    with pytest.raises(CoordinatorUnavailable, match="another journal"):
        await other.create_logs(TOPIC, [0])


async def test_a_journal_that_was_truncated_is_reported(proxies, journal, client: Redis) -> None:
    first, _ = proxies
    await commit(first, plain(3))
    del journal.records[SHARD][-1]
    await client.hdel(META, "proved")
    with pytest.raises(CoordinatorUnavailable, match="truncated"):
        await found(first)


async def test_an_emptied_registry_is_rebuilt(make_registry_view, store: Store) -> None:
    first, second = make_registry_view(), make_registry_view()
    await first.reserve("one", 3, {"a": "b"}, "me")
    await first.activate("one", TOPIC, 3)
    await second.reserve("two", 1, {}, "me")
    before = await first.load()
    wipe(store)
    with pytest.raises(TopicReserved):
        await second.reserve("two", 1, {}, "other")
    assert await first.load() == before
    wipe(store)
    newcomer = make_registry_view()
    snapshot = await newcomer.load()
    assert (snapshot, snapshot.mark) == (before, before.mark)


async def test_a_change_of_the_registry_that_another_proxy_applied_is_answered(make_registry_view, journal) -> None:
    first, second = make_registry_view(), make_registry_view()
    apply = first._view.apply

    async def apply_late(partition: int, appended: Appended, call: JournalledCall):
        await second.reserve("other", 1, {}, "b")
        return await apply(partition, appended, call)

    first._view.apply = apply_late
    assert await first.reserve("one", 1, {}, "a") == 1
    with pytest.raises(TopicReserved):
        await first.reserve("one", 1, {}, "a")
    assert [topic.name for topic in (await second.load()).topics] == ["one", "other"]


async def test_a_full_shard_takes_no_commit_and_the_journal_no_record(
    client: Redis, settings: config.Redis, journal: MemoryJournal
) -> None:
    bound = settings.model_copy(update={"max_index_bytes": 300})
    coordinator = RedisCoordinator(
        client, bound, producer_id_expiration_ms=86_400_000, producer_batches_remembered=5, journal=journal
    )
    await coordinator.create_logs(TOPIC, [0])
    run = PartitionRun(TOPIC, 0, 1, (plain(3),))
    for error in (0, 0, QUOTA_EXCEEDED, QUOTA_EXCEEDED):
        (answer,) = await coordinator.commit(os.urandom(16), [run])
        assert answer.error_code == error
    assert len(journal.records[SHARD]) == 3, "logs, and two commits"
    await coordinator.delete_records([DeleteRequest(TOPIC, 0, -1)])
    (answer,) = await coordinator.commit(os.urandom(16), [run])
    assert answer.error_code == 0


async def test_a_store_whose_memory_is_full_gets_no_new_commits_and_the_journal_no_record(proxies, journal) -> None:
    coordinator, _ = proxies
    await commit(coordinator, plain(3))
    records = len(journal.records[SHARD])
    coordinator.view.memory_is_full = True
    (answer,) = await coordinator.commit(os.urandom(16), [PartitionRun(TOPIC, 0, 1, (plain(1),))])
    assert answer.error_code == QUOTA_EXCEEDED
    assert len(journal.records[SHARD]) == records
    await coordinator.delete_records([DeleteRequest(TOPIC, 0, -1)])  # makes room
    coordinator.view.memory_is_full = False
    assert reported(await commit(coordinator, plain(1))) == [(0, 3, False)]


async def test_no_name_is_reserved_while_the_memory_is_full(make_registry_view, journal) -> None:
    registry = make_registry_view()
    registry._view.memory_is_full = True
    with pytest.raises(CoordinatorUnavailable, match="memory is full"):
        await registry.reserve("one", 1, {}, "a")
    assert not any(journal.records.values())
    registry._view.memory_is_full = False
    assert await registry.reserve("one", 1, {}, "a") == 1


async def test_an_offset_that_another_primary_has_is_not_out_of_range(
    proxies, journal, tmp_path, settings: config.Redis
) -> None:
    first, _ = proxies
    await commit(first, plain(3))
    assert (await found(first, 3)).error_code == 0
    other_store = Store(tmp_path)
    other_store.start()
    client = await connect(settings.model_copy(update={"url": other_store.url}))
    try:
        second = RedisCoordinator(
            client, settings, producer_id_expiration_ms=86_400_000, producer_batches_remembered=5, journal=journal
        )
        assert reported(await commit(second, plain(2))) == [(0, 3, False)]
        answer = await found(first, 5)
        assert (answer.error_code, answer.high_watermark) == (0, 5)
        assert (await found(first, 6)).error_code == 1, "nobody has it"
    finally:
        await client.aclose()
        other_store.stop()


async def test_nothing_is_appended_while_the_store_is_away(journal, tmp_path, settings: config.Redis) -> None:
    own_store = Store(tmp_path)
    own_store.start()
    client = await connect(settings.model_copy(update={"url": own_store.url}))
    coordinator = RedisCoordinator(
        client, settings, producer_id_expiration_ms=86_400_000, producer_batches_remembered=5, journal=journal
    )
    run = PartitionRun(TOPIC, 0, 1, (plain(3),))
    try:
        await coordinator.create_logs(TOPIC, [0])
        own_store.kill()
        with pytest.raises(CoordinatorUnavailable):
            await coordinator.commit(b"first".ljust(16), [run])
        records = len(journal.records[SHARD])
        for number in range(3):
            (answer,) = await coordinator.commit(bytes([number]) * 16, [run])
            assert answer.error_code == STORAGE_ERROR
        assert len(journal.records[SHARD]) == records
        own_store.start()
        (again,) = await coordinator.commit(b"first".ljust(16), [run])
        assert reported(again.batches) == [(0, 0, False)], "the record that was appended is applied first"
        assert (await found(coordinator)).high_watermark == 3
    finally:
        await client.aclose()
        own_store.stop()


async def test_a_store_that_is_emptied_is_rebuilt_at_once_by_a_proxy_that_knew_it(
    proxies, store: Store, journal
) -> None:
    """Records of many kinds alternate: each kind is a call of its own."""
    first, _ = proxies
    for end in range(30):
        await commit(first, plain(1))
        await first.delete_records([DeleteRequest(TOPIC, 0, end)])
    before = await found(first, 29)
    wipe(store)
    reads = journal.reads
    assert await found(first, 29) == before
    assert journal.reads == reads + 1
