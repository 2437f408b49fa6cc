"""A run: cases side by side, until all operations are done or a case finds a difference."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from tests.differential.case import Found, Listeners, generated, replayed
from tests.differential.operations import Operation
from tests.differential.shrink import shrunk

OPERATIONS_PER_CASE = 120
MOST_REPLAYS = 60
Progress = Callable[[int, int], None]


@dataclass(slots=True)
class Outcome:
    """Operations and findings of a run."""

    seed: int
    done: Counter[str] = field(default_factory=Counter)
    """Operations by their kind."""
    found: Found | None = None
    case: int = -1
    """Number of the case with the difference."""
    again: bool = True
    """True if the operations found it again; otherwise it depends on timing."""

    @property
    def operations(self) -> int:
        return self.done.total()

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.done.items()))
        summary = f"seed {self.seed}: {self.operations} operations ({kinds})"
        if self.found is None:
            return f"{summary}: no difference"
        again = "" if self.again else " (not found again by the same operations)"
        return f"{summary}: a difference in case {self.case}{again}\n{self.found}"


def run(
    listeners: Listeners,
    *,
    operations: int,
    seed: int,
    workers: int = 4,
    first_case: int = 0,
    progress: Progress = lambda done, of: None,
    most_replays: int = MOST_REPLAYS,
) -> Outcome:
    """Apply `operations` operations, unless a difference is found first; shrink its operations with some replays."""
    outcome = Outcome(seed)
    lock, stop = threading.Lock(), threading.Event()
    cases = iter(range(first_case, first_case + -(-operations // OPERATIONS_PER_CASE)))

    def note(case: int, done: Operation | Found) -> None:
        with lock:
            if isinstance(done, Found):
                if outcome.found is None:
                    outcome.found, outcome.case = done, case
                stop.set()
                return
            outcome.done[type(done).__name__] += 1
            progress(outcome.operations, operations)
            if outcome.operations >= operations:
                stop.set()

    def work() -> None:
        try:
            while not stop.is_set():
                with lock:
                    case = next(cases, None)
                if case is None:
                    return
                for done in generated(listeners, f"{seed}-{case}", OPERATIONS_PER_CASE):
                    note(case, done)
                    if stop.is_set():
                        break
        except BaseException:
            stop.set()
            raise

    with ThreadPoolExecutor(workers) as pool:
        working = [pool.submit(work) for _ in range(workers)]
        wait(working, return_when=FIRST_EXCEPTION)
    for one in working:
        one.result()
    if outcome.found is not None:
        _shrink(listeners, outcome, outcome.found, most_replays)
    return outcome


def _shrink(listeners: Listeners, outcome: Outcome, found: Found, most_replays: int) -> None:
    places = {one.path[-1] for one in found.found}

    def still(operations: list[Operation]) -> bool:
        again = replayed(listeners, found.beginning, operations)
        if (
            again is None
            or len(again.operations) < len(operations)
            or not places & {one.path[-1] for one in again.found}
        ):
            return False
        outcome.found = again
        return True

    outcome.again = most_replays > 0 and still(found.operations)
    if outcome.again:
        shrunk(found.operations, still, most_replays)
