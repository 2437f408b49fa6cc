"""Diskless produces of one connection are pipelined: while one segment is uploaded, the next one is filled.

Measured with Kafka's own Java producer. (Idempotent producers of librdkafka and kafka-python always have one request
per partition in flight.)
"""

from __future__ import annotations

import re

import pytest

from proxy.demo.stack import Stack
from tests.support.confluent import read_partitions
from tests.support.metrics import Metrics
from tests.support.reconfigured import reconfigured
from tests.support.topics import DISKLESS, new_topic

RACK = "rack-a"
RECORDS = 40_000
"""Number of records of 15 bytes, about 25 batches."""
DEFAULT_INTERVAL_MS = 250
"""Commit interval for this test; the shared stack commits more often."""
RATIO = 2.5
"""Minimum ratio of the throughputs; without pipelining it is 1."""
MOST_FAST_RUNS = 4
"""Maximum number of runs. A machine that stalls makes a run slow, but never fast."""


def send(stack: Stack, topic: str, in_flight: int) -> tuple[float, float]:
    """Return the milliseconds that an idempotent producer needs for records numbered 0, 1, …, and the number of
    requests."""
    requests = Metrics(stack, RACK).value("requests_total", api="Produce")
    arguments = ["--topic", topic, "--num-records", str(RECORDS), "--payload-monotonic", "--throughput", "-1"]
    arguments += ["--bootstrap-server", stack.bootstrap(RACK), "--command-property"]
    arguments += ["enable.idempotence=true", f"max.in.flight.requests.per.connection={in_flight}"]
    arguments += ["batch.size=16384", "linger.ms=1000"]
    done = stack.java("org.apache.kafka.tools.ProducerPerformance", *arguments)
    assert done.returncode == 0, done.stderr
    # All records are queued at once, so the last one's latency is the total time without the client's start.
    found = re.search(rf"^{RECORDS} records sent.* ([\d.]+) ms max latency", done.stdout, re.MULTILINE)
    assert found, done.stdout
    return float(found[1]), Metrics(stack, RACK).value("requests_total", api="Produce") - requests


@pytest.mark.timeout(300)
def test_five_requests_in_flight_give_several_times_the_throughput_of_one(stack: Stack) -> None:
    topic = new_topic(stack, "pipelining", DISKLESS)
    # By the interval alone: a segment that ends early would carry the only request of one in flight at once.
    settings = {"diskless_append_commit_interval_ms": DEFAULT_INTERVAL_MS, "diskless_append_underway": 0}
    with reconfigured(stack, RACK, **settings):
        batches, as_many, runs = compare(stack, topic)
    assert as_many > 20
    assert abs(batches - as_many) <= 2, "it is the same that is sent"
    (records,) = read_partitions(stack.bootstrap("rack-c"), topic, 1)
    assert [record.offset for record in records] == list(range(runs * RECORDS))
    assert [int(record.value or b"-1") for record in records] == runs * list(range(RECORDS))


def compare(stack: Stack, topic: str) -> tuple[float, float, int]:
    """Send with five in flight and with one; return the number of requests of each, and the number of runs."""
    (first_ms, batches), (alone_ms, as_many) = [send(stack, topic, limit) for limit in (5, 1)]
    fast_ms = [first_ms]
    while alone_ms / min(fast_ms) < RATIO and len(fast_ms) < MOST_FAST_RUNS:
        fast_ms.append(send(stack, topic, 5)[0])
    assert alone_ms / min(fast_ms) >= RATIO, (alone_ms, fast_ms)
    return batches, as_many, len(fast_ms) + 1
