"""Merge topics of the real stack while producers write: the records that Kafka consumers get through the proxies."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace
from typing import Any

from confluent_kafka import TopicPartition

from proxy.config import Settings
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.demo.stack import Stack
from proxy.diskless.wal.segment import segment_key
from proxy.inspection.stores import open_registry
from tests.pipeline.merge.logs import OPTIONS, merge, objects, rows, stored
from tests.support import confluent
from tests.support.records import COMPRESSIONS, Stored, samples
from tests.support.topics import DISKLESS, new_topic

PARTITIONS = 3
ROUNDS = 12
QUICK = {"linger_ms": 0, "acks": "all"}
TIMEOUT_SECONDS = 60.0


def registered(settings: Settings, name: str) -> DisklessTopic:
    return next(topic for topic in asyncio.run(open_registry(settings)) if topic.name == name)


class Produced(threading.Thread):
    """Small produces of all kinds of records through all racks, with the acknowledged records by partition and
    offset."""

    def __init__(self, stack: Stack, topic: str) -> None:
        super().__init__()
        self.stack, self.topic = stack, topic
        self.acknowledged: list[dict[int, Any]] = [{} for _ in range(PARTITIONS)]
        self.halfway = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            for number in range(ROUNDS):
                self._round(number)
                if number == ROUNDS // 2:
                    self.halfway.set()
        except BaseException as error:
            self.error = error
        self.halfway.set()

    def _round(self, number: int) -> None:
        rack = self.stack.options.racks[number % 3]
        sent = {at: samples(20, f"{self.topic}-{at}-{number}") for at in range(PARTITIONS)}
        codec = COMPRESSIONS[number % len(COMPRESSIONS)]
        offsets = confluent.produce_to(self.stack.bootstrap(rack), self.topic, sent, compression_type=codec, **QUICK)
        for at, acknowledged in offsets.items():
            self.acknowledged[at].update(zip(acknowledged, sent[at], strict=True))

    @property
    def records(self) -> list[list[Stored]]:
        """Return the records as consumers must get them."""
        assert self.error is None, self.error
        return [[Stored(offset, *log[offset]) for offset in sorted(log)] for log in self.acknowledged]


def test_consumers_read_every_record_once_while_and_after_it_is_merged(
    spark: Any, stack: Stack, stack_settings: Settings
) -> None:
    options = replace(OPTIONS, target_bytes=100_000, task_bytes=400_000)
    name = new_topic(stack, "merged", DISKLESS, PARTITIONS)
    stamped = new_topic(stack, "stamped", DISKLESS, 1, configs={"message.timestamp.type": "LogAppendTime"})
    for number in range(5):
        confluent.produce(stack.bootstrap("rack-a"), stamped, samples(5, f"{stamped}-{number}"), **QUICK)
    stamped_before = confluent.read(stack.bootstrap("rack-b"), stamped)
    topic = registered(stack_settings, name)
    assert len(stamped_before) == 25

    producing = Produced(stack, name)
    producing.start()
    with confluent.consumer(stack.bootstrap("rack-c")) as follower:
        # A reader that follows while rows are swapped and old segments are deleted.
        follower.assign([TopicPartition(name, at, 0) for at in range(PARTITIONS)])
        producing.halfway.wait(TIMEOUT_SECONDS)
        first = merge(spark, stack_settings, name, stamped, options=options)
        producing.join(TIMEOUT_SECONDS)
        old = objects(stack_settings, topic)
        second = merge(spark, stack_settings, name, options=options)
        expected = producing.records
        assert [len(log) for log in expected] == [20 * ROUNDS] * PARTITIONS
        messages = confluent.take(follower, sum(len(log) for log in expected))
    assert (first.findings, second.findings) == ([], [])
    assert first.figures["swaps_replaced"] > 0
    assert second.figures["swaps_replaced"] > 0
    followed = [[confluent.as_stored(one) for one in messages if one.partition() == at] for at in range(PARTITIONS)]
    assert followed == expected

    gone = {segment_key(segment) for segment in old - objects(stack_settings, topic)}
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while gone & stored(stack_settings).keys():
        assert time.monotonic() < deadline, "merged segments were not collected"
        time.sleep(0.3)
    assert any(row.offsets_in_place for log in rows(stack_settings, topic) for row in log)
    for rack in stack.options.racks:
        assert confluent.read_partitions(stack.bootstrap(rack), name, PARTITIONS) == expected
    assert all(row.offsets_in_place for log in rows(stack_settings, registered(stack_settings, stamped)) for row in log)
    assert confluent.read(stack.bootstrap("rack-c"), stamped) == stamped_before
