"""Measure the cost of the coordinator: `python -m benchmarks.coordinator`.

Starts a new Redis-compatible server (append-only file on, `appendfsync everysec`). Measures commits of 1, 50 and 200
partition runs, lookups in indexes of 10³ and 10⁶ rows, fresh and packed, packing, swaps of rows, and the memory of rows
and of everything else that a commit leaves behind. Commits are also sent in a row, as a busy server gets them: then its
caches have what the next call needs. The goals are for these, and for lookups in few rows and in many that are
measured in turns. Then it measures commits that wait for a replica, or for the disk.
Times are the server's own for the script call (the fastest, which other load on the machine affects least) and the
caller's round trip.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from redis.asyncio import Redis
from redis.exceptions import RedisError
from rich.console import Console
from rich.table import Table

from benchmarks.own_server import own_server
from proxy import config
from proxy.coordinator.interface import FindRequest, ListRequest, PartitionRun, ProposedBatch
from proxy.coordinator.interface_rewriting import MAX_ROWS_PER_SWAP, Swap, SwapAnswer
from proxy.coordinator.pool import one_server
from proxy.coordinator.redis import RedisCoordinator
from proxy.coordinator.shards import shard_prefix
from proxy.coordinator.view import QUIET_BEFORE
from tests.support.memory_journal import MemoryJournal

RESULTS = Path(__file__).parent / "results" / "coordinator.json"
TOPIC = bytes(range(16))
NO_PRODUCER = (-1, -1, -1)
FIRST_TIMESTAMP, INTERVAL_MS = 1_700_000_000_000, 250
ROUNDS = 240
"""Fewer than QUIET_BEFORE: of a longer journal, a store applies the first records without announcing them."""
GROUP = 10
"""Calls whose server time is read and averaged together, because reading it cools the server's caches."""
COMMIT_RUNS = (1, 50, 200)
REPLAYS = 5
"""Number of times that a journal of commits is applied to an emptied store."""
LONG_COMMIT_RUNS = 50
"""Number of runs from which the time is read for each commit: other load then disturbs more than a cool cache."""
ROWS = (1_000, 1_000_000)
MANY_PACKED = 500_000
SEGMENTS_FOR_MEMORY = 2_000
RUNS_FOR_MEMORY = 10
SWAPS = 50
MOST_COMMIT_US, MOST_IDEMPOTENT_COMMIT_US, MOST_SHORT_COMMIT_US = 500, 650, 20
MOST_LOOKUP_RATIO = 1.5
MOST_PACKED_ROW_BYTES = 60
IN_TURNS = "in turns"

Call = Callable[[int], Awaitable[None]]
"""One call of an operation, by its number."""


@dataclass
class Measured:
    what: str
    server_us_fastest: float
    server_us_median: float
    round_trip_us_median: float


