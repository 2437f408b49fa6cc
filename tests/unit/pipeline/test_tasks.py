"""Parts of tasks that do not need Spark; the other tests are in tests/pipeline."""

from __future__ import annotations

import pickle

import pytest

from pipeline.errors import PipelineError, TaskError
from pipeline.tasks import TaskFailed, _failure, _Guarded
from proxy.storage import ObjectMissing


def half(number: int) -> int:
    if number < 0:
        raise ObjectMissing("ab/ab12 is missing")
    if number % 2:
        raise ValueError("odd\n  numbers\nhave none")
    return number // 2


def test_an_error_of_a_task_is_one_line() -> None:
    guarded = _Guarded(half)
    assert guarded(8) == 4
    with pytest.raises(TaskError) as raised:
        guarded(7)
    assert str(raised.value) == "ValueError: odd numbers have none"


def test_texts_of_ours_need_no_name_before_them() -> None:
    with pytest.raises(TaskError) as raised:
        _Guarded(half)(-1)
    assert str(raised.value) == "ab/ab12 is missing"


def test_a_guarded_function_travels() -> None:
    assert pickle.loads(pickle.dumps(_Guarded(half)))(10) == 5


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(111, "Connection refused"),
        RuntimeError("Job 7 cancelled because SparkContext was shut down"),
        RuntimeError("java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext."),
    ],
)
def test_without_spark_no_task_can_continue(error: Exception) -> None:
    failure = _failure(error)
    assert isinstance(failure, PipelineError)
    assert "run the job again" in str(failure)


def test_one_failing_task_stops_no_other() -> None:
    failure = _failure(RuntimeError("Job aborted due to stage failure"))
    assert isinstance(failure, TaskFailed)
    assert failure.text == "Job aborted due to stage failure"
