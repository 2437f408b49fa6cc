"""Properties of the real coordinator only: shards, scripts, bounds, counts, and a store that fails."""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest
from redis.asyncio import Redis

from proxy import config
from proxy.coordinator import packing
from proxy.coordinator.connect import connect
from proxy.coordinator.interface import (
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    NO_PRODUCER_ID,
    CoordinatorUnavailable,
    DeleteRequest,
    FindRequest,
    ListRequest,
    LogDescription,
    OffsetAnswer,
    PartitionRun,
    ProposedBatch,
)
from proxy.coordinator.redis import (
    MAX_ROWS_PER_DELETE_CALL,
    MAX_ROWS_PER_FIND,
    RedisCoordinator,
)
from proxy.coordinator.shard_calls import MAX_BATCHES_PER_CALL, MAX_ITEMS_PER_CALL
from proxy.coordinator.shards import NEIGHBOURS, partition_key, shard_of, shard_prefix
from proxy.protocol.errors import NONE, REQUEST_TIMED_OUT
from tests.integration.coordinator.conftest import MakeCoordinator, Store
from tests.unit.diskless.wal.buffer_doubles import BATCH as BUFFERED
from tests.unit.diskless.wal.buffer_doubles import HEADER, Storage
from tests.unit.diskless.wal.buffer_doubles import make as make_buffer

TOPIC = bytes(range(16))
BATCH = ProposedBatch(100, 2, 1_000, NO_PRODUCER_ID, -1, -1)


def run_of(partition: int, *batches: ProposedBatch) -> PartitionRun:
    return PartitionRun(TOPIC, partition, 1, batches or (BATCH,))


@pytest.fixture
def coordinator(make_coordinator: MakeCoordinator) -> RedisCoordinator:
    return make_coordinator()


async def test_partitions_spread_over_shards_and_all_keys_have_their_tag(coordinator, client: Redis, settings) -> None:
    await coordinator.create_logs(TOPIC, range(4 * NEIGHBOURS))
    batch = BATCH._replace(producer_id=5, producer_epoch=0, base_sequence=0)
    await coordinator.commit(os.urandom(16), [run_of(partition, batch) for partition in range(4 * NEIGHBOURS)])
    tags = {key.split(b"}")[0] for key in await client.keys("*")}
    assert tags == {shard_prefix(shard).split("}")[0].encode() for shard in range(settings.shards)}
    assert sum([await client.zcard(shard_prefix(shard) + "rows") for shard in range(settings.shards)]) == 4 * NEIGHBOURS


async def test_more_runs_and_batches_than_a_call_takes(coordinator) -> None:
    many = MAX_ITEMS_PER_CALL * 4
    await coordinator.create_logs(TOPIC, range(many))
    heavy = run_of(0, *[BATCH] * (MAX_BATCHES_PER_CALL + 1))
    runs = [heavy, *[run_of(partition, BATCH, BATCH) for partition in range(1, many)]]
    segment = os.urandom(16)
    answers = await coordinator.commit(segment, runs)
    assert [answer.partition for answer in answers] == list(range(many))
    assert answers[0].high_watermark == 2 * len(heavy.batches)
    assert {answer.high_watermark for answer in answers[1:]} == {4}
    assert await coordinator.commit(segment, runs[::-1]) == answers[::-1]
    await coordinator.delete_logs(TOPIC, range(many))
    assert await coordinator.describe(TOPIC, range(many)) == [None] * many


async def test_a_long_log_is_deleted_in_steps_and_found_in_pages(coordinator, client: Redis, settings) -> None:
    await coordinator.create_logs(TOPIC, [0])
    rows = 2 * MAX_ROWS_PER_DELETE_CALL + 1
    bad = BATCH._replace(producer_id=5, producer_epoch=-1)  # rejected, so that each of the others is a row
    await coordinator.commit(bytes(16), [run_of(0, *[BATCH, bad] * rows)])
    (found,) = await coordinator.find([FindRequest(TOPIC, 0, 0, 1 << 40)])
    assert len(found.rows) == MAX_ROWS_PER_FIND
    (found,) = await coordinator.find([FindRequest(TOPIC, 0, found.rows[-1].last_offset + 1, 1 << 40)])
    assert found.rows[0].base_offset == 2 * MAX_ROWS_PER_FIND
    await coordinator.delete_logs(TOPIC, [0])
    prefix = shard_prefix(shard_of(partition_key(TOPIC, 0), settings.shards))
    assert await client.keys(f"{prefix}rows") == []
    assert await client.zrange(f"{prefix}garbage", 0, -1) == [bytes(16)]
    assert await coordinator.index_sizes() == [(0, 0)] * settings.shards


