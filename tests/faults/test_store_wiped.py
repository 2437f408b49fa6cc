"""The coordinator's store loses everything under load: with a journal, nothing that was acknowledged is lost.

The load's ledger knows every acknowledged record and its offset. No operator does anything. Snapshots are taken all the
time, and the journal is trimmed before each loss: so the store is rebuilt from snapshots and the records after them.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest
import redis
from confluent_kafka import Consumer, TopicPartition

from proxy.demo.stack import Stack
from tests.support.load import assert_right, load_of, wait_for_more
from tests.support.topics import CLASSIC, DISKLESS
from tests.support.waiting import wait_for
from tests.tiers import Tier

WIPES_OF_TIER = {Tier.QUICK: 1, Tier.FULL: 5}
STACK_OF_TIER: dict[str, dict[str, Any]] = {
    # Two proxies rebuild the store at the same time, as three would; a broker and its replicas are not the subject.
    Tier.QUICK: {"racks": ("rack-a",), "proxies_per_rack": 2},
    Tier.FULL: {},
}
JOURNAL = "__diskless_journal"
pytestmark = pytest.mark.stack


def wait_for_trim(stack: Stack, start: int) -> int:
    """Wait until the journal is trimmed further than this sum of its partitions' starts, and return the sum."""
    consumer = Consumer({"bootstrap.servers": stack.direct_bootstrap, "group.id": "starts"})
    try:
        partitions = consumer.list_topics(JOURNAL, timeout=10).topics[JOURNAL].partitions

        def trimmed_to() -> int:
            watermarks = [consumer.get_watermark_offsets(TopicPartition(JOURNAL, one), 10) for one in partitions]
            now = sum(low for low, _ in watermarks)
            return now if now > start else 0

        return wait_for(trimmed_to, "the journal is not trimmed")
    finally:
        consumer.close()


def test_nothing_is_lost_if_the_store_loses_everything_under_load(
    new_stack: Callable[..., Stack], pytestconfig: pytest.Config
) -> None:
    tier = pytestconfig.getoption("tier")
    # With few messages in flight, the load's clients don't spin (`LoadOptions.producers_nice`).
    overrides = {"journal": {"snapshot_interval_ms": 1_000}, "diskless_append_commit_interval_ms": 50}
    stack = new_stack(overrides=overrides, **STACK_OF_TIER[tier])
    with load_of(stack) as load, redis.Redis.from_url(stack.redis.url) as client:
        wait_for_more(load, DISKLESS)
        start = 0
        for _ in range(WIPES_OF_TIER[tier]):
            start = wait_for_trim(stack, start)
            client.flushall()
            wait_for_more(load, DISKLESS, 200)
            wait_for_more(load, CLASSIC)
        wait_for_trim(stack, start)
        # Its process and its directory, too: an empty server takes its place.
        stack.kill_redis()
        shutil.rmtree(stack.directory / "data" / "redis")
        stack.redis.prepare()
        stack.start_redis()
        wait_for_more(load, DISKLESS, 200)
        tally = load.stop()
    assert_right(tally)
