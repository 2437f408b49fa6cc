"""Record batches by an independent writer (aiokafka), for tests of everything that reads or carries them."""

from __future__ import annotations

from collections.abc import Sequence

from aiokafka.record.default_records import DefaultRecordBatchBuilder

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4


def make_batch(
    values: Sequence[bytes | None] = (b"value",),
    *,
    codec: int = 0,
    transactional: bool = False,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    timestamp_ms: int = 1_700_000_000_000,
) -> bytearray:
    """One v2 batch as a producer sends it: a record for each value, a millisecond apart, base offset 0."""
    builder = DefaultRecordBatchBuilder(
        2, codec, int(transactional), producer_id, producer_epoch, base_sequence, 64 * 1024 * 1024
    )
    for index, value in enumerate(values):
        assert builder.append(index, timestamp_ms + index, None, value, []) is not None
    return bytearray(builder.build())
