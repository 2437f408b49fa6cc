"""Compare reads of classic topics in the reader's own rack with reads from the leader: `python -m
benchmarks.classic_reads`.

There are two racks of two brokers. All partitions are led in rack-b and read in rack-a. The proxy of rack-a reads them
from the replicas of its own rack (`rerouted`), or passes the requests on to the leader (`plain`, with
`fetch.read_near_replicas` off). Or the reader contacts the leader itself (`direct`) or the follower itself
(`follower`). The proxy restarts for each way, the ways alternate, and each figure is the median of the rounds with its
extremes. Writes `classic_reads.json` and `.md` in `benchmarks/results`; `make bench` includes it.
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
from statistics import median
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.measure import client, cpu_seconds, run_megabytes, spread
from benchmarks.table import classic_reads
from proxy.demo.admin import get
from proxy.demo.stack import Stack, StackOptions

RESULTS = Path(__file__).parent / "results"
RACKS = ("rack-a", "rack-b")
RACK, LEADERS_RACK = RACKS
NEAR, LEADER, OTHER_NEAR = 1, 2, 3
PARTITIONS = 6
VALUE_BYTES = 4096
ONE_SOURCE, TWO_SOURCES = [LEADER, NEAR], [LEADER, OTHER_NEAR]
"""Replicas, the leader first."""
READ, LATENCY, ONE_END, OTHER_END = "read", "latency", "one-end", "other-end"
VERSIONS = {"v4": 4, "v12": 12}
IDLE_CONNECTIONS = 100
WARM_UP_MEGABYTES = 20
PER_SECOND = 200
RARE = 5
"""Records per second at which each record comes alone: followers learn of a new high watermark by a separate round."""

Figures = dict[str, list[float]]


def main() -> None:
    """Parse the arguments, run, write the results and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=run_megabytes, default=1500, help="per throughput run")
    parser.add_argument("--seconds", type=float, default=4.0, help="per latency and idle run")
    arguments = parser.parse_args()
    began = time.perf_counter()
    figures: Figures = defaultdict(list)
    measure(figures, arguments.rounds, arguments.megabytes, arguments.seconds)
    result: dict[str, Any] = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"cpus": len(os.sched_getaffinity(0)), "python": platform.python_version()},
        "arguments": vars(arguments),
        "wall_seconds": round(time.perf_counter() - began, 1),
        "figures": {name: spread(values) for name, values in figures.items()},
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "classic_reads.json").write_text(json.dumps(result, indent=1) + "\n")
    table = "\n".join(
        ["# Classic topics read in another rack than their leaders'", "", *classic_reads(result["figures"])]
    )
    (RESULTS / "classic_reads.md").write_text(table)
    print(table)


