"""The streaming half of the source: one object that lives on the driver as long as its query."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pipeline.logs import patiently
from pipeline.source.background import Background
from pipeline.source.errors import SourceError
from pipeline.source.filters import ANY
from pipeline.source.options import SourceOptions
from pipeline.source.planning import sized
from pipeline.source.positions import resolve
from pipeline.source.reach import Reach, ends_of, reached
from pipeline.source.reader import TimeLookups, splits_of
from pipeline.source.selection import choose
from pipeline.source.splits import LogRange
from pipeline.source.stream_offsets import StreamOffsets, from_json, to_json
from pipeline.source.streaming import Sight, Triggers, ranges_between
from proxy.config import Settings

if TYPE_CHECKING:
    import pyarrow as pa

Answer = TypeVar("Answer")


class DisklessStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream. Connects when it is first asked something, and again after every failure: it is pickled before."""

    def __init__(self, schema: StructType, options: SourceOptions, settings: Settings) -> None:
        self._schema = schema
        self._options = options
        self._settings = settings
        self._background: Background | None = None
        self._opened: AsyncExitStack | None = None
        self._reach: Reach | None = None
        self._triggers: Triggers | None = None
        self._initial: dict[str, Any] | None = None
        """Beginning of a new stream."""
        self._begun = False
        """Whether that is in the checkpoint."""
        self._last_sight: Sight | None = None
        """State of the logs at the beginning, under `Trigger.AvailableNow`."""
        self._seen: Sight | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Return the beginning of a stream without a checkpoint. Raises SourceError."""
        if self._initial is None:
            self._initial = self._ask(self._begin)
            if self._last_sight is not None:
                # Spark has asked for that before: the stream may begin behind what was the end then.
                self._last_sight = self._ask(self._look)
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of `maxOffsetsPerTrigger` and `minOffsetsPerTrigger`."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next micro-batch; `start` if there is nothing to read, or too little yet.

        The first micro-batch of a new stream is empty: so the beginning is in the checkpoint before anything is read.
        Otherwise Spark would ask again after a failure of the first one, and miss the records that came meanwhile.
        """
        if start == self._initial and not self._begun:
            self._begun = True
            return start
        sight = self._last_sight or self._ask(self._look)
        self._seen = sight
        if self._triggers is None:
            self._triggers = Triggers(self._options)
        end = self._triggers.end(
            from_json(start),
            sight,
            most=limit.max_rows if isinstance(limit, ReadMaxRows) else None,
            wait=self._last_sight is None and not isinstance(limit, ReadAllAvailable),
        )
        return to_json(end)

    def prepareForTriggerAvailableNow(self) -> None:
        """Keep the present ends: the query ends when it has read up to them."""
        self._last_sight = self._ask(self._look)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the ends at the last trigger, for the query's progress."""
        return None if self._seen is None else to_json(self._seen.latest())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a micro-batch. Raises SourceError."""
        # A first micro-batch that is run again: nothing was asked of this reader but where the stream begins.
        self._begun = True
        ranges = ranges_between(from_json(start), from_json(end))

        async def plan(reach: Reach) -> list[LogRange]:
            return await sized(
                reach.coordinator,
                ranges,
                split_bytes=self._options.split_bytes,
                bounds=ANY,
                fail_on_data_loss=self._options.fail_on_data_loss,
            )

        return splits_of(self._ask(plan), self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one split, in a task."""
        from pipeline.source.task import read_split  # what decodes is loaded where it is used

        return read_split(partition, self._schema, self._settings, self._options, ANY)

    def stop(self) -> None:
        """Let go of connections."""
        if self._background is not None:
            self._disconnect(self._background)
            self._background.close()
            self._background = None

    async def _begin(self, reach: Reach) -> dict[str, Any]:
        topics = choose(await reach.topics(), self._options.selection)
        sight = Sight(topics, await ends_of(reach.coordinator, topics, committed=self._options.committed))
        for topic in topics:
            for partition in topic.partitions:
                if (topic.name, partition) not in sight.ends:
                    raise SourceError(
                        f"{topic.name}-{partition} does not live: the topic is being made or deleted; try again"
                    )
        async with TimeLookups(self._settings, reach.coordinator) as lookup:
            offsets = await resolve(
                self._options.starting,
                topics,
                sight.ends,
                lookup,
                latest_where_none_matches=self._options.latest_where_none_matches,
            )
        begin: StreamOffsets = sight.offsets_at(offsets)
        return to_json(begin)

    async def _look(self, reach: Reach) -> Sight:
        topics = choose(await reach.topics(), self._options.selection, missing_ok=True)
        return Sight(topics, await ends_of(reach.coordinator, topics, committed=self._options.committed))

    def _ask(self, question: Callable[[Reach], Awaitable[Answer]]) -> Answer:
        if self._background is None:
            self._background = Background()

        async def answered() -> Answer:
            if self._reach is None:
                self._opened = AsyncExitStack()
                self._reach = await self._opened.enter_async_context(reached(self._settings))
            reach = self._reach
            return await patiently(lambda: question(reach))

        try:
            return self._background.run(answered())
        except BaseException:
            self._disconnect(self._background)
            raise

    def _disconnect(self, background: Background) -> None:
        opened, self._opened, self._reach = self._opened, None, None
        if opened is not None:
            background.run(opened.aclose())
