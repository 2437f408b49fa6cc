"""The test plan of KIP-1163 (diskless core), as far as this release supports it, row by row."""

from __future__ import annotations

import os
import time
import uuid
from contextlib import suppress
from pathlib import Path

import pytest

from proxy.demo.stack import Stack
from proxy.diskless.wal.segment import read_segment
from tests.support.confluent import produce, produce_to, read, read_partitions
from tests.support.metrics import Metrics
from tests.support.reconfigured import reconfigured
from tests.support.records import Sample, samples, stored
from tests.support.topics import CLASSIC, DISKLESS, new_topic

RACK = "rack-b"
PREALLOCATED = {".index", ".timeindex"}
"""Files that take 10 MB of each replica and hold no records."""


def marked(count: int = 1) -> list[Sample]:
    """Return records whose values can be found anywhere."""
    now_ms = int(time.time() * 1000)
    return [Sample(None, f"marker-{uuid.uuid4()}".encode(), (), now_ms) for _ in range(count)]


def files_with(directory: Path, sample: Sample) -> list[Path]:
    """Return the files below `directory` that hold the record's bytes, ignoring files that disappear during the
    search."""
    found = []
    for folder, _, names in os.walk(directory):
        for path in (Path(folder, name) for name in names):
            with suppress(FileNotFoundError):
                if path.suffix not in PREALLOCATED and (sample.value or b"") in path.read_bytes():
                    found.append(path)
    return found


def wal(stack: Stack) -> Path:
    return stack.directory / "wal"


def segments(stack: Stack) -> set[Path]:
    """Return all WAL segments."""
    return set(wal(stack).glob("??/*"))


def test_data_is_in_object_storage(stack: Stack) -> None:
    topic = new_topic(stack, "kip-1163", DISKLESS)
    sent = marked(3)
    produce(stack.bootstrap(RACK), topic, sent)
    for sample in sent:
        (segment,) = files_with(wal(stack), sample)
        assert segment in segments(stack)
        data = segment.read_bytes()
        inside = [batch for batch in read_segment(data) if batch.position <= data.index(sample.value or b"")]
        assert inside[-1].header.length > data.index(sample.value or b"") - inside[-1].position


def test_brokers_disks_contain_only_metadata_of_diskless_topics(stack: Stack) -> None:
    diskless, classic = (new_topic(stack, "kip-1163-disks", kind, partitions=2) for kind in (DISKLESS, CLASSIC))
    (of_diskless,), (of_classic,) = marked(), marked()
    for partition in (0, 1):
        produce(stack.bootstrap(RACK), diskless, [of_diskless], partition)
        produce(stack.bootstrap(RACK), classic, [of_classic], partition)
    on_disks = stack.directory / "data"
    assert files_with(on_disks, of_diskless) == []
    assert files_with(on_disks, of_classic), "a record of a classic topic is on the brokers' disks"
    logs = [*on_disks.glob(f"broker-*/{diskless}-*/*.log")]
    assert len(logs) == 2 * len(stack.kafka.brokers), "the shadow topic is there, with all its replicas"
    assert [log.stat().st_size for log in logs] == [0] * len(logs)


@pytest.mark.parametrize("underway", [0, 1], ids=["interval alone", "by budget"])
def test_commit_interval_within_a_threshold(stack: Stack, underway: int) -> None:
    topic = new_topic(stack, "kip-1163-interval", DISKLESS, partitions=4)
    interval_s, rounds = 0.4, 5
    interval = {"diskless_append_commit_interval_ms": int(interval_s * 1000)}
    with reconfigured(stack, RACK, diskless_append_underway=underway, **interval):
        for _ in range(rounds):
            # One record to each partition makes a request for each. With the interval alone, all of them wait for the
            # same segment.
            produce_to(stack.bootstrap(RACK), topic, {partition: marked() for partition in range(4)}, linger_ms=0)
        seen = Metrics(stack, RACK)
    count = seen.value("produce_seconds_count")
    waited_s = seen.value("produce_seconds_sum") / count
    stored_s = sum(
        seen.value(f"{part}_seconds_sum") / seen.value(f"{part}_seconds_count") for part in ("upload", "commit")
    )
    assert count >= 4 * rounds  # a producer that retries counts once more
    assert rounds <= seen.value("segment_bytes_count") < count
    # A batch waits at most for the interval's end, then for upload and commit; the threshold is twice that.
    assert waited_s < 2 * (interval_s + stored_s)
    if not underway:
        assert interval_s / 2 < waited_s


def test_little_traffic_does_not_wait_for_the_interval(stack: Stack) -> None:
    topic = new_topic(stack, "kip-1163-budget", DISKLESS)
    interval_s, rounds = 2.0, 6
    with reconfigured(stack, RACK, diskless_append_commit_interval_ms=int(interval_s * 1000)):
        for _ in range(rounds):
            produce(stack.bootstrap(RACK), topic, marked(), linger_ms=0)
        seen = Metrics(stack, RACK)
    # A budget saves up eight PUTs, so each record has a segment of its own, at once.
    assert seen.value("segment_bytes_count") == rounds
    assert seen.value("produce_seconds_sum") / seen.value("produce_seconds_count") < interval_s / 4


def test_buffer_size_within_a_threshold(stack: Stack) -> None:
    topic = new_topic(stack, "kip-1163-buffer", DISKLESS)
    limit, batch = 262_144, 8 * 8_100
    now_ms = int(time.time() * 1000)
    # Five batches of eight records fill the buffer, so these records fill it four times.
    sent = [Sample(None, uuid.uuid4().bytes * 500, (), now_ms) for _ in range(4 * 5 * 8)]
    before = segments(stack)
    # The interval is so long that only a full buffer completes a segment.
    only_full = {"diskless_append_commit_interval_ms": 20_000, "diskless_append_underway": 0}
    with reconfigured(stack, RACK, diskless_append_buffer_max_bytes=limit, **only_full):
        in_batches = {"batch_num_messages": 8, "linger_ms": 1000, "max_in_flight": 10}
        produce(stack.bootstrap(RACK), topic, sent, **in_batches)
        sizes = [path.stat().st_size for path in segments(stack) - before]
    assert len(sizes) >= 4
    *full, _ = sorted(sizes, reverse=True)  # a smaller one remains where the client splits a batch
    assert all(limit <= size <= limit + batch for size in full)
    assert read(stack.bootstrap("rack-c"), topic) == stored(sent)


@pytest.mark.timeout(300)
def test_nothing_is_lost_if_the_cluster_is_stopped_and_restarted(stack: Stack) -> None:
    topics = {kind: new_topic(stack, "kip-1163-restart", kind, partitions=2) for kind in (CLASSIC, DISKLESS)}
    sent = {partition: samples(30 + partition, "restart") for partition in (0, 1)}
    for topic in topics.values():
        produce_to(stack.bootstrap(RACK), topic, sent, enable_idempotence=True)
    for part in ("proxy-", "broker-", "controller", "redis"):
        processes = [process for name, process in stack.processes.items() if name.startswith(part)]
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait_ended()
    assert not any(process.running for process in stack.processes.values())
    stack.heal()
    for topic in topics.values():
        for rack in stack.proxies:
            kept = read_partitions(stack.bootstrap(rack), topic, 2)
            assert kept == [stored(sent[partition]) for partition in (0, 1)]
        more = samples(3, "after")
        assert produce(stack.bootstrap(RACK), topic, more, partition=1) == [31, 32, 33]
