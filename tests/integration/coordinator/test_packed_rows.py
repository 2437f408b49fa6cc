"""Old rows in packs: every answer stays the same, memory shrinks, and the index stays within its limit."""

from __future__ import annotations

import asyncio
import os
import struct

import pytest
from redis.asyncio import Redis

from proxy.coordinator import redis as coordinator_redis
from proxy.coordinator.interface import (
    MAX_TIMESTAMP,
    NO_PRODUCER_ID,
    DeleteRequest,
    FindRequest,
    ListRequest,
    LogAnswer,
    OffsetAnswer,
    PartitionRun,
    ProposedBatch,
    RetainRequest,
)
from proxy.coordinator.redis import RedisCoordinator
from proxy.coordinator.shards import partition_key, shard_of, shard_prefix

TOPIC = bytes(range(16))
LOG = (TOPIC, 0)
INDEX_FULL = 89
LOWEST, HIGHEST = -(2**53) + 1, 2**53 - 1
MEMBER_OVERHEAD_BYTES, ROW_BYTES = 66, 93


@pytest.fixture
async def coordinator(make_coordinator) -> RedisCoordinator:
    made: RedisCoordinator = make_coordinator()
    await made.create_logs(TOPIC, range(4))
    return made


def rows_key(settings, partition: int = 0) -> str:
    """Key of the rows of all logs of a partition's shard."""
    return f"{shard_prefix(shard_of(partition_key(TOPIC, partition), settings.shards))}rows"


async def members_of(client: Redis, settings, partition: int = 0) -> list[bytes]:
    """Members of one log's index."""
    key = partition_key(TOPIC, partition)
    found: list[bytes] = await client.zrangebylex(rows_key(settings, partition), b"[" + key, b"(" + key + b"\xff" * 8)
    return found


async def append(
    coordinator: RedisCoordinator,
    *timestamps: int,
    records: int = 1,
    length: int = 100,
    partition: int = 0,
    log_append_time: bool = False,
) -> None:
    """Append a segment, and so a row, for each timestamp."""
    for number, timestamp in enumerate(timestamps):
        batch = ProposedBatch(length + number, records, timestamp, NO_PRODUCER_ID, -1, -1)
        run = PartitionRun(TOPIC, partition, 1 + 1000 * number, (batch,), log_append_time=log_append_time)
        (answer,) = await coordinator.commit(os.urandom(16), [run])
        assert answer.error_code == 0


async def everything(coordinator: RedisCoordinator, timestamps: list[int]) -> tuple[object, ...]:
    """Return everything that readers can learn about the log."""
    (log,) = await coordinator.describe(TOPIC, [0])
    assert log is not None
    finds = [
        FindRequest(*LOG, offset, max_bytes)
        for offset in range(log.log_start_offset - 1, log.high_watermark + 2)
        for max_bytes in ((1, 350, 1 << 40) if offset % 16 == 0 else (1,))
    ]
    asked = sorted({*timestamps, *(timestamp + 1 for timestamp in timestamps), MAX_TIMESTAMP})
    found: list[LogAnswer] = []
    for start in range(0, len(finds), 50):
        found += await coordinator.find(finds[start : start + 50])
    listed: list[OffsetAnswer] = await coordinator.list_offsets(
        [ListRequest(*LOG, one) for one in asked if one < HIGHEST]
    )
    return log, found, listed


async def test_every_answer_stays_the_same(coordinator, client: Redis, settings) -> None:
    timestamps = [(7919 * number) % 997 + 1_000_000 for number in range(140)]
    await append(coordinator, *timestamps, records=3)
    before = await everything(coordinator, timestamps)
    await coordinator.pack_rows([LOG], 0)
    assert len(await members_of(client, settings)) == 4 + 140 % 32
    assert await everything(coordinator, timestamps) == before
    await append(coordinator, *range(10))
    await coordinator.pack_rows([LOG], 0)
    assert len(await members_of(client, settings)) == 5
    results = await everything(coordinator, timestamps)
    assert results[1][10:14] == [
        answer._replace(high_watermark=430, last_stable_offset=430) for answer in before[1][10:14]
    ]


@pytest.mark.parametrize("start", [2, 192, 200, 449])
async def test_a_pack_is_split_if_the_log_start_moves_into_it(make_coordinator, coordinator, start: int) -> None:
    """Compare with a log of the same rows that is never packed."""
    timestamps = [(7919 * number) % 997 + 1_000_000 for number in range(150)]
    await append(coordinator, *timestamps, records=3)
    await coordinator.delete_records([DeleteRequest(*LOG, start)])
    expected = await everything(coordinator, timestamps)
    await coordinator.delete_logs(TOPIC, [0])

    await coordinator.create_logs(TOPIC, [0])
    await append(coordinator, *timestamps, records=3)
    await coordinator.pack_rows([LOG], 0)
    await coordinator.delete_records([DeleteRequest(*LOG, start)])
    assert without_names(await everything(coordinator, timestamps)) == without_names(expected)


