"""The sizes of topics and objects, with a coordinator in memory and files of these sizes."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from proxy.config import Storage
from proxy.coordinator.interface import (
    NO_PRODUCER_ID,
    Coordinator,
    DeleteRequest,
    PartitionRun,
    ProposedBatch,
)
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.diskless.wal.segment import segment_key
from proxy.inspection.segments import segment_figures, segments_of_topic
from proxy.inspection.stores import InspectionError, Stores, object_size, object_sizes
from proxy.inspection.topics import TopicFigures, dead_bytes, topic_figures
from proxy.storage import ObjectMissing, open_storage
from tests.coordinator_model import ModelCoordinator
from tests.support.keyed import Keyed
from tests.support.transactions import TransactionalLog

ONE = DisklessTopic("one", b"1" * 16, 2, "live")
OTHER = DisklessTopic("other", b"2" * 16, 1, "live")
RESERVED = DisklessTopic("reserved", bytes(16), 3, "reserved")


def unheard(count: int) -> None:
    assert count >= 0


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[Stores]:
    coordinator = ModelCoordinator()
    storage = open_storage(Storage(url=tmp_path.as_uri()))
    await storage.open()
    for topic in (ONE, OTHER):
        await coordinator.create_logs(topic.topic_id, range(topic.partitions))
    made: Coordinator = coordinator  # type: ignore[assignment]
    settings: Any = None
    yield Stores(settings, (ONE, OTHER, RESERVED), made, storage)
    await storage.close()


async def write(stores: Stores, *parts: tuple[DisklessTopic, int, int]) -> bytes:
    """Write an object with a batch of a given size for each partition."""
    segment, position, runs = os.urandom(16), 1, []
    for topic, partition, length in parts:
        batch = ProposedBatch(length, 1, 1_000, NO_PRODUCER_ID, -1, -1)
        runs.append(PartitionRun(topic.topic_id, partition, position, (batch,)))
        position += length
    await stores.storage.upload(segment_key(segment), bytes(position), position)
    await stores.coordinator.commit(segment, runs)
    return segment


async def figures(stores: Stores, topic: DisklessTopic) -> TopicFigures:
    sizes = await object_sizes(stores.storage, unheard)
    return await topic_figures(stores, topic, sizes, unheard, read_rows=True)


async def test_live_shared_total_used_and_dead(stores: Stores) -> None:
    await write(stores, (ONE, 0, 100), (ONE, 1, 200), (OTHER, 0, 1_000))
    await write(stores, (ONE, 0, 10), (ONE, 1, 20))
    await write(stores, (OTHER, 0, 5_000))
    found = await figures(stores, ONE)
    assert (found.live_bytes, found.shared_bytes, found.objects) == (330, 300, 2)
    assert (found.total_bytes, found.used_bytes, dead_bytes(found)) == (1_332, 1_330, 0)
    assert [(one.live_bytes, one.shared_bytes, one.objects) for one in found.partitions] == [
        (110, 100, 2),
        (220, 200, 2),
    ]
    await stores.coordinator.delete_records([DeleteRequest(OTHER.topic_id, 0, 1)])
    found = await figures(stores, ONE)
    assert (found.shared_bytes, found.used_bytes, dead_bytes(found)) == (0, 330, 1_000)


async def test_a_missing_object_that_is_used_is_reported(stores: Stores) -> None:
    kept, lost = await write(stores, (ONE, 0, 100)), await write(stores, (ONE, 0, 50))
    await stores.storage.delete([segment_key(lost)])
    found = await figures(stores, ONE)
    assert (found.missing, found.total_bytes, found.live_bytes) == ((lost,), 101, 150)
    of_lost = await segment_figures(stores, lost, unheard)
    assert (of_lost.size_bytes, of_lost.used_bytes, of_lost.dead_bytes) == (None, 50, None)
    of_kept = await segment_figures(stores, kept, unheard)
    assert (of_kept.size_bytes, of_kept.used_bytes, of_kept.dead_bytes) == (101, 100, 0)


async def test_markers_of_transactions_are_no_objects(stores: Stores) -> None:
    log = TransactionalLog(stores, ONE)
    await log.write([Keyed(b"key", b"value")], 70)
    await log.end(70, committed=False)
    await log.write([Keyed(b"key", b"value")])
    found = await figures(stores, ONE)
    assert (found.objects, found.missing, [one.rows for one in found.partitions]) == (2, (), [3, 0])
    sizes = await object_sizes(stores.storage, unheard)
    assert {one.segment for one in await segments_of_topic(stores, ONE, sizes, unheard)} == sizes.keys()


async def test_an_object_that_came_after_the_listing_is_not_missing(stores: Stores) -> None:
    sizes = await object_sizes(stores.storage, unheard)
    await write(stores, (ONE, 0, 100))
    found = await topic_figures(stores, ONE, sizes, unheard, read_rows=True)
    assert (found.missing, found.total_bytes) == ((), 101)


async def test_without_the_index_offsets_and_sizes_of_logs_are_reported(stores: Stores) -> None:
    await write(stores, (ONE, 0, 100))
    found = await topic_figures(stores, ONE, None, unheard, read_rows=False)
    assert (found.live_bytes, found.objects, found.total_bytes, dead_bytes(found)) == (100, 0, None, None)
    assert [one.high_watermark for one in found.partitions] == [1, 0]


async def test_a_reserved_topic_has_no_partitions_yet(stores: Stores) -> None:
    assert (await figures(stores, RESERVED)).partitions == ()


async def test_extents_lie_by_position(stores: Stores) -> None:
    segment = await write(stores, (OTHER, 0, 30), (ONE, 1, 20), (ONE, 0, 10))
    await write(stores, (OTHER, 0, 7))
    found = await segment_figures(stores, segment, unheard)
    assert [(one.topic, one.partition, one.position, one.length) for one in found.extents] == [
        ("other", 0, 1, 30),
        ("one", 1, 31, 20),
        ("one", 0, 51, 10),
    ]
    sizes = await object_sizes(stores.storage, unheard)
    (of_one,) = await segments_of_topic(stores, ONE, sizes, unheard)
    assert (of_one.segment, of_one.size_bytes, of_one.used_bytes) == (segment, 61, 60)
    assert [one.topic for one in of_one.extents] == ["one", "one"]


@pytest.mark.parametrize("size", [0, 1, 2, 1023, 1024, 70_001])
async def test_the_size_of_an_object_is_felt_for(stores: Stores, size: int) -> None:
    await stores.storage.upload("object", bytes(size), size)
    assert await object_size(stores.storage, "object") == size
    with pytest.raises(ObjectMissing):
        await object_size(stores.storage, "another")


async def test_a_name_that_is_not_diskless_is_rejected(stores: Stores) -> None:
    assert stores.named([]) == [ONE, OTHER, RESERVED]
    assert stores.named(["other", "one", "other"]) == [OTHER, ONE]
    with pytest.raises(InspectionError, match="classic is not a diskless topic"):
        stores.named(["classic"])
