"""A deployment moves from one server to a cluster under load: no record and no offset is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from confluent_kafka import Consumer, TopicPartition

from proxy.demo.stack import Stack
from tests.integration.coordinator.clusters import StoreCluster
from tests.support.load import assert_right, load_of, wait_for_more
from tests.support.topics import CLASSIC, DISKLESS

SHARDS = 6
pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]


def run(stack: Stack, proxy: str, *arguments: str) -> str:
    command = [sys.executable, "-m", "proxy", *arguments, "--config", str(stack.config_path(proxy)), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def ends(stack: Stack, proxy: str, topic: str) -> dict[int, int]:
    """Return the end offset of each partition, as a proxy says."""
    consumer = Consumer({"bootstrap.servers": stack.proxies[proxy].bootstrap, "group.id": "ends"})
    try:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        found = {one: consumer.get_watermark_offsets(TopicPartition(topic, one), 30) for one in partitions}
    finally:
        consumer.close()
    return {one: high for one, (_, high) in found.items()}


def test_a_deployment_moves_to_a_cluster_under_load(new_stack: Callable[..., Stack], tmp_path: Path) -> None:
    stack = new_stack(
        overrides={"redis": {"shards": SHARDS}, "diskless_append_commit_interval_ms": 50},
        racks=("rack-a",),
        proxies_per_rack=2,
    )
    with StoreCluster(tmp_path / "cluster") as cluster, load_of(stack) as load:
        wait_for_more(load, DISKLESS, 200)
        for _ in range(2):  # again, for what came meanwhile
            moved = json.loads(run(stack, "rack-a", "coordinator", "move", "--to", cluster.url))
            assert moved["partitions"] == SHARDS + 1
        for proxy in list(stack.proxies):
            stack.configure_proxy(proxy, {"redis": {"url": cluster.url}})
            stack.terminate_proxy(proxy)
            stack.start_proxy(proxy)
            # The proxies have different stores for a while.
            wait_for_more(load, DISKLESS, 300)
        with redis.Redis.from_url(stack.redis.url) as old:
            assert old.dbsize() > 0
        stack.kill_redis()
        wait_for_more(load, DISKLESS, 200)
        wait_for_more(load, CLASSIC)
        tally = load.stop()
        assert_right(tally)
        assert json.loads(run(stack, "rack-a", "coordinator", "check"))["all_well"]
        first, second = (ends(stack, proxy, load.topics["diskless"]) for proxy in stack.proxies)
        assert first == second
        assert sum(first.values()) >= tally.topics["diskless"].produced