async def test_an_interrupted_deletion_is_completed_before_the_log_is_recreated(
    coordinator, client: Redis, settings
) -> None:
    await coordinator.create_logs(TOPIC, [0])
    await coordinator.commit(bytes(16), [run_of(0)])
    key = partition_key(TOPIC, 0)
    prefix = shard_prefix(shard_of(key, settings.shards))
    await client.hdel(f"{prefix}logs", key)  # as the first step leaves it
    await coordinator.create_logs(TOPIC, [0])
    assert await coordinator.describe(TOPIC, [0]) == [LogDescription(0, 0, 0, 0, 0)]
    assert await client.zrange(f"{prefix}garbage", 0, -1) == [bytes(16)]


async def test_garbage_that_is_used_again_is_no_garbage(coordinator, client: Redis, settings) -> None:
    """A retry of a commit may bring a segment's other runs after the first were deleted with their topic."""
    first = 0
    shard = shard_of(partition_key(TOPIC, first), settings.shards)
    second = next(n for n in range(1, 100) if shard_of(partition_key(TOPIC, n), settings.shards) == shard)
    await coordinator.create_logs(TOPIC, [first, second])
    await coordinator.commit(bytes(16), [run_of(first)])
    await coordinator.delete_logs(TOPIC, [first])
    assert await client.zcard(f"{shard_prefix(shard)}garbage") == 1
    await coordinator.commit(bytes(16), [run_of(second)])
    assert await client.zcard(f"{shard_prefix(shard)}garbage") == 0


async def test_a_segment_that_is_used_by_two_logs_is_freed_by_halves(coordinator, client: Redis, settings) -> None:
    partitions = [n for n in range(50) if shard_of(partition_key(TOPIC, n), settings.shards) == 0][:2]
    await coordinator.create_logs(TOPIC, partitions)
    runs = [run_of(partitions[0], BATCH, BATCH._replace(length=7)), run_of(partitions[1], BATCH._replace(length=5))]
    await coordinator.commit(bytes(16), runs)
    segments, garbage = f"{shard_prefix(0)}segments", f"{shard_prefix(0)}garbage"
    assert await client.hgetall(segments) == {bytes(16): struct.pack(">qI", 112, 2)}
    await coordinator.delete_logs(TOPIC, partitions[:1])
    assert await client.hgetall(segments) == {bytes(16): struct.pack(">qI", 5, 1)}
    assert await client.zcard(garbage) == 0
    await coordinator.delete_logs(TOPIC, partitions[1:])
    assert await client.hgetall(segments) == {}
    assert await client.zcard(garbage) == 1


async def test_nothing_beyond_the_high_watermark_is_returned(coordinator, client: Redis, settings) -> None:
    """A commit that stopped halfway leaves such a log: its end did not move."""
    await coordinator.create_logs(TOPIC, [0])
    for timestamp, records in ((10, 2), (30, 2), (50, 1), (40, 2)):
        batch = BATCH._replace(max_timestamp_ms=timestamp, record_count=records)
        await coordinator.commit(os.urandom(16), [run_of(0, batch)])
    key = partition_key(TOPIC, 0)
    logs = f"{shard_prefix(shard_of(key, settings.shards))}logs"
    log = await client.hget(logs, key)
    assert log is not None
    await client.hset(logs, key, log[:8] + struct.pack(">q", 4) + log[16:48] + struct.pack(">q", 4) + log[56:])
    assert await coordinator.describe(TOPIC, [0]) == [LogDescription(0, 4, 400, 4, 4)]
    for offset, bases in ((0, [0, 2]), (3, [2]), (4, [])):
        (found,) = await coordinator.find([FindRequest(TOPIC, 0, offset, 1_000)])
        assert ([row.base_offset for row in found.rows], found.high_watermark) == (bases, 4)
    (beyond,) = await coordinator.find([FindRequest(TOPIC, 0, 5, 1_000)])
    assert beyond.error_code == 1
    timestamps = (LATEST_TIMESTAMP, MAX_TIMESTAMP, 30, 31)
    answers = await coordinator.list_offsets([ListRequest(TOPIC, 0, timestamp) for timestamp in timestamps])
    assert answers == [(0, 4, -1), (0, 2, 30), (0, 2, 30), (0, -1, -1)]


