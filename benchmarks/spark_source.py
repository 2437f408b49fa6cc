"""Compare `format("diskless")` with Spark's own Kafka source on the same records, through the proxy of the same rack.

Both read whole topics and discard them (`noop`), in one session, in turns; a last run has twice the data. The Kafka
source runs with its fastest options, and once more with its defaults.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.measure import client, cpu_seconds, memory_mib, spread
from benchmarks.run import create
from pipeline import DisklessDataSource
from pipeline.session import spark_session
from proxy.demo import servers
from proxy.demo.stack import Stack, StackOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RACK = "rack-a"
PARTITIONS = 4
VALUE_BYTES = 1024
PRODUCERS = {"producers": 2, "batch_bytes": 262_144}
CONF = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
}

TUNED = {"kafka.max.poll.records": "50000", "kafka.max.partition.fetch.bytes": "8388608"}
"""Options from docs/pipeline/spark-kafka.md: the Kafka source is fastest with large polls."""
WARM_UP = 3
"""Number of reads of each way before the measurement: until then the JVM mostly compiles."""

Figures = dict[str, list[float]]


def measure(figures: Figures, rounds: int, megabytes: int) -> None:
    """Add `source_…` to the figures: MB/s of both sources, their ratio pair by pair, and that of twice the data."""
    jars = Path(servers.class_path("spark-4.2.0")).parent.glob("*.jar")
    conf = CONF | {"spark.jars": ",".join(str(jar) for jar in sorted(jars))}
    with (
        Stack(StackOptions(), progress=lambda part: say(f"waiting for {part}")) as stack,
        spark_session("bench-spark", master="local[2]", conf=conf) as spark,
    ):
        spark.dataSource.register(DisklessDataSource)
        topics = {size: _filled(stack, size) for size in (megabytes, 2 * megabytes)}
        frames = {
            (way, size): frame
            for size, topic in topics.items()
            for way, frame in (("diskless", _diskless(spark, stack, topic)), ("kafka", _kafka(spark, stack, topic)))
        }
        frames["kafka_untuned", megabytes] = _kafka(spark, stack, topics[megabytes], tuned=False)
        for way in ("diskless", "kafka", "kafka_untuned") * WARM_UP:
            _read(frames[way, megabytes])
        for number in range(rounds):
            for way, size in frames if number % 2 == 0 else reversed(frames):
                cpu = _cpu_seconds(spark, stack)
                seconds = _read(frames[way, size])
                cpu = _cpu_seconds(spark, stack) - cpu
                figures[f"source_{way}_{size}_s"].append(seconds)
                figures[f"source_{way}_{size}_cpu_s_gb"].append(cpu / size * 1000)
                say(f"{way}, {size} MB: {size / seconds:.0f} MB/s, {cpu / size * 1000:.2f} CPU s/GB")
        figures["source_driver_mib"].append(memory_mib(_jvm(spark), "VmHWM"))
    for way in ("diskless", "kafka"):
        figures[f"source_{way}_mb_s"] = [2 * megabytes / one for one in figures[f"source_{way}_{2 * megabytes}_s"]]
        figures[f"source_{way}_cpu_s_gb"] = figures[f"source_{way}_{2 * megabytes}_cpu_s_gb"]
    costs = zip(figures["source_kafka_cpu_s_gb"], figures["source_diskless_cpu_s_gb"], strict=True)
    figures["source_cpu_ratio"] = [kafka / diskless for kafka, diskless in costs]
    pairs = zip(figures["source_diskless_mb_s"], figures["source_kafka_mb_s"], strict=True)
    figures["source_ratio"] = [diskless / kafka for diskless, kafka in pairs]
    untuned, once = figures[f"source_kafka_untuned_{megabytes}_s"], figures[f"source_diskless_{megabytes}_s"]
    figures["source_kafka_untuned_mb_s"] = [megabytes / one for one in untuned]
    figures["source_untuned_ratio"] = [kafka / diskless for kafka, diskless in zip(untuned, once, strict=True)]
    sizes = (figures[f"source_diskless_{size}_s"] for size in (2 * megabytes, megabytes))
    figures["source_twice_ratio"] = [twice / once for twice, once in zip(*sizes, strict=True)]


def _filled(stack: Stack, megabytes: int) -> str:
    topic = f"source-{megabytes}"
    create(stack, topic, partitions=PARTITIONS, diskless=True)
    sizes: dict[str, Any] = {
        "topic": topic,
        "partitions": PARTITIONS,
        "value_bytes": VALUE_BYTES,
        "megabytes": megabytes,
    }
    client("produce", bootstrap=stack.bootstrap(RACK), **sizes, **PRODUCERS)
    return topic


def _diskless(spark: SparkSession, stack: Stack, topic: str) -> DataFrame:
    reader = spark.read.format("diskless").option("config", str(stack.config_path(RACK)))
    return reader.option("subscribe", topic).load()


def _kafka(spark: SparkSession, stack: Stack, topic: str, *, tuned: bool = True) -> DataFrame:
    options = {
        "kafka.bootstrap.servers": stack.bootstrap(RACK),
        "kafka.client.id": f"bench,diskless_rack_id={RACK}",
        "subscribe": topic,
    }
    return spark.read.format("kafka").options(**options, **(TUNED if tuned else {})).load()


def _read(frame: DataFrame) -> float:
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def _jvm(spark: SparkSession) -> int:
    """Return the process that is driver and executor here."""
    assert spark.sparkContext._jvm is not None
    return int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())


def _cpu_seconds(spark: SparkSession, stack: Stack) -> float:
    """Return CPU seconds of the JVM, its Python workers, and the proxies."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    workers, found = [], [_jvm(spark)]
    while found:
        workers += found
        found = [pid for pid, parent in parents.items() if parent in found]
    return cpu_seconds([*workers, *(stack.pid(f"proxy-{rack}") for rack in stack.options.racks)])


