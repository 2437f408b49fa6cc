"""Let three proxies write to a primary with a replica, whose failovers lose writes; judge and accept each loss.

A proxy here is only the coordinator's client and the watch, because these and the store decide what a failover loses.
The proxies follow a name, as with a Service.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from redis.asyncio import Redis

from proxy.config import Settings, load_settings
from proxy.coordinator.connect import connect, renew
from proxy.coordinator.interface import (
    NO_PRODUCER_ID,
    CoordinatorUnavailable,
    FindRequest,
    PartitionRun,
    ProposedBatch,
    ShardFenced,
)
from proxy.coordinator.redis import RedisCoordinator
from proxy.coordinator.registry import RedisTopicRegistry
from proxy.coordinator.shards import partition_key, shard_of
from proxy.guard.unfence import accept_loss
from proxy.guard.verdict import examine, open_guarded
from proxy.guard.watch import StoreWatch
from proxy.storage import open_storage
from proxy.topics.topics import Topics
from tests.failovers_under_load.books import Books
from tests.integration.coordinator.conftest import Store
from tests.integration.coordinator.losses import coordinator_of, copy_files, put_files
from tests.support.server_name import Name

KINDS = ("kill_the_primary", "let_two_primaries_be", "restore_a_copy")
TOPIC = bytes(range(16))
SHARDS, PARTITIONS, PROXIES, GAP = 4, 12, 3, 1_000
CHECK_INTERVAL_MS, SETTLE_MS = 100, 800
SHARD_OF = {number: shard_of(partition_key(TOPIC, number), SHARDS) for number in range(PARTITIONS)}
UNAVAILABLE = (CoordinatorUnavailable, ShardFenced)


@dataclass(frozen=True)
class RunOptions:
    seconds: float
    seed: int
    directory: Path
    wait_replicas: int = 0
    """The setting of `redis`: replicas that must have a commit before it is acknowledged."""
    only: str = ""
    """Kind of every failover, by the name of its method; empty for any kind."""


@dataclass
class Report:
    seed: int
    seconds: float = 0.0
    failovers: Counter[str] = field(default_factory=Counter)
    """Counts by kind."""
    fenced: Counter[str] = field(default_factory=Counter)
    """Failovers after which a shard was fenced, by kind."""
    lossy: Counter[str] = field(default_factory=Counter)
    """Failovers that lost acknowledged offsets, by kind."""
    books: Books = field(default_factory=lambda: Books(SHARD_OF))


@dataclass
class Proxy:
    client: Redis
    coordinator: RedisCoordinator
    watch: StoreWatch


class Run:
    def __init__(self, options: RunOptions) -> None:
        self.random = random.Random(options.seed)
        self.only = options.only
        self.report = Report(options.seed)
        self.books = self.report.books
        self.directory = options.directory
        self.primary, self.replica = self._store(), self._store()
        self.stores = [self.primary, self.replica]
        self.proxies: list[Proxy] = []
        self.writing = asyncio.Event()
        self.idle = [asyncio.Event() for _ in range(PROXIES)]
        self.two_primaries = False
        self.judged_until = dict.fromkeys(SHARD_OF, 0)

    def _store(self) -> Store:
        directory = self.directory / os.urandom(4).hex()
        directory.mkdir()
        return Store(directory, "--appendfsync", "everysec", "--repl-diskless-sync-delay", "0")

    async def write(self, number: int) -> None:
        """Commit batches as fast as the store answers, until cancelled."""
        rng = random.Random(self.random.random())
        while True:
            self.idle[number].set()
            await self.writing.wait()
            self.idle[number].clear()
            segment, partition, records = os.urandom(16), rng.randrange(PARTITIONS), rng.randint(1, 20)
            self.books.tried(segment, partition, records)
            batch = ProposedBatch(100, records, 1_000, NO_PRODUCER_ID, -1, -1)
            with suppress(*UNAVAILABLE):
                run = PartitionRun(TOPIC, partition, 1, (batch,))
                (answer,) = await self.proxies[number].coordinator.commit(segment, [run])
                if answer.batches:
                    self.books.answered(segment, answer.batches[0].base_offset, two_primaries=self.two_primaries)
            await asyncio.sleep(rng.uniform(0.001, 0.01))

    async def replicaof(self, store: Store, *of: object) -> None:
        client = Redis(port=store.port)
        await client.execute_command("REPLICAOF", *of)
        await client.aclose()

    async def caught_up(self) -> None:
        client = Redis(port=self.primary.port)
        await client.incr("failovers")  # a server waits for the writes of a connection, and for nothing without any
        while await client.execute_command("WAIT", 1, 1_000) < 1:
            pass
        await client.aclose()

    async def load_for(self, least: float, most: float) -> None:
        await asyncio.sleep(self.random.uniform(least, most))

    # Failovers

    async def kill_the_primary(self, name: Name) -> None:
        """Kill the primary; the replica lacks the writes since it was stopped."""
        if self.random.random() < 0.7:
            self.replica.pause()
            await self.load_for(0.01, 0.3)
        self.primary.kill()
        self.replica.resume()
        await self.promote(name)
        self.stores.remove(self.primary)
        self.primary, self.replica = self.replica, self._store()
        self.stores.append(self.replica)
        self.replica.start()

    async def let_two_primaries_be(self, name: Name) -> None:
        """Let some proxies stay with the old primary, until it becomes a replica of the new one."""
        self.two_primaries = True
        await self.promote(name)
        for one in self.random.sample(self.proxies, self.random.randint(1, PROXIES - 1)):
            await renew(one.client)
        await self.load_for(0.1, 2.5)
        self.primary, self.replica = self.replica, self.primary

    async def restore_a_copy(self, name: Name) -> None:
        copy = self.directory / "copy"
        copy_files(self.primary.directory, copy)
        await self.load_for(0.05, 1.0)
        self.primary.kill()
        put_files(copy, self.primary.directory)
        self.primary.start()

    async def promote(self, name: Name) -> None:
        await self.replicaof(self.replica, "NO", "ONE")
        name.leads_to = self.replica.port

    async def fail_over(self, name: Name) -> str:
        """Do one failover of a random kind, and return the kind; on return, every proxy has checked the store, and
        nobody writes.
        """
        kinds: list[Callable] = [self.kill_the_primary, self.let_two_primaries_be, self.restore_a_copy]
        kind = self.random.choice([one for one in kinds if self.only in ("", one.__name__)])
        self.report.failovers[kind.__name__] += 1
        await kind(name)
        await self.load_for(0.0, 0.3)
        self.writing.clear()
        for idle in self.idle:
            await idle.wait()
        await self.replicaof(self.replica, "127.0.0.1", self.primary.port)
        for _ in range(3):
            await asyncio.gather(*map(self._looks, self.proxies))
        self.two_primaries = False
        return kind.__name__

    async def _looks(self, one: Proxy) -> None:
        looked = False
        while not looked or one.watch.unfit:
            looked = False
            with suppress(CoordinatorUnavailable):
                await one.watch.look()
                looked = True
            await asyncio.sleep(CHECK_INTERVAL_MS / 1000)
        await asyncio.sleep(SETTLE_MS / 1000)

    async def judge(self, settings: Settings, kind: str) -> None:
        """Compare the reported loss with the index, and accept it."""
        async with open_guarded(settings) as guarded:
            verdict = await examine(guarded)
            fenced = {one.shard for one in verdict.shards if one.fenced}
            reported = {one.shard: one.offsets_lost for one in verdict.shards}
            if fenced:
                self.report.fenced[kind] += 1
                done = await accept_loss(guarded, None, GAP)
                for shard, one in done.shards.items():
                    if one.raised_by < reported[shard] + GAP:
                        self.books.problems.append(f"shard {shard} was raised by {one.raised_by} offsets only")
                self.books.unfences += 1
        for one in self.proxies:
            await one.coordinator.shards.touch(range(SHARDS))
            if one.coordinator.fence.fenced:
                self.books.problems.append(f"fenced again: {one.coordinator.fence.fenced}")
        lost_before = self.books.lost
        self.books.judge(await self.rows(), reported, fenced)
        self.report.lossy[kind] += self.books.lost > lost_before

    async def rows(self) -> dict[int, dict[bytes, int]]:
        """Return the base offset of each segment since the last time, by partition."""
        found: dict[int, dict[bytes, int]] = {}
        for partition in SHARD_OF:
            rows: dict[bytes, int] = {}
            while True:
                request = FindRequest(TOPIC, partition, self.judged_until[partition], 1 << 40)
                (answer,) = await self.proxies[0].coordinator.find([request])
                rows |= {row.segment: row.base_offset for row in answer.rows}
                if not answer.rows:
                    break
                self.judged_until[partition] = answer.rows[-1].last_offset + 1
            self.judged_until[partition] = answer.high_watermark
            found[partition] = rows
        return found


@asynccontextmanager
async def _proxies(run: Run, settings: Settings) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        storage = open_storage(settings.storage, "")
        await storage.open()
        stack.push_async_callback(storage.close)
        for number in range(PROXIES):
            client = await connect(settings.redis)
            stack.push_async_callback(client.aclose)
            coordinator = coordinator_of(client, settings.redis)
            topics = Topics(RedisTopicRegistry(client, settings.redis), lease_runs=lambda: True)
            watch = StoreWatch(settings.redis, client, coordinator, storage, topics, lambda first=number == 0: first)
            await watch.open()
            run.proxies.append(Proxy(client, coordinator, watch))
        yield


async def failovers_under_load(options: RunOptions, progress: Callable[[str], None] = lambda _: None) -> Report:
    """Let stores fail over until the time is over. The report's books contain the problems."""
    run, began = Run(options), time.monotonic()
    shutil.rmtree(options.directory / "wal", ignore_errors=True)
    for store in run.stores:
        store.start()
    try:
        async with Name(run.primary.port) as name:
            path = options.directory / "proxy.yaml"
            path.write_text(yaml.safe_dump(_settings(name.url, options)))
            settings = load_settings(path)
            async with _proxies(run, settings):
                await run.proxies[0].coordinator.create_logs(TOPIC, list(SHARD_OF))
                await run.replicaof(run.replica, "127.0.0.1", run.primary.port)
                tasks = [asyncio.create_task(run.write(number)) for number in range(PROXIES)]
                tasks += [asyncio.create_task(one.watch.keep_watching()) for one in run.proxies]
                try:
                    while time.monotonic() - began < options.seconds or not run.report.failovers:
                        await run.caught_up()
                        run.writing.set()
                        await run.load_for(0.2, 1.0)
                        await run.judge(settings, await run.fail_over(name))
                        progress(f"{time.monotonic() - began:.0f} s, {run.report.failovers.total()} failovers")
                        if any(task.done() for task in tasks):
                            break
                finally:
                    for task in tasks:
                        task.cancel()
                    ended = await asyncio.gather(*tasks, return_exceptions=True)
                run.books.problems += [repr(one) for one in ended if not isinstance(one, asyncio.CancelledError)]
    finally:
        for store in run.stores:
            store.stop()
    run.report.seconds = time.monotonic() - began
    return run.report


def _settings(url: str, options: RunOptions) -> dict[str, object]:
    return {
        "rack": "rack-a",
        "brokers": {"bootstrap": ["127.0.0.1:1"]},
        "storage": {"url": (options.directory / "wal").as_uri()},
        "journal": {"mode": "off"},
        "redis": {
            "url": url,
            "shards": SHARDS,
            "timeout_ms": 2_000,
            "settle_ms": SETTLE_MS,
            "check_interval_ms": CHECK_INTERVAL_MS,
            "remember_interval_ms": 500,
            "wait_replicas": options.wait_replicas,
        },
    }