def without_names(results: tuple[object, ...]) -> tuple[object, ...]:
    """Remove segment names, which are random, and append times, which come from the clock."""
    log, found, listed = results
    assert isinstance(found, list)
    plain = [
        answer._replace(rows=tuple(row._replace(segment=b"", append_time_ms=0) for row in answer.rows))
        for answer in found
    ]
    return log, plain, listed


async def test_retention_by_size_counts_packed_rows_one_by_one(coordinator) -> None:
    await append(coordinator, *range(1, 101), length=1_000)
    await coordinator.pack_rows([LOG], 0)
    for keeps in (90, 63, 40, 7):
        (answer,) = await coordinator.retain([RetainRequest(*LOG, -1, sum(range(1_100 - keeps, 1_100)), False)])
        (log,) = await coordinator.describe(TOPIC, [0])
        assert (answer.log_start_offset, log.rows) == (100 - keeps, keeps)


async def test_a_packed_row_takes_at_most_60_bytes(coordinator, client: Redis, settings) -> None:
    batches: list[ProposedBatch] = []
    refused = ProposedBatch(1, 1, 0, 5, -1, 0)  # between the others, so that each of these is a row
    for number in range(960):
        batches += [ProposedBatch(16_384, 10, 1_700_000_000_000 + 250 * number, NO_PRODUCER_ID, -1, -1), refused]
    for start in range(0, len(batches), 480):
        await coordinator.commit(os.urandom(16), [PartitionRun(TOPIC, 0, 1, tuple(batches[start : start + 480]))])
    fresh = await client.memory_usage(rows_key(settings), samples=0)
    await coordinator.pack_rows([LOG], 0)
    packed = await client.memory_usage(rows_key(settings), samples=0)
    assert packed is not None
    assert fresh is not None
    assert packed / 960 <= 60 < fresh / 960
    sizes = await coordinator.index_sizes()
    assert sum(size.rows for size in sizes) == 960
    assert abs(sum(size.size_bytes for size in sizes) - packed) < packed / 5, "the books are as good as that"


async def test_young_rows_stay_as_they_are_and_few_are_left_for_later(coordinator, client: Redis, settings) -> None:
    await append(coordinator, *range(70))
    await coordinator.pack_rows([LOG], 3_600_000)
    assert len(await members_of(client, settings)) == 70
    await coordinator.pack_rows([LOG], 0)
    assert len(await members_of(client, settings)) == 2 + 6
    await append(coordinator, *range(26))
    await coordinator.pack_rows([LOG], 0)
    assert len(await members_of(client, settings)) == 3


async def test_rows_that_differ_too_much_are_no_neighbours(coordinator, monkeypatch) -> None:
    """Timestamps far apart, and rows with and without LogAppendTime."""
    monkeypatch.setattr(coordinator_redis, "FEWEST_ROWS_PER_PACK", 2)
    timestamps = [5, 6, LOWEST, LOWEST + 3, HIGHEST, HIGHEST - 1, -1, 7, 2**48, 0, 2**48]
    await append(coordinator, *timestamps)
    await append(coordinator, 1, 2, 3, log_append_time=True)
    await append(coordinator, 4, 5)
    before = await everything(coordinator, timestamps)
    await coordinator.pack_rows([LOG], 0)
    assert await everything(coordinator, timestamps) == before
    (found,) = await coordinator.find([FindRequest(*LOG, 0, 1 << 40)])
    assert [row.log_append_time for row in found.rows] == [False] * 11 + [True] * 3 + [False] * 2


async def test_rows_with_a_gap_between_them_are_no_neighbours(coordinator, client: Redis, settings) -> None:
    """An unfenced shard has such logs: they continue beyond offsets that may have been lost."""
    await append(coordinator, *range(30), records=3)
    key = partition_key(*LOG)
    logs = f"{shard_prefix(shard_of(key, settings.shards))}logs"
    log = await client.hget(logs, key)
    assert log is not None
    await client.hset(logs, key, log[:8] + struct.pack(">q", 200) + log[16:])
    await append(coordinator, *range(30), records=3)
    before = await everything(coordinator, list(range(30)))
    await coordinator.pack_rows([LOG], 0)
    assert len(await members_of(client, settings)) == 2
    assert await everything(coordinator, list(range(30))) == before


async def test_a_recreated_log_is_packed_from_its_beginning(coordinator, client: Redis, settings) -> None:
    for _ in range(2):
        await append(coordinator, *range(30))
        await coordinator.pack_rows([LOG], 0)
        assert len(await members_of(client, settings)) == 1
        await coordinator.delete_logs(TOPIC, [0])
        assert not await members_of(client, settings)
        assert await coordinator.index_sizes() == [(0, 0)] * settings.shards
        await coordinator.create_logs(TOPIC, [0])
    await coordinator.delete_logs(TOPIC, [0, 1, 2, 3])
    await coordinator.pack_rows([LOG], 0)
    assert not [key for key in await client.keys("*") if key.endswith(b"packed")]


