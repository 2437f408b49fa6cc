"""The servers of the matrix: a stack in which every part can be cut off, filled up, and set to another time."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import NamedTuple

import redis
import toxiproxy
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient

from proxy.coordinator.shards import NEIGHBOURS
from proxy.demo.admin import get
from proxy.demo.stack import Stack
from tests.matrix.cells import Mode, Target
from tests.support.network import Link, network_on
from tests.support.stacks import short_lived
from tests.support.topics import CLASSIC, DISKLESS, create_topic
from tests.support.toxiproxy import closed_link, toxiproxy_server

JOURNAL = "__diskless_journal"
DISK_BYTES = 1 << 30
REDIS_DISK_BYTES = 256 << 20
MOUNTED = ("redis", "s3", "broker-1", "broker-2", "broker-3")
PROBED = {CLASSIC: (0,), DISKLESS: (0, NEIGHBOURS, 2 * NEIGHBOURS)}
"""Partitions that get records during a fault and after it: the diskless ones are in three shards, whose records in the
journal most likely have different leaders."""
PROBE_S = 0.25
ANSWER_S = 120.0
"""Time in which a record must be acknowledged after a fault."""
_OFFSET = struct.Struct("=q")
RACKS = ("rack-a", "rack-b", "rack-c")


class Part(NamedTuple):
    """Processes, links and disks that a fault happens to."""

    processes: tuple[str, ...]
    links: tuple[Link, ...]
    disks: tuple[Path, ...]


class World:
    """The running stack."""

    def __init__(
        self,
        stack: Stack,
        redis_links: dict[str, Link],
        s3_links: dict[str, Link],
        brokers: dict[int, Link],
        clocks: Path,
    ) -> None:
        self.stack = stack
        self.bootstrap = ",".join(stack.bootstrap(rack) for rack in stack.proxies)
        self._redis, self._s3, self._brokers = redis_links, s3_links, brokers
        self._clocks = clocks
        self.probes = {CLASSIC: "matrix-probe", DISKLESS: "diskless.matrix-probe"}
        for kind, topic in self.probes.items():
            create_topic(stack, topic, kind, PROBED[kind][-1] + 1)

    def part(self, target: Target, chance: Random) -> Part:
        """Return the part that a fault is to happen to now."""
        data = self.stack.directory / "data"
        if target in (Target.REDIS, Target.REDIS_DROPPED, Target.REDIS_WIPED):
            return Part(("redis",), tuple(self._redis.values()), (data / "redis",))
        if target is Target.S3:
            return Part(("s3",), tuple(self._s3.values()), (data / "s3",))
        if target in (Target.BROKER, Target.JOURNAL_LEADER):
            node = chance.choice(sorted(self._brokers))
            if target is Target.JOURNAL_LEADER:
                node = self._journal_leader(chance)
            return Part((f"broker-{node}",), (self._brokers[node],), (data / f"broker-{node}",))
        name = chance.choice(sorted(self.stack.proxies))
        if target is Target.SNAPSHOT_WRITER:
            name = self._snapshot_writer() or name
        part = Part((f"proxy-{name}",), (self._redis[name], self._s3[name]), ())
        if target is Target.RACK:
            node = sorted(self.stack.proxies).index(name) + 1
            part = Part(
                (*part.processes, f"broker-{node}"), (*part.links, self._brokers[node]), (data / f"broker-{node}",)
            )
        return part

    def _journal_leader(self, chance: Random) -> int:
        admin = AdminClient({"bootstrap.servers": self.stack.direct_bootstrap})
        partitions = admin.list_topics(JOURNAL, timeout=10).topics[JOURNAL].partitions
        leader = partitions[chance.choice(sorted(partitions))].leader
        return leader if leader in self._brokers else chance.choice(sorted(self._brokers))

    def _snapshot_writer(self) -> str | None:
        for name in self.stack.proxies:
            _, metrics = get(self.stack.admin_url(name), "/metrics", 10)
            found = re.search(r"^diskless_proxy_snapshot_bytes(?:\{.*\})? (\S+)$", metrics, re.MULTILINE)
            if found and float(found[1]) > 0:
                return name
        return None

    def set_clocks(self, part: Part, seconds: float) -> None:
        """Set how far the wall clocks of a part's processes are ahead."""
        for name in part.processes:
            # In place: a process that reads a file which was truncated for a moment gets SIGBUS.
            with suppress(FileNotFoundError), (self._clocks / str(self.stack.pid(name))).open("r+b") as file:
                file.write(_OFFSET.pack(int(seconds * 1e9)))

    def flush_redis(self) -> None:
        """Remove everything from Redis."""
        with redis.Redis.from_url(self.stack.redis.url, socket_timeout=10) as client:
            client.flushall()

    def drop_last_commits(self, chance: Random) -> None:
        """Kill Redis, and start it without its last writes."""
        self.stack.kill_redis()
        for path in (self.stack.directory / "data" / "redis" / "appendonlydir").glob("*.incr.aof"):
            os.truncate(path, max(0, path.stat().st_size - chance.randint(1_000, 50_000)))
        self.stack.start_redis()

    def empty_redis(self) -> None:
        """Kill Redis, and start it without its directory's contents."""
        self.stack.kill_redis()
        for path in (self.stack.directory / "data" / "redis").iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        self.stack.start_redis()

    @contextmanager
    def probing(self) -> Iterator[None]:
        """Send records to the probed partitions for as long; whether they are acknowledged does not matter."""
        over = Event()

        def send() -> None:
            producer = Producer({"bootstrap.servers": self.bootstrap})
            while not over.wait(PROBE_S):
                for kind, partitions in PROBED.items():
                    for partition in partitions:
                        producer.produce(self.probes[kind], b"during", partition=partition)
                producer.poll(0)
            producer.purge()
            producer.flush(5)

        sending = Thread(target=send)
        sending.start()
        try:
            yield
        finally:
            over.set()
            sending.join()

    def wait_answers(self) -> dict[str, float]:
        """Wait until each probed partition has a record acknowledged; return the seconds that took, by kind."""
        began = time.monotonic()
        waited: dict[str, float] = {}
        for kind, topic in self.probes.items():
            errors: list[KafkaError | None] = []
            producer = Producer({"bootstrap.servers": self.bootstrap, "message.timeout.ms": int(ANSWER_S * 1000)})
            for partition in PROBED[kind]:
                producer.produce(
                    topic,
                    b"probe",
                    partition=partition,
                    on_delivery=lambda error, message, to=errors: to.append(error),
                )
            producer.flush(ANSWER_S + 5)
            # KafkaError can't be compared with None.
            if len(errors) < len(PROBED[kind]) or any(error is not None for error in errors):
                raise AssertionError(
                    f"a partition of a {kind} topic acknowledges no record after {ANSWER_S:.0f} s: {errors}"
                )
            waited[kind] = time.monotonic() - began
        return waited


