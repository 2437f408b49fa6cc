"""Jobs that run until a file exists. test_ends.py starts this; it is not a test itself."""

from __future__ import annotations

import itertools
import os
import sys
import time
from functools import partial
from pathlib import Path

from pipeline.errors import PipelineError
from pipeline.session import spark_session
from pipeline.signals import end_signals
from pipeline.tasks import run_tasks

CONF = {"spark.driver.memory": "512m", "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}


def wait(directory: Path, number: int) -> int:
    """Write which processes work here, then wait for the file."""
    (directory / f"worker-{os.getpid()}").write_text(f"{os.getpid()} {os.getppid()}")
    while not (directory / "go-on").exists():
        time.sleep(0.05)
    return number


def main() -> None:
    """Run endless tasks, two at a time, or with a second argument one Spark job that the main thread waits for.

    If Spark dies, the program starts over once.
    """
    directory = Path(sys.argv[1])
    with end_signals():
        try:
            work(directory, whole=bool(sys.argv[2:]))
        except PipelineError as error:
            (directory / "died").write_text(str(error))
            work(directory, whole=False)


def work(directory: Path, *, whole: bool) -> None:
    """Work in a new session."""
    with spark_session("until ended", master="local[2]", conf=CONF) as spark:
        java = spark.sparkContext._gateway.proc.pid
        (directory / f"java-{java}").write_text(str(java))
        if whole:
            spark.sparkContext.parallelize(range(2), 2).map(partial(wait, directory)).collect()
        for task, _ in run_tasks(spark, partial(wait, directory), itertools.count()):
            with (directory / "answered").open("a") as answered:
                answered.write(f"{task}\n")


if __name__ == "__main__":
    main()
