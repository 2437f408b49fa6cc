"""Diskless produces of one connection are pipelined: while one segment is on its way, the next is filled."""

from __future__ import annotations

import time

from confluent_kafka import KafkaError, Message, Producer

from proxy.config import load_settings
from proxy.demo.stack import Stack
from tests.support.confluent import read
from tests.support.metrics import Metrics
from tests.support.topics import DISKLESS, new_topic

BATCHES = 30
RECORDS_PER_BATCH = 16
RECORD_BYTES = 1000
"""16 of them make a batch of 16 KiB at most."""
RACK = "rack-a"


def send(stack: Stack, topic: str, in_flight: int) -> tuple[float, list[int]]:
    """Send `BATCHES` batches, one per request, on one idempotent connection; seconds that took, offsets in order."""
    settings = {
        "bootstrap.servers": stack.bootstrap(RACK),
        "enable.idempotence": True,
        "max.in.flight": in_flight,
        "batch.num.messages": RECORDS_PER_BATCH,
        "batch.size": 16 * 1024,
        "linger.ms": 1000,
    }
    producer = Producer(settings)
    offsets: list[int] = []

    def acknowledge(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        offsets.append(message.offset())

    producer.produce(topic, b"warm up", partition=0, on_delivery=acknowledge)
    producer.flush(30)
    began_s = time.monotonic()
    for number in range(BATCHES * RECORDS_PER_BATCH):
        producer.produce(topic, b"%0*d" % (RECORD_BYTES, number), partition=0, on_delivery=acknowledge)
    assert not producer.flush(60)
    return time.monotonic() - began_s, offsets


def test_five_in_flight_bring_four_times_the_throughput_of_one(stack: Stack) -> None:
    assert load_settings(stack.config_path(RACK)).diskless_append_commit_interval_ms == 250
    topic = new_topic(stack, "pipelining", DISKLESS)
    requests = Metrics(stack, RACK).value("requests_total", api="Produce")
    runs = [send(stack, topic, in_flight) for in_flight in (5, 1, 5)]
    told = [offset for _, offsets in runs for offset in offsets]
    (first_s, _), (alone_s, _), (second_s, _) = runs

    # One request per batch, and one to warm up, in each run: else not the in-flight limit would be compared.
    assert Metrics(stack, RACK).value("requests_total", api="Produce") - requests == 3 * (BATCHES + 1)
    assert alone_s / min(first_s, second_s) >= 4, runs

    once = [b"warm up", *(b"%0*d" % (RECORD_BYTES, number) for number in range(BATCHES * RECORDS_PER_BATCH))]
    assert [record.value for record in read(stack.bootstrap("rack-c"), topic)] == 3 * once
    assert told == list(range(3 * len(once)))
