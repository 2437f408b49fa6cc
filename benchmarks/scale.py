"""Measure what a run costs in clusters of 1, 2, 4 and 8 servers: `make bench-scale`.

Each server has the same number of shards, and gets the same number of commits, so that servers of all clusters hold as
much and do the same work. The commits are packed before, as a proxy packs them, and one connection for each server
sends them, some at a time. CPU is that of the servers' processes, disk threads included; what they take at rest is
subtracted. Sizes take turns in every order, with new servers each time, and the figure of a size is its median. With
fewer cores than servers + 2, servers that run at once would take cores and caches from each other. Then they get their
calls one after the other, and the throughput of the cluster is *derived* from the CPU per run. Writes
`benchmarks/results/scale.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from threading import Event
from typing import NamedTuple

from redis.asyncio import Connection, Redis
from rich.console import Console
from rich.table import Table

from benchmarks.coordinator import FIRST_TIMESTAMP, NO_PRODUCER, TOPIC
from benchmarks.own_server import own_server
from proxy import config
from proxy.coordinator import packing, packing_state, scripts
from proxy.coordinator.cluster import Cluster
from proxy.coordinator.connect import connect
from proxy.coordinator.interface import PartitionRun, ProposedBatch
from proxy.coordinator.redis import RedisCoordinator
from proxy.coordinator.shards import NEIGHBOURS, partition_key, script_keys, shard_of, shard_prefix
from proxy.demo.ports import HOST
from proxy.demo.valkeys import nodes_file, why_not_joined
from proxy.demo.waiting import wait_until
from tests.support.ports import free_port

RESULTS = Path(__file__).parent / "results" / "scale.json"
SERVERS = (1, 2, 4, 8)
SHARDS_PER_SERVER = 8
RUNS_PER_CALL = 12
CALLS_AT_ONCE = 16
"""Number of calls that a server gets at a time, as from a proxy."""
READY_S = 30.0
REST_S = 1.0
MOST_DIFFERENCE = 0.10
"""Share by which the CPU per run may differ between the sizes."""


class Cost(NamedTuple):
    """The cost of calls to one cluster, in its servers."""

    cpu_us_per_run: float
    runs_per_second: float
    rest_cpu_ms_per_second: float
    """CPU time of each server while nobody calls."""


def packed_calls(shard: int, shards: int, first_partition: int, calls: int) -> list[bytes]:
    """Pack commits of new segments to neighbouring partitions, each with a batch."""
    found = scripts.script("commit")
    batch = (ProposedBatch(16_384, 10, FIRST_TIMESTAMP, *NO_PRODUCER),)
    partitions = range(first_partition, first_partition + RUNS_PER_CALL)
    runs = [PartitionRun(TOPIC, one, 1 + 16_384 * place, batch) for place, one in enumerate(partitions)]
    packed_runs = b"".join(packing.pack_run(run, transactional=False) for run in runs)
    header = packing_state.pack_shard_header(
        os.urandom(8), shards, packing_state.MAY_WRITE, 0, 0, packing_state.NOTHING_KNOWN
    )
    keys, pack = script_keys(shard_prefix(shard)), Connection().pack_command
    packed = []
    for _ in range(calls):
        settings = packing.pack_commit_settings(5, 86_400_000, os.urandom(16), 0, transactional=False)
        packed.append(b"".join(pack("EVALSHA", found.sha, len(keys), *keys, header, packed_runs, settings)))
    return packed


@contextmanager
def cluster_of(servers: int) -> Iterator[list[int]]:
    """Start a cluster whose servers have the same number of slots each; yield their ports."""
    at = [(free_port(), free_port()) for _ in range(servers)]
    with tempfile.TemporaryDirectory() as directory, ExitStack() as started:
        for number, (port, bus) in enumerate(at):
            file = Path(directory) / f"nodes-{number}.conf"
            file.write_text(nodes_file(at, number))
            options = ("--cluster-enabled", "yes", "--cluster-port", str(bus), "--cluster-config-file", str(file))
            started.enter_context(own_server("--appendonly", "yes", *options, port=port))
        for port, _ in at:
            wait_until(partial(why_not_joined, f"redis://{HOST}:{port}/0"), READY_S, Event(), str)
        yield [port for port, _ in at]


def have_cores(servers: int) -> bool:
    """Return whether each server and the sender can have a core."""
    return (os.cpu_count() or 1) >= servers + 2


async def send(port: int, shards: Sequence[Sequence[bytes]]) -> None:
    """Send a server the calls of its shards, in turns."""
    connection = Connection(host=HOST, port=port)
    await connection.connect()  # type: ignore[no-untyped-call]
    in_turns = (call for calls in zip(*shards, strict=True) for call in calls)
    while some := list(islice(in_turns, CALLS_AT_ONCE)):
        await connection.send_packed_command(some)
        for _ in some:
            reply = await connection.read_response()
            assert isinstance(reply, bytes)
    await connection.disconnect()


async def cpu_us(servers: Sequence[Redis]) -> float:
    """Return the CPU time of all servers so far."""
    spent = 0.0
    for server in servers:
        found = await server.info("cpu")
        spent += 1e6 * (found["used_cpu_user"] + found["used_cpu_sys"])
    return spent


async def measure(ports: Sequence[int], calls: int) -> Cost:
    """Send all calls to a cluster."""
    count = SHARDS_PER_SERVER * len(ports)
    settings = config.Redis(url="redis+cluster://" + ",".join(f"{HOST}:{port}" for port in ports), shards=count)
    cluster = await connect(settings)
    assert isinstance(cluster, Cluster)
    coordinator = RedisCoordinator(
        cluster, settings, producer_id_expiration_ms=86_400_000, producer_batches_remembered=5
    )
    by_port: dict[int, list[list[bytes]]] = {}
    for group in range(count):
        first = group * NEIGHBOURS
        shard = shard_of(partition_key(TOPIC, first), count)
        await coordinator.create_logs(TOPIC, range(first, first + RUNS_PER_CALL))
        port = int(cluster.name_of(script_keys(shard_prefix(shard))[0]).rpartition(":")[2])
        by_port.setdefault(port, []).append(packed_calls(shard, count, first, calls // count))
    servers = list((await cluster.primaries()).values())
    for server in servers:
        await server.script_load(scripts.script("commit").text)
    resting_us = await cpu_us(servers)
    await asyncio.sleep(REST_S)
    resting_us = await cpu_us(servers) - resting_us
    before_us, began_s = await cpu_us(servers), time.perf_counter()
    if have_cores(len(ports)):
        await asyncio.gather(*(send(port, shards) for port, shards in by_port.items()))
    else:
        for port, shards in by_port.items():
            await send(port, shards)
    took_s = time.perf_counter() - began_s
    spent_us = await cpu_us(servers) - before_us - resting_us / REST_S * took_s
    await cluster.aclose()
    runs = calls // count * count * RUNS_PER_CALL
    return Cost(spent_us / runs, runs / took_s, resting_us / REST_S / 1_000 / len(ports))


def report(costs: dict[int, list[Cost]]) -> dict[str, object]:
    """Print a table; return the results."""
    table = Table("servers", "CPU µs per run", "runs/s, all servers", "is", "CPU ms/s of a server at rest")
    by_size = [median(one.cpu_us_per_run for one in some) for some in costs.values()]
    rows = []
    for cost, (servers, some) in zip(by_size, costs.items(), strict=True):
        measured = have_cores(servers)
        runs = median(one.runs_per_second for one in some) if measured else servers * 1e6 / cost
        rows.append(
            {
                "servers": servers,
                "cpu_us_per_run": round(cost, 2),
                "cpu_us_per_run_of_rounds": [round(one.cpu_us_per_run, 2) for one in some],
                "runs_per_second": round(runs),
                "throughput_is": "measured" if measured else "derived",
                "rest_cpu_ms_per_second": round(median(one.rest_cpu_ms_per_second for one in some), 2),
            }
        )
        table.add_row(*(str(rows[-1][name]) for name in rows[-1] if not name.endswith("rounds")))
    Console().print(table)
    difference = max(by_size) / min(by_size) - 1
    print(f"CPU per run differs by {difference:.1%} between the sizes (goal: {MOST_DIFFERENCE:.0%})")
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "shards_per_server": SHARDS_PER_SERVER,
        "runs_per_call": RUNS_PER_CALL,
        "sizes": rows,
        "difference": {"is": round(difference, 3), "at_most": MOST_DIFFERENCE, "kept": difference <= MOST_DIFFERENCE},
    }


def main() -> None:
    """Measure, print, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--calls", type=int, default=4_096, help="commits for each server and round")
    arguments = parser.parse_args()
    costs: dict[int, list[Cost]] = {servers: [] for servers in SERVERS}
    for number in range(arguments.rounds):
        first = number % len(SERVERS)
        for servers in (*SERVERS[first:], *SERVERS[:first]):
            with cluster_of(servers) as ports:
                costs[servers].append(asyncio.run(measure(ports, arguments.calls * servers)))
        print(
            f"[{number + 1}/{arguments.rounds}]",
            *(f"{some[-1].cpu_us_per_run:.2f}" for some in costs.values()),
            flush=True,
        )
    RESULTS.write_text(json.dumps(report(costs), indent=2) + "\n")


if __name__ == "__main__":
    main()
