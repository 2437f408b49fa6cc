"""Throughput of a consumer that is far behind, and its GETs: `python -m benchmarks.catch_up`.

Two racks. Records are produced in one rack, in segments of about a megabyte, and read from the start in the
other, whose GETs take 50 ms longer, by toxiproxy. Its proxy is started again before each run, so nothing is in memory.
Prints a line for each run; `--json FILE` writes all runs.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.measure import client, cpu_seconds
from benchmarks.run import DISKLESS_PRODUCERS, create
from benchmarks.slow_link import slow_link
from proxy.demo.s3 import SeaweedFS
from proxy.demo.stack import Stack, StackOptions
from tests.support.metrics import Metrics

WRITES, READS = "rack-a", "rack-b"
PARTITIONS = (1, 3, 12)
GET_MS = 50
VALUE_BYTES = 1000
SEGMENT_BYTES = 1_000_000
PARTITION_BYTES = 1_048_576
"""`max.partition.fetch.bytes` of Kafka's own consumer."""
AGES: dict[str, dict[str, int]] = {"new": {"cold_after_ms": 300_000}, "old": {"cold_after_ms": 0}}
WAYS: dict[str, dict[str, int]] = {"ahead": {"read_ahead_bytes": 8_388_608}, "not ahead": {"read_ahead_bytes": 0}}


def main() -> None:
    """Measure, and print a line for each run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=200, help="of each run")
    parser.add_argument("--partitions", type=int, nargs="*", default=PARTITIONS, help="numbers of partitions")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    runs = []
    with stack_of() as (stack, link):
        topics = [_written(stack, partitions, arguments.megabytes) for partitions in arguments.partitions]
        for _ in range(arguments.rounds):
            for partitions, topic in zip(arguments.partitions, topics, strict=True):
                for age, way in product(AGES, WAYS):
                    runs.append(one_run(stack, link, age, way, topic, partitions, arguments.megabytes))
                    print(json.dumps(runs[-1]), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(runs, indent=1) + "\n")


@contextmanager
def stack_of() -> Iterator[tuple[Stack, str]]:
    """Run brokers, the stores, a proxy in each rack, and a slow link to the object storage."""
    overrides = {"diskless_append_buffer_max_bytes": SEGMENT_BYTES}
    options = StackOptions(storage="s3", racks=(WRITES, READS), overrides=overrides)
    with tempfile.TemporaryDirectory() as directory, Stack(options) as stack:
        assert isinstance(stack.s3, SeaweedFS)
        address = stack.s3.endpoint_url.removeprefix("http://")
        with slow_link(address, GET_MS, Path(directory)) as link:
            yield stack, link


def _written(stack: Stack, partitions: int, megabytes: int) -> str:
    topic = f"catch-up-{partitions}"
    create(stack, topic, replicas=1, partitions=partitions, diskless=True)
    sizes: dict[str, Any] = {"topic": topic, "partitions": partitions, "value_bytes": VALUE_BYTES}
    client("produce", bootstrap=stack.bootstrap(WRITES), megabytes=megabytes, **sizes, **DISKLESS_PRODUCERS)
    return topic


def one_run(stack: Stack, link: str, age: str, way: str, topic: str, partitions: int, megabytes: int) -> dict[str, Any]:
    """Read a topic from the start, by a proxy that has nothing in memory."""
    stack.kill_proxy(READS)
    stack.configure_proxy(READS, {"storage": {"endpoint_url": f"http://{link}"}, "fetch": AGES[age] | WAYS[way]})
    stack.start_proxy(READS)
    pids = [stack.pid(f"proxy-{READS}")]
    cpu, gets = cpu_seconds(pids), Metrics(stack, READS).value("storage_gets_total")
    sizes: dict[str, Any] = {"topic": topic, "partitions": partitions, "value_bytes": VALUE_BYTES}
    sizes["partition_bytes"] = PARTITION_BYTES
    done = client("consume", bootstrap=stack.bootstrap(READS), records=megabytes * 1_000_000 // VALUE_BYTES, **sizes)
    return {
        "records": age,
        "way": way,
        "partitions": partitions,
        "mb_s": round(done["bytes"] / done["seconds"] / 1e6, 1),
        "cpu_s_gb": round((cpu_seconds(pids) - cpu) / done["bytes"] * 1e9, 2),
        "gets": int(Metrics(stack, READS).value("storage_gets_total") - gets),
    }


if __name__ == "__main__":
    main()
