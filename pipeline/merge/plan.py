"""The plan of a merge: rows to objects, objects to tasks. Pure: rows in, tasks out, with one task's rows in memory.

Consecutive rows of a partition that are worth it form a *stretch*. A stretch with the target size or more is cut into
objects of even size; smaller stretches share an object with those of the next partitions. These stay as they are:

- rows that are too young, and all rows after them;
- *runs* (the rows of a partition that lie together in one object) of half the target size or more;
- a merged run that is larger than all that follows it in its stretch: so a partition that grows slowly is rewritten a
  logarithmic number of times;
- rows whose object would replace too few others.

The last three do not hold for rows of objects that have to be rewritten. Markers of transactions, which have no object,
go along with the rows around them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise, takewhile
from typing import NamedTuple

from pipeline.merge.options import MergeOptions
from proxy.coordinator.interface import Row

MAX_ROWS_PER_TASK = 100_000
"""However small they are: the driver has them in memory."""


class Part(NamedTuple):
    """Rows of one partition that go to one object, next to each other and in their order."""

    partition: int
    rows: tuple[Row, ...]


class Output(NamedTuple):
    """One object that is to be made."""

    parts: tuple[Part, ...]

    @property
    def size_bytes(self) -> int:
        """Return the bytes of its batches."""
        return sum(row.length for part in self.parts for row in part.rows)

    @property
    def rows(self) -> int:
        """Return the number of rows that go to it."""
        return sum(len(part.rows) for part in self.parts)

    @property
    def segments(self) -> set[bytes]:
        """Objects that it takes rows from."""
        return {row.segment for part in self.parts for row in part.rows if not row.is_marker}


class MergeTask(NamedTuple):
    """Objects that one task makes, of partitions of one topic."""

    topic: str
    topic_id: bytes
    outputs: tuple[Output, ...]
    not_after_ms: int = 0
    """`deadline_ms` of the driver until which its rows may be swapped. It is set when an executor gets the task."""
    log_starts: tuple[tuple[int, int], ...] = ()
    """Partition and log start offset, if that lies within the first row: batches before it are left out."""

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all batches that it reads."""
        return sum(output.size_bytes for output in self.outputs)


@dataclass(slots=True)
class Left:
    """Bytes that a plan has passed over so far, by the reason."""

    large_bytes: int = 0
    """Bytes in runs that are large enough, or too large for what follows them."""
    few_bytes: int = 0
    """Not worth an object."""

    @property
    def all_bytes(self) -> int:
        """Whatever the reason."""
        return self.large_bytes + self.few_bytes


