"""Measure what transactions cost: `python -m benchmarks.transactions`.

In the store: commits of plain, idempotent and transactional runs, a marker that ends a transaction, and the memory of a
packed marker; times are the server's own (the fastest, which other load affects least). On a stack: how long a client
waits to add a partition, and how long after the answer to EndTxn the last stable offset moves, for a classic and a
diskless topic in turns, both through a proxy. Writes `benchmarks/results/transactions.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import subprocess
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from redis.asyncio import Redis
from rich.console import Console
from rich.table import Table

from benchmarks.coordinator import FIRST_TIMESTAMP, TOPIC, Bench, wait_for
from benchmarks.own_server import own_server
from proxy import config
from proxy.coordinator.interface import PartitionRun, ProposedBatch
from proxy.coordinator.interface_transactions import Marker, MarkersRead
from proxy.coordinator.pool import one_server
from proxy.coordinator.redis import RedisCoordinator
from proxy.demo.stack import Stack, StackOptions
from tests.support.raw import Raw
from tests.support.topics import CLASSIC, DISKLESS, new_topic
from tests.support.transactional import NONE, READ_COMMITTED, RawProducer, end_offset

RESULTS = Path(__file__).parent / "results" / "transactions.json"
RUNS = 50
ROUNDS = 300
MARKERS = 1_000_000
MARKERS_PER_CALL = 500
CALLS_PER_PACKING = 20
"""Markers are packed meanwhile, as proxies do it every `redis.pack_interval_ms`."""
MARKERS_TOGETHER = 50
TIMEOUT_SECONDS = 60.0
Figures = dict[str, float]


class TransactionBench(Bench):
    """Transactions in the store."""

    async def transactional_commits(self, first: int) -> None:
        """Commit to transactions of version 2 that stay open."""
        partitions = range(first, first + RUNS)
        await self.coordinator.create_logs(TOPIC, partitions)

        async def one(number: int) -> None:
            batch = ProposedBatch(16_384, 10, FIRST_TIMESTAMP + number, 77, 0, number * 10, 2, 0)
            runs = [
                PartitionRun(TOPIC, partition, 1 + 16_384 * (partition - first), (batch,)) for partition in partitions
            ]
            answers = await self.coordinator.commit(os.urandom(16), runs)
            assert not any(answer.error_code or answer.batches[0].error_code for answer in answers)

        await self.measure(f"commit, {RUNS} runs, transactional", ROUNDS, one, 1)

    async def marker_us(self, partition: int, together: int) -> float:
        """Return the µs of the server for a marker that ends a transaction, in the fastest call of so many."""
        await self.coordinator.create_logs(TOPIC, [partition])
        times = []
        for number in range(ROUNDS):
            before = await self._end_some(partition, number, together)
            times.append(await self.script_us() - before)
        return round(min(times) / together, 1)

    async def _end_some(self, partition: int, number: int, count: int) -> float:
        """Begin transactions by one batch each, and end them; return the server's time between the two."""
        start = number * count
        batches = tuple(
            ProposedBatch(16_384, 10, FIRST_TIMESTAMP + start, producer, 0, number * 10, 2, start)
            for producer in range(count)
        )
        (answer,) = await self.coordinator.commit(os.urandom(16), [PartitionRun(TOPIC, partition, 1, batches)])
        assert not any(batch.error_code for batch in answer.batches)
        between = await self.script_us()
        ends = tuple(
            Marker(start + producer, producer, 0, 0, True, FIRST_TIMESTAMP + start) for producer in range(count)
        )
        (applied,) = await self.coordinator.transactions.apply_markers(
            [MarkersRead(TOPIC, partition, start, start + count, 0, ends)]
        )
        assert applied.ended == count
        return between

    async def marker_bytes(self, partition: int, markers: int) -> float:
        """Return the bytes of a packed marker, by many of them."""
        await self.coordinator.create_logs(TOPIC, [partition])
        before = await self.index_bytes()
        for number in range(markers // MARKERS_PER_CALL):
            await self._end_some(partition, number, MARKERS_PER_CALL)
            if number % CALLS_PER_PACKING == 0:
                await self.coordinator.pack_rows([(TOPIC, partition)], 0)
        await self.coordinator.pack_rows([(TOPIC, partition)], 0)
        return round((await self.index_bytes() - before) / markers, 1)


async def measure_store(server: subprocess.Popen[bytes], port: int, markers: int) -> Figures:
    """Return the costs in the store, in µs and bytes."""
    settings = config.Redis(url=f"redis://127.0.0.1:{port}/0", shards=1)
    client: Redis = one_server(settings)
    await wait_for(server, client)
    coordinator = RedisCoordinator(
        client, settings, producer_id_expiration_ms=86_400_000, producer_batches_remembered=5
    )
    bench = TransactionBench(client, coordinator)
    await bench.commits(RUNS, idempotent=False)
    await bench.commits(RUNS, idempotent=True)
    await bench.transactional_commits(3_000_000)
    plain, idempotent, transactional = (one.server_us_fastest for one in bench.measured)
    figures = {
        "commit_plain_us": plain,
        "commit_idempotent_us": idempotent,
        "commit_transactional_us": transactional,
        "transactional_us_more_per_run": round((transactional - idempotent) / RUNS, 2),
        "marker_us": await bench.marker_us(4_000_000, 1),
        "marker_of_many_us": await bench.marker_us(4_000_001, MARKERS_TOGETHER),
        "packed_marker_bytes": await bench.marker_bytes(4_000_002, markers),
    }
    await client.aclose()
    return figures


class Transactions:
    """Transactions of one record each, in one topic through a proxy."""

    def __init__(self, stack: Stack, kind: str, version: int) -> None:
        bootstrap = stack.bootstrap("rack-a")
        self._topic = new_topic(stack, "measured", kind)
        self._producer = RawProducer(bootstrap, self._topic, transaction_version=version)
        self._end = 0
        self._leader = _leader(stack, self._topic)
        self._raw = Raw(self._leader)
        self.add_ms: list[float] = []
        self.first_produce_ms: list[float] = []
        self.end_to_stable_ms: list[float] = []

    def one(self) -> None:
        """Commit one transaction, and measure."""
        producer = self._producer
        if producer.transaction_version == 1:
            began_s = time.perf_counter()
            assert producer.add(self._topic) == NONE
            self.add_ms.append(1_000 * (time.perf_counter() - began_s))
        began_s = time.perf_counter()
        assert producer.produce(self._topic, b"x" * 1_000, address=self._leader) == NONE
        self.first_produce_ms.append(1_000 * (time.perf_counter() - began_s))
        assert producer.end(commit=True) == NONE
        ended_s = time.perf_counter()
        self._end += 2
        while end_offset(self._raw, self._topic, READ_COMMITTED) < self._end:
            assert time.perf_counter() < ended_s + TIMEOUT_SECONDS, "the last stable offset does not move"
            time.sleep(0.001)
        self.end_to_stable_ms.append(1_000 * (time.perf_counter() - ended_s))

    def close(self) -> None:
        """Close the connection."""
        self._raw.close()


def _leader(stack: Stack, topic: str) -> str:
    from confluent_kafka.admin import AdminClient

    known = AdminClient({"bootstrap.servers": stack.bootstrap("rack-a")}).list_topics(topic, timeout=30)
    broker = known.brokers[known.topics[topic].partitions[0].leader]
    return f"{broker.host}:{broker.port}"


def measure_stack(rounds: int) -> dict[str, Figures]:
    """Return median and 99th percentile of the waits in ms, by kind of topic and transaction version."""
    found: dict[str, Figures] = {}
    with Stack(StackOptions(overrides={"diskless.append.puts.per.second": 100})) as stack:
        runs = {
            f"{kind}, version {version}": Transactions(stack, kind, version)
            for version in (1, 2)
            for kind in (CLASSIC, DISKLESS)
        }
        for _ in range(rounds):
            for run in runs.values():
                run.one()
        for name, run in runs.items():
            run.close()
            figures = {}
            for what in ("add_ms", "first_produce_ms", "end_to_stable_ms"):
                if waits := getattr(run, what):
                    figures[f"{what}_p50"] = round(median(waits), 1)
                    figures[f"{what}_p99"] = round(quantiles(waits, n=100)[98], 1)
            found[name] = figures
    return found


def judge(store: Figures, waits: dict[str, Figures]) -> dict[str, dict[str, float | bool]]:
    """Return the required figures, and whether they are met."""
    figures = {
        "transactional_us_more_per_run": (store["transactional_us_more_per_run"], 15.0),
        "marker_us": (store["marker_us"], 40.0),
        "megabytes_of_a_million_packed_markers": (store["packed_marker_bytes"], 40.0),
    }
    for version in (1, 2):
        classic, diskless = (waits[f"{kind}, version {version}"] for kind in (CLASSIC, DISKLESS))
        for percentile, most in (("p50", 50.0), ("p99", 250.0)):
            name = f"end_to_stable_ms_{percentile}"
            figures[f"{name}_beyond_classic, version {version}"] = (round(diskless[name] - classic[name], 1), most)
    added = (waits[f"{kind}, version 1"]["add_ms_p50"] for kind in (DISKLESS, CLASSIC))
    figures["add_ms_p50_beyond_classic"] = (round(next(added) - next(added), 1), 10.0)
    return {name: {"is": found, "at_most": most, "kept": found <= most} for name, (found, most) in figures.items()}


def main() -> None:
    """Measure, print, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="transactions of each kind")
    parser.add_argument("--markers", type=int, default=MARKERS)
    arguments = parser.parse_args()
    with own_server() as (server, port):
        store = asyncio.run(measure_store(server, port, arguments.markers))
    waits = measure_stack(arguments.rounds)
    goals = judge(store, waits)
    console = Console()
    console.print("store, µs and bytes:", store)
    table = Table("topic", *next(iter(waits.values())))
    for name, figures in waits.items():
        table.add_row(name, *(str(figures.get(what, "")) for what in next(iter(waits.values()))))
    console.print(table, "goals:", goals)
    results: dict[str, Any] = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "rounds": arguments.rounds,
        "markers": arguments.markers,
        "store": store,
        "stack": waits,
        "goals": goals,
    }
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