def can_mount(directory: Path) -> bool:
    """Return whether this user may mount file systems."""
    directory.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "none", directory], capture_output=True, check=False)
    if done.returncode == 0:
        subprocess.run(["umount", directory], check=True)
    directory.rmdir()
    return done.returncode == 0


@contextmanager
def disks(data: Path) -> Iterator[None]:
    """Give servers file systems of their own, of a limited size."""
    mounted = []
    try:
        for name in MOUNTED:
            path = data / name
            path.mkdir(parents=True)
            size = REDIS_DISK_BYTES if name == "redis" else DISK_BYTES
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", path], check=True)
            mounted.append(path)
        yield
    finally:
        for path in mounted:
            subprocess.run(["umount", "-l", path], check=False)


@contextmanager
def clocks(directory: Path) -> Iterator[Path]:
    """Let servers that are started meanwhile have clocks that can be set."""
    library, offsets = directory / "clock.so", directory / "clocks"
    offsets.mkdir()
    source = Path(__file__).with_name("clock.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", library, source, "-ldl"], check=True)
    before = {name: os.environ.get(name) for name in ("LD_PRELOAD", "CLOCK_OFFSETS")}
    os.environ |= {"LD_PRELOAD": str(library), "CLOCK_OFFSETS": str(offsets)}
    try:
        yield offsets
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


@contextmanager
def broker_links(stack: Stack, server: toxiproxy.Toxiproxy) -> Iterator[dict[int, Link]]:
    """Put a link before each broker: proxies and other brokers connect to its address, as the broker names it."""
    links: dict[int, Link] = {}
    for node in stack.kafka.brokers:
        link = links[node] = closed_link(server, f"broker-{node}", stack.kafka.address(node))
        link.enable()
        properties = stack.directory / "config" / f"broker-{node}.properties"
        kept = [line for line in properties.read_text().splitlines() if not line.startswith("advertised.listeners=")]
        properties.write_text("\n".join([*kept, f"advertised.listeners=PLAINTEXT://{link.listen}", ""]))
        stack.stop_broker(node)
        stack.start_broker(node)
    yield links


@contextmanager
def world_of(mode: Mode, directory: Path, *, mounts: bool) -> Iterator[World]:
    """Start everything, and end it."""
    overrides = {"journal": {"snapshot_interval_ms": 2_000}} if mode is Mode.REQUIRED else {}
    options = short_lived(
        racks=RACKS, storage="s3", journal=mode is Mode.REQUIRED, overrides=overrides, directory=directory / "stack"
    )
    with ExitStack() as entered:
        if mounts:
            entered.enter_context(disks(directory / "stack" / "data"))
        offsets = entered.enter_context(clocks(directory))
        print("starting servers", file=sys.stderr, flush=True)
        stack = entered.enter_context(Stack(options))
        server = entered.enter_context(toxiproxy_server(directory))
        brokers = entered.enter_context(broker_links(stack, server))
        network = entered.enter_context(network_on(server, stack))
        yield World(stack, network.redis, network.s3, brokers, offsets)
