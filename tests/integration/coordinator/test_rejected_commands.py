"""The start rejects a store that rejects a command; a script that stops halfway fences its shard."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import pytest
from redis.asyncio import Redis

from proxy import config
from proxy.coordinator.commands import OPTIONAL_COMMANDS, commands_of_scripts, rejected_commands
from proxy.coordinator.connect import StoreUnfit, connect
from proxy.coordinator.interface import (
    NO_PRODUCER_ID,
    CoordinatorUnavailable,
    FindRequest,
    PartitionRun,
    ProposedBatch,
    ShardFenced,
)
from proxy.coordinator.layout import check_store
from proxy.coordinator.redis import RedisCoordinator
from proxy.coordinator.shards import FLEET_PREFIX
from proxy.protocol.errors import KAFKA_STORAGE_ERROR, NONE
from tests.integration.coordinator.conftest import Store
from tests.integration.coordinator.losses import coordinator_of

TOPIC = bytes(range(16))
BATCH = ProposedBatch(100, 2, 1_000, producer_id=7, producer_epoch=0, base_sequence=0)
PLAIN_BATCH = ProposedBatch(100, 2, 1_000, NO_PRODUCER_ID, -1, -1)
NEEDED_COMMANDS = sorted(commands_of_scripts() - OPTIONAL_COMMANDS)
ALL_RIGHTS = "~diskless:* &diskless:* +@all"


async def allow(store: Store, *rights: str) -> config.Redis:
    """Give the user these rights; return the settings with which that user connects."""
    client = Redis(port=store.port)
    await client.execute_command("ACL", "SETUSER", "small", "reset", "on", ">word", *ALL_RIGHTS.split(), *rights)
    await client.aclose()
    return config.Redis(url=f"redis://small:word@127.0.0.1:{store.port}/0", shards=1, settle_ms=0)


@pytest.fixture
async def small(store: Store) -> AsyncIterator[tuple[Redis, config.Redis]]:
    """Return a client of a user whose rights the test changes."""
    settings = await allow(store)
    client = await connect(settings)
    yield client, settings
    await client.aclose()


async def commit(coordinator: RedisCoordinator, segment: bytes, sequence: int = 0, batch: ProposedBatch = BATCH):
    if batch.producer_id != NO_PRODUCER_ID:
        batch = batch._replace(base_sequence=sequence)
    (answer,) = await coordinator.commit(segment, [PartitionRun(TOPIC, 0, 1, (batch,))])
    return answer


@pytest.mark.parametrize("command", NEEDED_COMMANDS)
async def test_the_start_names_the_command_that_the_user_may_not_run(store, small, command: str) -> None:
    client, settings = small
    await check_store(client, settings)
    await allow(store, f"-{command.lower()}")
    with pytest.raises(StoreUnfit, match=f"the store rejects {command} ") as rejected:
        await check_store(client, settings)
    assert "docs/operations/redis.md" in str(rejected.value)


async def test_all_commands_that_are_missing_are_named_at_once(store, small) -> None:
    client, settings = small
    await allow(store, "-hscan", "-append", "-spublish")
    with pytest.raises(StoreUnfit, match="APPEND, HSCAN, SPUBLISH"):
        await check_store(client, settings)


async def test_a_user_without_the_channels_may_not_publish(store, small) -> None:
    client, settings = small
    await allow(store, "resetchannels")
    with pytest.raises(StoreUnfit, match="SPUBLISH"):
        await check_store(client, settings)


async def test_a_command_that_the_server_has_renamed_is_named(start_store: Callable[..., Store]) -> None:
    store = start_store("--rename-command", "HSCAN", "", "--rename-command", "APPEND", "XAPPEND")
    settings = config.Redis(url=store.url)
    client = await connect(settings)
    with pytest.raises(StoreUnfit, match="APPEND, HSCAN"):
        await check_store(client, settings)
    await client.aclose()


async def test_nothing_is_left_of_the_trial(client, settings) -> None:
    await check_store(client, settings)
    assert await client.keys("*check-*") == []


async def test_a_full_store_rejects_no_command(client, settings, store) -> None:
    await client.config_set("maxmemory", 1)
    try:
        assert await rejected_commands(client, settings.shards) == {}
    finally:
        await client.config_set("maxmemory", 0)


@pytest.mark.parametrize("batch", [BATCH, PLAIN_BATCH], ids=["idempotent", "plain"])
@pytest.mark.parametrize("command", ["hscan", "set", "zrem", "hget", "spublish", "pexpire", "zadd", "hset"])
async def test_a_commit_that_stopped_halfway_loses_nothing_that_is_acknowledged(
    store, small, command: str, batch: ProposedBatch
) -> None:
    coordinator = coordinator_of(*small)
    await coordinator.create_logs(TOPIC, [0])
    first, second = os.urandom(16), os.urandom(16)
    await allow(store, f"-{command}")
    with suppress(CoordinatorUnavailable):  # not every batch needs every command
        await commit(coordinator, first, batch=batch)
    await allow(store)
    acknowledged: dict[bytes | int, int] = {}
    for segment, sequence in ((first, 0), (second, 0), (os.urandom(16), 2)):
        answer = await commit(coordinator, segment, sequence, batch)
        for answered in answer.batches:
            if answered.error_code == NONE:
                acknowledged[segment if batch is PLAIN_BATCH else sequence] = answered.base_offset
    assert len(set(acknowledged.values())) == len(acknowledged), "no offset is given twice"
    if acknowledged:
        (found,) = await coordinator.find([FindRequest(TOPIC, 0, 0, 1 << 20)])
        assert {row.base_offset for row in found.rows} >= set(acknowledged.values()), "what is acknowledged is there"
        segments = {row.segment for row in found.rows}
        assert all(await coordinator.used(sorted(segments))), "no sweep takes its object for an orphan"


async def test_a_shard_whose_script_stopped_halfway_is_fenced_until_its_loss_is_accepted(store, small) -> None:
    coordinator = coordinator_of(*small)
    await coordinator.create_logs(TOPIC, [0])
    first = os.urandom(16)
    await allow(store, "-set")
    with pytest.raises(CoordinatorUnavailable, match="set"):
        await commit(coordinator, first)
    await allow(store)
    assert (await commit(coordinator, first)).error_code == KAFKA_STORAGE_ERROR
    assert "commit stopped halfway" in coordinator.fence.fenced[0]
    (look,) = await coordinator.shards.look()
    assert "commit stopped halfway" in look.why_fenced
    await coordinator.shards.unfence(0, 0, [(TOPIC, 0)])
    answer = await commit(coordinator, os.urandom(16), 2)
    assert [batch.base_offset for batch in answer.batches] == [2], "behind the row that is there"
    (described,) = await coordinator.describe(TOPIC, [0])
    assert described is not None
    assert (described.high_watermark, described.rows, described.size_bytes) == (4, 2, 200)
    (found,) = await coordinator.find([FindRequest(TOPIC, 0, 0, 1 << 20)])
    assert all(await coordinator.used([row.segment for row in found.rows]))


async def test_housekeeping_that_stopped_halfway_fences_its_shard(store, small) -> None:
    coordinator = coordinator_of(*small)
    await coordinator.create_logs(TOPIC, [0])
    await allow(store, "-hexists")
    with pytest.raises(CoordinatorUnavailable, match="hexists"):
        await coordinator.tombstone([os.urandom(16)])
    await allow(store)
    with pytest.raises(ShardFenced, match="tombstone stopped halfway"):
        await coordinator.describe(TOPIC, [0])


async def test_a_trial_of_the_fleets_keys_is_no_member_of_the_fleet(client, settings) -> None:
    await check_store(client, settings)
    assert await client.keys(FLEET_PREFIX + "*") == []


@pytest.mark.parametrize("beyond", [0, 1_000])
async def test_rows_that_something_wrote_past_the_scripts_fence_their_shard(small, beyond: int) -> None:
    """Nothing else would notice them, and the next commit would give their offsets again."""
    client, settings = small
    coordinator = coordinator_of(client, settings)
    await coordinator.create_logs(TOPIC, [0, 1])
    await commit(coordinator, os.urandom(16))
    await coordinator.pack_rows([(TOPIC, 0), (TOPIC, 1)], 0)
    (rows_key,) = await client.keys("diskless:*:rows")
    (row,) = await client.zrange(rows_key, 0, -1)
    last = 2 + beyond
    copied = row[:20] + last.to_bytes(8, "big") + row[28:]
    await client.zadd(rows_key, {copied: 0})
    with pytest.raises(ShardFenced, match="at or beyond its end"):
        await coordinator.pack_rows([(TOPIC, 1), (TOPIC, 0)], 0)
    assert (await commit(coordinator, os.urandom(16), 2)).error_code == KAFKA_STORAGE_ERROR
    (look,) = await coordinator.shards.look()
    assert "at or beyond its end" in look.why_fenced
    await coordinator.shards.unfence(0, 0, [(TOPIC, 0), (TOPIC, 1)])
    answer = await commit(coordinator, os.urandom(16), 2)
    assert [batch.base_offset for batch in answer.batches] == [last + 1]
    await coordinator.pack_rows([(TOPIC, 0), (TOPIC, 1)], 0)
