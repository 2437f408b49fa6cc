"""Work spread over executors: each task a Spark job of its own, so that one that fails does not stop the others."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Event, Thread
from typing import TYPE_CHECKING, Generic, TypeVar

from pipeline.errors import PipelineError, TaskError, is_ours, one_line
from pipeline.signals import between_tasks, ending, raise_if_ending

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")
_CANCEL_AGAIN_SECONDS = 0.5
_CANCEL_SECONDS = 30.0
_GONE = ("SparkContext was shut down", "stopped SparkContext", "SparkContext has been shutdown")


@dataclass(frozen=True, slots=True)
class TaskFailed:
    """A task that Spark has given up after as many attempts as `spark.task.maxFailures` allows."""

    text: str
    """Error of its last attempt, in one line; the stack trace is in Spark's own output."""


@dataclass(frozen=True, slots=True)
class _Guarded(Generic[T, R]):
    """The function for executors: it turns errors into a line that survives the way through Java."""

    function: Callable[[T], R]

    def __call__(self, task: T) -> R:
        try:
            return self.function(task)
        except Exception as error:
            text = one_line(error)
            raise TaskError(text if is_ours(error) else f"{type(error).__name__}: {text}") from error


def run_tasks(
    spark: SparkSession, function: Callable[[T], R], tasks: Iterable[T], *, at_a_time: int | None = None
) -> Iterator[tuple[T, R | TaskFailed]]:
    """Yield the answers of `function(task)` as executors complete them, in any order.

    Tasks are taken from the iterable when there is room, so it may be endless; function, tasks and answers are pickled.
    `at_a_time` Spark jobs run at once; if None, as many as the executors have cores. Closing the iterator cancels the
    running ones. An attempt may run although another one of the same task succeeded: the leftovers of a task must be
    harmless.

    When the process is asked to end, no more tasks are taken. The answers of running tasks still come, then Ended is
    raised unless there were no more. Raises PipelineError when Spark itself has died.
    """
    context = spark.sparkContext

    def job(task: T) -> R:
        (answer,) = context.parallelize([task], 1).map(_Guarded(function)).collect()
        return answer

    return run_jobs(spark, job, tasks, at_a_time=at_a_time)


def run_jobs(
    spark: SparkSession,
    job: Callable[[T], R],
    tasks: Iterable[T],
    *,
    at_a_time: int | None = None,
    has_room: Callable[[], bool] = lambda: True,
) -> Iterator[tuple[T, R | TaskFailed]]:
    """Do the same as `run_tasks` for Spark jobs of any kind: `job(task)` runs one from a thread of the driver, to its
    end.

    `has_room` is called before a task is taken while others run; if it returns False, an answer is awaited first.
    """
    context = spark.sparkContext
    tag = f"tasks-{uuid.uuid4().hex}"
    done: SimpleQueue[tuple[Thread, T, R | TaskFailed | PipelineError]] = SimpleQueue()
    running: set[Thread] = set()
    cancelled = Event()
    remaining = iter(tasks)
    exhausted = False
    with between_tasks():
        try:
            while True:
                while not exhausted and not ending.is_set() and len(running) < (at_a_time or _cores(context)):
                    if running and not has_room():
                        break
                    try:
                        task = next(remaining)
                    except StopIteration:
                        exhausted = True
                        break
                    thread = _Attempt(context, tag, job, task, done, cancelled).thread
                    running.add(thread)
                    thread.start()
                if not running:
                    if not exhausted:
                        raise_if_ending()
                    return
                thread, task, answer = done.get()
                running.discard(thread)
                if isinstance(answer, PipelineError):
                    raise answer
                yield task, answer
        finally:
            cancelled.set()
            _cancel(context, tag, running)


class _Attempt(Generic[T, R]):
    """One task, from the thread of the driver that waits for it."""

    def __init__(
        self,
        context: SparkContext,
        tag: str,
        job: Callable[[T], R],
        task: T,
        done: SimpleQueue[tuple[Thread, T, R | TaskFailed | PipelineError]],
        cancelled: Event,
    ) -> None:
        from pyspark import InheritableThread

        self._context, self._tag, self._cancelled = context, tag, cancelled
        self._job, self._task, self._done = job, task, done
        self.thread: Thread = InheritableThread(target=self._run, daemon=True)

    def _run(self) -> None:
        answer: R | TaskFailed | PipelineError
        try:
            if self._cancelled.is_set():
                return
            self._context.addJobTag(self._tag)
            self._context.setInterruptOnCancel(True)
            answer = self._job(self._task)
        except Exception as error:
            answer = _failure(error)
        self._done.put((self.thread, self._task, answer))


def _failure(error: Exception) -> TaskFailed | PipelineError:
    from py4j.protocol import Py4JError, Py4JJavaError

    text = one_line(error)
    if isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError):
        return PipelineError(f"Spark's JVM does not answer any more ({text}); run the job again")
    if isinstance(error, OSError) or any(gone in str(error) for gone in _GONE):
        return PipelineError(f"Spark has ended in mid-job ({text}); run the job again")
    return TaskFailed(text)


def _cores(context: SparkContext) -> int:
    return max(1, context.defaultParallelism)


def _cancel(context: SparkContext, tag: str, running: set[Thread]) -> None:
    """Cancel until none runs: a job that was not submitted yet when it was cancelled runs all the same."""
    for _ in range(int(_CANCEL_SECONDS / _CANCEL_AGAIN_SECONDS)):
        if not any(thread.is_alive() for thread in running):
            return
        try:
            context.cancelJobsWithTag(tag)
        except Exception:  # without a JVM nothing runs any more
            return
        for thread in running:
            thread.join(_CANCEL_AGAIN_SECONDS / len(running))
