"""The way of a compaction through Spark: keys from every chunk, the last record of each, and back to the chunks.

Keys are compared as they are, not by a hash, and grouped by Spark, which spills those that do not fit into the
executors' memory. The driver sees none of it: a chunk's survivors are one partition, which a job of its own rewrites.
"""

from __future__ import annotations

import asyncio
import json
import pickle
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pipeline.compact.chunk import ChunkAnswer, Unread, rewrite_chunk
from pipeline.compact.keys import SCHEMA, key_batches
from pipeline.compact.markers import LastEvents, Place, left_before
from pipeline.compact.spans import Work
from pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark import RDD, Accumulator, Broadcast
    from pyspark.sql import DataFrame, Row, SparkSession

_PLACED = "chunk int, log int, code bigint"
_ANSWER = "answer binary"
_BEFORE = "diskless.compact.before"
"""Property of the job that rewrites a chunk: `chunk.Before` as JSON. It is known only after all keys were read."""

Batches = Iterator[Any]
"""Arrow record batches."""


@dataclass
class KeysRead:
    """Reports of tasks about the keys of chunks, from each time that tasks read the keys."""

    chunks: set[int] = field(default_factory=set)
    """Chunks whose keys a task has read to the end."""
    unread: dict[int, Unread] = field(default_factory=dict)
    """Logs that a task could not read completely, with one reason each."""
    events: dict[Place, LastEvents] = field(default_factory=dict)
    """The last transactional batches of spans."""

    def note(self, log: int, unread: Unread) -> None:
        """Add a log that could not be read completely."""
        self.unread[log] = unread


class _Together:
    """Adds up KeysRead, as Spark's accumulators want it."""

    def zero(self, value: KeysRead) -> KeysRead:
        return KeysRead()

    def addInPlace(self, one: KeysRead, other: KeysRead) -> KeysRead:
        one.chunks |= other.chunks
        one.unread.update(other.unread)
        one.events.update(other.events)
        return one


class Survivors:
    """The last record of each key in all logs of a run, next to the chunk in which it lies."""

    def __init__(self, spark: SparkSession, work: Work) -> None:
        """Reads all keys and groups them; raises what Spark raises when a task has failed for good."""
        self._context = spark.sparkContext
        self._chunks = len(work.chunks)
        self._work: Broadcast[Work] = self._context.broadcast(work)
        # Not reported next to the keys: when an executor is lost, Spark reads some chunks again, but keeps only the
        # groups that were lost as well, and a report in another group would be lost.
        self._read: Accumulator[KeysRead] = self._context.accumulator(KeysRead(), _Together())  # type: ignore[arg-type]
        self._answers: RDD[Row] = _answers(spark, self._work, self._read, self._chunks).rdd
        self._partition(self._chunks)
        spans = (Place(span.log, span.start) for chunk in work.chunks for span in chunk)
        self._left_before = left_before(spans, self._read.value.events)
        self._plan = work.chunks
        if missing := set(range(self._chunks)) - self._read.value.chunks:
            raise PipelineError(f"Spark has not reported whether {len(missing)} tasks read all keys")

    @property
    def unreadable(self) -> dict[int, Unread]:
        """Return the logs (their places in the plan) that could not be read completely, with the report of each.

        More may come while chunks are rewritten, because Spark reads keys again that were lost with an executor: don't
        use the result of `rewrite` for such a log. It is in here before `rewrite` returns.
        """
        return self._read.value.unread.copy()

    def rewrite(self, chunk: int) -> ChunkAnswer:
        """Have a chunk rewritten by an executor, in a Spark job that this thread waits for."""
        here = {span.log: self._left_before.get(Place(span.log, span.start), ()) for span in self._plan[chunk]}
        self._context.setLocalProperty(_BEFORE, json.dumps({log: sorted(ids) for log, ids in here.items() if ids}))
        answer: ChunkAnswer = self._partition(chunk)
        return answer

    def forget(self) -> None:
        """Let go of what executors hold for it."""
        self._work.unpersist()

    def _partition(self, number: int) -> Any:
        # As `SparkContext.runJob`, except for its function of the rows, for which each core would start another Python.
        from pyspark.util import _load_from_socket

        jvm = self._context._jvm
        assert jvm is not None
        answer = jvm.PythonRDD.runJob(self._context._jsc.sc(), self._answers._jrdd, [number])
        with _load_from_socket(answer, self._answers._jrdd_deserializer) as rows:
            (row,) = rows
        return pickle.loads(row.answer)


