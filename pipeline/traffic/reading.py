"""Rollups from object storage, some hundred in a task, each task's sums small."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from pipeline.stores import storage_opened
from pipeline.traffic.span import Span
from pipeline.traffic.table import BadRollup, decode, empty, racks_of, summed
from proxy.accounting.rollups.files import day_folder, day_of
from proxy.config import Settings
from proxy.storage.interface import ObjectMissing, ObjectStorage, StorageError, StoredObject

if TYPE_CHECKING:
    import pyarrow as pa

MAX_ROLLUP_BYTES = 64 << 20
"""Size above which an object is not a rollup: `rollups.max_rows` rows are a thousandth of it."""
ROLLUPS_PER_TASK = 400
TASK_BYTES = 64 << 20
"""Maximum bytes of rollups in one task, unless a single one is larger."""
_AT_A_TIME = 16
_TABLES_HELD = 64


class Stored(NamedTuple):
    """A rollup in storage."""

    key: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ReadTask:
    """The input of a task."""

    settings: Settings
    rollups: tuple[Stored, ...]
    span: Span
    topics: tuple[str, ...]


class ReadAnswer(NamedTuple):
    """The result of a task."""

    table: pa.Table
    """Sums, see `table.KEYS`."""
    racks: frozenset[str]
    """Racks that were seen, also in rows of other topics than the requested ones."""
    bad: list[tuple[str, str]]
    """Keys of objects that are not rollups, or could not be read, and the reason."""
    rollups: int
    """Number of rollups that were read."""
    bytes: int


def rollups_in(settings: Settings, span: Span) -> tuple[list[Stored], list[tuple[str, str]]]:
    """All rollups of the span's days, and what else lies among them, with the reason. Raises StorageError."""
    return asyncio.run(_list(settings, span))


def tasks_of(settings: Settings, rollups: Iterable[Stored], span: Span, topics: tuple[str, ...]) -> Iterator[ReadTask]:
    """The work, in pieces that one task holds in memory."""
    for several in _pieces(iter(rollups)):
        yield ReadTask(settings, several, span, topics)


def read_rollups(task: ReadTask) -> ReadAnswer:
    """Return the work of one task. Raises StorageError if storage can't be used at all."""
    return asyncio.run(_read(task))


def _pieces(rollups: Iterator[Stored]) -> Iterator[tuple[Stored, ...]]:
    left: list[Stored] = []
    size = 0
    for rollup in rollups:
        if left and (len(left) == ROLLUPS_PER_TASK or size + rollup.size_bytes > TASK_BYTES):
            yield tuple(left)
            left, size = [], 0
        left.append(rollup)
        size += rollup.size_bytes
    if left:
        yield tuple(left)


async def _list(settings: Settings, span: Span) -> tuple[list[Stored], list[tuple[str, str]]]:
    found: list[Stored] = []
    foreign: list[tuple[str, str]] = []
    async with storage_opened(settings) as storage:
        for day in span.days():
            async for stored in storage.objects(day_folder(day)):
                problem = _foreign(stored)
                if problem:
                    foreign.append((stored.key, problem))
                else:
                    found.append(Stored(stored.key, stored.size_bytes))
    return found, foreign


def _foreign(stored: StoredObject) -> str:
    if day_of(stored.key) is None:
        return "its name is none of a rollup"
    if stored.size_bytes > MAX_ROLLUP_BYTES:
        return f"it has {stored.size_bytes:,} bytes, more than any rollup"
    return ""


async def _read(task: ReadTask) -> ReadAnswer:
    table, tables, racks = empty(), list[object](), set[str]()

    def fold() -> None:
        nonlocal table
        inside = summed(tables, task.span)
        racks.update(racks_of(inside))
        table = summed([table, inside], topics=task.topics)
        tables.clear()

    bad: list[tuple[str, str]] = []
    done = size = 0
    async with storage_opened(task.settings) as storage:
        async for key, data in _fetched(storage, task.rollups):
            if data is None:
                continue
            if isinstance(data, str):
                bad.append((key, data))
                continue
            done += 1
            size += len(data)
            try:
                tables.append(decode(data))
            except BadRollup as error:
                bad.append((key, str(error)))
            if len(tables) == _TABLES_HELD:
                fold()
    fold()
    return ReadAnswer(table, frozenset(racks), bad, done, size)


async def _fetched(
    storage: ObjectStorage, rollups: Iterable[Stored]
) -> AsyncIterator[tuple[str, bytes | bytearray | str | None]]:
    """Yield keys and bytes; instead of bytes the reason if it can't be read, None if it has gone meanwhile."""

    async def fetch(key: str) -> tuple[str, bytes | bytearray | str | None]:
        try:
            return key, await storage.fetch(key)
        except ObjectMissing:
            return key, None
        except StorageError as error:
            return key, f"it can't be read: {error}"

    keys = (rollup.key for rollup in rollups)
    while several := list(islice(keys, _AT_A_TIME)):
        for answer in await asyncio.gather(*map(fetch, several)):
            yield answer
