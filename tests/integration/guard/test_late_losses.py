"""Losses that are noticed after the store has assigned many offsets again: the count is true, no offset comes twice."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.coordinator.redis import RedisCoordinator
from tests.integration.guard.test_coordinator_command import GAP, PARTITIONS, TOPIC, commit, tool, unfenced, verdict

FIRST, SECOND, THIRD = PARTITIONS


async def refused(coordinator: RedisCoordinator) -> str:
    """Return the text of the fence, after this proxy has reported what it knows."""
    await coordinator.shards.touch([0])
    return coordinator.fence.fenced[0]


async def offsets_lost(config_file: Any) -> tuple[int, str]:
    shard = (await verdict(config_file))["shards"][0]
    assert shard["fenced"]
    return shard["offsets_lost"], shard["why"]


async def test_the_new_primary_has_assigned_more_than_the_old_one_lost(start_proxy, config_file, losses) -> None:
    old, new = await start_proxy(), await start_proxy()
    await old.coordinator.create_logs(TOPIC, PARTITIONS)
    copy = losses.copy()
    await new.coordinator.shards.touch([0])
    assert await commit(old.coordinator, FIRST, record_count=2_500_000) == 0
    losses.restore(copy)
    assert [await commit(new.coordinator, SECOND, record_count=1_000_000) for _ in range(3)][-1] == 2_000_000

    assert "1 of its writes are gone, with 2500000 offsets" in await refused(old.coordinator)
    count, why = await offsets_lost(config_file)
    assert count == 2_500_000
    assert "1 of its writes are gone, with 2500000 offsets" in why
    shown = await tool(config_file, "check")
    assert "2500000" in shown.stdout
    done = await unfenced(config_file, "--all")
    assert done["shards"]["0"]["raised_by"] == 2_500_000 + GAP
    assert await commit(new.coordinator, FIRST) == 2_500_000 + GAP
    assert await commit(old.coordinator, SECOND) == 3_000_000 + 2_500_000 + GAP


async def test_a_loss_is_counted_over_several_lives_on_both_sides(start_proxy, config_file, losses) -> None:
    """The lost side was restarted three times after the copy was made, and so was the store."""
    old, new = await start_proxy(), await start_proxy()
    await old.coordinator.create_logs(TOPIC, PARTITIONS)
    assert await commit(old.coordinator, FIRST, record_count=100) == 0
    await new.coordinator.shards.touch([0])
    backup = losses.copy()
    for records in (10, 20, 30):
        await commit(old.coordinator, FIRST, record_count=records)
        losses.restore(losses.copy())
    await commit(old.coordinator, FIRST, record_count=40)
    losses.restore(backup)
    for _ in range(3):
        assert await commit(new.coordinator, SECOND, record_count=1_000) % 1_000 == 0
        losses.restore(losses.copy())

    assert "4 of its writes are gone, with 100 offsets" in await refused(old.coordinator)
    assert (await offsets_lost(config_file))[0] == 100
    done = await unfenced(config_file, "--all")
    assert done["shards"]["0"]["raised_by"] == 100 + GAP
    assert await commit(new.coordinator, FIRST) == 200 + GAP


async def test_losses_of_three_primaries_add_up_and_what_both_lost_counts_once(
    start_proxy, config_file, losses
) -> None:
    first, also_first, second, new = [await start_proxy() for _ in range(4)]
    await first.coordinator.create_logs(TOPIC, PARTITIONS)
    for one in (also_first, second, new):
        await one.coordinator.shards.touch([0])
    copy = losses.copy()
    await commit(first.coordinator, FIRST, record_count=100)
    await also_first.coordinator.shards.touch([0])
    await commit(also_first.coordinator, FIRST, record_count=50)
    losses.restore(copy)
    await commit(second.coordinator, SECOND, record_count=7_000)
    losses.restore(copy)
    await commit(new.coordinator, THIRD, record_count=10)
    for one in (first, second, also_first):
        await refused(one.coordinator)
    assert "3 of its writes are gone, with 7150 offsets" in await refused(new.coordinator)
    assert (await offsets_lost(config_file))[0] == 7_150
    await unfenced(config_file, "--all")
    assert await commit(new.coordinator, FIRST) >= 150
    assert await commit(first.coordinator, SECOND) >= 7_000


async def test_a_proxy_that_reports_after_unfence_fences_again_and_only_its_own_loss_counts(
    start_proxy, config_file, losses
) -> None:
    """It has fewer writes than were accepted as lost, but from another primary, and with more offsets."""
    first, dark, new = [await start_proxy() for _ in range(3)]
    await first.coordinator.create_logs(TOPIC, PARTITIONS)
    for one in (dark, new):
        await one.coordinator.shards.touch([0])
    copy = losses.copy()
    for _ in range(5):
        await commit(first.coordinator, FIRST)
    losses.restore(copy)
    await commit(dark.coordinator, SECOND, record_count=5_000)
    losses.restore(copy)
    await refused(first.coordinator)
    await unfenced(config_file, "--all")
    assert await commit(new.coordinator, SECOND) == 10 + GAP
    assert "1 of its writes are gone, with 5000 offsets" in await refused(dark.coordinator)
    assert (await offsets_lost(config_file))[0] == 5_000
    await unfenced(config_file, "--all")
    assert await commit(new.coordinator, SECOND) >= 5_000
    for one in (first, dark, new):
        await one.coordinator.shards.touch([0])
        assert not one.coordinator.fence.fenced


async def test_a_backup_of_before_an_unfence_counts_what_was_lost_since_and_not_what_was_skipped(
    start_proxy, config_file, losses
) -> None:
    proxy = await start_proxy()
    await proxy.coordinator.create_logs(TOPIC, PARTITIONS)
    await commit(proxy.coordinator, FIRST)
    backup = losses.copy()
    await commit(proxy.coordinator, FIRST)
    losses.restore(backup)
    await refused(proxy.coordinator)
    await unfenced(config_file, "--all")
    last = await commit(proxy.coordinator, FIRST, record_count=30)
    assert last == 4 + GAP
    losses.restore(backup)
    assert "with 30 offsets" in await refused(proxy.coordinator)
    assert (await offsets_lost(config_file))[0] == 30
    await unfenced(config_file, "--all")
    assert await commit(proxy.coordinator, FIRST) >= last + 30


@pytest.mark.parametrize("kept", [False, True])
async def test_the_stored_state_counts_as_exactly_as_a_live_proxys(
    start_proxy, config_file, losses, kept: bool
) -> None:
    """No proxy that knew is left: with the state in object storage, the count is the same."""
    old, new = await start_proxy(), await start_proxy()
    await old.coordinator.create_logs(TOPIC, PARTITIONS)
    await new.coordinator.shards.touch([0])
    backup = losses.copy()
    for records in (10, 20, 30):
        await commit(old.coordinator, FIRST, record_count=records)
        losses.restore(losses.copy())
    await commit(old.coordinator, FIRST, record_count=40)
    if kept:
        await old.watch.keep_known()
    losses.restore(backup)
    for _ in range(3):
        await commit(new.coordinator, SECOND, record_count=1_000)
        losses.restore(losses.copy())
    fresh = await start_proxy()
    shard = (await verdict(config_file))["shards"][0]
    assert shard["fenced"] == kept
    assert shard["offsets_lost"] == (100 if kept else 0)
    if kept:
        assert "4 of its writes are gone, with 100 offsets" in fresh.coordinator.fence.fenced[0]