async def test_answers_are_kept_while_the_commit_may_be_repeated(coordinator, client: Redis, settings) -> None:
    await coordinator.create_logs(TOPIC, [0])
    now_s, _ = await client.time()
    await coordinator.commit(b"s" * 16, [run_of(0)])
    await coordinator.commit(b"t" * 16, [run_of(0)], not_after_ms=1_000 * now_s + 1_800_000)
    prefix = shard_prefix(shard_of(partition_key(TOPIC, 0), settings.shards))
    assert 3_600 < await client.ttl(f"{prefix}answers:" + "s" * 16) <= 4_200
    assert 2_402 < await client.ttl(f"{prefix}answers:" + "t" * 16) <= 3_002


async def test_calls_of_many_proxies_at_once_lose_nothing(make_coordinator) -> None:
    proxies = [make_coordinator() for _ in range(5)]
    await proxies[0].create_logs(TOPIC, range(6))
    commits = [
        proxy.commit(os.urandom(16), [run_of(partition) for partition in range(6)])
        for proxy in proxies
        for _ in range(20)
    ]
    answers = await asyncio.gather(*commits)
    for partition in range(6):
        offsets = sorted(answer[partition].batches[0].base_offset for answer in answers)
        assert offsets == list(range(0, 200, 2))


async def test_payload_bytes_are_counted(coordinator) -> None:
    await coordinator.create_logs(TOPIC, [0])
    await coordinator.commit(os.urandom(16), [run_of(0)])  # its reply has the list of lives
    sent, received = coordinator.bytes_sent, coordinator.bytes_received
    await coordinator.commit(os.urandom(16), [run_of(0)])
    assert (coordinator.bytes_sent - sent, coordinator.bytes_received - received) == (113 + 63 + 37, 76 + 18 + 19)


@pytest.mark.parametrize(
    "run",
    [
        PartitionRun(TOPIC[1:], 0, 1, (BATCH,)),
        PartitionRun(TOPIC, -1, 1, (BATCH,)),
        PartitionRun(TOPIC, 0, 1 << 32, (BATCH,)),
        run_of(0, BATCH._replace(record_count=0)),
        run_of(0, BATCH._replace(length=0)),
        run_of(0, BATCH._replace(producer_epoch=1 << 15)),
    ],
)
async def test_impossible_numbers_are_rejected(coordinator, run: PartitionRun) -> None:
    with pytest.raises(ValueError, match=r"does not name a log|can't be"):
        await coordinator.commit(bytes(16), [run])


async def test_two_runs_of_one_partition_are_rejected(coordinator) -> None:
    with pytest.raises(ValueError, match="at most one run per partition"):
        await coordinator.commit(bytes(16), [run_of(0), run_of(0)])


async def test_another_number_of_shards_is_rejected_by_every_call(coordinator, client: Redis, settings) -> None:
    await coordinator.create_logs(TOPIC, range(9))
    other = RedisCoordinator(
        client,
        settings.model_copy(update={"shards": 2}),
        producer_id_expiration_ms=86_400_000,
        producer_batches_remembered=5,
    )
    with pytest.raises(CoordinatorUnavailable, match=r"set up with 3 shards; set redis\.shards to that"):
        await other.commit(bytes(16), [run_of(partition) for partition in range(9)])


async def test_out_of_memory_writes_nothing_and_still_deletes(coordinator, client: Redis, settings) -> None:
    await coordinator.create_logs(TOPIC, [0])
    await coordinator.commit(bytes(16), [run_of(0)])
    before = {key: await client.dump(key) for key in await client.keys("*")}
    await client.config_set("maxmemory", 1)
    try:
        with pytest.raises(CoordinatorUnavailable, match="out of memory"):
            await coordinator.commit(os.urandom(16), [run_of(0)])
        assert {key: await client.dump(key) for key in await client.keys("*")} == before
        await coordinator.delete_logs(TOPIC, [0])
    finally:
        await client.config_set("maxmemory", 0)
    assert await coordinator.describe(TOPIC, [0]) == [None]
    prefix = shard_prefix(shard_of(partition_key(TOPIC, 0), settings.shards))
    assert await client.zrange(f"{prefix}garbage", 0, -1) == [bytes(16)]


async def test_a_silent_store_is_unavailable_in_time(start_store: Callable[..., Store]) -> None:
    store = start_store()
    patient = await connect(config.Redis(url=store.url, shards=2))
    settings = config.Redis(url=store.url, shards=2, timeout_ms=100)
    client = await connect(settings)
    ready, coordinator = (
        RedisCoordinator(each, settings, producer_id_expiration_ms=86_400_000, producer_batches_remembered=5)
        for each in (patient, client)
    )
    await ready.create_logs(TOPIC, range(8))
    store.pause()
    for runs in ([run_of(0)], [run_of(partition) for partition in range(8)]):
        with pytest.raises(CoordinatorUnavailable, match="while running commit"):
            await coordinator.commit(os.urandom(16), runs)
    await client.aclose()
    await patient.aclose()


