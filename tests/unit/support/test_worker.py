"""What ends a worker before its run does is told, and only that."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.worker import Worker


class Doing(Worker):
    def __init__(self, do: Callable[[Worker], object], tell: Callable[[str], None]) -> None:
        super().__init__("errands", tell)
        self._do = do

    def work(self) -> None:
        self._do(self)


def told_by(do: Callable[[Worker], object]) -> list[str]:
    told: list[str] = []
    worker = Doing(do, told.append)
    worker.start()
    worker.finish()
    return told


def test_one_that_works_until_it_is_finished_tells_nothing() -> None:
    assert told_by(lambda worker: worker.ended.wait()) == []


def fail_with(error: BaseException) -> Callable[[Worker], object]:
    def fail(worker: Worker) -> None:
        raise error

    return fail


@pytest.mark.parametrize("error", [ValueError("hung"), AssertionError("hung"), pytest.fail.Exception("hung")])
def test_what_breaks_it_off_is_told_with_its_trace(error: BaseException, capsys: pytest.CaptureFixture[str]) -> None:
    (problem,) = told_by(fail_with(error))
    assert problem.startswith("errands broke off after ")
    assert "hung" in problem
    assert "in fail\n" in capsys.readouterr().err


def test_what_goes_wrong_behind_its_finish_is_told_too() -> None:
    def late(worker: Worker) -> None:
        worker.ended.wait()
        raise TimeoutError("never answered")

    (problem,) = told_by(late)
    assert "never answered" in problem
