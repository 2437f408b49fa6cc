"""The load on the real stack: it finds no problem if there is none, and it finds planted ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time

import pytest
from confluent_kafka import Producer

from proxy.demo.errors import StackCancelled, StackError
from proxy.demo.load import Load, LoadOptions, run_load
from proxy.demo.stack import Stack
from proxy.demo.tally import KINDS, Tally
from proxy.demo.traffic import Traffic
from tests.support.confluent import consumer, take

pytestmark = pytest.mark.timeout(240)

LIGHT = LoadOptions(producers_per_rack=1, records_per_second=100.0, producers_nice=10)
JSON_KEYS = {
    "produced",
    "consumed",
    "lost",
    "duplicated",
    "produce_p50_ms",
    "produce_p99_ms",
    "e2e_p50_ms",
    "e2e_p99_ms",
}


def bootstraps(stack: Stack) -> dict[str, str]:
    return {rack: stack.bootstrap(rack) for rack in stack.proxies}


def test_every_rack_reads_all_that_is_acknowledged(stack: Stack) -> None:
    traffic = Traffic({rack: stack.admin_url(rack) for rack in stack.proxies})
    seen: list[Tally] = []
    tally = run_load(bootstraps(stack), 3.0, LIGHT, progress=seen.append)
    traffic.look()
    assert tally.right, tally.findings
    for kind in KINDS:
        topic = tally.topics[kind]
        # Three producers write 100 records a second; a busy machine manages fewer.
        assert topic.produced > 100
        assert topic.produced == topic.consumed
        assert set(topic.read.values()) == {topic.produced}
        assert topic.produce_p50_ms
        assert topic.e2e_p50_ms
        # A record is written once and read in three racks, with its key and the head of a batch.
        assert traffic.record_bytes(kind) > 4 * topic.produced * LIGHT.record_bytes
    # Two of three partitions are led in another rack; they are read from replicas in the readers' own rack.
    assert tally.classic.produced * LIGHT.record_bytes / 3 < traffic.cross_rack_bytes("classic")
    assert traffic.cross_rack_bytes("diskless") == 0
    assert traffic.coordination_bytes() > 0
    assert seen


def test_the_load_survives_a_proxy_that_is_killed_and_restarted(stack: Stack) -> None:
    with Load(bootstraps(stack), LIGHT) as load:
        time.sleep(1)
        stack.kill_proxy("rack-b")
        stack.start_proxy("rack-b")
        time.sleep(1)
        tally = load.stop()
    assert tally.right, tally.findings
    assert not any(topic.failed for topic in tally.topics.values())


def test_a_record_that_is_stored_twice_or_by_a_stranger_is_found(stack: Stack) -> None:
    with Load(bootstraps(stack), LIGHT) as load:
        for topic in load.topics.values():
            with consumer(stack.bootstrap("rack-c"), auto_offset_reset="earliest") as reader:
                reader.subscribe([topic])
                (copied,) = take(reader, 1)
            stranger = Producer({"bootstrap.servers": stack.bootstrap("rack-a")})
            partition = copied.partition()
            assert partition is not None
            stranger.produce(topic, copied.value(), copied.key(), partition)
            stranger.produce(topic, b"not of the load", b"key", partition)
            assert stranger.flush(30) == 0
        tally = load.stop()
    for topic_tally in tally.topics.values():
        assert not topic_tally.right
        assert (topic_tally.lost, topic_tally.duplicated) == (0, 1)
        assert topic_tally.mismatched == len(stack.proxies)
    assert any("was read again" in finding for finding in tally.findings)


def test_a_load_that_cannot_begin_says_why_and_leaves_nothing(stack: Stack) -> None:
    too_many = LoadOptions(kinds=("classic",), replication_factor=10)  # brokers 1 to 9 have a listener
    load = Load(bootstraps(stack), too_many)
    with pytest.raises(StackError, match="can't create the topic demo-classic-"):
        load.start()


def test_a_process_of_the_load_that_dies_is_reported(stack: Stack) -> None:
    with Load(bootstraps(stack), LIGHT) as load:
        with pytest.raises(StackError, match="only once"):
            load.start()
        os.kill(load.pids()[0], 9)
        with pytest.raises(StackError, match=r"consumers in rack-a of the load ended \(exit code -9\)"):
            load.stop()


def test_a_load_without_time_for_its_end_counts_nothing(stack: Stack) -> None:
    hurried = threading.Event()
    hurried.set()
    with Load(bootstraps(stack), LIGHT) as load, pytest.raises(StackCancelled):
        load.stop(hurried)


@pytest.mark.stack
def test_the_demo_ends_with_a_line_of_json() -> None:
    command = [sys.executable, "-m", "proxy", "demo", "--seconds", "3", "--producers", "1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert set(found) == {"classic", "diskless", "cross_rack_bytes"}
    for kind in KINDS:
        assert set(found[kind]) == JSON_KEYS
        assert found[kind]["produced"] == found[kind]["consumed"] > 0
        assert found[kind]["lost"] == found[kind]["duplicated"] == 0
    assert found["cross_rack_bytes"]["diskless"] == 0 < found["cross_rack_bytes"]["classic"]
    assert "All is well" in done.stderr