async def test_a_cancelled_call_leaves_no_reply_behind_for_another(coordinator) -> None:
    await coordinator.create_logs(TOPIC, range(8))
    for attempt in range(60):
        runs = [run_of(partition) for partition in range(1 + attempt % 8)]
        segment = os.urandom(16)
        task = asyncio.create_task(coordinator.commit(segment, runs))
        for _ in range(attempt % 20):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        described = await coordinator.describe(TOPIC, [7, 0])
        answers = await coordinator.commit(segment, runs)
        assert [answer.partition for answer in answers] == [run.partition for run in runs]
        assert {len(answer.batches) for answer in answers} == {1}
        assert all(isinstance(description, LogDescription) for description in described)
    (first,) = await coordinator.describe(TOPIC, [0])
    assert first == LogDescription(0, 120, 6000, 60, 120)


# Announcements


async def test_announcements_continue_after_the_connection_broke(coordinator, client: Redis) -> None:
    await coordinator.create_logs(TOPIC, [0])
    async with aclosing(coordinator.announcements()) as announcements:
        assert await anext(announcements) is None
        await client.client_kill_filter(_type="pubsub")
        assert await anext(announcements) is None
        await coordinator.commit(os.urandom(16), [run_of(0)])
        announcement = await anext(announcements)
    assert announcement is not None
    assert announcement.high_watermark == 2


async def test_announcements_wait_for_a_store_that_is_down(start_store: Callable[..., Store]) -> None:
    store = start_store()
    settings = config.Redis(url=store.url, shards=2, timeout_ms=200)
    client = await connect(settings)
    coordinator = RedisCoordinator(
        client, settings, producer_id_expiration_ms=86_400_000, producer_batches_remembered=5
    )
    async with aclosing(coordinator.announcements()) as announcements:
        assert await anext(announcements) is None
        store.stop()
        waiting = asyncio.ensure_future(anext(announcements))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        store.start()
        assert await waiting is None
        # The silence is longer than the ping's limit: the connection is kept.
        waiting = asyncio.ensure_future(anext(announcements))
        await asyncio.sleep(0.7)
        assert not waiting.done()
        await coordinator.create_logs(TOPIC, [0])
        await coordinator.commit(os.urandom(16), [run_of(0)])
        assert await waiting is not None
    await client.aclose()


async def test_cancellation_is_never_swallowed(settings) -> None:
    """Python 3.11's `asyncio.wait_for` may do so, and then a task that should end continues."""
    # Each time uses a new client, so that connecting is cancelled, too.
    for turns in [*range(60)] * 4:
        client = await connect(settings)
        coordinator = RedisCoordinator(
            client, settings, producer_id_expiration_ms=86_400_000, producer_batches_remembered=5
        )

        async def use_forever(coordinator: RedisCoordinator = coordinator) -> None:
            async with aclosing(coordinator.announcements()) as announcements:
                async for _ in announcements:
                    while True:
                        await coordinator.describe(TOPIC, [0])

        task = asyncio.create_task(use_forever())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task], timeout=1)
        assert task.cancelled(), f"after {turns} turns of the loop"
        await client.aclose()


async def test_a_call_looks_at_a_bounded_number_of_producers_of_all_logs_together(make_coordinator, client) -> None:
    """Each log has as many as one call may check: the store serves no other request meanwhile."""
    coordinator = make_coordinator(producer_id_expiration_ms=1)
    logs = [(TOPIC, partition) for partition in range(30)]
    await coordinator.create_logs(TOPIC, [partition for _, partition in logs])
    for key in (partition_key(*log) for log in logs):
        prefix, fields = shard_prefix(shard_of(key, 3)), [key + number.to_bytes(8, "big") for number in range(400)]
        await client.hset(prefix + "producers", mapping=dict.fromkeys(fields, bytes(10 + 24 * 5)))
        await client.zadd(prefix + "producer_ids", dict.fromkeys(fields, 0))
    await client.config_resetstat()
    assert await coordinator.forget_producers(logs) == 400 * len(logs)
    statistics = await client.info("commandstats")
    calls = statistics["cmdstat_evalsha"]["calls"]
    assert calls >= 400 * len(logs) / 600, "a call looks at 500 at most"
    assert await coordinator.forget_producers(logs) == 0