class Planner:
    """Plans the merge of topic after topic."""

    def __init__(self, options: MergeOptions, *, now_ms: int, rewrite: Collection[bytes] = ()) -> None:
        """`now_ms`: milliseconds since 1970 by the store's clock. `rewrite`: segments that must be rewritten."""
        self._options = options
        self._newest_ms = now_ms - options.min_age_ms
        self._rewrite = rewrite
        self.left = Left()

    def tasks(self, topic: str, topic_id: bytes, logs: Iterable[tuple[int, Iterable[Row]]]) -> Iterator[MergeTask]:
        """The tasks for one topic. `logs`: its partitions and their rows in order, taken as they are needed."""
        outputs: list[Output] = []
        size = rows = 0
        # As rows can't be cut, objects are a little larger than the target: as many as were meant to still fit.
        most = self._options.task_bytes + self._options.target_bytes // 4
        for output in self._outputs(logs):
            if not self._is_worth_it(output):
                self.left.few_bytes += output.size_bytes
                continue
            is_full = size + output.size_bytes > most or rows + output.rows > MAX_ROWS_PER_TASK
            if outputs and is_full:
                yield MergeTask(topic, topic_id, tuple(outputs))
                outputs, size, rows = [], 0, 0
            outputs.append(output)
            size += output.size_bytes
            rows += output.rows
        if outputs:
            yield MergeTask(topic, topic_id, tuple(outputs))

    def _outputs(self, logs: Iterable[tuple[int, Iterable[Row]]]) -> Iterator[Output]:
        """All objects that could be made, worth it or not."""
        target = self._options.target_bytes
        shared: list[Part] = []
        size = count = 0
        for partition, rows in logs:
            for stretch in self._stretches(rows):
                total = sum(row.length for row in stretch)
                if total >= target:
                    yield from (Output((Part(partition, tuple(some)),)) for some in even(stretch, target))
                    continue
                shared.append(Part(partition, tuple(stretch)))
                size += total
                count += len(stretch)
                if size >= target or count >= MAX_ROWS_PER_TASK:
                    yield Output(tuple(shared))
                    shared, size, count = [], 0, 0
        if shared:
            yield Output(tuple(shared))

    def _stretches(self, rows: Iterable[Row]) -> Iterator[list[Row]]:
        """Yield the stretches of one partition; one that exceeds a task is cut so that target bytes are left of it."""
        options = self._options
        stretch: list[Row] = []
        size = 0
        is_cut = False
        for run in self._runs(rows):
            run_bytes = sum(row.length for row in run)
            if run_bytes * 2 >= options.target_bytes and run[0].segment not in self._rewrite:
                yield from self._ended(stretch, is_cut)
                stretch, size, is_cut = [], 0, False
                self.left.large_bytes += run_bytes
                continue
            stretch += run
            size += run_bytes
            while size >= options.task_bytes + options.target_bytes or len(stretch) >= MAX_ROWS_PER_TASK:
                full = _full_pieces(stretch, options.target_bytes, options.task_bytes // options.target_bytes)
                some = stretch[: full[-1] if full else len(stretch) // 2]
                yield some
                del stretch[: len(some)]
                size -= sum(row.length for row in some)
                is_cut = True
        yield from self._ended(stretch, is_cut)

    def _runs(self, rows: Iterable[Row]) -> Iterator[list[Row]]:
        """Yield runs: rows that follow one another in one object, of those that are old enough."""
        old = takewhile(lambda row: row.append_time_ms <= self._newest_ms, rows)
        for _, run in groupby(old, _object_of):
            yield list(run)

    def _ended(self, stretch: list[Row], is_cut: bool) -> Iterator[list[Row]]:
        """Yield the stretch without the merged runs at its beginning that are larger than everything after them."""
        if is_cut or any(row.segment in self._rewrite for row in stretch):
            if stretch:
                yield stretch
            return
        rest = sum(row.length for row in stretch)
        first = end = 0
        for _, rows in groupby(stretch, _object_of):
            run = list(rows)
            end += len(run)
            if run[0].is_marker:
                continue
            run_bytes = sum(row.length for row in run)
            if not run[0].offsets_in_place or run_bytes <= rest - run_bytes:
                break
            first = end
            rest -= run_bytes
            self.left.large_bytes += run_bytes
        if any(not row.is_marker for row in stretch[first:]):
            yield stretch[first:]

    def _is_worth_it(self, output: Output) -> bool:
        segments = output.segments
        return len(segments) >= self._options.min_inputs or any(segment in self._rewrite for segment in segments)


def _object_of(row: Row) -> bytes | None:
    return None if row.is_marker else row.segment


def even(rows: Sequence[Row], target_bytes: int) -> list[Sequence[Row]]:
    """Cut rows into as many pieces as there can be of `target_bytes` or more; of about the same size if possible."""
    full = _full_pieces(rows, target_bytes)
    pieces = _pieces(rows, _even_cuts(rows, max(1, len(full))))
    if all(sum(row.length for row in piece) >= target_bytes for piece in pieces):
        return pieces
    return _pieces(rows, full[:-1])


def _full_pieces(rows: Sequence[Row], target_bytes: int, most: int | None = None) -> list[int]:
    """Return the rows after which pieces end that have just the target size."""
    ends: list[int] = []
    size = 0
    for number, row in enumerate(rows, 1):
        size += row.length
        if size >= target_bytes:
            ends.append(number)
            size = 0
            if len(ends) == most:
                break
    return ends


def _even_cuts(rows: Sequence[Row], count: int) -> list[int]:
    """Return the rows after which to cut, so that each piece ends as near as possible to its even share."""
    ends = list(accumulate(row.length for row in rows))
    return [bisect_left(ends, ends[-1] * number // count) + 1 for number in range(1, count)]


def _pieces(rows: Sequence[Row], cuts: Sequence[int]) -> list[Sequence[Row]]:
    return [rows[start:end] for start, end in pairwise([0, *cuts, len(rows)])]
