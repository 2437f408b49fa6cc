"""The coordinator's store comes back with less than it acknowledged: it is fenced and reported, and work continues
after the loss is accepted."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis
from confluent_kafka import KafkaError, Producer, TopicPartition

from proxy.coordinator.shards import NEIGHBOURS, partition_key, shard_of
from proxy.demo.stack import Stack
from proxy.demo.waiting import wait_until
from tests.support.confluent import consumer, produce, produce_to, read
from tests.support.java_tools import TOOLS, JavaTools, compile_launcher
from tests.support.metrics import Metrics
from tests.support.readiness import readiness
from tests.support.records import samples
from tests.support.topics import DISKLESS, new_topic, offsets

with warnings.catch_warnings():
    # Its import raises warnings that are not ours to fix.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer
    from kafka import TopicPartition as KafkaPartition

RACK = "rack-a"
BOTH = (RACK, f"{RACK}-2")
SHARDS = 4
ONE_OF_EACH_SHARD = range(0, SHARDS * NEIGHBOURS, NEIGHBOURS)
"""Partitions of a topic, one in each shard."""
QUICK = {
    "redis": {"shards": SHARDS, "settle_ms": 1_500, "check_interval_ms": 200, "remember_interval_ms": 500},
    "garbage": {"interval_ms": 300, "grace_ms": 500, "orphan_sweep_interval_ms": 500, "orphan_age_ms": 4_000},
}


def until(complaint: Callable[[], str]) -> None:
    wait_until(complaint, 60, threading.Event(), str)


def refused(stack: Stack, topic: str, partition: int, timeout_ms: int = 3_000) -> bool:
    """True if a record is not stored; the producer gives up after a while."""
    failures: list[bool] = []
    producer = Producer({"bootstrap.servers": stack.bootstrap(RACK), "message.timeout.ms": timeout_ms})
    producer.produce(
        topic, b"lost", partition=partition, on_delivery=lambda error, _: failures.append(error is not None)
    )
    producer.flush(30 + timeout_ms / 1000)
    (failed,) = failures
    return failed


def offsets_read(stack: Stack, topic: str, last: int) -> list[int]:
    """Return the offsets of partition 0, from its beginning to the last one."""
    found: list[int] = []
    with consumer(stack.bootstrap(RACK)) as reader:
        reader.assign([TopicPartition(topic, 0, 0)])
        while last not in found:
            message = reader.poll(60)
            assert message is not None, f"nothing comes after {found}"
            assert message.error() is None
            found.append(message.offset() or 0)
    return found


def read_to_the_end(stack: Stack, topic: str, end: int, java: JavaTools) -> None:
    """Read partition 0 with three kinds of clients. The last records' offsets are lost, and nobody writes to it."""
    bootstrap = stack.bootstrap(RACK)
    with consumer(bootstrap, enable_partition_eof=True) as reader:
        reader.assign([TopicPartition(topic, 0, 0)])
        while not ((message := reader.poll(60)) and message.error()):
            assert message is not None, "the end is not reached"
        error = message.error()
        assert error is not None
        assert (error.code(), message.offset()) == (KafkaError._PARTITION_EOF, end)
    with closing(KafkaConsumer(bootstrap_servers=bootstrap)) as client:
        partition = KafkaPartition(topic, 0)
        client.assign([partition])
        client.seek(partition, 0)
        deadline = time.monotonic() + 60
        while client.position(partition) < end:
            assert time.monotonic() < deadline, f"it stays at {client.position(partition)}"
            client.poll(timeout_ms=500)
    asked = ["--topic", topic, "--group", topic, "--from-beginning", "--timeout-ms", "30000"]
    java.check(f"{TOOLS}.consumer.ConsoleConsumer", "--bootstrap-server", bootstrap, *asked)
    with consumer(bootstrap, group_id=topic) as member:
        (committed,) = member.committed([TopicPartition(topic, 0)], 30)
    assert committed.offset == end


def tool(stack: Stack, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "proxy", "coordinator", arguments[0], "--config", str(stack.config_path(RACK))]
    return subprocess.run([*command, *arguments[1:]], capture_output=True, text=True, timeout=60, check=False)


