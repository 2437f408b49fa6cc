"""Print what tasks see on a cluster, as JSON. test_cluster.py runs this; it is not a test itself."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from functools import partial
from pathlib import Path

from pipeline import stores
from pipeline.session import spark_session
from pipeline.tasks import TaskFailed, run_tasks
from proxy.config import Settings, load_settings

EXECUTORS, EXECUTORS_SECONDS = 2, 120.0


def look(settings: Settings, task: int) -> dict[str, object]:
    """Return where an executor imports from, and what it finds in the stores."""
    import aiokafka
    import pandas
    import pyarrow

    import pipeline
    import proxy

    async def segments() -> int:
        async with stores.opened(settings) as opened:
            (topic,) = opened.named(["on-cluster"])
            (log,) = await opened.coordinator.describe(topic.topic_id, [task])
            assert log is not None
            return log.rows

    if task == 3:
        raise ValueError("task 3 fails on every executor")
    return {
        "modules": [str(module.__file__) for module in (proxy, pipeline, pyarrow, pandas, aiokafka)],
        "python": sys.executable,
        "packages": [path for path in sys.path if path.endswith("-packages")],
        "executor": os.getcwd(),
        "rows": asyncio.run(segments()),
    }


def main() -> None:
    """Run as many tasks as the topic has partitions."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path)
    parser.add_argument("--master")
    parser.add_argument("--conf", action="append")
    arguments = parser.parse_args()
    settings = load_settings(arguments.config)
    conf = dict(setting.split("=", 1) for setting in arguments.conf)
    with spark_session("on cluster", master=arguments.master, conf=conf) as spark:
        deadline = time.monotonic() + EXECUTORS_SECONDS
        # the count includes the driver
        while spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1 < EXECUTORS:
            assert time.monotonic() < deadline, "the executors did not come"
            time.sleep(0.05)
        answers = dict(run_tasks(spark, partial(look, settings), range(4)))
        master = spark.sparkContext.master
    printed = {task: answer.text if isinstance(answer, TaskFailed) else answer for task, answer in answers.items()}
    print(json.dumps({"master": master, "answers": printed}))


if __name__ == "__main__":
    main()
