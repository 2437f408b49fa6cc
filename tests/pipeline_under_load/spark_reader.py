"""Run the last jobs, then read all topics with `format("diskless")` and Spark's own Kafka source, in one session.

`python -m tests.pipeline_under_load.spark_reader` reads a pickled `Asked` from standard input, and writes a pickled
`Answer` to standard output.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from typer.testing import CliRunner

from pipeline import DisklessDataSource
from pipeline.commands import app
from pipeline.session import spark_session
from tests.pipeline_under_load.asked import Answer, Asked, Found
from tests.pipeline_under_load.books import Read, as_read
from tests.support.spark_kafka import kafka_jars, reading

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SPARK_CONF = {
    "spark.driver.memory": "768m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "2",
}
_COLUMNS = "topic", "partition", "offset", "key", "value", "headers", "unix_millis(timestamp) AS time_ms"


def _digested(run: bytes, rows: Iterable[Any]) -> Iterator[tuple[str, int, Read]]:
    for row in rows:
        headers = [(one.key, None if one.value is None else bytes(one.value)) for one in row.headers or ()]
        key, value = (None if one is None else bytes(one) for one in (row.key, row.value))
        yield row.topic, row.partition, as_read(run, row.offset, key, value, headers, row.time_ms)


def _read(frame: DataFrame, run: bytes) -> Found:
    found: Found = {}
    for topic, partition, one in frame.selectExpr(*_COLUMNS).rdd.mapPartitions(partial(_digested, run)).collect():
        found.setdefault((topic, partition), []).append(one)
    return found


def main() -> None:
    """Run the jobs, read the topics, and write the answer."""
    asked: Asked = pickle.load(sys.stdin.buffer)
    answer = Answer([], {})
    with spark_session("reader", master="local[2]", conf=SPARK_CONF | {"spark.jars": kafka_jars()}) as spark:
        spark.dataSource.register(DisklessDataSource)
        for name, arguments in asked.jobs:
            done = CliRunner().invoke(app, [name, "--config", str(asked.config), "--json", *arguments])
            answer.jobs.append((name, done.exit_code, done.stdout or done.stderr))
        options = reading([asked.bootstrap], asked.rack, *asked.topics)
        answer.read["kafka"] = _read(spark.read.format("kafka").options(**options).load(), asked.run)
        own = {"config": str(asked.config), "subscribe": ",".join(asked.topics), "includeHeaders": "true"}
        answer.read["diskless"] = _read(spark.read.format("diskless").options(**own).load(), asked.run)
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as output:
        pickle.dump(answer, output)


if __name__ == "__main__":
    main()
