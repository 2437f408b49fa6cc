"""The effects of swaps on the members of an index and the store's counts: split packs, memory, fences, use."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

import pytest
from redis.asyncio import Redis

from proxy.coordinator import rewriting
from proxy.coordinator.interface import (
    DeleteRequest,
    FindRequest,
    PartitionRun,
    ProposedBatch,
    Row,
    SegmentUse,
    ShardFenced,
)
from proxy.coordinator.interface_rewriting import MAX_ROWS_PER_SWAP, Swap, SwapAnswer
from proxy.coordinator.redis import RedisCoordinator
from proxy.coordinator.shards import partition_key, shard_of, shard_prefix
from tests.integration.coordinator.test_packed_rows import (
    LOG,
    TOPIC,
    append,
    coordinator,
    everything,
    members_of,
    without_names,
)
from tests.integration.coordinator.test_replace import CHANGED, GONE, REPLACED, merged, rows, swap

__all__ = ["coordinator"]

MEMBER_OVERHEAD_BYTES = 66


async def books_are_right(coordinator: RedisCoordinator, client: Redis, settings) -> None:
    """Check the counts of a store whose only log is LOG."""
    members = await members_of(client, settings)
    sizes = await coordinator.index_sizes()
    (log,) = await coordinator.describe(TOPIC, [0])
    assert log is not None
    there = await all_rows(coordinator)
    assert sum(size.size_bytes for size in sizes) == sum(len(one) + MEMBER_OVERHEAD_BYTES for one in members)
    assert sum(size.rows for size in sizes) == log.rows == len(there)
    assert log.size_bytes == sum(row.length for row in there)
    used: dict[bytes, SegmentUse] = {}
    for row in there:
        size, count = used.get(row.segment, (0, 0))
        used[row.segment] = SegmentUse(size + row.length, count + 1)
    assert await all_use(coordinator, settings) == used


async def all_use(coordinator: RedisCoordinator, settings) -> dict[bytes, SegmentUse]:
    """Return the use of all shards; a segment is in one of them only."""
    found: dict[bytes, SegmentUse] = {}
    for shard in range(settings.shards):
        place = b"0"
        while True:
            some, place = await coordinator.rows.used_segments(shard, place)
            found.update(some)
            if place == b"0":
                break
    return found


async def all_rows(coordinator: RedisCoordinator) -> list[Row]:
    page = await coordinator.rows.index_page(*LOG, 0)
    there, maxima = [*page.rows], []
    while page.next_offset >= 0:
        page = await coordinator.rows.index_page(*LOG, page.next_offset)
        there += page.rows
    maxima = [one.running_maximum_ms for one in there]
    assert maxima == sorted(maxima)
    assert all(one.running_maximum_ms >= one.row.max_timestamp_ms for one in there)
    return [one.row for one in there]


@pytest.mark.parametrize(
    ("first", "last"), [(0, 31), (0, 32), (10, 20), (31, 32), (32, 63), (30, 130), (63, 64), (130, 139), (5, 6)]
)
async def test_packs_are_split_where_a_swap_begins_and_ends(
    coordinator, client: Redis, settings, first: int, last: int
) -> None:
    """Compare with a log of the same rows that is never packed."""
    timestamps = [(7919 * number) % 997 + 1_000_000 for number in range(140)]
    results = []
    for packed in (False, True):
        await append(coordinator, *timestamps, records=3)
        if packed:
            await coordinator.pack_rows([LOG], 0)
            assert len(await members_of(client, settings)) == 4 + 140 % 32
        old = (await rows(coordinator))[first : last + 1]
        assert await coordinator.rows.replace([swap(old, merged(old, segment=bytes(16)))]) == [REPLACED]
        await books_are_right(coordinator, client, settings)
        results.append(without_names(await everything(coordinator, timestamps)))
        await coordinator.pack_rows([LOG], 0)
        assert without_names(await everything(coordinator, timestamps)) == results[-1]
        await coordinator.delete_logs(TOPIC, [0])
        await coordinator.create_logs(TOPIC, [0])
    assert results[0] == results[1]


async def test_rows_are_taken_out_of_the_middle_of_a_pack(coordinator, client: Redis, settings) -> None:
    await append(coordinator, *range(32), records=2)
    await coordinator.pack_rows([LOG], 0)
    old = await rows(coordinator)
    assert await coordinator.rows.replace([swap(old[10:20], None), swap(old[31:], None)]) == [REPLACED, REPLACED]
    assert list(await rows(coordinator)) == [*old[:10], *old[20:31]]
    await books_are_right(coordinator, client, settings)
    assert len(await members_of(client, settings)) == 2
    for offset in (20, 39, 40):
        (answer,) = await coordinator.find([FindRequest(*LOG, offset, 1)])
        assert answer.rows[0].base_offset == 40
    assert await coordinator.rows.replace([swap((await rows(coordinator)), None)]) == [REPLACED]
    assert not await members_of(client, settings)
    await books_are_right(coordinator, client, settings)


async def test_merged_rows_are_packed_again_next_to_others_and_apart_from_them(
    coordinator, client: Redis, settings, monkeypatch
) -> None:
    """The position up to which a log is packed moves back; rows of merged objects and of others differ in their
    flags."""
    await append(coordinator, *range(128))
    await coordinator.pack_rows([LOG], 0)
    old = await rows(coordinator)
    swaps = [swap(old[at : at + 2], merged(old[at : at + 2])) for at in range(32, 96, 2)]
    assert await coordinator.rows.replace(swaps) == [REPLACED] * 32
    assert len(await members_of(client, settings)) == 1 + 32 + 1
    await coordinator.pack_rows([LOG], 0)
    assert len(await members_of(client, settings)) == 3
    there = await rows(coordinator)
    assert [row.offsets_in_place for row in there] == [False] * 32 + [True] * 32 + [False] * 32
    assert list(there[32:64]) == [one.new for one in swaps]
    await books_are_right(coordinator, client, settings)


async def test_the_most_rows_of_a_swap_and_many_swaps_at_a_time(coordinator, client: Redis, settings) -> None:
    batches = tuple(ProposedBatch(10, 1, 0, -1, -1, -1) for _ in range(2))
    await coordinator.create_logs(TOPIC, range(20))
    for _ in range(MAX_ROWS_PER_SWAP):
        await coordinator.commit(os.urandom(16), [PartitionRun(TOPIC, one, 1, batches) for one in range(20)])
    swaps, expected = [], []
    for partition in range(20):
        old = await rows(coordinator, partition)
        assert len(old) == MAX_ROWS_PER_SWAP
        some = [swap(old, merged(old), partition)]
        if partition % 2:
            some = [swap(old[at : at + 50], merged(old[at : at + 50]), partition) for at in range(0, 500, 50)]
        swaps += some
        expected.append([one.new for one in some])
    swaps.append(Swap(TOPIC, 99, old, None))
    assert await coordinator.rows.replace(swaps) == [*[REPLACED] * (len(swaps) - 1), GONE]
    assert [list(await rows(coordinator, partition)) for partition in range(20)] == expected


async def test_a_store_without_memory_still_swaps(coordinator, client: Redis, settings) -> None:
    await append(coordinator, *range(100))
    await coordinator.pack_rows([LOG], 0)
    old = await rows(coordinator)
    await client.config_set("maxmemory", 1)
    try:
        assert await coordinator.rows.replace([swap(old[10:90], merged(old[10:90]))]) == [REPLACED]
        assert await coordinator.rows.replace([swap(old[10:20], merged(old[10:20]))]) == [CHANGED]
    finally:
        await client.config_set("maxmemory", 0)
    await books_are_right(coordinator, client, settings)


async def test_a_fenced_shard_rejects_swaps_with_its_own_error(coordinator, client: Redis, settings) -> None:
    await append(coordinator, 1, 2)
    old = await rows(coordinator)
    shard = shard_of(partition_key(*LOG), settings.shards)
    await client.hset(f"{shard_prefix(shard)}meta", "fenced", "it is tried out")
    for call in (
        coordinator.rows.replace([swap(old, merged(old))]),
        coordinator.rows.compacted([LOG]),
        coordinator.rows.mark_compacted([(*LOG, 1)]),
        coordinator.rows.index_page(*LOG, 0),
        coordinator.rows.used_segments(shard),
        coordinator.rows.tombstones_of(shard, 1),
        coordinator.rows.correct_use(shard, bytes(16), SegmentUse(0, 0), SegmentUse(0, 0)),
    ):
        with pytest.raises(ShardFenced, match="it is tried out"):
            await call
    await client.hdel(f"{shard_prefix(shard)}meta", "fenced")
    assert await rows(coordinator) == old


async def test_merges_commits_deletions_and_packing_at_the_same_time(
    make_coordinator, client: Redis, settings, monkeypatch
) -> None:
    proxies = [make_coordinator() for _ in range(5)]
    await proxies[0].create_logs(TOPIC, [0])
    answers: list[SwapAnswer] = []

    async def merge(proxy: RedisCoordinator, most: int) -> None:
        for _ in range(60):
            old = await rows(proxy)
            pairs: Sequence[tuple[Row, ...]] = [old[at : at + most] for at in range(0, len(old), most)]
            answers.extend(await proxy.rows.replace([swap(some, merged(some)) for some in pairs if len(some) > 1]))

    async def pack(proxy: RedisCoordinator) -> None:
        for _ in range(60):
            await proxy.pack_rows([LOG], 0)

    async def delete(proxy: RedisCoordinator) -> None:
        for before in range(0, 150, 3):
            await proxy.delete_records([DeleteRequest(*LOG, min(before, len(await rows(proxy))))])

    await append(proxies[0], *range(200))
    await asyncio.gather(
        append(proxies[0], *range(150)),
        merge(proxies[1], 3),
        merge(proxies[2], 5),
        pack(proxies[3]),
        delete(proxies[4]),
    )
    assert set(answers) == {REPLACED, CHANGED}
    await books_are_right(proxies[0], client, settings)
    (log,) = await proxies[0].describe(*LOG[:1], [0])
    there = await rows(proxies[0])
    offsets = [offset for row in there for offset in range(row.base_offset, row.last_offset + 1)]
    assert [one for one in offsets if one >= log.log_start_offset] == list(range(log.log_start_offset, 350))


async def test_pages_of_an_index_hold_everything_once(coordinator, client: Redis, settings, monkeypatch) -> None:
    await append(coordinator, *range(200))
    await coordinator.pack_rows([LOG], 0)
    expected = list(await rows(coordinator))
    for most in (1, 7, 32, 33, 1000):
        monkeypatch.setattr(rewriting, "MAX_ROWS_PER_PAGE", most)
        assert await all_rows(coordinator) == expected
    # The pages also have rows that no reader gets: rows below the log start, and rows of a deleted log.
    await client.hdel(f"{shard_prefix(shard_of(partition_key(*LOG), settings.shards))}logs", partition_key(*LOG))
    page = await coordinator.rows.index_page(*LOG, 0)
    assert page.log is None
    assert [one.row for one in page.rows] == expected


async def test_use_is_returned_in_parts_and_corrected(coordinator, client: Redis, settings, monkeypatch) -> None:
    monkeypatch.setattr(rewriting, "MAX_SEGMENTS_PER_SCAN", 10)
    await append(coordinator, *range(700))
    there = await all_rows(coordinator)
    assert await all_use(coordinator, settings) == {row.segment: (row.length, 1) for row in there}
    shard, segment = shard_of(partition_key(*LOG), settings.shards), there[5].segment
    right, wrong, none = SegmentUse(there[5].length, 1), SegmentUse(7, 3), SegmentUse(0, 0)
    assert await coordinator.rows.correct_use(shard, segment, right, right)
    assert await coordinator.rows.correct_use(shard, segment, right, wrong)
    assert not await coordinator.rows.correct_use(shard, segment, right, none)
    assert await coordinator.segment_use([segment]) == [wrong]
    assert await coordinator.rows.correct_use(shard, segment, wrong, none)
    assert (await coordinator.used([segment]), await coordinator.garbage(0, 10)) == ([False], [segment])
    assert await coordinator.tombstone([segment]) == [segment]
    assert await coordinator.rows.tombstones_of(shard, 10) == [segment]
    assert not await coordinator.rows.correct_use(shard, segment, wrong, right)
    assert await coordinator.rows.correct_use(shard, segment, none, right)
    assert (await coordinator.used([segment]), await coordinator.garbage(0, 10)) == ([True], [])
    assert await coordinator.rows.tombstones_of(shard, 10) == []
    assert await coordinator.tombstoned(0, 10) == [], "a tombstone that is not everywhere is none"
    await books_are_right(coordinator, client, settings)
