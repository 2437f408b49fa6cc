"""A model of a fleet: what a load asks of the store, of the network and of each proxy, and which limit comes first.

`python -m benchmarks.fleet_model` prints the plan of a very large fleet. `docs/assets/scale.js` has the same formulas
for the page docs/scale.md. Three things keep the model true: its figures are measured (`benchmarks.fleet_units`), a
simulation with the product's own rules for the end of a segment checks the formulas, and real fleets check both
(`benchmarks.fleet_check`).

All figures are per second, of the whole fleet if nothing else is said. Producers spread their batches evenly over all
partitions and proxies. That is the worst case for the store: a segment has rows of as many partitions as possible.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from proxy.accounting.cost import MEGABYTE
from proxy.coordinator.shards import NEIGHBOURS
from proxy.diskless.wal.pace import Deadline, PutBudget

RUNS_PER_CALL = 100
"""Partition runs of one call of a commit."""


@dataclass(frozen=True, slots=True)
class Load:
    """A fleet, and what its clients do."""

    produced_mb_per_second: float = 20.0
    """Megabytes (1,000,000 bytes) of record batches."""
    batch_bytes: float = 16_384
    partitions: int = 100
    """Partitions of diskless topics that are written to."""
    proxies: int = 6
    """Processes that take produces; each worker is one."""
    racks: int = 3
    puts_per_second: float = 4.0
    """The budget of each process (`diskless.append.puts.per.second`)."""
    buffer_bytes: float = 4 * 1024 * 1024
    """`diskless.append.buffer.max.bytes`."""
    shards: int = 16
    """`redis.shards`."""
    servers: int = 1
    """Servers (primaries) of the store."""
    retention_hours: float = 72.0


@dataclass(frozen=True, slots=True)
class Units:
    """Costs of one of each, as `benchmarks.fleet_units` has measured them."""

    call_us: float = 99.2
    """A call of a commit in the store, without its runs."""
    run_us: float = 5.75
    """A partition run of a commit in the store."""
    announcement_bytes: float = 76
    """An announcement, without its runs, to each process."""
    announced_run_bytes: float = 93
    taken_run_us: float = 3.86
    """CPU of each process for a run that is announced and that nobody reads."""
    beat_us: float = 4.49
    """A record in the answer to one heartbeat, in the store."""
    beat_bytes: float = 438
    heard_beat_us: float = 16.85
    """The same, CPU of the process that gets it."""
    collected_us: float = 15.88
    """A deleted segment, in each shard."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of each resource a plan may use."""

    store_core: float = 0.5
    """Part of a server's core: half, because load is never even, and a server needs time to catch up."""
    proxy_core: float = 0.2
    """Part of a proxy's core that is not for its own clients."""
    server_mb_per_second: float = 600.0
    """Traffic of a server: half of 10 Gbit/s."""
    sweep_seconds: float = 3_600.0
    """The sweep for orphans lists all objects once in this time."""
    listed_per_second: float = 10_000.0
    """Objects that a sweep lists and looks up: 10 pages."""


class Flow(NamedTuple):
    """The segments of a fleet."""

    segments: float
    runs: float
    """Rows: partitions with batches in a segment, summed over segments."""
    calls: float
    """Calls of commits: shards that a segment touches, summed."""


def flow(load: Load) -> Flow:
    """Return the segments of a load, by formulas."""
    per_proxy = load.produced_mb_per_second * MEGABYTE / load.proxies
    batches = per_proxy / load.batch_bytes
    segments = max(per_proxy / load.buffer_bytes, min(load.puts_per_second, batches))
    if segments <= 0:
        return Flow(0.0, 0.0, 0.0)
    runs = different(load.partitions, batches / segments)
    groups = min(load.shards, math.ceil(load.partitions / NEIGHBOURS))
    calls = max(different(groups, runs), runs / RUNS_PER_CALL)
    return Flow(load.proxies * segments, load.proxies * segments * runs, load.proxies * segments * calls)


def different(kinds: int, draws: float) -> float:
    """Return how many different ones of so many kinds are expected in random draws."""
    if kinds <= 1:
        return min(1.0, draws)
    return -kinds * math.expm1(draws * math.log1p(-1 / kinds))


class Wall(NamedTuple):
    """One limit, and how much of it a load takes."""

    name: str
    used: float
    allowed: float
    unit: str

    @property
    def share(self) -> float:
        """1 if the limit is reached."""
        return self.used / self.allowed


