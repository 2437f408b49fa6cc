"""Progress of reading keys: one Spark job, whose tasks are counted from outside."""

from __future__ import annotations

from threading import Event, Thread
from types import TracebackType
from typing import TYPE_CHECKING

from pipeline.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK_SECONDS = 0.5


class KeysProgress:
    """While entered, reports the finished tasks of the stage that reads keys to a job's progress as bytes."""

    def __init__(self, spark: SparkSession, progress: Progress, *, tasks: int, size_bytes: int) -> None:
        """`tasks`: of that stage; `size_bytes`: that they read together."""
        self._tracker = spark.sparkContext.statusTracker()
        self._progress = progress
        self._tasks = tasks
        self._size_bytes = size_bytes
        self._told = 0
        self._ended = Event()
        self._thread = Thread(target=self._follow, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        if error is None:
            self._tell(self._tasks)

    def _follow(self) -> None:
        while not self._ended.wait(_LOOK_SECONDS):
            try:
                infos = [self._tracker.getStageInfo(stage) for stage in self._tracker.getActiveStageIds()]
            except Exception:  # without a JVM the job itself says so
                return
            done = [info.numCompletedTasks for info in infos if info is not None and info.numTasks == self._tasks]
            self._tell(max(done, default=0))

    def _tell(self, tasks: int) -> None:
        done = self._size_bytes * tasks // self._tasks
        if done > self._told:
            self._progress.advance(bytes=done - self._told)
            self._told = done