def _answers(spark: SparkSession, work: Broadcast[Work], read: Accumulator[KeysRead], chunks: int) -> DataFrame:
    from pyspark.sql import functions

    last = (
        spark.range(0, chunks, 1, chunks)
        .mapInArrow(_read_keys(work, read), SCHEMA)
        .groupBy("log", "key")
        .agg(functions.max("code").alias("code"))
        .select("log", "code")
    )
    placed = last.mapInArrow(_place(work), _PLACED)
    # One more than there are chunks: what nothing comes to is asked for before anything is rewritten.
    return placed.repartitionById(chunks + 1, functions.col("chunk")).mapInArrow(_rewrite(work), _ANSWER)


def _read_keys(work: Broadcast[Work], read: Accumulator[KeysRead]) -> Callable[[Batches], Batches]:
    def read_keys(batches: Batches) -> Batches:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                keys = KeysRead({number})
                yield from key_batches(work.value, work.value.chunks[number], keys.note, keys.events)
                read.add(keys)

    return read_keys


def _place(work: Broadcast[Work]) -> Callable[[Batches], Batches]:
    """Add to each survivor the chunk whose task rewrites it."""

    def place(batches: Batches) -> Batches:
        import numpy
        import pyarrow

        starts, chunks = _starts(work.value)
        for batch in batches:
            logs, codes = (batch.column(name).to_numpy(zero_copy_only=False) for name in ("log", "code"))
            numbers = numpy.empty(len(logs), dtype=numpy.int32)
            for log in numpy.unique(logs):
                of_log = logs == log
                before = numpy.searchsorted(starts[log], codes[of_log] >> 1, side="right") - 1
                numbers[of_log] = chunks[log][before]
            columns = [pyarrow.array(numbers, pyarrow.int32()), batch.column("log"), batch.column("code")]
            yield pyarrow.record_batch(columns, names=["chunk", "log", "code"])

    return place


def _starts(work: Work) -> tuple[dict[int, Any], dict[int, Any]]:
    """Per log the first offsets of its spans, ascending, and the chunk of each."""
    import numpy

    spans: dict[int, list[tuple[int, int]]] = {}
    for number, chunk in enumerate(work.chunks):
        for span in chunk:
            spans.setdefault(span.log, []).append((span.start, number))
    starts = {log: numpy.array([start for start, _ in of_log]) for log, of_log in spans.items()}
    return starts, {log: numpy.array([number for _, number in of_log]) for log, of_log in spans.items()}


def _rewrite(work: Broadcast[Work]) -> Callable[[Batches], Batches]:
    def rewrite(batches: Batches) -> Batches:
        import pyarrow
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        number = context.partitionId()
        answer: ChunkAnswer | None = None
        if number < len(work.value.chunks):
            before = _before(context.getLocalProperty(_BEFORE))
            answer = asyncio.run(rewrite_chunk(work.value, work.value.chunks[number], _by_log(batches), before))
        yield pyarrow.record_batch([pyarrow.array([pickle.dumps(answer)], pyarrow.binary())], names=["answer"])

    return rewrite


def _before(given: str | None) -> dict[int, list[int]]:
    """Return what is before the chunk's spans. Without it nobody knows which markers may go: raises PipelineError."""
    if given is None:
        raise PipelineError(f"Spark has not handed the property {_BEFORE} to a task; run the job again")
    return {int(log): ids for log, ids in json.loads(given).items()}


def _by_log(batches: Batches) -> dict[int, array[int]]:
    """Return the input of a chunk's task, per log in ascending order, eight bytes per survivor."""
    import numpy

    parts: dict[int, list[Any]] = {}
    for batch in batches:
        logs, codes = (batch.column(name).to_numpy(zero_copy_only=False) for name in ("log", "code"))
        for log in numpy.unique(logs):
            parts.setdefault(int(log), []).append(codes[logs == log])
    return {
        log: array("q", numpy.sort(numpy.concatenate(some)).astype(numpy.int64).tobytes())
        for log, some in parts.items()
    }
