from __future__ import annotations

import io
from threading import Event, Thread

from hypothesis import given
from hypothesis import strategies as st

from pipeline.progress import Progress


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_every_few_seconds_where_no_terminal_is() -> None:
    stream, clock = io.StringIO(), Clock()
    with Progress("merge", stream, clock=clock) as progress:
        progress.total(bytes=8 << 20, tasks=4)
        progress.advance(bytes=1 << 20, objects=10, tasks=1)
        assert stream.getvalue() == ""
        clock.seconds += 5
        progress.advance(bytes=1 << 20, objects=10, tasks=1)
        clock.seconds += 4.9
        progress.advance(tasks=1)
    assert stream.getvalue() == "merge: 2.0 MiB of 8.0 MiB, 20 objects, 2 of 4 tasks, 25%, 15 s left\n"


def test_a_terminal_has_one_line_and_nothing_stays() -> None:
    stream, clock = Terminal(), Clock()
    with Progress("audit", stream, clock=clock) as progress:
        for _ in range(3):
            clock.seconds += 1
            progress.advance(bytes=1024)
    parts = stream.getvalue().split("\r\x1b[2K")
    drawn = [f"audit: {done}.0 KiB, {done} s so far" for done in (1, 2, 3)]
    assert parts == ["", *drawn, ""]


def test_a_job_that_counts_nothing_is_seen_to_be_at_work() -> None:
    printed = Event()

    class Stream(io.StringIO):
        def write(self, text: str) -> int:
            printed.set()
            return super().write(text)

    stream = Stream()
    with Progress("compact", stream, lines_seconds=0):
        assert printed.wait(60)
    assert stream.getvalue().startswith("compact: 0 B, ")


def test_a_plan_may_grow() -> None:
    progress = Progress("merge", io.StringIO(), clock=Clock())
    assert progress.share() == 0
    progress.total(tasks=2)
    progress.advance(tasks=1)
    assert progress.share() == 0.5
    progress.total(tasks=2)
    assert progress.share() == 0.25


@given(st.lists(st.tuples(st.integers(0, 1 << 40), st.integers(0, 1 << 40)), max_size=20))
def test_the_share_stays_within_bounds(steps: list[tuple[int, int]]) -> None:
    progress = Progress("merge", io.StringIO(), lines_seconds=0)
    for more, done in steps:
        progress.total(bytes=more)
        progress.advance(bytes=done)
        assert 0 <= progress.share() <= 1
        assert "\n" not in progress.line()


def test_threads_lose_nothing() -> None:
    stream = io.StringIO()
    progress = Progress("merge", stream, lines_seconds=0)

    def count() -> None:
        for _ in range(500):
            progress.advance(bytes=1, objects=2, tasks=3)

    threads = [Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (progress.bytes, progress.objects, progress.tasks) == (4_000, 8_000, 12_000)
    assert len(stream.getvalue().splitlines()) == 4_000
