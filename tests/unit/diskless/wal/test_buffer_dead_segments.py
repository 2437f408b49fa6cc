"""Batches that were rejected before their segment's turn cost no upload, no memory and no time."""

from __future__ import annotations

from proxy.diskless.wal.segment import SEGMENT_OVERHEAD_BYTES
from proxy.protocol.errors import KAFKA_STORAGE_ERROR, NONE
from tests.unit.diskless.wal.buffer_doubles import ONE_BATCH, Producer, Storage, make, turns


async def test_segments_that_nobody_waits_for_are_neither_kept_nor_uploaded_before_those_that_someone_does():
    storage = Storage([(0, False)])
    storage.gated = True
    wal = await make(storage, max_uploads=1)
    producer = Producer(wal)
    for _ in range(11):
        producer.append()
        wal.flush()
    await turns()
    storage.gates[0].set()
    await producer.notified.wait()
    assert producer.codes() == dict.fromkeys(range(11), KAFKA_STORAGE_ERROR)
    assert wal.segments_underway > 1
    assert sum(segment.builder.bytes_buffered for segment in wal._underway.values()) == 0
    producer.append()
    wal.flush()
    await turns(50)
    assert (len(storage.gates), wal.segments_underway) == (2, 1)
    storage.gates[1].set()
    await wal.drain()
    assert producer.codes()[11] == NONE
    assert len(storage.objects) == 1


async def test_a_segment_takes_along_only_what_someone_waits_for():
    storage = Storage([(0, False)])
    wal = await make(storage, max_uploads=1)
    producer = Producer(wal)
    producer.append(0)
    wal.flush()
    for partition in (0, 1):
        producer.append(partition)
    wal.flush()
    await wal.drain()
    assert (producer.codes(0), producer.codes(1)) == (dict.fromkeys((0, 1), KAFKA_STORAGE_ERROR), {0: NONE})
    assert [len(data) for data in storage.objects.values()] == [SEGMENT_OVERHEAD_BYTES + ONE_BATCH]
