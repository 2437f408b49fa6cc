"""Write diskless topics and small WAL segments directly into the stores, as a proxy would: quickly and without
brokers."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import redis as blocking_redis

from proxy.config import Settings
from proxy.coordinator.connect import connect
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.coordinator.registry import RedisTopicRegistry
from proxy.diskless.wal.segment import SegmentBuilder, segment_key
from proxy.inspection.stores import Stores, open_stores
from proxy.records.batches import read_header
from tests.batches import make_batch


@dataclass
class Written:
    """Batches and records written to one partition, in the order of their offsets."""

    values: list[bytes] = field(default_factory=list)
    segments: list[bytes] = field(default_factory=list)


async def make_topic(
    settings: Settings, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
) -> DisklessTopic:
    """Create a live diskless topic that no broker knows."""
    topic_id = uuid.uuid4().bytes
    async with open_stores(settings) as stores:
        await stores.coordinator.create_logs(topic_id, range(partitions))
    client = await connect(settings.redis)
    try:
        registry = RedisTopicRegistry(client, settings.redis)
        await registry.reserve(name, partitions, dict(configs or {}), "tests")
        await registry.activate(name, topic_id, partitions)
    finally:
        await client.aclose()
    return DisklessTopic(name, topic_id, partitions, "live", dict(configs or {}))


async def write_segments(
    settings: Settings,
    topic: DisklessTopic,
    count: int,
    *,
    partitions: Sequence[int] | None = None,
    batches: int = 1,
    records: int = 10,
    value_bytes: int = 100,
    codec: int = 0,
    timestamp_ms: int = 1_700_000_000_000,
    log_append_time: bool = False,
) -> dict[int, Written]:
    """Write committed segments with several batches of each partition; return the written records of each partition.

    Values begin with topic, partition and number, so that each value is unique. Time advances by a second per segment.
    """
    written = {partition: Written() for partition in (range(topic.partitions) if partitions is None else partitions)}
    async with open_stores(settings) as stores:
        for number in range(count):
            builder = SegmentBuilder()
            for partition, so_far in written.items():
                for _ in range(batches):
                    first = len(so_far.values)
                    values = [
                        f"{topic.name}-{partition}-{uuid.uuid4().hex[:8]}-{first + at}".encode().ljust(
                            value_bytes, b"."
                        )
                        for at in range(records)
                    ]
                    batch = make_batch(values, codec=codec, timestamp_ms=timestamp_ms + number * 1_000)
                    builder.add(
                        topic.topic_id,
                        partition,
                        memoryview(batch),
                        read_header(batch),
                        log_append_time=log_append_time,
                    )
                    so_far.values += values
            segment = await commit_segment(stores, builder)
            for so_far in written.values():
                so_far.segments.append(segment)
    return written


async def commit_segment(stores: Stores, builder: SegmentBuilder) -> bytes:
    """Upload and commit a built segment and return its UUID. Every batch must be accepted."""
    built = builder.build()
    await stores.storage.upload(segment_key(built.segment), built.data, len(built.data))
    for answer in await stores.coordinator.commit(built.segment, built.runs):
        assert answer.error_code == 0, answer
        assert all(batch.error_code == 0 for batch in answer.batches), answer
    return built.segment


def flush(url: str) -> None:
    """Delete all data and scripts of a Redis-compatible server."""
    with blocking_redis.Redis.from_url(url) as client:
        client.flushdb()