class Bench:
    def __init__(self, client: Redis, coordinator: RedisCoordinator) -> None:
        self.client = client
        self.coordinator = coordinator
        self.measured: list[Measured] = []

    async def measure(self, what: str, calls: int, one: Call, group_size: int = GROUP) -> None:
        await self.measure_in_turns({what: one}, calls, group_size)

    async def measure_in_turns(self, operations: Mapping[str, Call], calls: int, group_size: int = GROUP) -> None:
        """Measure groups of the operations in turns, as a machine is slower at one time than at another."""
        server: dict[str, list[float]] = {what: [] for what in operations}
        round_trips: dict[str, list[float]] = {what: [] for what in operations}
        for group in range(0, calls, group_size):
            for what, one in operations.items():
                before = await self.script_us()
                for number in range(group, group + group_size):
                    began = time.perf_counter()
                    await one(number)
                    round_trips[what].append((time.perf_counter() - began) * 1e6)
                server[what].append((await self.script_us() - before) / group_size)
        for what, times in server.items():
            figures = min(times), median(times), median(round_trips[what])
            self.measured.append(Measured(what, *(round(one, 1) for one in figures)))

    async def script_us(self) -> float:
        """Return the time that the server has spent in scripts so far."""
        stats = await self.client.info("commandstats")
        return float(stats.get("cmdstat_evalsha", {}).get("usec", 0))

    async def commits(self, runs: int, idempotent: bool) -> None:
        first = 1_000 * runs + 500_000 * idempotent
        partitions = range(first, first + runs)
        await self.coordinator.create_logs(TOPIC, partitions)

        async def one(number: int) -> None:
            producer = (77, 0, number * 10) if idempotent else NO_PRODUCER
            batch = ProposedBatch(16_384, 10, 1_700_000_000_000 + number, *producer)
            proposed = [
                PartitionRun(TOPIC, partition, 1 + 16_384 * (partition - first), (batch,)) for partition in partitions
            ]
            answers = await self.coordinator.commit(os.urandom(16), proposed)
            assert not any(answer.error_code or answer.batches[0].error_code for answer in answers)

        group_size = GROUP if runs < LONG_COMMIT_RUNS else 1
        await self.measure(_name_of_commits(runs, idempotent), ROUNDS, one, group_size)

    async def fill(self, partition: int, rows: int, *, pack: bool = False) -> None:
        """Commit rows. `pack`: pack them meanwhile, as proxies do."""
        await self.coordinator.create_logs(TOPIC, [partition])
        refused = ProposedBatch(1, 1, 0, 5, -1, 0)
        for start in range(0, rows, 500):
            if pack and start % 10_000 == 0:
                await self.coordinator.pack_rows([(TOPIC, partition)], 0)
            batches = []
            for number in range(start, min(start + 500, rows)):
                batches += [ProposedBatch(16_384, 10, FIRST_TIMESTAMP + number * INTERVAL_MS, *NO_PRODUCER), refused]
            await self.coordinator.commit(os.urandom(16), [PartitionRun(TOPIC, partition, 1, tuple(batches))])

    def lookups(self, partition: int, rows: int, kind: str) -> dict[str, Call]:
        async def find(number: int) -> None:
            offset = number * 7919 % (rows * 10)
            (answer,) = await self.coordinator.find([FindRequest(TOPIC, partition, offset, 1)])
            assert len(answer.rows) == 1

        async def by_time(number: int) -> None:
            timestamp = FIRST_TIMESTAMP + number * 7919 % rows * INTERVAL_MS
            (answer,) = await self.coordinator.list_offsets([ListRequest(TOPIC, partition, timestamp)])
            assert answer.timestamp_ms == timestamp

        return {
            f"find, {rows} rows, {kind}": find,
            f"list_offsets by time, {rows} rows, {kind}": by_time,
        }

    async def pack(self, partition: int, rows: int) -> float:
        """Measure the server's µs per packed row."""
        before = await self.script_us()
        await self.coordinator.pack_rows([(TOPIC, partition)], 0)
        return round((await self.script_us() - before) / rows, 2)

    async def swaps(self, first: int, kind: str) -> None:
        """Swap the maximum number of rows, each in its own segment, for one row, as a merge does."""
        partitions = range(first, first + SWAPS)
        await self.coordinator.create_logs(TOPIC, partitions)
        for number in range(MAX_ROWS_PER_SWAP):
            batch = ProposedBatch(16_384, 10, FIRST_TIMESTAMP + number * INTERVAL_MS, *NO_PRODUCER)
            runs = [PartitionRun(TOPIC, partition, 1, (batch,)) for partition in partitions]
            await self.coordinator.commit(os.urandom(16), runs)
        if kind == "packed":
            await self.coordinator.pack_rows([(TOPIC, partition) for partition in partitions], 0)
        logs = []
        for partition in partitions:
            logs += await self.coordinator.find([FindRequest(TOPIC, partition, 0, 1 << 40)])

        async def swap(number: int) -> None:
            old = logs[number].rows
            new = old[0]._replace(last_offset=old[-1].last_offset, segment=bytes(16), offsets_in_place=True)
            answers = await self.coordinator.rows.replace([Swap(TOPIC, partitions[number], old, new)])
            assert (len(old), answers) == (MAX_ROWS_PER_SWAP, [SwapAnswer.REPLACED])

        await self.measure(f"swap, {MAX_ROWS_PER_SWAP} rows, {kind}", SWAPS, swap, 1)

    async def index_bytes(self) -> int:
        """Return the memory of the rows of all partitions."""
        return await self.client.memory_usage(f"{shard_prefix(0)}rows", samples=0) or 0

    async def memory_of_commits(self, first: int) -> dict[str, float]:
        """Measure bytes per commit, or per run of a commit, by kind of data; producers are idempotent, one per
        partition."""
        partitions = range(first, first + RUNS_FOR_MEMORY)
        await self.coordinator.create_logs(TOPIC, partitions)
        for number in range(SEGMENTS_FOR_MEMORY):
            batch = ProposedBatch(16_384, 10, FIRST_TIMESTAMP, 77, 0, number * 10)
            runs = [PartitionRun(TOPIC, partition, 1, (batch,)) for partition in partitions]
            await self.coordinator.commit(number.to_bytes(16, "big"), runs)
        answers = f"{shard_prefix(0)}answers:".encode() + bytes(16)
        producers, ids = f"{shard_prefix(0)}producers", f"{shard_prefix(0)}producer_ids"
        logs, segments = f"{shard_prefix(0)}logs", f"{shard_prefix(0)}segments"
        return {
            f"answers_kept_of_a_commit_of_{RUNS_FOR_MEMORY}_runs": float(await self.client.memory_usage(answers) or 0),
            "segment_in_use": await self._mean_bytes(segments, await self.client.hlen(segments)),
            "log": await self._mean_bytes(logs, await self.client.hlen(logs)),
            "producer_of_a_partition": await self._mean_bytes(producers, await self.client.hlen(producers))
            + await self._mean_bytes(ids, await self.client.zcard(ids)),
        }

    async def _mean_bytes(self, key: str, entries: int) -> float:
        return round((await self.client.memory_usage(key, samples=0) or 0) / entries, 1)


