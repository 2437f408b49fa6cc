"""The batch half of the source."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Self

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from pipeline.logs import patiently
from pipeline.source.background import Background
from pipeline.source.filters import ANY, bounds_of
from pipeline.source.options import SourceOptions
from pipeline.source.planning import batch_ranges, sized
from pipeline.source.reach import reached
from pipeline.source.selection import ChosenTopic
from pipeline.source.splits import LogRange, Split, arrange
from pipeline.source.times import offset_since
from pipeline.stores import storage_opened
from proxy.config import Settings
from proxy.coordinator.interface import Coordinator
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.storage.interface import ObjectStorage

if TYPE_CHECKING:
    import pyarrow as pa


class DisklessReader(DataSourceReader):
    """A batch query. It is pickled with its knowledge, and read from in tasks."""

    def __init__(self, schema: StructType, options: SourceOptions, settings: Settings) -> None:
        self._schema = schema
        self._options = options
        self._settings = settings
        self._bounds = ANY

    def partitions(self) -> Sequence[InputPartition]:
        """Splits of about `splitBytes`; called once, on the driver. Raises SourceError."""
        with Background() as background:
            ranges = background.run(patiently(self._plan))
        return splits_of(ranges, self._options) or [Split(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one split, in a task."""
        from pipeline.source.task import read_split  # what decodes is loaded where it is used

        return read_split(partition, self._schema, self._settings, self._options, self._bounds)

    async def _plan(self) -> list[LogRange]:
        async with reached(self._settings) as reach, TimeLookups(self._settings, reach.coordinator) as lookup:
            topics: Iterable[DisklessTopic] = await reach.topics()
            ranges = await batch_ranges(reach.coordinator, topics, self._options, lookup, self._bounds)
            return await sized(
                reach.coordinator,
                ranges,
                split_bytes=self._options.split_bytes,
                bounds=self._bounds,
                fail_on_data_loss=self._options.fail_on_data_loss,
            )


class FilteringReader(DisklessReader):
    """The same, if Spark hands filters down."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take the filters' conditions on topic, partition, offset and time. Spark applies all of them again."""
        self._bounds = bounds_of(filters)
        return filters


class TimeLookups:
    """Offsets by time, for planning. A context; storage is opened for the first of them, as few queries ask."""

    def __init__(self, settings: Settings, coordinator: Coordinator) -> None:
        self._settings = settings
        self._coordinator = coordinator
        self._one_opens = asyncio.Lock()
        self._opened = AsyncExitStack()
        self._storage: ObjectStorage | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._opened.aclose()

    async def __call__(self, topic: ChosenTopic, partition: int, timestamp_ms: int) -> int | None:
        """See `times.offset_since`."""
        async with self._one_opens:
            if self._storage is None:
                self._storage = await self._opened.enter_async_context(storage_opened(self._settings))
        name = f"{topic.name}-{partition}"
        return await offset_since(self._coordinator, self._storage, name, topic.topic_id, partition, timestamp_ms)


def splits_of(ranges: Sequence[LogRange], options: SourceOptions) -> list[InputPartition]:
    """Return the tasks for these pieces."""
    arranged = arrange(
        ranges,
        split_bytes=options.split_bytes,
        min_partitions=options.min_partitions,
        max_records=options.max_records_per_partition,
    )
    return [Split(ranges) for ranges in arranged]
