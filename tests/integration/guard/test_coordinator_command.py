"""`diskless-proxy coordinator check` and `unfence`: a loss is reported and accepted, and no offset is assigned
twice."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

from proxy.cli import app
from proxy.coordinator.fleet_store import RedisFleetStore
from proxy.coordinator.interface import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    NO_PRODUCER_ID,
    DeleteRequest,
    FindRequest,
    ListRequest,
    PartitionRun,
    ProposedBatch,
    RetainRequest,
)
from proxy.coordinator.interface_fleet import ProxyRecord
from proxy.coordinator.redis import RedisCoordinator
from proxy.coordinator.shards import partition_key, shard_of
from proxy.protocol.errors import NONE
from tests.integration.guard.conftest import SHARDS
from tests.support.ports import free_port

TOPIC = bytes(range(16))
BATCH = ProposedBatch(100, 2, 1_000, NO_PRODUCER_ID, -1, -1)
PARTITIONS = [n for n in range(20) if shard_of(partition_key(TOPIC, n), SHARDS) == 0][:3]
"""Partitions of one shard."""
GAP = 1_000


async def commit(coordinator: RedisCoordinator, partition: int = PARTITIONS[0], **changes: int) -> int:
    run = PartitionRun(TOPIC, partition, 1, (BATCH._replace(**changes),))
    (answer,) = await coordinator.commit(os.urandom(16), [run])
    assert not answer.batches or answer.batches[0].error_code == NONE
    return answer.batches[0].base_offset if answer.batches else -1


async def tool(config_file: Path, *arguments: str, answer: str | None = None) -> Result:
    """Run the command next to live proxies."""
    command = ["coordinator", arguments[0], "--config", str(config_file), *arguments[1:]]
    return await asyncio.to_thread(CliRunner().invoke, app, command, input=answer)


async def verdict(config_file: Path) -> dict[str, Any]:
    found = await tool(config_file, "check", "--json")
    document: dict[str, Any] = json.loads(found.stdout)
    assert found.exit_code == (0 if document["all_well"] else 1)
    return document


async def unfenced(config_file: Path, *which: str) -> dict[str, Any]:
    found = await tool(config_file, "unfence", *which, "--yes", "--json", "--gap", str(GAP))
    assert found.exit_code == 0, found.output
    document: dict[str, Any] = json.loads(found.stdout)
    return document


async def ends(coordinator: RedisCoordinator, partition: int) -> tuple[int, int]:
    requests = [ListRequest(TOPIC, partition, timestamp) for timestamp in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP)]
    earliest, latest = await coordinator.list_offsets(requests)
    assert earliest.error_code == latest.error_code == NONE
    return earliest.offset, latest.offset


async def test_a_healthy_store(start_proxy, config_file) -> None:
    proxy = await start_proxy()
    await proxy.coordinator.create_logs(TOPIC, PARTITIONS)
    await commit(proxy.coordinator)
    await proxy.watch.keep_known()
    found = await verdict(config_file)
    assert found["all_well"]
    assert found["identity"] == found["storage_identity"]
    first = found["shards"][0]
    assert (first["logs"], first["offsets_given"], first["sequence"], first["remembered_sequence"]) == (3, 2, 2, 2)
    shown = await tool(config_file, "check")
    assert shown.exit_code == 0
    assert "as they should be" in shown.stdout
    for which in (["--all"], ["--shard", "0"]):
        refused = await tool(config_file, "unfence", *which, "--yes")
        assert refused.exit_code == 1
        assert "is fenced" in refused.output or "is not fenced" in refused.output


async def test_a_partial_loss_is_accepted_and_no_offset_is_assigned_twice(start_proxy, config_file, losses) -> None:
    first, second = await start_proxy(), await start_proxy()
    await first.coordinator.create_logs(TOPIC, PARTITIONS)
    idempotent = {"producer_id": 5, "producer_epoch": 0}
    assert await commit(first.coordinator, **idempotent, base_sequence=0) == 0
    copy = losses.copy()
    lost = [await commit(first.coordinator, **idempotent, base_sequence=2 * number) for number in (1, 2)]
    lost_beside = await commit(second.coordinator, PARTITIONS[1])
    losses.restore(copy)
    assert await commit(second.coordinator) == -1
    assert await commit(first.coordinator) == -1
    found = await verdict(config_file)
    assert (found["shards"][0]["fenced"], found["shards"][0]["offsets_lost"]) == (True, 6)
    assert "3 of its writes are gone" in found["shards"][0]["why"] or "2 of its writes" in found["shards"][0]["why"]
    assert not found["shards"][1]["fenced"]

    declined = await tool(config_file, "unfence", "--shard", "0", answer="n\n")
    assert declined.exit_code == 1
    assert "What may be lost" in declined.output
    assert await commit(first.coordinator) == -1
    done = await unfenced(config_file, "--shard", "0")
    assert done["shards"] == {"0": {"raised_by": 6 + GAP, "raised": 3, "made": 0}}

    # No restart is needed, and the producer continues, too.
    assert await commit(first.coordinator, **idempotent, base_sequence=6) == 2 + 6 + GAP > max(lost)
    assert await commit(second.coordinator, PARTITIONS[1]) == 6 + GAP > lost_beside
    assert await ends(first.coordinator, PARTITIONS[0]) == (0, 2 + 6 + GAP + 2)
    assert await ends(first.coordinator, PARTITIONS[2]) == (0, 6 + GAP)
    assert (await verdict(config_file))["all_well"]
    (answer,) = await second.coordinator.find([FindRequest(TOPIC, PARTITIONS[0], lost[1], 1)])
    assert (answer.error_code, answer.rows[0].base_offset) == (NONE, 2 + 6 + GAP), "a reader skips the gap"
    (answer,) = await second.coordinator.find([FindRequest(TOPIC, PARTITIONS[2], 3, 1)])
    assert answer[:4] == (NONE, (), 0, 6 + GAP), "a gap at the end has no rows"
    asked = [ListRequest(TOPIC, PARTITIONS[0], 1_000, lost[1]), ListRequest(TOPIC, PARTITIONS[2], 1_000)]
    assert [dated.offset for dated in await second.coordinator.list_offsets(asked)] == [2 + 6 + GAP, -1]
    starts = []
    for most_bytes in (BATCH.length, 0):
        starts += await second.coordinator.retain([RetainRequest(TOPIC, PARTITIONS[0], -1, most_bytes, False)])
    assert starts == [(NONE, 2), (NONE, 2 + 6 + GAP + 2)], "retention goes on behind it"
    assert await second.coordinator.delete_records([DeleteRequest(TOPIC, PARTITIONS[2], 3)]) == [(NONE, 3)]
    stranger = await start_proxy()
    assert await commit(stranger.coordinator) == 2 + 6 + GAP + 2
    assert not stranger.coordinator.fence.fenced


async def test_lost_partitions_begin_after_their_old_offsets_when_they_are_recreated(
    start_proxy, config_file, losses
) -> None:
    proxy = await start_proxy()
    await proxy.coordinator.create_logs(TOPIC, PARTITIONS[:1])
    await commit(proxy.coordinator)
    copy = losses.copy()
    await proxy.coordinator.create_logs(TOPIC, PARTITIONS[1:2], growing=True)
    lost = [await commit(proxy.coordinator, PARTITIONS[1]) for _ in range(3)]
    assert lost == [0, 2, 4], "nothing was lost yet"
    losses.restore(copy)
    assert await commit(proxy.coordinator) == -1
    await unfenced(config_file, "--shard", "0")
    await proxy.coordinator.create_logs(TOPIC, PARTITIONS, growing=True)
    for partition in PARTITIONS[1:]:
        start, end = await ends(proxy.coordinator, partition)
        assert start == end > max(lost) + 1
    other = bytes(16)[:-1] + b"x"
    mine = next(n for n in range(100) if shard_of(partition_key(other, n), SHARDS) == 0)
    await proxy.coordinator.create_logs(other, [mine])
    (described,) = await proxy.coordinator.describe(other, [mine])
    assert (described.log_start_offset, described.high_watermark) == (0, 0), "a new topic has lost nothing"


async def test_a_proxy_that_knows_more_than_was_accepted_fences_again(start_proxy, config_file, losses) -> None:
    first, dark = await start_proxy(), await start_proxy()
    await first.coordinator.create_logs(TOPIC, PARTITIONS)
    copy = losses.copy()
    await commit(first.coordinator)
    known_to_all = losses.copy()
    await commit(dark.coordinator)
    losses.restore(copy)
    assert await commit(first.coordinator) == -1
    await unfenced(config_file, "--all")
    assert await commit(first.coordinator) == 2 + GAP
    assert await commit(dark.coordinator) == -1
    assert await commit(first.coordinator) == -1
    done = await unfenced(config_file, "--all")
    assert await commit(dark.coordinator) > 4 + GAP
    assert done["shards"]["0"]["raised_by"] >= GAP
    losses.restore(known_to_all)
    for one in (first, dark):
        assert await commit(one.coordinator) == -1, "a state that was given up is no way back"


async def test_a_store_that_lost_everything(start_proxy, config_file, losses) -> None:
    proxy = await start_proxy()
    registry = proxy.topics.registry
    await registry.reserve("a", 3, {}, "somebody")
    await proxy.coordinator.create_logs(TOPIC, range(3))
    await registry.activate("a", TOPIC, 3)
    await proxy.topics.load()
    for partition in (0, 0, 1, 2):
        await commit(proxy.coordinator, partition)
    await proxy.watch.keep_known()
    losses.empty()
    found = await verdict(config_file)
    assert "the store has no identity" in found["unfit"]
    assert found["registry_version"] == 0
    fenced = [one for one in found["shards"] if one["fenced"]]
    assert [one["offsets_lost"] for one in fenced] == [8]
    await proxy.watch.look()
    assert proxy.watch.unfit is not None
    assert proxy.topics.gone_back or not await proxy.topics.load()
    assert (await tool(config_file, "unfence", "--shard", "0", "--yes")).exit_code == 1

    done = await unfenced(config_file, "--all")
    assert done["identity_given"]
    assert done["registry_version"] > 2
    await proxy.watch.look()
    assert proxy.watch.unfit is None
    assert not proxy.topics.gone_back
    assert proxy.topics.find("a") is None
    stranger = await start_proxy()
    assert not stranger.coordinator.fence.fenced
    assert (await verdict(config_file))["all_well"]


async def test_an_emptied_shard_whose_topics_are_known(start_proxy, config_file, losses, client) -> None:
    proxy = await start_proxy()
    await proxy.topics.registry.reserve("a", 3, {}, "somebody")
    await proxy.coordinator.create_logs(TOPIC, range(3))
    await proxy.topics.registry.activate("a", TOPIC, 3)
    given = [await commit(proxy.coordinator, partition) for partition in (0, 0, 1, 2)]
    for key in await client.keys("diskless:{d[0-9]*}:*"):
        await client.delete(key)
    await proxy.coordinator.shards.touch(range(SHARDS))
    assert proxy.coordinator.fence.fenced.keys() == {shard_of(partition_key(TOPIC, n), SHARDS) for n in range(3)}
    done = await unfenced(config_file, "--all")
    assert sum(one["made"] for one in done["shards"].values()) == 3
    for partition in range(3):
        earliest, latest = await ends(proxy.coordinator, partition)
        assert earliest == latest == await commit(proxy.coordinator, partition) > max(given)


async def test_urls_of_different_deployments_cannot_be_accepted(start_proxy, config_file, client) -> None:
    await start_proxy()
    await client.hset("diskless:{registry}:store", "identity", "another")
    assert "one URL is wrong" in (await verdict(config_file))["unfit"]
    refused = await tool(config_file, "unfence", "--all", "--yes")
    assert refused.exit_code == 1
    assert "fix the URL" in refused.output


@pytest.mark.parametrize("arguments", [[], ["--all", "--shard", "1"]])
async def test_the_shards_to_unfence_must_be_named(config_file, arguments: list[str]) -> None:
    refused = await tool(config_file, "unfence", *arguments)
    assert refused.exit_code == 1
    assert "give either --shard NUMBER or --all" in refused.output


async def test_a_store_that_does_not_answer(tmp_path, config_file) -> None:
    document = yaml.safe_load(config_file.read_text())
    document["redis"]["url"] = f"redis://127.0.0.1:{free_port()}"
    config_file.write_text(yaml.safe_dump(document))
    (tmp_path / "wal").mkdir()
    found = await tool(config_file, "check")
    assert found.exit_code == 1
    assert "check that the store runs and that redis.url is right" in found.output


async def test_proxies_that_saw_more_of_the_registry_than_is_remembered_trust_it_again(
    config_file, start_proxy, losses, client
) -> None:
    proxy = await start_proxy()
    old = losses.copy()
    for number in range(10):
        await proxy.topics.registry.reserve(f"t{number}", 1, {}, "me")
        if number == 5:
            await proxy.topics.load()
            await proxy.watch.keep_known()
    await proxy.topics.load()
    losses.restore(old)
    await RedisFleetStore(client).beat(ProxyRecord("me", "a", (), proxy.topics.version), 60_000)
    await proxy.watch.look()
    await proxy.topics.load()
    assert proxy.topics.gone_back
    assert (await verdict(config_file))["registry_version_seen"] == 10
    done = await tool(config_file, "unfence", "--all", "--yes")
    assert done.exit_code == 0, done.output
    await proxy.topics.load()
    assert not proxy.topics.gone_back
    assert proxy.topics.version > 1_000_000
