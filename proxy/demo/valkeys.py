"""Stores of several servers: a cluster of three primaries, and a primary that Sentinels watch."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from threading import Event
from typing import Literal

import redis

from proxy.demo import servers
from proxy.demo.ports import HOST, Ports
from proxy.demo.process import Process
from proxy.demo.valkey import NAME, Valkey
from proxy.demo.waiting import wait_until

StoreKind = Literal["single", "cluster", "sentinel"]

PRIMARIES = 3
SLOTS = 16_384
SENTINELS = 3
SERVICE = "coordinator"
"""Name that the Sentinels have for the primary."""
NODE_TIMEOUT_MS = 3_000
DOWN_AFTER_MS = 3_000


class ValkeyCluster:
    """Three primaries without replicas: one that has ended must be started again, and then has its data."""

    title = "a cluster of three Redis-compatible servers"

    def __init__(self, directory: Path, ports: Ports) -> None:
        """Files are kept in `directory`/data/redis-1 and so on."""
        self._at = [(ports.store(number), ports.store(PRIMARIES + number)) for number in range(PRIMARIES)]
        self._servers = [
            Valkey(
                directory,
                port,
                name=f"{NAME}-{number}",
                options={
                    "cluster-enabled": "yes",
                    "cluster-port": str(bus),
                    "cluster-node-timeout": str(NODE_TIMEOUT_MS),
                    "cluster-require-full-coverage": "no",
                },
            )
            for number, (port, bus) in enumerate(self._at, start=1)
        ]

    @property
    def url(self) -> str:
        """Return the value of `redis.url`."""
        return f"redis+cluster://{self.address}"

    @property
    def address(self) -> str:
        """Return `host:port` of all servers, separated by commas."""
        return ",".join(server.address for server in self._servers)

    @property
    def processes(self) -> list[Process]:
        """Return the servers' processes."""
        return [server.process for server in self._servers]

    def prepare(self) -> None:
        """Make the data directories; each server knows the others and its slots from its first start."""
        for number, server in enumerate(self._servers):
            server.prepare()
            if not (file := server.data / "nodes.conf").exists():
                file.write_text(nodes_file(self._at, number))

    def wait_ready(self, timeout_seconds: float, cancelled: Event) -> None:
        """Wait until all slots are served. Raises StackError when time is up."""
        for server in self._servers:
            server.wait_ready(timeout_seconds, cancelled)
        for server in self._servers:
            wait_until(partial(why_not_joined, server.url), timeout_seconds, cancelled, server.explain)


