"""Measure what the model of a fleet counts with: `python -m benchmarks.fleet_units`.

Starts a new Redis-compatible server. Times in the store are the server's own for the script's call, times in a proxy
are CPU of this process; each is the fastest of many, which other load affects least. Writes
`benchmarks/results/fleet_units.json`.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from redis.asyncio import Redis
from rich.console import Console

from benchmarks.coordinator import FIRST_TIMESTAMP, NO_PRODUCER, TOPIC, Bench, wait_for
from benchmarks.fleet_model import Units
from benchmarks.own_server import own_server
from proxy import config
from proxy.coordinator import packing
from proxy.coordinator.fleet_store import RedisFleetStore
from proxy.coordinator.interface import PartitionRun, ProposedBatch
from proxy.coordinator.interface_fleet import ListenersRecord, ProxyRecord, ProxySums
from proxy.coordinator.pool import one_server
from proxy.coordinator.redis import MAX_SEGMENTS_PER_CALL, RedisCoordinator
from proxy.coordinator.shards import announcement_channel
from proxy.diskless.coordinates import Coordinates

RESULTS = Path(__file__).parent / "results" / "fleet_units.json"
FEW_RUNS, MANY_RUNS = 1, 100
COMMITS = 200
FEW_PROXIES, MANY_PROXIES = 10, 500
BEATS = 30
SEGMENT_ROUNDS = 20
ROUNDS = 6
"""Rounds of everything, each on a new server; the least of each figure counts."""
LEASE_MS = 600_000


def record_of(number: int) -> ProxyRecord:
    """Return a record as a proxy sends it: one range of ports, and rates that are not 0."""
    listeners = ListenersRecord(
        "default", "eu-central-1a", f"10.0.{number >> 8}.{number & 255}", 19_092, 19_100, "0-63"
    )
    sums = ProxySums(104_857_600, 209_715_200, 1_048_576, 75_497, 4_194_304, 72_000, 1_200)
    return ProxyRecord(
        f"diskless-proxy-{number}/0", "eu-central-1a", (listeners,), 42, True, "0.1.0", "10.0.0.1:9644", "0" * 16, sums
    )


def fastest_us(work: Callable[[], Any], times: int = 20) -> float:
    """Return the shortest CPU time of the work."""
    found = []
    for _ in range(times):
        began = time.process_time_ns()
        work()
        found.append((time.process_time_ns() - began) / 1_000)
    return min(found)


async def commits(bench: Bench, runs: int) -> tuple[float, bytes]:
    """Return the fastest commit of so many runs, in µs of the server, and what it announces."""
    partitions = range(1_000 * runs, 1_001 * runs)
    await bench.coordinator.create_logs(TOPIC, partitions)
    heard: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def hear() -> None:
        async with bench.client.pubsub() as pubsub:
            await pubsub.ssubscribe(announcement_channel(0))
            while not heard.done():
                message = await pubsub.get_message(timeout=1)
                if message is not None and message["type"] == "smessage":
                    heard.set_result(message["data"])

    async def one(number: int) -> None:
        batch = ProposedBatch(16_384, 10, FIRST_TIMESTAMP + number, *NO_PRODUCER)
        proposed = [
            PartitionRun(TOPIC, partition, 1 + 16_384 * place, (batch,)) for place, partition in enumerate(partitions)
        ]
        answers = await bench.coordinator.commit(os.urandom(16), proposed)
        assert not any(answer.error_code or answer.batches[0].error_code for answer in answers)

    await bench.measure(f"{runs} runs", COMMITS, one)
    # Nobody listens to the commits that are measured: what each listener takes counts with the announcements.
    hearing = asyncio.create_task(hear())
    while not heard.done():
        await one(0)
        await asyncio.sleep(0.05)
    await hearing
    return bench.measured[-1].server_us_fastest, await heard


async def heartbeats(client: Redis, bench: Bench, proxies: int) -> tuple[float, int, float]:
    """Return µs of the server and bytes of the answer of a heartbeat in a fleet of this size, and µs of CPU of the
    proxy."""
    fleet = RedisFleetStore(client)
    for number in range(proxies):
        await fleet.beat(record_of(number), LEASE_MS)

    async def one(number: int) -> None:
        assert len(await fleet.beat(record_of(number % proxies), LEASE_MS)) == proxies

    await bench.measure(f"heartbeat of {proxies}", BEATS, one, 3)
    before = (await client.info("stats"))["total_net_output_bytes"]
    await one(0)
    sent = int((await client.info("stats"))["total_net_output_bytes"]) - int(before)
    cpu = []
    for number in range(BEATS):
        began = time.process_time_ns()
        await one(number)
        cpu.append((time.process_time_ns() - began) / 1_000)
    return bench.measured[-1].server_us_fastest, sent, min(cpu)


async def collected_us(bench: Bench) -> float:
    """Return µs of the server for a segment that one shard has to forget: its tombstone, and the release of it."""
    found = []
    for _ in range(SEGMENT_ROUNDS):
        segments = [os.urandom(16) for _ in range(MAX_SEGMENTS_PER_CALL)]
        before = await bench.script_us()
        await bench.coordinator.tombstone(segments)
        await bench.coordinator.release(segments)
        found.append((await bench.script_us() - before) / len(segments))
    return min(found)


async def measure(server: subprocess.Popen[bytes], port: int) -> Units:
    """Return all figures."""
    settings = config.Redis(url=f"redis://127.0.0.1:{port}/0", shards=1)
    client: Redis = one_server(settings)
    await wait_for(server, client)
    coordinator = RedisCoordinator(
        client, settings, producer_id_expiration_ms=86_400_000, producer_batches_remembered=5
    )
    bench = Bench(client, coordinator)
    few_us, few = await commits(bench, FEW_RUNS)
    many_us, many = await commits(bench, MANY_RUNS)
    run_us = (many_us - few_us) / (MANY_RUNS - FEW_RUNS)
    run_bytes = (len(many) - len(few)) / (MANY_RUNS - FEW_RUNS)
    coordinates = Coordinates(coordinator)

    def take() -> None:
        for announcement in packing.unpack_announcements(many):
            coordinates._take(announcement)

    few_beat_us, few_bytes, few_heard_us = await heartbeats(client, bench, FEW_PROXIES)
    many_beat_us, many_bytes, many_heard_us = await heartbeats(client, bench, MANY_PROXIES)
    more = MANY_PROXIES - FEW_PROXIES
    units = Units(
        call_us=round(few_us - FEW_RUNS * run_us, 1),
        run_us=round(run_us, 2),
        announcement_bytes=round(len(few) - FEW_RUNS * run_bytes),
        announced_run_bytes=round(run_bytes),
        taken_run_us=round(fastest_us(take) / MANY_RUNS, 2),
        beat_us=round((many_beat_us - few_beat_us) / more, 2),
        beat_bytes=round((many_bytes - few_bytes) / more),
        heard_beat_us=round((many_heard_us - few_heard_us) / more, 2),
        collected_us=round(await collected_us(bench), 2),
    )
    await client.aclose()
    return units


def main() -> None:
    """Measure, print, and write the results."""
    rounds = []
    for _ in range(ROUNDS):
        with own_server("--appendonly", "yes") as (server, port):
            rounds.append(asdict(asyncio.run(measure(server, port))))
    units = Units(**{name: min(one[name] for one in rounds) for name in rounds[0]})
    Console().print(units)
    RESULTS.write_text(json.dumps(asdict(units), indent=2) + "\n")


if __name__ == "__main__":
    main()