def measure(figures: Figures, rounds: int, megabytes: int, seconds: float) -> None:
    """Add all figures, on a new stack."""
    options = StackOptions(racks=RACKS, brokers_per_rack=2)
    with Stack(options, progress=lambda part: say(f"waiting for {part}")) as stack:
        prepare(stack, megabytes // 4)
        for number in range(rounds):
            for way in ("plain", "rerouted") if number % 2 == 0 else ("rerouted", "plain"):
                start(stack, way)
                through_proxy(stack, figures, way, megabytes, seconds)
            directly(stack, figures, megabytes, seconds)
        ratios(figures)


def prepare(stack: Stack, megabytes: int) -> None:
    """Create the topics, and the records that are read again and again."""
    admin = AdminClient({"bootstrap.servers": stack.direct_bootstrap})
    assignments = {
        READ: [ONE_SOURCE] * PARTITIONS,
        LATENCY: [ONE_SOURCE],
        ONE_END: [ONE_SOURCE],
        OTHER_END: [TWO_SOURCES],
    }
    topics = [NewTopic(name, len(replicas), replica_assignment=replicas) for name, replicas in assignments.items()]
    for made in admin.create_topics(topics).values():
        made.result(60)
    sizes = {"partitions": PARTITIONS, "megabytes": megabytes, "value_bytes": VALUE_BYTES}
    client("produce", bootstrap=stack.direct_bootstrap, topic=READ, producers=1, batch_bytes=262_144, **sizes)


def start(stack: Stack, way: str) -> None:
    """Restart the proxy, so that both ways begin equal; return when it is warm and reads from the right brokers."""
    stack.terminate_proxy(RACK)
    stack.configure_proxy(RACK, {"fetch": {"read_near_replicas": way == "rerouted"}})
    stack.start_proxy(RACK)
    expected = RACK if way == "rerouted" else LEADERS_RACK
    for _ in range(20):
        before = served(stack)
        read_raw(stack, VERSIONS["v12"], WARM_UP_MEGABYTES)
        now = served(stack)
        if {rack for rack, size in now.items() if size > before.get(rack, 0)} == {expected}:
            return
    raise RuntimeError(f"{way}: the proxy does not read in {expected}: {now}")


def through_proxy(stack: Stack, figures: Figures, way: str, megabytes: int, seconds: float) -> None:
    """Measure the throughput and latency of the proxy's way, and its CPU cost."""
    pid = stack.pid(f"proxy-{RACK}")
    for label, version in VERSIONS.items():
        cpu = cpu_seconds([pid])
        run = read_raw(stack, version, megabytes)
        add_read(figures, f"{label}_{way}", run, cpu_seconds([pid]) - cpu)
    records = megabytes // 4 * 1_000_000 // VALUE_BYTES
    sizes: dict[str, Any] = {"topic": READ, "partitions": PARTITIONS, "records": records, "value_bytes": VALUE_BYTES}
    cpu = cpu_seconds([pid])
    run = client("consume", bootstrap=stack.bootstrap(RACK), **sizes)
    add_read(figures, f"librdkafka_{way}", run, cpu_seconds([pid]) - cpu)
    add_latency(stack, figures, way, listener(stack), seconds)
    for label, topics in (("one", [ONE_END]), ("two", [ONE_END, OTHER_END])):
        at: dict[str, Any] = {"address": listener(stack), "topics": topics, "connections": IDLE_CONNECTIONS}
        client("wait_for_nothing", **at, seconds=0.5)
        cpu = cpu_seconds([pid])
        client("wait_for_nothing", **at, seconds=seconds)
        share = (cpu_seconds([pid]) - cpu) / seconds
        figures[f"idle_{label}_{way}_cpu_share"].append(share)
        say(f"{way}, {IDLE_CONNECTIONS} waiting for {len(topics)} sources: {share:.3f} CPU")


def directly(stack: Stack, figures: Figures, megabytes: int, seconds: float) -> None:
    """Measure the same without the proxies."""
    leader = stack.kafka.address(LEADER)
    at: dict[str, Any] = {"topic": READ, "partitions": PARTITIONS, "megabytes": megabytes}
    for label, version in VERSIONS.items():
        add_read(figures, f"{label}_direct", client("read_raw", address=leader, version=version, **at), 0.0)
    records = megabytes // 4 * 1_000_000 // VALUE_BYTES
    sizes: dict[str, Any] = {"topic": READ, "partitions": PARTITIONS, "records": records, "value_bytes": VALUE_BYTES}
    add_read(figures, "librdkafka_direct", client("consume", bootstrap=stack.direct_bootstrap, **sizes), 0.0)
    add_latency(stack, figures, "direct", leader, seconds)
    add_latency(stack, figures, "follower", stack.kafka.address(NEAR), seconds)


def read_raw(stack: Stack, version: int, megabytes: int) -> dict[str, float]:
    """Run a reader in rack-a."""
    at: dict[str, Any] = {"topic": READ, "partitions": PARTITIONS, "megabytes": megabytes, "version": version}
    return client("read_raw", address=listener(stack), **at)


def listener(stack: Stack) -> str:
    """Return the address where the proxy of rack-a stands for the leader."""
    return f"127.0.0.1:{stack.ports.broker_port_start(RACKS.index(RACK)) + LEADER}"


def served(stack: Stack) -> dict[str, float]:
    """Return the classic record bytes that the proxy has sent to readers so far, by the rack that served them."""
    status, text = get(stack.admin_url(RACK), "/metrics", 10)
    if status != 200:
        raise RuntimeError(f"the proxy reports no figures: {status} {text}")
    found: dict[str, float] = defaultdict(float)
    for sample in (sample for family in text_string_to_metric_families(text) for sample in family.samples):
        if sample.name == "diskless_proxy_record_bytes_total" and sample.labels["direction"] == "fetch":
            found[sample.labels["serving_rack"]] += sample.value
    return found


def add_read(figures: Figures, name: str, run: dict[str, float], proxy_cpu_seconds: float) -> None:
    """Add throughput, and the proxy's CPU time per gigabyte."""
    figures[f"{name}_mb_s"].append(run["bytes"] / run["seconds"] / 1e6)
    figures[f"{name}_cpu_s_gb"].append(proxy_cpu_seconds / run["bytes"] * 1e9)
    say(f"{name}: {figures[f'{name}_mb_s'][-1]:.0f} MB/s, proxy {figures[f'{name}_cpu_s_gb'][-1]:.2f} CPU s/GB")


def add_latency(stack: Stack, figures: Figures, way: str, address: str, seconds: float) -> None:
    """Add the time from a produce to the leader until the record reaches a reader that waits for it."""
    addresses: dict[str, Any] = {"produce_address": stack.kafka.address(LEADER), "fetch_address": address}
    for label, per_second in (("e2e", PER_SECOND), ("rare", RARE)):
        run = client("end_to_end", **addresses, topic=LATENCY, partition=0, per_second=per_second, seconds=seconds)
        for percentile in ("p50_ms", "p99_ms"):
            figures[f"{label}_{way}_{percentile}"].append(run[percentile])
        say(f"{way} at {per_second}/s: p50 {run['p50_ms']:.2f} ms, p99 {run['p99_ms']:.2f} ms")


def ratios(figures: Figures) -> None:
    """Add the ratio of the rerouted way's CPU time to the plain one's, pair by pair."""
    for label in (*VERSIONS, "librdkafka"):
        pairs = zip(figures[f"{label}_rerouted_cpu_s_gb"], figures[f"{label}_plain_cpu_s_gb"], strict=True)
        figures[f"{label}_cpu_ratio"] = [rerouted / plain for rerouted, plain in pairs]
        say(f"{label}: rerouted takes {median(figures[f'{label}_cpu_ratio']):.2f} times the CPU time of plain")


def say(text: str) -> None:
    """Print progress."""
    print(f"  {text}", flush=True)


if __name__ == "__main__":
    main()