def nodes_file(at: Sequence[tuple[int, int]], number: int) -> str:
    """Return the file in which a server of a cluster keeps what it knows of the others. `at`: their ports, and those of
    the cluster's bus.
    """
    share = -(-SLOTS // len(at))
    lines = []
    for place, (port, bus) in enumerate(at):
        # Without the second name, Valkey 9.1 ends at the first SPUBLISH.
        name, of_shard = (
            hashlib.sha1(f"{kind} {place}".encode(), usedforsecurity=False).hexdigest() for kind in ("node", "shard")
        )
        flags = "myself,master" if place == number else "master"
        first, last = place * share, min((place + 1) * share, SLOTS) - 1
        lines.append(
            f"{name} {HOST}:{port}@{bus},,shard-id={of_shard} {flags} - 0 0 {place + 1} connected {first}-{last}\n"
        )
    return "".join(lines) + f"vars currentEpoch {len(at)} lastVoteEpoch 0\n"


def why_not_joined(url: str) -> str:
    """Return why the server there serves no requests of a cluster; empty if it does."""
    try:
        with redis.Redis.from_url(url, socket_timeout=1.0) as client:
            found = client.execute_command("CLUSTER", "INFO")
    except redis.RedisError as error:
        return str(error)
    text = found.decode() if isinstance(found, bytes) else "\n".join(f"{name}:{found[name]}" for name in found)
    state = dict(line.strip().split(":", 1) for line in text.splitlines() if ":" in line)
    return "" if state.get("cluster_state") == "ok" else f"its cluster_state is {state.get('cluster_state')}"


class WatchedValkey:
    """A primary and its replica, and three Sentinels, which promote the replica if the primary is away."""

    title = "two Redis-compatible servers with three Sentinels"

    def __init__(self, directory: Path, ports: Ports) -> None:
        """Files are kept in `directory`/data/redis-1, redis-2, sentinel-1 and so on."""
        primary, replica = ports.store(0), ports.store(1)
        self._servers = [
            Valkey(directory, primary, name=f"{NAME}-1", keeps_settings=True),
            Valkey(
                directory,
                replica,
                name=f"{NAME}-2",
                options={"replicaof": f"{HOST} {primary}"},
                keeps_settings=True,
            ),
        ]
        self._sentinels = [_Sentinel(directory, number, ports.store(1 + number), primary) for number in (1, 2, 3)]

    @property
    def url(self) -> str:
        """Return the value of `redis.url`."""
        return f"redis+sentinel://{','.join(one.address for one in self._sentinels)}/{SERVICE}/0"

    @property
    def address(self) -> str:
        """Return `host:port` of both servers, separated by a comma."""
        return ",".join(server.address for server in self._servers)

    @property
    def processes(self) -> list[Process]:
        """Return the processes of servers and Sentinels."""
        return [server.process for server in self._servers] + [one.process for one in self._sentinels]

    def prepare(self) -> None:
        """Make the data directories."""
        for server in self._servers:
            server.prepare()
        for sentinel in self._sentinels:
            sentinel.prepare()

    def wait_ready(self, timeout_seconds: float, cancelled: Event) -> None:
        """Wait until the Sentinels know the replica and each other. Raises StackError when time is up."""
        for server in self._servers:
            server.wait_ready(timeout_seconds, cancelled)
        for sentinel in self._sentinels:
            wait_until(sentinel.complaint, timeout_seconds, cancelled, self._servers[0].explain)


class _Sentinel:
    def __init__(self, directory: Path, number: int, port: int, primary: int) -> None:
        name = f"sentinel-{number}"
        self.address = f"{HOST}:{port}"
        self._port = port
        self._data = directory / "data" / name
        self._text = (
            f"port {port}\nbind {HOST}\ndir {self._data}\n"
            f"sentinel monitor {SERVICE} {HOST} {primary} 2\n"
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}\n"
            f"sentinel failover-timeout {SERVICE} 10000\n"
        )
        self._file = self._data / "sentinel.conf"
        command = [servers.valkey(), str(self._file), "--sentinel"]
        self.process = Process(name, command, directory / "logs" / f"{name}.log")

    def prepare(self) -> None:
        """Write the file, in which the Sentinel then keeps what it knows."""
        self._data.mkdir(parents=True, exist_ok=True)
        if not self._file.exists():
            self._file.write_text(self._text)

    def complaint(self) -> str:
        """Return what the Sentinel does not know yet; empty if it knows all."""
        try:
            with redis.Redis(host=HOST, port=self._port, socket_timeout=1.0) as client:
                state = client.sentinel_master(SERVICE)
        except redis.RedisError as error:
            return f"{self.process.name}: {error}"
        if state["num-slaves"] < 1 or state["num-other-sentinels"] < SENTINELS - 1:
            return f"{self.process.name} does not know the replica and the other Sentinels yet"
        return ""


Store = Valkey | ValkeyCluster | WatchedValkey


def store_of(kind: StoreKind, directory: Path, ports: Ports) -> Store:
    """Return the coordinator's store; nothing is started yet."""
    if kind == "cluster":
        return ValkeyCluster(directory, ports)
    if kind == "sentinel":
        return WatchedValkey(directory, ports)
    return Valkey(directory, ports.redis)


TITLES: dict[StoreKind, str] = {
    "single": Valkey.title,
    "cluster": ValkeyCluster.title,
    "sentinel": WatchedValkey.title,
}
