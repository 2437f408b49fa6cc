"""Latency of diskless produces, and their PUTs, by rate and by budget: `python -m benchmarks.flush`.

One broker, one rack, and several proxies in front of the same stores. They differ in their budget; one has none, so
its segments end at the interval only. The proxies are measured in turns. With S3, each PUT takes 50 ms longer, by
toxiproxy. Prints a table; `--json FILE` writes all runs.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.measure import client, cpu_seconds
from benchmarks.slow_link import slow_link
from proxy.demo.admin import get
from proxy.demo.s3 import SeaweedFS
from proxy.demo.stack import Stack, StackOptions
from tests.support.metrics import Metrics

RACK = "rack-a"
WAYS: dict[str, dict[str, Any]] = {
    "interval alone": {"diskless.append.underway": 0},
    "budget 4": {},
    "budget 8": {"diskless.append.puts.per.second": 8},
    "budget 16": {"diskless.append.puts.per.second": 16},
}
RATES = (1, 3, 10, 30, 100)
"""Records per second, one in each request, at random times."""
CLOSED = 64
"""Producers that send their next record when the last one is acknowledged."""
PUT_MS = 50
PARTITIONS = 8


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--storage", choices=("file", "s3"), default="s3")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15.0, help="per run")
    parser.add_argument("--rates", type=float, nargs="*", default=RATES)
    parser.add_argument("--closed", type=int, nargs="*", default=[CLOSED], help="numbers of producers")
    parser.add_argument("--ways", nargs="*", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--journal", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with stack_of(arguments) as stack:
        names = dict(zip(arguments.ways, stack.proxies, strict=True))
        runs = [
            one_run(stack, names[way], way, load, arguments.seconds)
            for _ in range(arguments.rounds)
            for load in [
                *({"per_second": rate} for rate in arguments.rates),
                *({"closed": n} for n in arguments.closed),
            ]
            for way in arguments.ways
        ]
    if arguments.json:
        arguments.json.write_text(json.dumps(runs, indent=1) + "\n")
    print(table(runs))


@contextmanager
def stack_of(arguments: argparse.Namespace) -> Iterator[Stack]:
    """Run brokers, stores, and a proxy for each way."""
    options = StackOptions(
        storage=arguments.storage,
        racks=(RACK,),
        proxies=False,
        proxies_per_rack=len(arguments.ways),
        journal=arguments.journal,
        overrides={"default_diskless_topics": [".*"]},
    )
    with tempfile.TemporaryDirectory() as directory, Stack(options) as stack, ExitStack() as links:
        slow: dict[str, Any] = {}
        if isinstance(stack.s3, SeaweedFS):
            address = stack.s3.endpoint_url.removeprefix("http://")
            link = links.enter_context(slow_link(address, PUT_MS, Path(directory)))
            slow = {"storage": {"endpoint_url": f"http://{link}"}}
        for (name, proxy), way in zip(stack.proxies.items(), arguments.ways, strict=True):
            stack.configure_proxy(name, slow | WAYS[way])
            proxy.process.start()
            proxy.wait_ready(120, stack._cancelled)
        try:
            yield stack
        finally:
            for proxy in stack.proxies.values():
                proxy.process.terminate()
                proxy.process.wait_ended()


def one_run(stack: Stack, name: str, way: str, load: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Run one load at one proxy."""
    proxy = stack.proxies[name]
    topic = f"flush-{way.replace(' ', '-')}"
    admin = AdminClient({"bootstrap.servers": proxy.bootstrap})
    if topic not in admin.list_topics(timeout=30).topics:
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result()
        client("produce_at_rate", address=proxy.bootstrap, topic=topic, partitions=PARTITIONS, seconds=2, per_second=5)
        time.sleep(2.5)  # the budget saves up its burst again
    before, cpu = Metrics(stack, name).value("uploads_total"), cpu_seconds([proxy.process.pid])
    job = "produce_at_rate" if "per_second" in load else "produce_closed"
    done = client(job, address=proxy.bootstrap, topic=topic, partitions=PARTITIONS, seconds=seconds, **load)
    puts = int(Metrics(stack, name).value("uploads_total") - before)
    segments = json.loads(get(proxy.admin_url, f"/api/segments?limit={max(1, min(puts, 100))}")[1])["segments"]
    uploads, commits = ([one[f"{what}_ms"] or 0.0 for one in segments] for what in ("upload", "commit"))
    run = {
        "way": way,
        "load": f"{load['per_second']:g}/s" if "per_second" in load else f"{load['closed']} closed",
        **{key: round(value, 2) for key, value in done.items()},
        "puts": puts,
        "put_p50_ms": round(median(uploads), 2),
        "put_p99_ms": round(quantiles([*uploads, *uploads], n=100)[98], 2),
        "put_max_ms": max(uploads),
        "commit_p50_ms": round(median(commits), 2),
        "commit_max_ms": max(commits),
        "cpu_s": round(cpu_seconds([proxy.process.pid]) - cpu, 2),
    }
    print(json.dumps(run), flush=True)
    return run


def table(runs: list[dict[str, Any]]) -> str:
    """Return the medians over the rounds."""
    shown = ("p50_ms", "p99_ms", "max_ms", "count", "puts", "put_p50_ms", "put_p99_ms", "commit_p50_ms", "cpu_s")
    lines = ["| load | segments end by | " + " | ".join(shown) + " |", "|---" * (len(shown) + 2) + "|"]
    for load in dict.fromkeys(one["load"] for one in runs):
        for way in dict.fromkeys(one["way"] for one in runs):
            same = [one for one in runs if one["load"] == load and one["way"] == way]
            cells = [f"{median(one[name] for one in same):g}" for name in shown]
            lines.append(f"| {load} | {way} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