async def test_packs_are_made_and_split_while_others_commit_and_delete(make_coordinator, monkeypatch) -> None:
    monkeypatch.setattr(coordinator_redis, "FEWEST_ROWS_PER_PACK", 2)
    monkeypatch.setattr(coordinator_redis, "MOST_ROWS_PER_PACK", 7)
    proxies = [make_coordinator() for _ in range(4)]
    await proxies[0].create_logs(TOPIC, [0])
    await asyncio.gather(
        *(append(proxy, *range(60), records=2) for proxy in proxies[:2]),
        *(proxies[2].pack_rows([LOG], 0) for _ in range(40)),
        *(proxies[3].delete_records([DeleteRequest(*LOG, before)]) for before in range(0, 60, 3)),
    )
    await proxies[2].delete_records([DeleteRequest(*LOG, 31)])
    await proxies[2].pack_rows([LOG], 0)
    (log,) = await proxies[0].describe(TOPIC, [0])
    (found,) = await proxies[1].find([FindRequest(*LOG, log.log_start_offset, 1 << 40)])
    offsets = [offset for row in found.rows for offset in range(row.base_offset, row.last_offset + 1)]
    assert offsets == list(range(log.log_start_offset - log.log_start_offset % 2, 240))
    assert (len(found.rows), sum(row.length for row in found.rows)) == (log.rows, log.size_bytes)


async def test_a_store_without_memory_still_packs(coordinator, client: Redis, settings) -> None:
    await append(coordinator, *range(200))
    before = await everything(coordinator, list(range(200)))
    await client.config_set("maxmemory", 1)
    try:
        await coordinator.pack_rows([LOG], 0)
    finally:
        await client.config_set("maxmemory", 0)
    assert len(await members_of(client, settings)) == 6 + 200 % 32
    assert await everything(coordinator, list(range(200))) == before


# The limit


@pytest.fixture
def limited(client: Redis, settings, request: pytest.FixtureRequest) -> RedisCoordinator:
    """Commits are rejected from 100 unpacked rows on."""
    bound = settings.model_copy(update={"max_index_bytes": 100 * (ROW_BYTES + MEMBER_OVERHEAD_BYTES)})
    return RedisCoordinator(client, bound, producer_id_expiration_ms=86_400_000, producer_batches_remembered=5)


async def test_a_full_index_takes_no_rows_until_there_is_room(limited, settings) -> None:
    full = shard_of(partition_key(*LOG), settings.shards)
    other = next(one for one in range(99) if shard_of(partition_key(TOPIC, one), settings.shards) != full)
    await limited.create_logs(TOPIC, [0, other])
    await append(limited, *range(100))
    batch = ProposedBatch(100, 1, 0, NO_PRODUCER_ID, -1, -1)
    runs = [PartitionRun(TOPIC, partition, 1, (batch,)) for partition in (0, other)]
    segment = os.urandom(16)
    answers = await limited.commit(segment, runs)
    assert [answer.error_code for answer in answers] == [INDEX_FULL, 0], "other shards go on"
    assert answers[0][3:] == ((), 0, 100)
    await limited.delete_records([DeleteRequest(*LOG, 1)])
    (answer, again) = await limited.commit(segment, runs)
    assert (answer.error_code, answer.batches[0].base_offset) == (0, 100)
    assert again == answers[1]
    (answer,) = await limited.commit(os.urandom(16), runs[:1])
    assert answer.error_code == INDEX_FULL
    await limited.pack_rows([LOG], 0)
    (answer,) = await limited.commit(os.urandom(16), runs[:1])
    assert answer.error_code == 0, "packing makes room"


async def test_a_retry_of_a_commit_is_answered_though_the_index_is_full(limited) -> None:
    await limited.create_logs(TOPIC, [0])
    await append(limited, *range(99))
    batch = ProposedBatch(100, 1, 0, NO_PRODUCER_ID, -1, -1)
    run, segment = PartitionRun(TOPIC, 0, 1, (batch,)), os.urandom(16)
    first = await limited.commit(segment, [run])
    assert await limited.commit(segment, [run]) == first
    assert (await limited.commit(os.urandom(16), [run]))[0].error_code == INDEX_FULL


async def test_an_early_batch_is_rejected_while_the_index_is_full_and_an_accepted_one_is_not(limited) -> None:
    await limited.create_logs(TOPIC, [0])
    await append(limited, *range(98))
    batches = tuple(ProposedBatch(100, 1, 0, *producer) for producer in [(7, 0, 0), (7, 0, 2)])
    run, segment = PartitionRun(TOPIC, 0, 1, batches), os.urandom(16)
    (first,) = await limited.commit(segment, [run])
    assert [batch.early for batch in first.batches] == [False, True]
    await append(limited, 99)
    (again,) = await limited.commit(segment, [run])
    assert again.error_code == 0
    assert again.batches[0] == first.batches[0]
    assert (again.batches[1].error_code, again.batches[1].early) == (INDEX_FULL, False)
    assert (await limited.delete_records([DeleteRequest(*LOG, 2)]))[0].error_code == 0
    (later,) = await limited.commit(segment, [run])
    assert later.batches == first.batches, "with room it is judged again"