def partition_elsewhere(settings: config.Redis) -> int:
    """Return a partition of another shard than partition 0."""
    first = shard_of(partition_key(TOPIC, 0), settings.shards)
    return next(one for one in range(1, 100) if shard_of(partition_key(TOPIC, one), settings.shards) != first)


async def test_a_shard_whose_script_fails_leaves_the_answers_of_the_others(
    coordinator, client: Redis, settings
) -> None:
    other, key = partition_elsewhere(settings), partition_key(TOPIC, 0)
    await coordinator.create_logs(TOPIC, [0, other])
    await client.set(shard_prefix(shard_of(key, settings.shards)) + "tombstones", "no sorted set")
    segment, runs = os.urandom(16), [run_of(0), run_of(other)]
    failed, committed = await coordinator.commit(segment, runs)
    assert (failed.partition, failed.error_code, failed.batches) == (0, REQUEST_TIMED_OUT, ())
    assert (committed.partition, committed.error_code, committed.high_watermark) == (other, NONE, 2)
    with pytest.raises(CoordinatorUnavailable, match="WRONGTYPE"):
        await coordinator.commit(segment, runs[:1])


async def test_a_plain_producer_writes_once_if_the_script_of_another_shard_fails(
    make_coordinator: MakeCoordinator, client: Redis, settings
) -> None:
    """If the producer got an unclear error, it would retry a batch that was committed."""
    coordinator, other, key = make_coordinator(), partition_elsewhere(settings), partition_key(TOPIC, 0)
    storage: Any = Storage()
    wal = await make_buffer(storage, coordinator, partitions=0, commit_timeout_s=0.1)
    await coordinator.create_logs(TOPIC, [0, other])
    await client.set(shard_prefix(shard_of(key, settings.shards)) + "tombstones", "no sorted set")
    outcomes: list[tuple[int, int]] = []
    for partition in (0, other):
        wal.append(
            TOPIC, partition, BUFFERED, HEADER, lambda outcome, at=partition: outcomes.append((at, outcome.error_code))
        )
    await wal.drain()
    assert sorted(outcomes) == [(0, REQUEST_TIMED_OUT), (other, NONE)]
    assert outcomes[0] == (other, NONE), "it does not wait for the shard that fails"


async def far_future_trimmed(coordinator: RedisCoordinator) -> None:
    """Write some 1,000 rows after one of the far future, which is trimmed: only a look at each row finds a time."""
    await coordinator.create_logs(TOPIC, [0])
    await coordinator.commit(os.urandom(16), [run_of(0, BATCH._replace(max_timestamp_ms=10**15))])
    bad = BATCH._replace(producer_id=5, producer_epoch=-1)  # rejected, so that each of the others is a row
    for _ in range(4):
        await coordinator.commit(os.urandom(16), [run_of(0, *[BATCH, bad] * 249)])
    await coordinator.delete_records([DeleteRequest(TOPIC, 0, 2)])


async def test_a_call_looks_at_few_rows_however_many_lookups_it_is_for(make_coordinator: MakeCoordinator) -> None:
    """A request may name one partition hundreds of times: the store serves nobody else during a call."""
    coordinator = make_coordinator()
    await far_future_trimmed(coordinator)
    requests = [ListRequest(TOPIC, 0, 2_000 + number) for number in range(50)]
    found = await coordinator._list(dict(enumerate(requests)))
    rows = [again_from // 2 for _, again_from in found]
    assert all(rows), "each has gone on"
    assert sum(rows) <= 500 + 2 * len(requests)
    assert await coordinator.list_offsets(requests) == [OffsetAnswer(NONE, -1, -1)] * len(requests)


async def test_long_lookups_by_time_take_turns(make_coordinator: MakeCoordinator, monkeypatch) -> None:
    """Many such lookups must not fill the store."""
    coordinator = make_coordinator()
    await far_future_trimmed(coordinator)
    at_once, most, calls = 0, 0, 0
    run = coordinator._calls.run

    async def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal at_once, most, calls
        going_on = packing.pack_list(ListRequest(TOPIC, 0, 2_000)) not in arguments[2]
        at_once, calls = at_once + going_on, calls + going_on
        most = max(most, at_once)
        try:
            return await run(*arguments, **options)
        finally:
            at_once -= going_on

    monkeypatch.setattr(coordinator._calls, "run", counted)
    answers = await asyncio.gather(*[coordinator.list_offsets([ListRequest(TOPIC, 0, 2_000)]) for _ in range(10)])
    assert answers == [[OffsetAnswer(NONE, -1, -1)]] * 10
    assert (calls, most) == (10, 1)