def walls(load: Load, units: Units, limits: Limits, of: Flow | None = None, *, grouped: bool = False) -> list[Wall]:
    """Return all limits, the one that comes first at the beginning.

    `grouped`: by the plan for large fleets. A process hears of the rows of its group only, which are those of one
    process in each rack; a segment is in one shard; heartbeats return what has changed.
    """
    segments, runs, calls = of or flow(load)
    if grouped:
        calls = max(segments, runs / RUNS_PER_CALL)
    listeners = load.racks if grouped else load.proxies
    announced = listeners * (calls * units.announcement_bytes + runs * units.announced_run_bytes)
    heard_runs = runs * listeners / load.proxies
    beats = load.proxies if grouped else load.proxies**2
    collecting = segments * (1 if grouped else load.shards) * units.collected_us / 1e6
    store_cores = limits.store_core * load.servers
    found = [
        Wall(
            "order of batches", (calls * units.call_us + runs * units.run_us) / 1e6, store_cores, "cores of the store"
        ),
        Wall("announcements, network", announced / MEGABYTE, load.servers * limits.server_mb_per_second, "MB/s"),
        Wall("announcements, each process", heard_runs * units.taken_run_us / 1e6, limits.proxy_core, "of a core"),
        Wall("deletion of segments", collecting, store_cores, "cores of the store"),
        Wall("heartbeats, store", beats * units.beat_us / 1e6, limits.store_core, "cores of one server"),
        Wall("heartbeats, network", beats * units.beat_bytes / MEGABYTE, limits.server_mb_per_second, "MB/s"),
        Wall(
            "heartbeats, each process",
            beats / load.proxies * units.heard_beat_us / 1e6,
            limits.proxy_core,
            "of a core",
        ),
        Wall(
            "sweep for orphans",
            segments * load.retention_hours * 3_600 / limits.listed_per_second,
            limits.sweep_seconds,
            "s",
        ),
    ]
    return sorted(found, key=lambda wall: -wall.share)


def simulated(load: Load, *, seconds: float, seed: int, put_seconds: float = 0.06, most_proxies: int = 12) -> Flow:
    """Return what a simulation of some of the proxies finds, for the whole fleet.

    Batches come at random times. A segment ends by the product's own rules, with one under way at a time.
    """
    random = Random(seed)
    proxies = min(load.proxies, most_proxies)
    segments = runs = calls = 0
    for _ in range(proxies):
        for partitions in _segments(load, seconds, random, put_seconds):
            segments += 1
            runs += len(partitions)
            shards = len({partition // NEIGHBOURS % load.shards for partition in partitions})
            calls += max(shards, math.ceil(len(partitions) / RUNS_PER_CALL))
    more = load.proxies / proxies / seconds
    return Flow(segments * more, runs * more, calls * more)


def _segments(load: Load, seconds: float, random: Random, put_seconds: float) -> Iterator[set[int]]:
    """Yield the partitions of each segment of one proxy."""
    rate = load.produced_mb_per_second * MEGABYTE / load.proxies / load.batch_bytes
    interval_s = 1 / load.puts_per_second
    budget = PutBudget(load.puts_per_second)
    # The burst of a start is not what lasts.
    for _ in range(math.ceil(budget.burst)):
        budget.take(0.0)
    now_s, next_s = 0.0, random.expovariate(rate)
    ends: list[float] = []
    partitions: set[int] = set()
    size, deadline = 0.0, Deadline()
    while now_s < seconds:
        while ends and ends[0] <= now_s:
            heapq.heappop(ends)
        due_s = deadline.ends_s(now_s, budget, may_begin=not ends) if partitions else math.inf
        if size >= load.buffer_bytes or due_s <= now_s:
            budget.take(now_s)
            heapq.heappush(ends, now_s + put_seconds * random.uniform(0.8, 1.2))
            yield partitions
            partitions, size, deadline = set(), 0.0, Deadline()
            continue
        now_s = min(next_s, due_s, ends[0] if ends and partitions else math.inf)
        if now_s == next_s:
            partitions.add(random.randrange(load.partitions))
            size += load.batch_bytes
            deadline.add(now_s, interval_s, 0.0)
            next_s += random.expovariate(rate)


VERY_LARGE = Load(
    produced_mb_per_second=100_000,
    partitions=1_000_000,
    proxies=1_000,
    shards=1_024,
    servers=70,
)
"""100 GB/s of batches of 16 KiB through a thousand processes."""


def main() -> None:
    """Print the walls of the very large fleet, as it is and in groups."""
    console = Console()
    for grouped in (False, True):
        title = "in groups, as planned" if grouped else "as it is"
        table = Table("limit", "used", "allowed", "times", title=f"{VERY_LARGE.proxies} processes, {title}")
        for wall in walls(VERY_LARGE, Units(), Limits(), grouped=grouped):
            table.add_row(wall.name, f"{wall.used:,.2f}", f"{wall.allowed:,.2f} {wall.unit}", f"{wall.share:.2f}")
        console.print(table)
    console.print(flow(VERY_LARGE), simulated(VERY_LARGE, seconds=2, seed=1, most_proxies=3))
    for load in (Load(), replace(Load(), produced_mb_per_second=0.5)):
        console.print(asdict(load), flow(load), simulated(load, seconds=60, seed=1))


if __name__ == "__main__":
    main()