def checked(stack: Stack) -> dict[str, Any]:
    verdict: dict[str, Any] = json.loads(tool(stack, "check", "--json").stdout)
    return verdict


def fenced(stack: Stack, rack: str) -> int:
    return int(Metrics(stack, rack).value("fenced_shards"))


@pytest.mark.timeout(300)
def test_a_shard_is_fenced_and_continues_once_the_loss_is_accepted(
    new_stack: Callable[..., Stack], tmp_path: Path
) -> None:
    stack = new_stack(journal=False, racks=(RACK,), proxies_per_rack=2, overrides=QUICK, start_timeout_seconds=120.0)
    data = stack.directory / "data" / "redis" / "appendonlydir"
    topic = new_topic(stack, "loses", DISKLESS, partitions=SHARDS * NEIGHBOURS)
    sent = samples(5, "none")
    produce_to(stack.bootstrap(RACK), topic, dict.fromkeys(ONE_OF_EACH_SHARD, sent))
    stack.stop_redis()
    shutil.copytree(data, tmp_path / "older")
    stack.start_redis()
    later = samples(7, "none")
    assert produce(stack.bootstrap(RACK), topic, later) == list(range(5, 12)), "a restart that loses nothing"
    assert [fenced(stack, rack) for rack in BOTH] == [0, 0]
    assert len(read(stack.bootstrap(RACK), topic)) == 12

    stack.kill_redis()
    shutil.rmtree(data)
    shutil.copytree(tmp_path / "older", data)
    stack.start_redis()
    until(lambda: "" if [fenced(stack, rack) for rack in BOTH] == [1, 1] else "it is not fenced")
    status, text = readiness(stack.admin_url(RACK))
    assert status == 200
    assert text.startswith(f"ready, but coordinator: 1 of {SHARDS} shards fenced")
    verdict = checked(stack)
    (shard,) = [one for one in verdict["shards"] if one["fenced"]]
    assert shard["offsets_lost"] >= 7
    assert not refused(stack, topic, _healthy_partition(verdict, topic, stack), 60_000)
    assert refused(stack, topic, 0)
    for name in BOTH:
        assert stack.log_tail(f"proxy-{name}", 10_000).count("shard_fenced") == 1, "said once"
    # Wait longer than orphans live: lost segments are not swept while the shard is fenced.
    objects = set((stack.directory / "wal").glob("??/*"))
    threading.Event().wait(6)
    assert set((stack.directory / "wal").glob("??/*")) >= objects

    stack.kill_proxy(RACK)
    stack.start_proxy(RACK)
    assert fenced(stack, RACK) == 1, "a restarted proxy knows"
    accepted = tool(stack, "unfence", "--shard", str(shard["shard"]), "--yes", "--gap", "100")
    assert accepted.returncode == 0, accepted.stderr
    until(lambda: "" if [fenced(stack, rack) for rack in BOTH] == [0, 0] else "it is fenced still")
    _, end = offsets(stack, topic)
    with JavaTools(compile_launcher(tmp_path / "launcher")) as java:
        read_to_the_end(stack, topic, end, java)
    (offset, *_) = produce(stack.bootstrap(RACK), topic, sent)
    assert offset == end
    assert offset >= 12 + 100
    found = offsets_read(stack, topic, offset + 4)
    assert found == [*range(5), *range(offset, offset + 5)], "a reader skips what was lost"
    assert offsets(stack, topic) == (0, offset + 5)
    assert checked(stack)["all_well"]
    assert readiness(stack.admin_url(RACK)) == (200, "ready")


def _healthy_partition(verdict: dict[str, Any], topic: str, stack: Stack) -> int:
    """Return a partition of a shard that is not fenced."""
    with redis.Redis.from_url(stack.redis.url) as client:
        entry = client.hget("diskless:{registry}:topics", topic)
    assert isinstance(entry, bytes)
    topic_id = entry[1:17]
    well = {one["shard"] for one in verdict["shards"] if not one["fenced"]}
    return next(number for number in ONE_OF_EACH_SHARD if shard_of(partition_key(topic_id, number), SHARDS) in well)
