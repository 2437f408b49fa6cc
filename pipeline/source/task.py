"""The work of a task: the records of one split, as Arrow batches."""

from __future__ import annotations

import gc
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing, closing
from functools import cache

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pipeline.source.background import Background
from pipeline.source.decoding import ArrowBuilder, decode, no_garbage_collection
from pipeline.source.errors import SourceError
from pipeline.source.filters import ANY, Bounds
from pipeline.source.follow import Run, follow
from pipeline.source.options import SourceOptions
from pipeline.source.reach import reached
from pipeline.source.splits import LogRange, Split
from pipeline.stores import storage_opened
from proxy.config import Settings
from proxy.diskless.wal.segment import segment_key
from proxy.records.batches import BatchBounds, BatchHeader, RecordsError, read_header


def read_split(
    split: InputPartition, schema: StructType, settings: Settings, options: SourceOptions, bounds: Bounds
) -> Iterator[pa.RecordBatch]:
    """The records of one split as Arrow batches of bounded size, those of each partition in order.

    Storage is read in a thread of its own while records are decoded in this one. Raises SourceError, StorageError,
    CoordinatorUnavailable.
    """
    if not isinstance(split, Split) or not split.ranges:
        return
    arrow_schema = to_arrow_schema(schema, timezone="UTC")
    with (
        Background() as background,
        closing(background.iterate(_runs(split.ranges, settings, options, bounds))) as runs,
    ):
        yield from arrow_batches(runs, arrow_schema, bounds)
    _set_modules_aside()


@cache
def _set_modules_aside() -> None:
    """Exclude the loaded modules from garbage collection, which Spark's workers run after every task: it saves 60 ms.

    Do it once in each process, when everything needed has been loaded: the garbage of later tasks has to be collected.
    """
    gc.collect()
    gc.freeze()


async def _runs(
    ranges: tuple[LogRange, ...], settings: Settings, options: SourceOptions, bounds: Bounds
) -> AsyncGenerator[Run, None]:
    async with (
        reached(settings) as reach,
        storage_opened(settings) as storage,
        aclosing(
            follow(
                reach.coordinator,
                storage,
                ranges,
                bounds=bounds,
                fail_on_data_loss=options.fail_on_data_loss,
                committed=options.committed,
            )
        ) as runs,
    ):
        async for run in runs:
            yield run


def arrow_batches(runs: Iterable[Run], schema: pa.Schema, bounds: Bounds = ANY) -> Iterator[pa.RecordBatch]:
    """The records of the runs that lie in their ranges. Raises SourceError, which names object and offset."""
    builder = ArrowBuilder(schema)
    for run in runs:
        view = memoryview(run.data)
        first, end = max(run.start, run.range.start), run.range.end
        for batch in run.batches:
            if batch.last_offset < first or batch.base_offset >= end:
                continue
            header = read_header(view, batch.position)
            if header.is_control or header.max_timestamp_ms < bounds.lowest_timestamp_ms:
                continue
            if header.is_transactional and run.aborted.has(header.producer_id, batch.base_offset):
                continue
            with no_garbage_collection():
                _add(builder, run, view, batch, header)
            if builder.full and (full := builder.take()) is not None:
                yield full
    if (last := builder.take()) is not None:
        yield last


def _add(builder: ArrowBuilder, run: Run, view: memoryview, batch: BatchBounds, header: BatchHeader) -> None:
    """The records of a batch that are in the run's range and not given yet."""
    try:
        records, size_bytes = decode(view[batch.position : batch.position + batch.length], header, batch.base_offset)
    except RecordsError as error:
        raise SourceError(
            f"{run.range.name} can't be read from offset {batch.base_offset} to {batch.last_offset}: object "
            f"{segment_key(run.row.segment)}, position {run.row.position + batch.position}: {error}"
        ) from error
    first, end = max(run.start, run.range.start), run.range.end
    if batch.base_offset < first or batch.last_offset >= end:
        records = [record for record in records if first <= record.offset < end]
    builder.add(run.range.topic, run.range.partition, records, size_bytes)
