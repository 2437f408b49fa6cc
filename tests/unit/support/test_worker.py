"""An error that ends a worker before its run does is reported, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.worker import Worker


class Doing(Worker):
    def __init__(self, do: Callable[[Worker], object], report: Callable[[str], None]) -> None:
        super().__init__("errands", report)
        self._do = do

    def work(self) -> None:
        self._do(self)


def reports_of(do: Callable[[Worker], object]) -> list[str]:
    reports: list[str] = []
    worker = Doing(do, reports.append)
    worker.start()
    worker.finish()
    return reports


def test_a_worker_that_works_until_it_is_finished_reports_nothing() -> None:
    assert reports_of(lambda worker: worker.ended.wait()) == []


def fail_with(error: BaseException) -> Callable[[Worker], object]:
    def fail(worker: Worker) -> None:
        raise error

    return fail


@pytest.mark.parametrize("error", [ValueError("hung"), AssertionError("hung"), pytest.fail.Exception("hung")])
def test_an_error_that_ends_it_is_reported_with_its_trace(
    error: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    (problem,) = reports_of(fail_with(error))
    assert problem.startswith("errands broke off after ")
    assert "hung" in problem
    assert "in fail\n" in capsys.readouterr().err


def test_an_error_after_its_finish_is_reported_too() -> None:
    def late(worker: Worker) -> None:
        worker.ended.wait()
        raise TimeoutError("never answered")

    (problem,) = reports_of(late)
    assert "never answered" in problem
