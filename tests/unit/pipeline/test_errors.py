"""Error texts of Spark 4.2, cut down to what matters."""

from __future__ import annotations

import pytest

from pipeline.errors import PipelineError, SparkFailed, TaskError, is_ours, one_line

FROM_A_TASK = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most recent \
failure: Lost task 0.3 in stage 3.0 (TID 9) (10.0.0.7 executor 1): org.apache.spark.api.python.PythonException: \
Traceback (most recent call last):
  File "/packages/pipeline/tasks.py", line 50, in __call__
    return self.function(task)
ValueError: three
is bad

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/packages/pyspark/worker.py", line 1, in main
pipeline.errors.TaskError: ValueError: three is bad

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:645)
Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:2800)
"""
LOST = """An error occurred while calling o1.collect.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 7.0 failed 4 times, most recent \
failure: Lost task 0.3 in stage 7.0 (TID 12) (10.0.0.7 executor 3): ExecutorLostFailure (executor 3 exited caused by \
one of the running tasks) Reason: Command exited with code 137
Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2800)
"""
OF_A_UDF = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/job.py", line 20, in g
    def g(x): raise RuntimeError("in udf")
RuntimeError: in udf
"""
ANALYSIS = """[TABLE_OR_VIEW_NOT_FOUND] The table `t` cannot be found. SQLSTATE: 42P01; line 1 pos 14;
'Project [*]
\tat org.apache.spark.sql.catalyst.analysis.package$AnalysisErrorAt.tableNotFound(package.scala:91)
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (FROM_A_TASK, "ValueError: three is bad"),
        (
            LOST,
            "ExecutorLostFailure (executor 3 exited caused by one of the running tasks) Reason: Command exited with "
            "code 137",
        ),
        (OF_A_UDF, "RuntimeError: in udf"),
        (
            ANALYSIS,
            "[TABLE_OR_VIEW_NOT_FOUND] The table `t` cannot be found. SQLSTATE: 42P01; line 1 pos 14; 'Project [*]",
        ),
        ("org.apache.spark.SparkException: No space left on device", "No space left on device"),
        ("", "RuntimeError"),
    ],
)
def test_the_cause_in_one_line(text: str, line: str) -> None:
    assert one_line(RuntimeError(text)) == line


def test_our_own_texts_are_left_as_they_are() -> None:
    text = "object ab/ab12… of orders[3] at offset 17 is missing; run `diskless-proxy pipeline audit`"
    assert one_line(PipelineError(text)) == text


@pytest.mark.parametrize("name", ["proxy.yaml", "redis.example.com", "orders.v2", "java.io.IOException"])
def test_names_with_dots_in_our_own_texts_stay(name: str) -> None:
    text = f"{name}: is not what it should be"
    assert one_line(PipelineError(text)) == text
    assert one_line(RuntimeError(f"{FROM_A_TASK[: FROM_A_TASK.index('ValueError: three is bad')]}{text}\n")) == text


@pytest.mark.parametrize("name", ["proxy.yaml", "redis.example.com", "orders.v2"])
def test_names_with_dots_are_not_java_classes(name: str) -> None:
    assert one_line(OSError(f"{name}: no route to host")) == f"{name}: no route to host"


def test_our_own_errors_are_shown_completely() -> None:
    assert [is_ours(error) for error in (PipelineError(), TaskError(), SparkFailed(), ValueError())] == [
        True, True, False, False
    ]  # fmt: skip


def test_a_line_has_an_end() -> None:
    assert len(one_line(ValueError("x" * 100_000))) < 1_000


def test_java_errors_use_javas_own_text() -> None:
    class OfJava(Exception):
        class java_exception:
            @staticmethod
            def toString() -> str:
                return "org.apache.spark.SparkException: disk is full\n\tat org.apache.spark.Foo.bar(Foo.scala:1)"

    assert one_line(OfJava("An error occurred while calling o1.collect")) == "disk is full"
