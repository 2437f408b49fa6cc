"""How much of a segment is used, over all shards; model and real coordinator."""

from __future__ import annotations

import os

from proxy.coordinator.interface import (
    NO_PRODUCER_ID,
    DeleteRequest,
    PartitionRun,
    ProposedBatch,
    SegmentUse,
)

TOPIC = bytes(range(16))
PARTITIONS = 12
"""Number of partitions that covers every one of three shards."""


async def test_the_use_of_all_shards_is_added_up(make) -> None:
    coordinator = make()
    await coordinator.create_logs(TOPIC, range(PARTITIONS))
    segment, other, unknown = (os.urandom(16) for _ in range(3))
    batch = ProposedBatch(100, 1, 1_000, NO_PRODUCER_ID, -1, -1)
    await coordinator.commit(segment, [PartitionRun(TOPIC, index, 1, (batch,)) for index in range(PARTITIONS)])
    await coordinator.commit(other, [PartitionRun(TOPIC, 0, 1, (batch, batch))])
    assert await coordinator.segment_use([segment, unknown, other]) == [
        SegmentUse(100 * PARTITIONS, PARTITIONS),
        SegmentUse(0, 0),
        SegmentUse(200, 1),
    ]
    await coordinator.delete_records([DeleteRequest(TOPIC, index, 1) for index in range(5)])
    assert await coordinator.segment_use([segment]) == [SegmentUse(100 * (PARTITIONS - 5), PARTITIONS - 5)]
    await coordinator.delete_logs(TOPIC, range(PARTITIONS))
    assert await coordinator.segment_use([segment, other]) == [SegmentUse(0, 0)] * 2
