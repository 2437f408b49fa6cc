from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

import pytest

from pipeline.source import task
from pipeline.source.filters import ANY
from pipeline.source.schema import FULL
from pipeline.source.splits import LogRange, Split

SPLIT = Split((LogRange("orders", bytes(16), 0, 0, 1),))


async def nothing(*_: object) -> AsyncIterator[Any]:
    none: tuple[Any, ...] = ()
    for run in none:
        yield run


def test_the_first_split_excludes_module_objects_from_garbage_collection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unused: Any = None
    monkeypatch.setattr(task, "_runs", nothing)
    task._set_modules_aside.cache_clear()
    assert list(task.read_split(SPLIT, FULL, unused, unused, ANY)) == []
    set_aside = gc.get_freeze_count()
    assert set_aside > 10_000
    made_later = [[number] for number in range(10_000)]
    assert list(task.read_split(SPLIT, FULL, unused, unused, ANY)) == []
    assert gc.get_freeze_count() <= set_aside, "garbage of later tasks would never be collected"
    assert len(made_later) == 10_000


def one_by_one(runs: Iterable[int], *_: object) -> Iterator[int]:
    for run in runs:  # noqa: UP028 - as the real one: closing it does not close `runs`
        yield run


async def without_end(*_: object) -> AsyncIterator[int]:
    number = 0
    while True:
        yield number
        number += 1


def test_a_reader_that_has_enough_leaves_nothing_running(monkeypatch: pytest.MonkeyPatch) -> None:
    """A split under LIMIT ends early; a task that is left over would complain of a closed event loop when it is
    collected."""
    unused: Any = None
    monkeypatch.setattr(task, "_runs", without_end)
    monkeypatch.setattr(task, "arrow_batches", one_by_one)
    reading: Any = task.read_split(SPLIT, FULL, unused, unused, ANY)
    assert [next(reading), next(reading)] == [0, 1]
    reading.close()
    del reading
    gc.collect()