async def wait_for(server: subprocess.Popen[bytes], client: Redis) -> None:
    """Wait until the server answers. Raises RuntimeError if it has ended, or if another server answers, whose data is
    not ours."""
    while server.poll() is None:
        try:
            found = await client.info("server")
        except RedisError:
            await asyncio.sleep(0.05)
            continue
        if int(found["process_id"]) != server.pid:
            raise RuntimeError("another server has the port; run it again")
        return
    raise RuntimeError(f"the Redis-compatible server ended (exit code {server.returncode})")


async def in_a_row(client: Redis, settings: config.Redis, runs: int, idempotent: bool) -> Measured:
    """Measure commits that are sent in a row: a store that was emptied applies the journal that has them.

    The creation of the logs counts, too. It is one record. Deletes everything in the store.
    """
    await client.flushall()
    coordinator = RedisCoordinator(
        client, settings, producer_id_expiration_ms=86_400_000, producer_batches_remembered=5, journal=MemoryJournal()
    )
    assert coordinator.view is not None
    assert ROUNDS < QUIET_BEFORE
    bench = Bench(client, coordinator)
    await bench.commits(runs, idempotent)
    server: list[float] = []
    for _ in range(REPLAYS):
        await client.flushall()
        before = await bench.script_us()
        await coordinator.view.bring_up(0)
        server.append((await bench.script_us() - before) / ROUNDS)
    name = f"{_name_of_commits(runs, idempotent)}, in a row"
    return Measured(name, round(min(server), 1), round(median(server), 1), 0.0)


async def waits(bench: Bench, settings: config.Redis) -> None:
    """Measure a commit that waits for a replica, or for the disk (`redis.wait_replicas`, `redis.wait_aof`)."""
    await bench.client.wait(1, 60_000)
    for fsync, changes in (
        ("everysec", {"wait_replicas": 1}),
        ("always", {"wait_replicas": 1}),
        ("always", {"wait_aof": True}),
    ):
        await bench.client.config_set("appendfsync", fsync)
        client = one_server(settings)
        coordinator = RedisCoordinator(
            client,
            settings.model_copy(update=changes),
            producer_id_expiration_ms=86_400_000,
            producer_batches_remembered=5,
        )
        waiting = Bench(client, coordinator)
        await waiting.commits(1, idempotent=False)
        (found,) = waiting.measured
        found.what += f", {next(iter(changes))}, appendfsync {fsync}"
        bench.measured.append(found)
        await client.aclose()
    await bench.client.config_set("appendfsync", "everysec")


