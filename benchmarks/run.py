"""Run `make bench`: the cost of the proxy compared with direct brokers, and the performance of diskless topics, in one
go.

Direct and proxied runs alternate, and each figure is the median of the rounds with its extremes. Writes
`benchmarks/results/bench.json` and `bench.md`, and prints the table.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import classic_reads
from benchmarks.measure import client, cpu_seconds, memory_mib, run_megabytes, spread
from benchmarks.raw_client import RawClient
from benchmarks.table import markdown
from proxy.demo.stack import Stack, StackOptions

RESULTS = Path(__file__).parent / "results"
PARTITIONS = 6
VALUE_BYTES = 4096
RACK = "rack-a"
CLASSIC_PRODUCER = {"producers": 1, "batch_bytes": 262_144}
DISKLESS_PRODUCERS = {"producers": 4, "batch_bytes": 1_000_000}
"""Options of diskless producers. Each request is a round trip to object storage, so throughput needs larger batches and
more than one connection."""
CLASSIC_READ_ROUNDS = 3
"""Maximum number of rounds: a round takes more than a minute."""

Figures = dict[str, list[float]]


def main() -> None:
    """Parse the arguments, run, write the results and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=run_megabytes, default=400, help="per throughput run")
    parser.add_argument("--seconds", type=float, default=4.0, help="per latency run")
    arguments = parser.parse_args()
    began = time.perf_counter()
    figures: Figures = defaultdict(list)
    for storage in ("file", "s3"):
        with Stack(StackOptions(storage=storage), progress=lambda part: say(f"waiting for {part}")) as stack:
            if storage == "file":
                classic(stack, figures, arguments)
            diskless(stack, figures, arguments, storage)
            for rack in stack.options.racks:
                pid = stack.pid(f"proxy-{rack}")
                figures[f"proxy_peak_rss_mib_{storage}"].append(memory_mib(pid, "VmHWM"))
    classic_reads.measure(figures, min(arguments.rounds, CLASSIC_READ_ROUNDS), arguments.megabytes, arguments.seconds)
    result = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"cpus": len(os.sched_getaffinity(0)), "python": platform.python_version()},
        "arguments": vars(arguments),
        "wall_seconds": round(time.perf_counter() - began, 1),
        "figures": {name: spread(values) for name, values in figures.items()},
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "bench.json").write_text(json.dumps(result, indent=1) + "\n")
    table = markdown(result)
    (RESULTS / "bench.md").write_text(table)
    print(table)


def classic(stack: Stack, figures: Figures, arguments: argparse.Namespace) -> None:
    """Measure direct and proxied runs in turns, on topics with one replica, so that replication does not hide the
    difference."""
    ways = {"direct": stack.direct_bootstrap, "proxied": stack.bootstrap(RACK)}
    proxies = [stack.pid(f"proxy-{rack}") for rack in stack.options.racks]
    for number in range(arguments.rounds):
        for way in _in_turn(ways, number):
            topic = f"classic-{way}-{number}"
            create(stack, topic, replicas=1)
            sizes: dict[str, Any] = {"topic": topic, "partitions": PARTITIONS, "value_bytes": VALUE_BYTES}
            cpu = cpu_seconds(proxies)
            run = client("produce", bootstrap=ways[way], megabytes=arguments.megabytes, **sizes, **CLASSIC_PRODUCER)
            record(figures, f"classic_produce_{way}", run, cpu_seconds(proxies) - cpu)
            cpu = cpu_seconds(proxies)
            records = arguments.megabytes * 1_000_000 // VALUE_BYTES
            run = client("consume", bootstrap=ways[way], records=records, **sizes)
            record(figures, f"classic_consume_{way}", run, cpu_seconds(proxies) - cpu)
            delete(stack, topic)
    topic = "classic-latency"
    create(stack, topic, replicas=1, partitions=1)
    known = AdminClient({"bootstrap.servers": stack.direct_bootstrap}).list_topics(topic, timeout=10).topics[topic]
    node = known.partitions[0].leader
    addresses = {way: RawClient(ways[way].split(",")[0]).brokers()[node] for way in ways}
    for number in range(arguments.rounds):
        for way in _in_turn(ways, number):
            say(f"classic latency, {way}")
            at = {"topic": topic, "partition": 0, "per_second": 200, "seconds": arguments.seconds}
            add_latency(
                figures, f"classic_produce_{way}", client("produce_latency", address=addresses[way], acks=1, **at)
            )
            both: dict[str, Any] = {"produce_address": addresses[way], "fetch_address": addresses[way]}
            add_latency(figures, f"classic_e2e_{way}", client("end_to_end", **both, **at))


