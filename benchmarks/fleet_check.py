"""Compare the model of a fleet with real fleets of 3, 6 and 12 proxies: `python -m benchmarks.fleet_check`.

Each fleet has one rack, one broker and its own Redis-compatible server. Producers send batches at random times to
random partitions, the same rate to each proxy. What is announced is counted by a listener of the check's own, PUTs by
the proxies, and heartbeats by the records that the store has. Writes `benchmarks/results/fleet_check.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import redis
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from benchmarks.fleet_model import Flow, Load, Units, flow, simulated
from benchmarks.measure import client, cpu_seconds
from proxy.config import Redis
from proxy.coordinator import packing
from proxy.coordinator.pool import one_server
from proxy.coordinator.shards import FLEET_PREFIX, announcement_channel
from proxy.coordinator.subscription import messages
from proxy.demo.stack import Stack, StackOptions
from tests.support.metrics import Metrics

RESULTS = Path(__file__).parent / "results" / "fleet_check.json"
RACK, TOPIC = "rack-a", "fleet"
FLEETS = (3, 6, 12)
SHARDS = 16
LEAST_SECONDS = 5.0
"""Seconds of load before counting: the budget's burst of the start is used up then."""


@dataclass
class Heard:
    """Announcements that the listener has heard."""

    bytes: int = 0
    calls: int = 0
    runs: int = 0


@contextmanager
def listening(url: str) -> Iterator[Heard]:
    """Count the announcements of commits, as each process hears them."""
    heard, loop, ready = Heard(), asyncio.new_event_loop(), threading.Event()

    async def listen() -> None:
        store = one_server(Redis(url=url, shards=SHARDS))
        async for message in messages(store, [announcement_channel(shard) for shard in range(SHARDS)], idle_s=5.0):
            if message is None:
                ready.set()
                continue
            rows = sum(len(one.rows) for one in packing.unpack_announcements(message))
            if rows:
                heard.bytes += len(message)
                heard.calls += 1
                heard.runs += rows

    task = loop.create_task(listen())
    thread = threading.Thread(target=lambda: loop.run_until_complete(asyncio.wait([task])))
    thread.start()
    assert ready.wait(30), "the subscription is not confirmed"
    try:
        yield heard
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
        loop.close()


def fleet(proxies: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run one fleet, and return what was measured, and what the model and the simulation say."""
    options = StackOptions(
        racks=(RACK,), proxies_per_rack=proxies, overrides={"redis": {"shards": SHARDS}}, start_timeout_seconds=300.0
    )
    with Stack(options) as stack:
        names = list(stack.proxies)
        admin = AdminClient({"bootstrap.servers": stack.bootstrap(RACK)})
        topic = NewTopic(TOPIC, arguments.partitions, 1, config={"diskless.enable": "true"})
        admin.create_topics([topic])[TOPIC].result(60)
        addresses = [proxy.bootstrap for proxy in stack.proxies.values()]
        load = {"topic": TOPIC, "partitions": arguments.partitions, "batch_bytes": arguments.batch_bytes}
        found: dict[str, float] = {}

        def produce() -> None:
            found.update(
                client(
                    "produce_everywhere",
                    addresses=addresses,
                    per_second=arguments.rate,
                    seconds=LEAST_SECONDS + arguments.seconds + 5,
                    **load,
                )
            )

        def puts() -> int:
            return sum(int(Metrics(stack, name).value("uploads_total")) for name in names)

        pids = [proxy.process.pid for proxy in stack.proxies.values()]
        with listening(stack.redis.url) as heard, redis.Redis.from_url(stack.redis.url) as store:
            producing = threading.Thread(target=produce)
            producing.start()
            time.sleep(LEAST_SECONDS + 3)
            before, puts_before, cpu, began = Heard(**asdict(heard)), puts(), cpu_seconds(pids), time.perf_counter()
            store_cpu = _cpu(store)
            time.sleep(arguments.seconds)
            seconds = time.perf_counter() - began
            after, puts_after = Heard(**asdict(heard)), puts()
            measured = {
                "segments": (puts_after - puts_before) / seconds,
                "runs": (after.runs - before.runs) / seconds,
                "calls": (after.calls - before.calls) / seconds,
                "announced_bytes": (after.bytes - before.bytes) / seconds,
                "beat_bytes": sum(len(one) for one in store.hvals(f"{FLEET_PREFIX}leases")),
                "store_cores": (_cpu(store) - store_cpu) / seconds,
                "proxy_cores": (cpu_seconds(pids) - cpu) / seconds / proxies,
            }
            producing.join()
    batches = proxies * arguments.rate
    modelled = Load(
        produced_mb_per_second=batches * found["batch_bytes"] / 1e6,
        batch_bytes=found["batch_bytes"],
        partitions=arguments.partitions,
        proxies=proxies,
        racks=1,
        shards=SHARDS,
    )
    units = Units()
    return {
        "proxies": proxies,
        "measured": {name: round(value, 3) for name, value in measured.items()},
        "formulas": expected(flow(modelled), proxies, units),
        "simulation": expected(simulated(modelled, seconds=300, seed=1), proxies, units),
    }


def _cpu(store: redis.Redis) -> float:
    used = store.info("cpu")
    return float(used["used_cpu_user"]) + float(used["used_cpu_sys"])


def expected(of: Flow, proxies: int, units: Units) -> dict[str, float]:
    """Return what should be measured."""
    announced = of.calls * units.announcement_bytes + of.runs * units.announced_run_bytes
    values = {**of._asdict(), "announced_bytes": announced, "beat_bytes": proxies * units.beat_bytes}
    return {name: round(value, 3) for name, value in values.items()}


def main() -> None:
    """Run the fleets, print, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fleets", type=int, nargs="*", default=FLEETS)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=15.0, help="batches a second at each proxy")
    parser.add_argument("--partitions", type=int, default=100)
    parser.add_argument("--batch-bytes", type=int, default=4_096)
    arguments = parser.parse_args()
    runs = [fleet(proxies, arguments) for proxies in arguments.fleets]
    table = Table("proxies", "figure", "measured", "formulas", "simulation", "largest difference")
    for run in runs:
        for name, value in run["formulas"].items():
            measured, simulation = run["measured"][name], run["simulation"][name]
            off = max(abs(value / measured - 1), abs(simulation / measured - 1))
            table.add_row(str(run["proxies"]), name, f"{measured:,}", f"{value:,}", f"{simulation:,}", f"{off:.0%}")
    Console().print(table, [run["measured"] for run in runs])
    RESULTS.write_text(json.dumps(runs, indent=2) + "\n")


if __name__ == "__main__":
    main()