async def run(server: subprocess.Popen[bytes], port: int) -> None:
    settings = config.Redis(url=f"redis://127.0.0.1:{port}/0", shards=1)
    client = one_server(settings)
    await wait_for(server, client)
    coordinator = RedisCoordinator(
        client, settings, producer_id_expiration_ms=86_400_000, producer_batches_remembered=5
    )
    bench = Bench(client, coordinator)
    # In the empty store: the index's table gets smaller long after its rows are packed.
    await bench.fill(8_050_000, MANY_PACKED, pack=True)
    memory = {"packed_row": round(await bench.index_bytes() / MANY_PACKED, 1)}
    for runs in COMMIT_RUNS:
        for idempotent in (False, True):
            await bench.commits(runs, idempotent)
    for number, rows in enumerate(ROWS):
        partition = 8_000_000 + number
        before = await bench.index_bytes()
        await bench.fill(partition, rows)
        await bench.measure_in_turns(bench.lookups(partition, rows, "fresh"), ROUNDS)
        memory["fresh_row"] = round((await bench.index_bytes() - before) / rows, 1)
        pack_us = await bench.pack(partition, rows)
        await bench.measure_in_turns(bench.lookups(partition, rows, "packed"), ROUNDS)
    # Few rows are the newest ones, thus fresh; of many, all but the newest are packed.
    await bench.fill(8_000_010, ROWS[0])
    few = bench.lookups(8_000_010, ROWS[0], IN_TURNS)
    many = bench.lookups(8_000_001, ROWS[1], IN_TURNS)
    await bench.measure_in_turns(few | many, ROUNDS)
    for number, kind in enumerate(("fresh", "packed")):
        await bench.swaps(8_100_000 + number * SWAPS, kind)
    memory |= await bench.memory_of_commits(9_000_000)
    with own_server("--appendonly", "yes", "--replicaof", f"127.0.0.1 {port}"):
        await waits(bench, settings)
    for runs in COMMIT_RUNS:
        for idempotent in (False, True):
            bench.measured.append(await in_a_row(client, settings, runs, idempotent))
    about = await client.info("server")
    await client.aclose()

    table = Table("operation", "server µs, fastest", "median", "round trip µs, median")
    for one in bench.measured:
        table.add_row(one.what, *(f"{value:.0f}" for value in list(asdict(one).values())[1:]))
    console = Console()
    console.print(table)
    goals = judge(bench.measured, memory)
    console.print("bytes:", memory, "packing a row, server µs:", pack_us, "goals:", goals)
    RESULTS.parent.mkdir(exist_ok=True)
    results = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "server": about.get("valkey_version") or about.get("redis_version"),
        "bytes": memory,
        "pack_us_per_row": pack_us,
        "goals": goals,
        "measured": [asdict(one) for one in bench.measured],
    }
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")


def _name_of_commits(runs: int, idempotent: bool) -> str:
    return f"commit, {runs} runs{', idempotent' if idempotent else ''}"


def judge(measured: list[Measured], memory: dict[str, float]) -> dict[str, dict[str, float | bool]]:
    """Return the required figures of the index, and whether they are met; times are the fastest."""
    fastest = {one.what: one.server_us_fastest for one in measured}
    few, many = ROWS
    figures: dict[str, tuple[float, float]] = {
        "commit_200_runs_us": (fastest["commit, 200 runs, in a row"], MOST_COMMIT_US),
        "commit_200_idempotent_runs_us": (fastest["commit, 200 runs, idempotent, in a row"], MOST_IDEMPOTENT_COMMIT_US),
        "commit_1_run_us": (fastest["commit, 1 runs, in a row"], MOST_SHORT_COMMIT_US),
        "packed_row_bytes": (memory["packed_row"], MOST_PACKED_ROW_BYTES),
    }
    for what in ("find", "list_offsets by time"):
        ratio = fastest[f"{what}, {many} rows, {IN_TURNS}"] / fastest[f"{what}, {few} rows, {IN_TURNS}"]
        figures[f"{what} ratio"] = (round(ratio, 2), MOST_LOOKUP_RATIO)
    return {name: {"is": found, "at_most": most, "kept": found <= most} for name, (found, most) in figures.items()}


def main() -> None:
    # A rewrite of the append-only file would slow down whatever is measured meanwhile.
    with own_server("--appendonly", "yes", "--auto-aof-rewrite-percentage", "0") as (server, port):
        asyncio.run(run(server, port))


if __name__ == "__main__":
    main()
