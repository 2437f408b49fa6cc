"""Stores that lose data that they had acknowledged, as restarts and failovers do."""

from __future__ import annotations

import shutil
from pathlib import Path

import redis as blocking_redis

from proxy import config
from proxy.coordinator.cluster import Store
from proxy.coordinator.redis import RedisCoordinator

LOSABLE = ("--enable-debug-command", "yes")
"""Options of a server that `Losses` can copy and restore."""


class Losses:
    """Copies and restores all data of a running server; each restore is the life of another server."""

    def __init__(self, port: int) -> None:
        self._client = blocking_redis.Redis(port=port)
        self._copies: list[dict[bytes, bytes]] = []

    def __len__(self) -> int:
        return len(self._copies)

    def close(self) -> None:
        self._client.close()

    def copy(self) -> int:
        """Copy the data and return the copy's number."""
        self._copies.append({key: self._client.dump(key) for key in self._client.keys("*")})  # type: ignore[misc,union-attr]
        return len(self._copies) - 1

    def restore(self, number: int, *, same_life: bool = False) -> None:
        self._client.flushall()
        for key, value in self._copies[number].items():
            self._client.restore(key, 0, value)
        if not same_life:
            self._client.execute_command("DEBUG", "CHANGE-REPL-ID")

    def empty(self) -> None:
        self._client.flushall()


def copy_files(directory: Path, to: Path) -> None:
    """Copy the append-only files of a server that does not run, or that gets no request meanwhile."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(directory, to, ignore=shutil.ignore_patterns("log"))


def put_files(copied: Path, directory: Path) -> None:
    """Put the files back into the directory of a server that does not run."""
    shutil.rmtree(directory / "appendonlydir")
    shutil.copytree(copied / "appendonlydir", directory / "appendonlydir")


def coordinator_of(client: Store, settings: config.Redis) -> RedisCoordinator:
    return RedisCoordinator(client, settings, producer_id_expiration_ms=86_400_000, producer_batches_remembered=5)