def diskless(stack: Stack, figures: Figures, arguments: argparse.Namespace, storage: str) -> None:
    """Produce in one rack, consume in another, on one storage."""
    proxies = [stack.pid(f"proxy-{rack}") for rack in stack.options.racks]
    name = f"diskless_{storage}"
    for number in range(arguments.rounds):
        topic = f"diskless-{number}"
        create(stack, topic, diskless=True)
        sizes: dict[str, Any] = {"topic": topic, "partitions": PARTITIONS, "value_bytes": VALUE_BYTES}
        store = [stack.s3.process.pid] if stack.s3 else []
        cpu, store_cpu = cpu_seconds(proxies), cpu_seconds(store)
        run = client(
            "produce", bootstrap=stack.bootstrap(RACK), megabytes=arguments.megabytes, **sizes, **DISKLESS_PRODUCERS
        )
        record(figures, f"{name}_produce", run, cpu_seconds(proxies) - cpu)
        if store:
            figures[f"{name}_produce_store_cpu_s_gb"].append((cpu_seconds(store) - store_cpu) / run["bytes"] * 1e9)
        records = arguments.megabytes * 1_000_000 // VALUE_BYTES
        for rack, where in ((RACK, "own_rack"), ("rack-b", "other_rack")):
            cpu = cpu_seconds(proxies)
            run = client("consume", bootstrap=stack.bootstrap(rack), records=records, **sizes)
            record(figures, f"{name}_consume_{where}", run, cpu_seconds(proxies) - cpu)
        delete(stack, topic)
    topic = "diskless-latency"
    create(stack, topic, diskless=True, partitions=1)
    addresses = {rack: stack.bootstrap(rack) for rack in (RACK, "rack-b")}
    for _ in range(arguments.rounds):
        say(f"diskless latency on {storage}")
        at = {"topic": topic, "partition": 0, "per_second": 200, "seconds": arguments.seconds}
        add_latency(figures, f"{name}_produce", client("produce_latency", address=addresses[RACK], acks=-1, **at))
        both: dict[str, Any] = {"produce_address": addresses[RACK], "fetch_address": addresses["rack-b"]}
        add_latency(figures, f"{name}_e2e", client("end_to_end", **both, **at))


def create(
    stack: Stack, topic: str, *, replicas: int = 3, partitions: int = PARTITIONS, diskless: bool = False
) -> None:
    """Create a topic through the proxy and wait until every rack knows it."""
    config = {"diskless.enable": "true"} if diskless else {}
    admin = AdminClient({"bootstrap.servers": stack.bootstrap(RACK)})
    admin.create_topics([NewTopic(topic, partitions, replicas, config=config)])[topic].result(60)
    deadline = time.monotonic() + 30
    for rack in stack.options.racks:
        there = AdminClient({"bootstrap.servers": stack.bootstrap(rack)})
        while len(there.list_topics(topic, timeout=10).topics[topic].partitions) < partitions:
            assert time.monotonic() < deadline, f"{topic} does not show up in {rack}"
            time.sleep(0.1)


def delete(stack: Stack, topic: str) -> None:
    """Delete a topic, to free the disk for the next run."""
    admin = AdminClient({"bootstrap.servers": stack.bootstrap(RACK)})
    admin.delete_topics([topic])[topic].result(60)


def record(figures: Figures, name: str, run: dict[str, float], proxy_cpu_seconds: float) -> None:
    """Add throughput and the proxies' CPU time per gigabyte."""
    figures[f"{name}_mb_s"].append(run["bytes"] / run["seconds"] / 1e6)
    figures[f"{name}_proxy_cpu_s_gb"].append(proxy_cpu_seconds / run["bytes"] * 1e9)
    say(f"{name}: {figures[f'{name}_mb_s'][-1]:.0f} MB/s, proxies {figures[f'{name}_proxy_cpu_s_gb'][-1]:.2f} CPU s/GB")


def add_latency(figures: Figures, name: str, run: dict[str, float]) -> None:
    """Add p50 and p99 of one run."""
    for percentile in ("p50_ms", "p99_ms"):
        figures[f"{name}_{percentile}"].append(run[percentile])
    say(f"{name}: p50 {run['p50_ms']:.3f} ms, p99 {run['p99_ms']:.3f} ms")


def say(text: str) -> None:
    """Print progress."""
    print(f"  {text}", flush=True)


def _in_turn(ways: dict[str, Any], number: int) -> list[str]:
    """Rotate the order of the ways, because caches and the disk favour one position."""
    return list(ways) if number % 2 == 0 else list(ways)[::-1]


if __name__ == "__main__":
    main()
