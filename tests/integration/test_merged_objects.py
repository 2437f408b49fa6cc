"""Merged objects under real proxies: the same records from every offset, in every rack, before and after a swap."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis
from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec
from typer.testing import CliRunner

from proxy.cli import app
from proxy.config import load_settings
from proxy.coordinator.interface import Row
from proxy.demo.stack import Stack
from proxy.diskless.wal.segment import segment_key
from proxy.inspection.stores import Stores, open_stores
from proxy.records.batches import BatchBounds
from tests.support.confluent import consumer, produce, read, take
from tests.support.merging import keep_all, merge_rows, rows_there
from tests.support.records import COMPRESSIONS, Stored, samples
from tests.support.topics import DISKLESS, admin, delete_topic, new_topic, offsets
from tests.support.waiting import wait_for

SEGMENTS, RECORDS = 8, 5


def fill(stack: Stack, topic: str) -> None:
    """Write segments from all racks in turns, with every compression."""
    for number in range(SEGMENTS):
        rack, compression = list(stack.proxies)[number % 3], COMPRESSIONS[number % len(COMPRESSIONS)]
        sent = samples(RECORDS, compression, 100)
        produce(stack.bootstrap(rack), topic, sent, compression_type=compression, enable_idempotence=number % 2 == 0)


def swap(
    stack: Stack, topic: str, first: int, count: int, keep: Callable[[BatchBounds], bool] = keep_all
) -> tuple[tuple[Row, ...], Row | None]:
    """Replace some rows of partition 0 by one row, like a job on another machine; return the old rows and the new
    one."""

    async def work(stores: Stores) -> tuple[tuple[Row, ...], Row | None]:
        (entry,) = stores.named([topic])
        old = (await rows_there(stores.coordinator, entry.topic_id, 0))[first : first + count]
        return old, await merge_rows(stores.coordinator, stores.storage, entry.topic_id, 0, old, keep=keep)

    async def with_stores() -> tuple[tuple[Row, ...], Row | None]:
        async with open_stores(load_settings(stack.config_path("rack-a"))) as stores:
            return await work(stores)

    return asyncio.run(with_stores())


def gone(stack: Stack, rows: tuple[Row, ...]) -> None:
    """Wait until the objects are deleted: from then on, nobody can read bytes at old coordinates any more."""
    paths = [stack.directory / "wal" / segment_key(row.segment) for row in rows]
    wait_for(lambda: not any(path.exists() for path in paths), "objects stayed that nothing uses")


def expire_coordinates(stack: Stack) -> None:
    """Make all proxies forget coordinates, which otherwise expire after some seconds: replaced rows are not
    announced."""
    with redis.Redis.from_url(stack.redis.url) as store:
        before = len(store.client_list(_type="pubsub"))
        assert store.client_kill_filter(_type="pubsub")
        wait_for(lambda: len(store.client_list(_type="pubsub")) >= before, "a subscription did not come back")
    time.sleep(1)  # until all know of those that are back


def from_every_offset(stack: Stack, topic: str, rack: str, expected: list[Stored]) -> None:
    """Require that a reader at an offset begins with the first existing record from it on."""
    with consumer(stack.bootstrap(rack), fetch_wait_max_ms=10) as client:
        for offset in range(expected[-1].offset + 1):
            client.assign([TopicPartition(topic, 0, offset)])
            (message,) = take(client, 1)
            assert message.offset() == next(one.offset for one in expected if one.offset >= offset)


def all_of(stack: Stack, topic: str, rack: str, count: int, start: int = 0) -> list[tuple[Any, ...]]:
    with consumer(stack.bootstrap(rack)) as client:
        client.assign([TopicPartition(topic, 0, start)])
        return [(one.offset(), one.key(), one.value(), one.timestamp()) for one in take(client, count)]


def by_time(stack: Stack, topic: str, rack: str, times_ms: list[int]) -> list[int]:
    """Require the offset of the first record of each time or later, and of the newest record of all."""
    client, partition = admin(stack, rack), TopicPartition(topic, 0)
    specs = [*(OffsetSpec.for_timestamp(one) for one in times_ms), OffsetSpec.max_timestamp()]
    return [client.list_offsets({partition: spec})[partition].result(30).offset for spec in specs]


def test_merged_and_compacted_records_are_read_everywhere(stack: Stack) -> None:
    topic = new_topic(stack, "merged", DISKLESS)
    fill(stack, topic)
    before = read(stack.bootstrap("rack-a"), topic)
    assert len(before) == SEGMENTS * RECORDS
    times = sorted({one.timestamp_ms for one in before})
    listed = by_time(stack, topic, "rack-a", [*times, times[-1] + 1])
    for rack in stack.proxies:
        assert read(stack.bootstrap(rack), topic) == before  # so that every proxy has the old coordinates

    old, new = swap(stack, topic, 1, 5)
    again, larger = swap(stack, topic, 0, 2)  # one of them was merged before
    gone(stack, (*old, *again))
    assert new is not None
    assert larger is not None
    for rack in stack.proxies:
        assert read(stack.bootstrap(rack), topic) == before
        assert by_time(stack, topic, rack, [*times, times[-1] + 1]) == listed
    from_every_offset(stack, topic, "rack-b", before)
    produce(stack.bootstrap("rack-c"), topic, samples(1, "none"))
    before = read(stack.bootstrap("rack-b"), topic)
    assert len(before) == SEGMENTS * RECORDS + 1

    # Like a compaction: keep only the last batch of the merged row, and nothing of another row.
    ends: list[int] = []

    def note(batch: BatchBounds) -> bool:
        ends.append(batch.last_offset)
        return True

    swap(stack, topic, 0, 1, note)
    old, new = swap(stack, topic, 0, 1, lambda batch: batch.last_offset == ends[-1])
    assert new is not None
    removed, nothing = swap(stack, topic, 1, 1, lambda _: False)
    assert nothing is None
    gone(stack, (*old, *removed))
    expire_coordinates(stack)
    first_kept = ends[-2] + 1
    left = [
        one
        for one in before
        if one.offset >= first_kept and not removed[0].base_offset <= one.offset <= removed[0].last_offset
    ]
    for rack in stack.proxies:
        found = all_of(stack, topic, rack, len(left))
        assert [one[:3] for one in found] == [(one.offset, one.key, one.value) for one in left]
        assert offsets(stack, topic, rack=rack) == (0, len(before))
        wanted = [next((one.offset for one in left if one.timestamp_ms >= time), -1) for time in times]
        newest = max(left, key=lambda one: (one.timestamp_ms, -one.offset))
        assert by_time(stack, topic, rack, times) == [*wanted, newest.offset]
    from_every_offset(stack, topic, "rack-c", left)

    # The log start moves into the merged row, then past it.
    client = admin(stack)
    for start in (first_kept + 1, removed[0].last_offset + 1):
        asked = TopicPartition(topic, 0, start)
        assert client.delete_records([asked])[asked].result(30).low_watermark == start
        assert offsets(stack, topic) == (start, len(before))
        expected = [one.offset for one in left if one.offset >= start]
        assert [one[0] for one in all_of(stack, topic, "rack-b", len(expected), start)] == expected
    gone(stack, (new,))
    old, new = swap(stack, topic, 0, 1)
    delete_topic(stack, topic)
    assert new is not None
    gone(stack, (*old, new))


def test_log_append_time_stays_and_a_dump_prints_true_offsets(stack: Stack, tmp_path: Path) -> None:
    topic = new_topic(stack, "merged-times", DISKLESS, configs={"message.timestamp.type": "LogAppendTime"})
    fill(stack, topic)
    count = SEGMENTS * RECORDS
    before = all_of(stack, topic, "rack-a", count)
    times = sorted({stamp[1] for *_, stamp in before})
    listed = by_time(stack, topic, "rack-a", times)
    old, new = swap(stack, topic, 0, SEGMENTS)
    assert new is not None
    gone(stack, old)
    assert len({row.log_append_time for row in old}) == 1
    for rack in stack.proxies:
        assert all_of(stack, topic, rack, count) == before
        assert by_time(stack, topic, rack, times) == listed
    config = ["--config", str(stack.config_path("rack-a")), "--json"]
    for options in ([], ["--offsets"]):
        done = CliRunner().invoke(app, ["segments", "dump", new.segment.hex(), *options, *config])
        assert done.exit_code == 0, done.output
        batches = [json.loads(line) for line in done.stdout.splitlines()]
        assert [batch["baseOffset"] for batch in batches] == [0, *(batch["lastOffset"] + 1 for batch in batches[:-1])]
        assert batches[-1]["lastOffset"] == count - 1
