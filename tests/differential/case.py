"""One case: a pair of topics, and the operations that are applied to both."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.differential.differences import Difference, differences
from tests.differential.generate import Generator
from tests.differential.model import Log, Model
from tests.differential.operations import Operation
from tests.differential.side import CLASSIC, DISKLESS, Side, Unsettled


@dataclass(frozen=True, slots=True)
class Listeners:
    """Addresses of both sides."""

    brokers: tuple[str, ...]
    proxies: tuple[str, ...]


class Beginning(NamedTuple):
    """Partitions and configs with which both topics of a case are created."""

    partitions: int
    configs: dict[str, str]


class Found(NamedTuple):
    """A case whose last operation got different answers."""

    beginning: Beginning
    operations: list[Operation]
    found: list[Difference]

    def __str__(self) -> str:
        lines = [f"topics of {self.beginning.partitions} partitions with {self.beginning.configs}"]
        lines += [f"  {number}. {operation}" for number, operation in enumerate(self.operations, 1)]
        for path, classic, diskless in self.found:
            lines += [f"{'.'.join(map(str, path))}", f"  classic:  {classic}", f"  diskless: {diskless}"]
        return "\n".join(lines)


@contextmanager
def topics(listeners: Listeners, beginning: Beginning) -> Iterator[tuple[Side, Side]]:
    """Create a classic and a diskless topic, and delete them at the end."""
    token, began_ms = uuid.uuid4().hex[:8], int(time.time() * 1000)
    sides = (
        Side(CLASSIC, listeners.brokers, f"differential-{token}-classic", began_ms),
        Side(DISKLESS, listeners.proxies, f"differential-{token}-diskless", began_ms),
    )
    try:
        for side in sides:
            error_code = side.create(*beginning)
            if error_code:
                raise Unsettled(f"the {side.kind} topic can't be created: error {error_code}")
        yield sides
        for side in sides:
            side.delete()
    finally:
        for side in sides:
            side.close()


def apply(sides: tuple[Side, Side], operation: Operation) -> tuple[Any, list[Difference]]:
    """Apply an operation; return the classic side's answer, and how the diskless side's answer differs."""
    classic, diskless = sides
    expected = operation.apply(classic)
    answered = operation.apply(diskless, expected)
    return expected, differences(operation, expected, answered)


def generated(listeners: Listeners, seed: str, count: int) -> Iterator[Operation | Found]:
    """Yield each operation after it is applied; the last one is a Found if the answers differ."""
    generator = Generator(random.Random(seed))
    beginning = Beginning(generator.partitions(), generator.configs())
    model = Model([Log() for _ in range(beginning.partitions)], dict(beginning.configs))
    done: list[Operation] = []
    with topics(listeners, beginning) as sides:
        for _ in range(count):
            operation = generator.next(model)
            done.append(operation)
            try:
                expected, found = apply(sides, operation)
            except Exception as error:
                error.add_note(f"case {seed}, operation {len(done)}: {operation}")
                raise
            if found:
                yield Found(beginning, done, found)
                return
            model.learn(operation, expected)
            yield operation


def replayed(listeners: Listeners, beginning: Beginning, operations: Sequence[Operation]) -> Found | None:
    """Apply the same operations to new topics, until the answers differ."""
    with topics(listeners, beginning) as sides:
        return first_found(sides, beginning, operations)


def first_found(sides: tuple[Side, Side], beginning: Beginning, operations: Iterable[Operation]) -> Found | None:
    done: list[Operation] = []
    for operation in operations:
        done.append(operation)
        if found := apply(sides, operation)[1]:
            return Found(beginning, done, found)
    return None
