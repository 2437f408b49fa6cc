"""Spark itself, as the jobs use it: tasks on executors, their errors, their stores."""

from __future__ import annotations

import asyncio
import os
import traceback
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark import SparkContext

from pipeline import stores
from pipeline.errors import SparkFailed, is_ours
from pipeline.session import errors_outlive_java, spark_session
from pipeline.tasks import TaskFailed, run_jobs, run_tasks
from proxy.config import Settings
from tests.support.segments import make_topic, write_segments

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def tenfold(number: int) -> int:
    if number == 3:
        raise ValueError("three\nis too much")
    if number == 5:
        os._exit(7)
    return number * 10


def wait_for(path: Path, number: int) -> int:
    """Return the number after the file exists; number 0 waits forever."""
    import time

    (path / str(number)).touch()
    while number == 0:
        time.sleep(0.05)
    return number


def segment_count(settings: Settings, name: str) -> int:
    async def count() -> int:
        async with stores.opened(settings) as opened:
            (topic,) = opened.named([name])
            (log,) = await opened.coordinator.describe(topic.topic_id, [0])
            assert log is not None
            return log.rows

    return asyncio.run(count())


def test_a_task_that_fails_does_not_stop_the_others(spark: SparkSession) -> None:
    answers = dict(run_tasks(spark, tenfold, range(8)))
    failed = {task: answer for task, answer in answers.items() if isinstance(answer, TaskFailed)}
    assert {task: answer for task, answer in answers.items() if task not in failed} == {
        0: 0, 1: 10, 2: 20, 4: 40, 6: 60, 7: 70,
    }  # fmt: skip
    assert failed[3].text == "ValueError: three is too much"
    assert "Python worker exited unexpectedly" in failed[5].text
    assert "\n" not in failed[5].text


def test_tasks_start_when_there_is_room(spark: SparkSession) -> None:
    taken: list[int] = []

    def endless() -> Iterator[int]:
        while True:
            taken.append(len(taken))
            yield taken[-1] + 10

    with closing(run_tasks(spark, tenfold, endless(), at_a_time=2)) as answers:
        for _ in range(3):
            next(answers)
    assert len(taken) == 4


def test_without_room_the_driver_waits_for_an_answer(spark: SparkSession) -> None:
    taken: list[int] = []

    def tasks() -> Iterator[int]:
        for task in range(4):
            taken.append(task)
            yield task

    counts = [len(taken) for _ in run_jobs(spark, tenfold, tasks(), at_a_time=3, has_room=lambda: len(taken) >= 2)]
    assert counts == [1, 4, 4, 4]


def test_closing_cancels_running_tasks(spark: SparkSession, tmp_path: Path) -> None:
    with closing(run_tasks(spark, partial(wait_for, tmp_path), range(2))) as answers:
        assert next(answers) == (1, 1)
        while not (tmp_path / "0").exists():
            pass
    tracker = spark.sparkContext.statusTracker()
    assert not tracker.getActiveJobsIds()


def test_tasks_open_the_stores(spark: SparkSession, light_settings: Settings) -> None:
    topic = asyncio.run(make_topic(light_settings, "in-tasks", 2))
    written = asyncio.run(write_segments(light_settings, topic, 3))
    assert len(written[1].values) == 30
    assert list(run_tasks(spark, partial(segment_count, light_settings), ["in-tasks"])) == [("in-tasks", 3)]


def test_errors_are_readable_when_the_jvm_is_gone(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SparkFailed) as of_sql, errors_outlive_java():
        spark.sql("select raise_error('first line\nsecond line')").collect()
    with pytest.raises(SparkFailed) as of_a_task, errors_outlive_java():
        spark.sparkContext.parallelize([3], 1).map(tenfold).collect()
    with monkeypatch.context() as gone:
        gone.setattr(SparkContext, "_jvm", None)
        traces = ["".join(traceback.format_exception(one.value)) for one in (of_sql, of_a_task)]
    assert "first line second line" in traces[0]
    assert "SparkFailed: ValueError: three" in traces[1]
    assert all("exception str() failed" not in one for one in traces)
    assert not any(is_ours(one.value) for one in (of_sql, of_a_task)), "its trace is needed"


@pytest.mark.usefixtures("spark")
def test_a_running_session_is_used(spark: SparkSession) -> None:
    with spark_session("another") as session:
        assert session is spark
    assert spark.range(2).count() == 2
