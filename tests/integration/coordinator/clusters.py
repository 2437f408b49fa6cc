"""A real cluster on the loopback: three primaries, with or without replicas, and moves of its slots."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Self

import redis as blocking_redis
from redis.crc import key_slot

from proxy.coordinator.shards import shard_prefix
from tests.integration.coordinator.stores import Store
from tests.support.ports import free_port

SLOTS = 16_384
PRIMARIES = 3
SLOTS_PER_PRIMARY = SLOTS // PRIMARIES + 1
NODE_TIMEOUT_MS = 2_000
_DEADLINE_S = 60.0


def slot_of(shard: int) -> int:
    """Return the slot of a shard's keys."""
    return int(key_slot(shard_prefix(shard).encode()))


class StoreCluster:
    """The servers; the first ones are primaries at first, the others are their replicas in the same order."""

    def __init__(self, directory: Path, *, replicas: bool = False, options: Sequence[str] = ()) -> None:
        self.servers: list[Store] = []
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._further_options = options
        for _ in range(PRIMARIES * (1 + replicas)):
            self.servers.append(self._make())

    def _make(self) -> Store:
        of_server = Path(mkdtemp(dir=self._directory))
        cluster = ["--cluster-enabled", "yes", "--cluster-port", str(free_port())]
        cluster += ["--cluster-node-timeout", str(NODE_TIMEOUT_MS), "--cluster-require-full-coverage", "no"]
        cluster += ["--cluster-replica-validity-factor", "0", "--enable-debug-command", "yes"]
        return Store(of_server, *cluster, *self._further_options)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{server.port}" for server in self.servers)

    def start(self) -> None:
        """Start the servers, and wait until each of them knows all."""
        for number, server in enumerate(self.servers):
            server.start()
            self.call(server, "CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for number, server in enumerate(self.servers[:PRIMARIES]):
            first = number * SLOTS_PER_PRIMARY
            self.call(server, "CLUSTER", "ADDSLOTSRANGE", first, min(first + SLOTS_PER_PRIMARY, SLOTS) - 1)
        for server in self.servers[1:]:
            self._introduce(server)
        self.wait(lambda: all(self._knows_all(server) for server in self.servers), "the servers do not meet")
        for number, server in enumerate(self.servers[PRIMARIES:]):
            self.call(server, "CLUSTER", "REPLICATE", self.name_of(self.servers[number]))
        self.wait(lambda: all(map(self._is_linked, self.servers[PRIMARIES:])), "the replicas are not linked")

    def stop(self) -> None:
        for server in self.servers:
            server.stop()

    def _introduce(self, server: Store) -> None:
        for other in self.servers:
            if other is not server:
                self.call(server, "CLUSTER", "MEET", "127.0.0.1", other.port, other.bus_port)

    def add(self) -> Store:
        """Add a primary without slots, and return it."""
        server = self._make()
        server.start()
        self.servers.append(server)
        self._introduce(server)
        self.wait(lambda: all(self._knows_all(one) for one in self.servers), "the servers do not meet the new one")
        return server

    def remove(self, server: Store) -> None:
        """Remove a server that has no slots, and end it."""
        name = self.name_of(server)
        self.servers.remove(server)
        for other in self.servers:
            self.call(other, "CLUSTER", "FORGET", name)
        server.stop()

    def hand_over(self, replica: Store) -> None:
        """Make a replica the primary of its slots, as before a planned restart of the primary."""
        self.call(replica, "CLUSTER", "FAILOVER")
        self.wait(lambda: self.role(replica) == "master", "the replica does not take over")

    def restart(self, server: Store) -> None:
        """Stop a server, start it again, and wait until it knows all others and its primary."""
        server.stop()
        server.start()
        self.wait(lambda: all(self._knows_all(one) for one in self.servers), "the servers do not meet again")
        self.wait(lambda: self.role(server) == "master" or self._is_linked(server), "it is not linked again")

    def role(self, server: Store) -> str:
        """Return `master` or `slave`."""
        return str(self.call(server, "INFO", "replication")["role"])

    def empty(self) -> None:
        """Remove all data and scripts, and move the shards' slots to their first servers."""
        for server in self.servers[:PRIMARIES]:
            self.call(server, "FLUSHALL")
            self.call(server, "SCRIPT", "FLUSH")
        for slot in map(slot_of, range(PRIMARIES)):
            home = self.servers[slot // SLOTS_PER_PRIMARY]
            if self.owner(slot) is not home:
                with self.moving(slot, home):
                    pass

    def call(self, server: Store, *command: Any) -> Any:
        with blocking_redis.Redis(port=server.port) as client:
            return client.execute_command(*command)

    def name_of(self, server: Store) -> str:
        return str(self.call(server, "CLUSTER", "MYID").decode())

    def owner(self, slot: int) -> Store:
        """Return the primary of a slot, by the first server that runs."""
        (asked, *_) = [server for server in self.servers if server._process is not None]
        for first, last, primary, *_ in self.call(asked, "CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return next(server for server in self.servers if server.port == primary[1])
        raise AssertionError(f"nobody has slot {slot}")

    def running_primaries(self) -> list[Store]:
        """Return the servers that have slots, by the first server that runs."""
        (asked, *_) = [server for server in self.servers if server._process is not None]
        ports = {primary[1] for _, _, primary, *_ in self.call(asked, "CLUSTER", "SLOTS")}
        return [server for server in self.servers if server.port in ports and server._process is not None]

    def other(self, server: Store) -> Store:
        """Return another primary."""
        return next(one for one in self.servers[:PRIMARIES] if one is not server)

    @contextmanager
    def moving(self, slot: int, target: Store, at_once: int = 1) -> Iterator[Iterator[bytes]]:
        """Move a slot key by key; each step of the iterator moves `at_once` keys. The move ends with the context."""
        source = self.owner(slot)
        self.call(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", self.name_of(source))
        self.call(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", self.name_of(target))
        steps = self._steps(slot, source, target, at_once)
        try:
            yield steps
        finally:
            for _ in steps:
                pass
            for server in (target, source, *self.running_primaries()):
                # A primary without slots becomes a replica by itself.
                with suppress(blocking_redis.ResponseError) if server is source else nullcontext():
                    self.call(server, "CLUSTER", "SETSLOT", slot, "NODE", self.name_of(target))

    def move(self, slot: int, target: Store | None = None) -> None:
        """Move a slot to a primary, or to any other one, all keys at once."""
        with self.moving(slot, target or self.other(self.owner(slot)), at_once=1_000):
            pass

    def _steps(self, slot: int, source: Store, target: Store, at_once: int) -> Iterator[bytes]:
        while keys := self.call(source, "CLUSTER", "GETKEYSINSLOT", slot, 100):
            # The state comes last: as long as it is there, a shard seems to be whole.
            some = sorted(keys, key=lambda key: (key.endswith(b"meta"), key))[:at_once]
            self.call(source, "MIGRATE", "127.0.0.1", target.port, "", 0, 5_000, "KEYS", *some)
            yield some[0]

    def replica_of(self, primary: Store) -> Store:
        """Return the server that was the replica of one of the first primaries when the cluster began."""
        return self.servers[self.servers.index(primary) + PRIMARIES]

    def written(self, server: Store) -> int:
        """Return how much a primary has written so far, or a replica has of it, in bytes of replication."""
        found = self.call(server, "INFO", "replication")
        return int(found["slave_repl_offset" if found["role"] == "slave" else "master_repl_offset"])

    def replicated(self, primary: Store) -> bool:
        """Return whether each replica of a primary has all of its writes."""
        found = self.call(primary, "INFO", "replication")
        replicas = [found[f"slave{number}"] for number in range(found["connected_slaves"])]
        return bool(replicas) and all(one["offset"] == found["master_repl_offset"] for one in replicas)

    def wait(self, condition: Callable[[], bool], complaint: str) -> None:
        until_s = time.monotonic() + _DEADLINE_S
        while not condition():
            assert time.monotonic() < until_s, complaint
            time.sleep(0.05)

    def _knows_all(self, server: Store) -> bool:
        info = self.call(server, "CLUSTER", "INFO")
        text = info if isinstance(info, dict) else dict(line.split(":") for line in info.decode().split())
        return text["cluster_state"] == "ok" and int(text["cluster_known_nodes"]) == len(self.servers)

    def _is_linked(self, server: Store) -> bool:
        return bool(self.call(server, "INFO", "replication").get("master_link_status") == "up")
