"""Objects in storage follow the records that are kept: retention, deleted topics, uploads without a commit."""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path

import pytest
import redis

from proxy.demo.stack import Stack
from proxy.diskless.wal.segment import segment_key
from tests.conftest import GARBAGE
from tests.support.confluent import produce, read
from tests.support.records import samples
from tests.support.topics import DISKLESS, delete_topic, new_topic, offsets
from tests.support.waiting import wait_for


def objects(stack: Stack) -> set[Path]:
    return {path for path in (stack.directory / "wal").glob("??/*") if path.is_file()}


def fill(stack: Stack, topic: str, segments: int = 5) -> set[Path]:
    """Produce one segment after the other; return the new objects, the first of which may be gone already."""
    before, made = objects(stack), set[Path]()
    for number in range(segments):
        produce(stack.bootstrap(list(stack.proxies)[number % 3]), topic, samples(10, "none"))
        made |= objects(stack) - before
    return made


def test_retention_by_size_deletes_objects(stack: Stack) -> None:
    topic = new_topic(stack, "retention-bytes", DISKLESS, configs={"retention.bytes": "1"})
    made = fill(stack, topic)
    assert len(made) >= 5
    wait_for(lambda: offsets(stack, topic)[0] >= 40, "the log start did not move")
    wait_for(lambda: len(objects(stack) & made) <= 1, "objects stayed")
    earliest, latest = offsets(stack, topic, rack="rack-b")
    assert latest == 50
    assert [stored.offset for stored in read(stack.bootstrap("rack-b"), topic)] == list(range(earliest, 50))


def test_retention_by_time_deletes_all_objects(stack: Stack) -> None:
    topic = new_topic(stack, "retention-ms", DISKLESS, configs={"retention.ms": "1"})
    made = fill(stack, topic, 2)
    wait_for(lambda: offsets(stack, topic) == (20, 20), "the log start did not move")
    wait_for(lambda: not objects(stack) & made, "objects stayed")
    produce(stack.bootstrap("rack-c"), topic, samples(1, "none"))
    assert offsets(stack, topic)[1] == 21


def test_all_objects_of_a_deleted_topic_are_deleted_even_if_the_housekeeper_dies(stack: Stack) -> None:
    gone, kept = (new_topic(stack, label, DISKLESS) for label in ("deleted", "kept"))
    made, others = fill(stack, gone, 3), fill(stack, kept, 3)
    delete_topic(stack, gone)
    with redis.Redis.from_url(stack.redis.url) as store:
        holder = wait_for(lambda: store.get("diskless:{registry}:fleet:lease:housekeeping"), "nobody keeps house")
    assert isinstance(holder, bytes)
    stack.kill_proxy(holder.decode().partition("/")[0])
    wait_for(lambda: not objects(stack) & made, "objects stayed")
    assert objects(stack) >= others


@pytest.mark.parametrize("age_seconds", [0, 7200])
def test_objects_without_a_commit_are_deleted_when_they_are_old(stack: Stack, age_seconds: int) -> None:
    assert fill(stack, new_topic(stack, "next-to-orphans", DISKLESS), 1)
    key = segment_key(uuid.uuid4().bytes)
    orphan, foreign = stack.directory / "wal" / key, stack.directory / "wal" / "notes" / "readme"
    for path in (orphan, foreign):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"\0")
        os.utime(path, (time.time() - age_seconds,) * 2)
    if age_seconds:
        wait_for(lambda: not orphan.exists(), "the orphan stayed")
    else:
        time.sleep((GARBAGE["orphan_sweep_interval_ms"] + GARBAGE["grace_ms"]) / 1000 + 1)
        assert orphan.exists(), "its commit might have been under way"
    assert foreign.exists(), "it is not ours"
