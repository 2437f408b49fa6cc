"""Compare produces to diskless topics with and without a journal: `python -m benchmarks.journal`.

Two proxies share three brokers. Each has a Redis-compatible server and a directory of its own; one has
`journal.mode: required`, the other `off`. Producers send one record after another, in rounds that alternate between the
two. Writes `journal.json` in `benchmarks/results`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from threading import Event

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.measure import cpu_seconds
from proxy.demo.ports import ReservedPorts
from proxy.demo.stack import Stack, StackOptions
from proxy.demo.valkey import Valkey

RESULTS = Path(__file__).parent / "results"
WAYS = {"required": "rack-a", "off": "rack-b"}
"""The proxy of each way, by the rack whose ports it has."""
TOPIC = "records"
START_SECONDS = 120.0
VALUE = bytes(1000)


def main() -> None:
    """Parse the arguments, run, write the results and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=6.0, help="per round and way")
    parser.add_argument("--producers", type=int, default=16)
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    times: dict[str, list[float]] = defaultdict(list)
    cpu: dict[str, list[float]] = defaultdict(list)
    with two_fleets() as stack:
        for way in WAYS:
            produce(stack, way, arguments.producers, 3.0)
        for number in range(arguments.rounds):
            for way in WAYS if number % 2 == 0 else reversed(WAYS):
                pid = stack.proxies[WAYS[way]].process.pid
                before = cpu_seconds([pid])
                taken = produce(stack, way, arguments.producers, arguments.seconds)
                times[way] += taken
                cpu[way].append((cpu_seconds([pid]) - before) / len(taken) * 1000)
    result = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"cpus": len(os.sched_getaffinity(0)), "python": platform.python_version()},
        "load_average": [round(load, 1), round(os.getloadavg()[0], 1)],
        "arguments": vars(arguments),
        "ways": {way: summary(times[way], cpu[way]) for way in WAYS},
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "journal.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


def summary(times: list[float], cpu: list[float]) -> dict[str, float]:
    """Return the figures of one way, in milliseconds."""
    percents = quantiles(times, n=100)
    return {
        "produces": len(times),
        "p50_ms": round(percents[49], 1),
        "p99_ms": round(percents[98], 1),
        "proxy_cpu_ms_per_produce": round(median(cpu), 2),
    }


@contextmanager
def two_fleets() -> Iterator[Stack]:
    """Start the brokers and both proxies, each with its topic."""
    with Stack(StackOptions(proxies=False)) as stack:
        reserved = ReservedPorts(None, proxies=1)
        other = Valkey(stack.directory / "other", reserved.ports.redis)
        for name in ("data", "logs", "config", "wal"):
            (stack.directory / "other" / name).mkdir(parents=True)
        other.prepare()
        other.process.start()
        try:
            other.wait_ready(START_SECONDS, Event())
            stack.proxies[WAYS["off"]].configure(
                {
                    "redis": {"url": other.url},
                    "storage": {"url": (stack.directory / "other" / "wal").as_uri()},
                    "journal": {"mode": "off"},
                }
            )
            for way, rack in WAYS.items():
                stack.proxies[rack].process.start()
                stack.proxies[rack].wait_ready(START_SECONDS, Event())
                topic = NewTopic(f"{TOPIC}-{way}", 16, 3, config={"diskless.enable": "true"})
                admin = AdminClient({"bootstrap.servers": stack.bootstrap(rack)})
                admin.create_topics([topic])[topic.topic].result(60)
            yield stack
        finally:
            for rack in WAYS.values():
                stack.proxies[rack].process.terminate()
                stack.proxies[rack].process.wait_ended()
            other.process.kill()
            reserved.release()


def produce(stack: Stack, way: str, producers: int, seconds: float) -> list[float]:
    """Return the times of produces, one after another in each producer, in milliseconds."""

    def one(number: int) -> list[float]:
        producer = Producer({"bootstrap.servers": stack.bootstrap(WAYS[way]), "linger.ms": 0, "acks": "all"})
        times = list[float]()

        def delivered(error: object, _: object) -> None:
            if error is not None:
                raise RuntimeError(f"{way}: {error}")

        until = time.perf_counter() + seconds
        while (began := time.perf_counter()) < until:
            producer.produce(f"{TOPIC}-{way}", VALUE, partition=number % 16, on_delivery=delivered)
            while producer.poll(1.0) == 0:
                pass
            times.append((time.perf_counter() - began) * 1000)
        return times[1:]  # the first one finds the partition's leader

    with ThreadPoolExecutor(producers) as pool:
        return [took for times in pool.map(one, range(producers)) for took in times]


if __name__ == "__main__":
    main()
