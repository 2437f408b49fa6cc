"""A journal begins with the data of a deployment, is lost, begins again, and ends: no record changes, none is lost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
import redis
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from proxy.coordinator.shards import STORE_KEY
from proxy.demo.stack import Stack
from tests.support.metrics import Metrics
from tests.support.topics import new_topic
from tests.support.waiting import wait_for

pytestmark = pytest.mark.stack
JOURNAL = "__diskless_journal"
RACK = "rack-a"
ONE_BROKER = {"replication_factor": 1, "min_insync_replicas": 1}


def produce(stack: Stack, topic: str, values: range) -> None:
    """Produce a record for each number; raise for one that is not acknowledged."""
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": stack.bootstrap(RACK), "enable.idempotence": True})
    for value in values:
        producer.produce(topic, str(value), on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(60) == 0
    assert not failures


def consume(stack: Stack, topic: str, count: int) -> list[tuple[int, int]]:
    """Return offsets and numbers of the topic's first records."""
    consumer = Consumer({"bootstrap.servers": stack.bootstrap(RACK), "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[int, int]] = []
    try:
        while len(found) < count:
            messages = consumer.consume(count - len(found), 20)
            assert messages, f"{len(found)} of {count} records came"
            found += [(message.offset(), int(message.value())) for message in messages]
    finally:
        consumer.close()
    return found


def run_command(stack: Stack, name: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "proxy", "journal", name, "--yes", "--config", str(stack.config_path(RACK))]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def change(stack: Stack, name: str, mode: str) -> None:
    """Stop the proxy, run the command, and start the proxy in the other mode."""
    if stack.process(f"proxy-{RACK}").running:
        stack.terminate_proxy(RACK)
    done = run_command(stack, name)
    assert done.returncode == 0, done.stderr
    stack.configure_proxy(RACK, {"journal": {"mode": mode, **ONE_BROKER}})
    stack.start_proxy(RACK)


def test_a_journal_begins_is_lost_begins_again_and_ends(new_stack: Callable[..., Stack]) -> None:
    stack = new_stack(racks=(RACK,), journal=False, overrides={"journal": {"mode": "off", **ONE_BROKER}})
    topic = new_topic(stack, "begins", "diskless", 1)
    expected = [(number, number) for number in range(400)]
    produce(stack, topic, range(100))
    running = run_command(stack, "begin")
    assert running.returncode == 1
    assert "proxies run: " in running.stderr

    change(stack, "begin", "required")
    assert consume(stack, topic, 100) == expected[:100]
    produce(stack, topic, range(100, 200))
    with redis.Redis.from_url(stack.redis.url) as client:
        client.flushall()
        assert consume(stack, topic, 200) == expected[:200]
        wait_for(lambda: client.hexists(STORE_KEY, "identity"), "the store did not get its identity again")
    # Without the journal, nobody could load the rest of a snapshot.
    wait_for(lambda: not Metrics(stack, RACK).value("views_unproved"), "all shards are loaded")

    stack.terminate_proxy(RACK)
    admin = AdminClient({"bootstrap.servers": stack.direct_bootstrap})
    admin.delete_topics([JOURNAL])[JOURNAL].result(30)
    change(stack, "begin", "required")
    produce(stack, topic, range(200, 300))
    assert consume(stack, topic, 300) == expected[:300]

    change(stack, "end", "off")
    produce(stack, topic, range(300, 400))
    assert consume(stack, topic, 400) == expected
