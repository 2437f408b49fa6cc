from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from pipeline.signals import END_SIGNALS, Ended, between_tasks, end_signals, ending

NUMBERS = pytest.mark.parametrize("number", END_SIGNALS)


def send(number: int) -> None:
    os.kill(os.getpid(), number)


def outcome(work: Callable[[], None]) -> int:
    """The exit code that the work ends with under `end_signals`."""
    with pytest.raises(Ended) as ended, end_signals():
        work()
    assert isinstance(ended.value.code, int)
    return ended.value.code


@NUMBERS
def test_a_signal_ends_at_once(number: signal.Signals) -> None:
    before = {one: signal.getsignal(one) for one in END_SIGNALS}
    reached: list[str] = []

    def work() -> None:
        send(number)
        reached.append("it went on")

    assert outcome(work) == 128 + number
    assert reached == []
    assert {one: signal.getsignal(one) for one in END_SIGNALS} == before
    assert not ending.is_set()


@NUMBERS
def test_within_tasks_a_signal_is_only_reported(number: signal.Signals, capfd: pytest.CaptureFixture[str]) -> None:
    reached: list[bool] = []

    def work() -> None:
        with between_tasks():
            send(number)
            reached.append(ending.is_set())
        reached.append(True)

    assert outcome(work) == 128 + number
    assert reached == [True, True]
    assert "ending when the tasks that run are done" in capfd.readouterr().err


def test_the_second_one_ends_tasks_too() -> None:
    reached: list[str] = []

    def work() -> None:
        with between_tasks():
            send(signal.SIGINT)
            reached.append("the first")
            send(signal.SIGTERM)
            reached.append("the second")

    assert outcome(work) == 128 + signal.SIGTERM
    assert reached == ["the first"]


def test_cleanup_is_not_interrupted() -> None:
    reached: list[str] = []

    def work() -> None:
        try:
            send(signal.SIGTERM)
        finally:
            send(signal.SIGTERM)
            send(signal.SIGINT)
            reached.append("cleaned up")

    assert outcome(work) == 128 + signal.SIGTERM
    assert reached == ["cleaned up"]


def test_an_error_during_the_exit_does_not_hide_the_signal() -> None:
    def work() -> None:
        try:
            send(signal.SIGTERM)
        finally:
            raise ValueError("half an answer")

    assert outcome(work) == 128 + signal.SIGTERM


def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(ValueError, match="of the job"), end_signals():
        raise ValueError("of the job")


def test_without_a_signal_nothing_ends() -> None:
    with end_signals(), between_tasks():
        pass
    assert not ending.is_set()
