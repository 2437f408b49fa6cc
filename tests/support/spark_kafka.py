"""Spark's own Kafka source and sink, configured as docs/pipeline/spark-kafka.md describes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from proxy.demo import servers

JAR_SET = "spark-4.2.0"


def kafka_jars() -> str:
    """Return the four jars for `spark.jars` that pyspark does not bring. Raises StackError if they are not fetched."""
    directory = Path(servers.class_path(JAR_SET)).parent
    return ",".join(str(jar) for jar in sorted(directory.glob("*.jar")))


def kafka_options(bootstraps: Iterable[str], rack: str, *, app: str = "app") -> dict[str, str]:
    """Return the options of driver, executors and writer: the proxies' addresses and the own rack."""
    return {
        "kafka.bootstrap.servers": ",".join(bootstraps),
        "kafka.client.id": f"{app},diskless_rack_id={rack}",
        "kafka.metadata.recovery.strategy": "rebootstrap",
        "kafka.retry.backoff.max.ms": "100",
    }


def reading(bootstraps: Iterable[str], rack: str, *topics: str, **others: str) -> dict[str, str]:
    """Return the options of a source, which fetches enough per request; `others` are further options by their own
    names."""
    larger = {"kafka.max.poll.records": "50000", "kafka.max.partition.fetch.bytes": "8388608"}
    asked = {"subscribe": ",".join(topics), "startingOffsets": "earliest", "includeHeaders": "true"}
    return {**kafka_options(bootstraps, rack), **larger, **asked, **others}