def table(figures: dict[str, dict[str, float]]) -> list[str]:
    """Return lines of Markdown."""

    def cell(name: str, digits: int) -> str:
        one = figures[name]
        return f"{one['median']:.{digits}f} ({one['min']:.{digits}f}–{one['max']:.{digits}f})"

    return [
        f"| whole topics of {VALUE_BYTES} B records, thrown away | |",
        "|---|---|",
        f'| `format("diskless")`, MB/s | {cell("source_diskless_mb_s", 0)} |',
        f"| Spark's Kafka source through the rack's proxy, MB/s | {cell('source_kafka_mb_s', 0)} |",
        f"| ratio, pair by pair (at least 2 is wanted) | {cell('source_ratio', 2)} |",
        f"| Spark's Kafka source with its own options, MB/s | {cell('source_kafka_untuned_mb_s', 0)} |",
        f"| ratio to that, pair by pair, of once the data | {cell('source_untuned_ratio', 2)} |",
        f'| CPU s/GB of Spark, its Python workers and the proxies, `format("diskless")` | '
        f"{cell('source_diskless_cpu_s_gb', 2)} |",
        f"| the same, Kafka source | {cell('source_kafka_cpu_s_gb', 2)} |",
        f"| ratio, pair by pair | {cell('source_cpu_ratio', 2)} |",
        f"| time of twice the data ÷ of once (at most 2.2) | {cell('source_twice_ratio', 2)} |",
        f"| peak memory of the JVM, MiB | {cell('source_driver_mib', 0)} |",
    ]


def say(text: str) -> None:
    """Print progress."""
    print(f"  {text}", flush=True)


def main() -> None:
    """Run alone, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=200)
    arguments = parser.parse_args()
    figures: Figures = defaultdict(list)
    measure(figures, arguments.rounds, arguments.megabytes)
    spreads = {name: spread(values) for name, values in figures.items()}
    print("\n".join(table(spreads)))
    print(json.dumps({name: round(median(values), 3) for name, values in figures.items()}))


if __name__ == "__main__":
    main()
