"""Compare classic requests through this proxy with other proxies, in the same rounds: `python -m benchmarks.peers`.

One broker, one load program in C (`load.c`), and one proxy at a time between them: none, a relay in C (the floor of any
proxy), a relay in Python (the floor of Python), Kroxylicious 0.12 without a filter, and this one, first without a
diskless topic, then next to one. Every round runs all of them, in an order that rotates. CPU is that of the proxy's
process. At the end the broker must have exactly the records that were acknowledged.

Everything runs in a network namespace of its own, because Kroxylicious listens on all interfaces. Writes
`benchmarks/results/peers.json` and `peers.md`, and the picture in `docs/comparison.md`.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import platform
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.measure import spread
from benchmarks.peers import servers
from benchmarks.peers.plot import charts, svg
from benchmarks.peers.table import TITLES, markdown
from benchmarks.raw_client import RawClient, one_record
from proxy.demo.stack import Stack, StackOptions
from proxy.protocol.api_keys import FETCH, PRODUCE
from proxy.wire.fetch import FetchRequest, PartitionFetch, TopicFetch, build_fetch_request
from proxy.wire.header import request_header
from proxy.wire.produce import PartitionProduce, ProduceRequest, TopicProduce, build_produce_request

RESULTS = Path(__file__).parents[1] / "results"
INSIDE = "--inside"
"""Argument of the process that runs in the namespace."""
PICTURE = Path(__file__).parents[2] / "docs" / "images" / "peers.svg"
RACK = "rack-a"
SMALL, BULK, READ, OTHER = "small", "bulk", "read", "diskless.other"
PARTITIONS = 16
SMALL_BYTES, BULK_BYTES = 100, 900_000
READ_BATCHES = 8
"""Batches of a partition that bulk reads fetch again and again, out of the broker's page cache."""
LONE_RATE = 200
WARM_UP_SECONDS = 4.0
"""Time of each run before the first round."""
OURS, NEXT_TO_DISKLESS = "ours", "ours, next to a diskless topic"
NODE_ID = 1
PORTS_EACH = 10
"""Ports of each of the others, from the last one of the stack on."""
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1


class Target(NamedTuple):
    """A proxy, or the broker itself."""

    name: str
    port: int
    pid: int | None
    """Process whose CPU counts; none for the broker."""


class Case(NamedTuple):
    """One kind of load."""

    name: str
    requests: str
    """File of requests."""
    connections: int
    rate: int = 0
    """Requests a second on one connection; 0 for as many as possible on each."""


CASES = (
    Case("1 connection", "small-v7", 1),
    Case("16 connections", "small-v7", 16),
    Case("64 connections", "small-v7", 64),
    Case("64 connections, Produce v12", "small-v12", 64),
    Case("lone, 200/s", "small-v7", 1, LONE_RATE),
    Case("bulk produce", "bulk", 4),
    Case("bulk fetch", "read", 4),
)


def main() -> None:
    """Parse the arguments, and run in a network namespace."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.5, help="per run")
    parser.add_argument("--cases", default="", help="a word of the names of the cases to run; all if empty")
    parser.add_argument(INSIDE, action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not arguments.inside:
        servers.KROXYLICIOUS.fetch(print)
        unshare = shutil.which("unshare") or sys.exit("unshare is missing (Debian: apt-get install util-linux)")
        again = [sys.executable, "-m", "benchmarks.peers", *sys.argv[1:], INSIDE]
        os.execv(unshare, [unshare, "--map-root-user", "--net", *again])
    loopback_up()
    run(arguments)


def loopback_up() -> None:
    """Switch the loopback interface of the namespace on."""
    with socket.socket() as any_socket:
        asked = struct.pack("16sh14x", b"lo", 0)
        name, flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, SIOCGIFFLAGS, asked))
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", name, flags | IFF_UP))


def run(arguments: argparse.Namespace) -> None:
    """Start everything, run all rounds, check what the broker has, and write the results."""
    began = time.perf_counter()
    cases = [case for case in CASES if arguments.cases in case.name]
    with ExitStack() as exit_stack:
        stack = exit_stack.enter_context(Stack(StackOptions(racks=(RACK,)), progress=say))
        create(AdminClient({"bootstrap.servers": stack.direct_bootstrap}), SMALL, BULK, READ)
        targets = start_all(stack, exit_stack)
        acknowledged = write_requests(stack.directory, stack.direct_bootstrap)
        program = servers.compile_c("load", stack.directory)
        load = Load(program, stack.directory, arguments.seconds, acknowledged)
        for case in cases:
            # A JVM compiles what runs often, and does so next to the load.
            replace(load, seconds=WARM_UP_SECONDS, figures=defaultdict(list)).run_round(0, [case], targets)
        for number in range(arguments.rounds):
            load.run_round(number, cases, targets)
        create(AdminClient({"bootstrap.servers": stack.bootstrap(RACK)}), OTHER)
        for number in range(arguments.rounds):
            load.run_round(number, cases, [targets[-1]._replace(name=NEXT_TO_DISKLESS)])
        check(stack.direct_bootstrap, acknowledged)
    result = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"cpus": len(os.sched_getaffinity(0)), "python": platform.python_version()},
        "arguments": {"rounds": arguments.rounds, "seconds": arguments.seconds},
        "wall_seconds": round(time.perf_counter() - began, 1),
        "figures": {name: spread(values) for name, values in sorted(load.figures.items())},
    }
    table = markdown(result, [case.name for case in cases])
    if cases == list(CASES):
        (RESULTS / "peers.json").write_text(json.dumps(result, indent=1) + "\n")
        (RESULTS / "peers.md").write_text(table)
        PICTURE.write_text(svg(charts(result, TITLES), "Bars: direct, other proxies and this one; see the table."))
    print(table)


def start_all(stack: Stack, exit_stack: ExitStack) -> list[Target]:
    """Start the others next to the stack's own proxy, which is the last of the list. They end with the exit stack."""
    broker = port_of(stack.direct_bootstrap)
    targets = [Target("direct", broker, None)]
    for place, make in enumerate((servers.relay, servers.lean, servers.kroxylicious), 1):
        port = stack.ports.end + PORTS_EACH * place
        process = make(stack.directory, port, broker)
        exit_stack.callback(process.kill)
        brokers = servers.start(process, port)
        # A relay passes on what the broker says of itself.
        targets.append(Target(process.name, port if broker in brokers.values() else brokers[NODE_ID], process.pid))
    own = servers.brokers(port_of(stack.bootstrap(RACK)))
    return [*targets, Target(OURS, own[NODE_ID], stack.pid(f"proxy-{RACK}"))]


def port_of(address: str) -> int:
    """Return the port of an address."""
    return int(address.rpartition(":")[2])


def create(admin: AdminClient, *topics: str) -> None:
    """Create topics, and wait until they exist."""
    wanted = [NewTopic(topic, PARTITIONS, 1) for topic in topics]
    for future in admin.create_topics(wanted).values():
        future.result(60)


def write_requests(directory: Path, bootstrap: str) -> dict[str, int]:
    """Write the files of requests, and the records that are fetched; return the numbers of records by topic."""
    for version in (7, 12):
        frames = [produce(SMALL, partition, bytes(SMALL_BYTES), version) for partition in range(PARTITIONS)]
        (directory / f"small-v{version}").write_bytes(b"".join(frames))
    bulk = [produce(BULK, partition, os.urandom(BULK_BYTES), 7) for partition in range(PARTITIONS)]
    (directory / "bulk").write_bytes(b"".join(bulk))
    client = RawClient(bootstrap)
    for partition in range(PARTITIONS):
        for _ in range(READ_BATCHES):
            client.produce(READ, partition, one_record(os.urandom(BULK_BYTES)))
    client.close()
    size = READ_BATCHES * BULK_BYTES
    read = []
    for partition in range(PARTITIONS):
        topics = [TopicFetch(READ, [PartitionFetch(partition, -1, 0, -1, -1, size)])]
        body = build_fetch_request(FetchRequest(12, -1, 500, 1, size, 0, 0, -1, topics, [], ""))
        read.append(framed(request_header(FETCH, 12, 1, "bench") + body))
    (directory / "read").write_bytes(b"".join(read))
    return {SMALL: 0, BULK: 0, READ: PARTITIONS * READ_BATCHES}


def produce(topic: str, partition: int, value: bytes, version: int) -> bytes:
    """Build the frame of a Produce of one record, with acks 1."""
    records = [TopicProduce(topic, [PartitionProduce(partition, memoryview(one_record(value)))])]
    body = build_produce_request(ProduceRequest(version, None, 1, 30_000, records))
    return framed(request_header(PRODUCE, version, 1, "bench") + b"".join(map(bytes, body)))


def framed(request: bytes) -> bytes:
    """Put the size before a request."""
    return struct.pack(">i", len(request)) + request


@dataclass(frozen=True, slots=True)
class Load:
    """Runs the load program, and collects what it measures."""

    program: Path
    requests: Path
    """Folder with the files of requests."""
    seconds: float
    acknowledged: dict[str, int]
    """Records by topic that brokers must have at the end."""
    figures: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def run_round(self, number: int, cases: list[Case], targets: list[Target]) -> None:
        """Run each case through each proxy once; the order rotates with the number of the round."""
        at = number % len(targets)
        for case in cases:
            for target in (*targets[at:], *targets[:at]):
                say(f"round {number + 1}, {case.name}, {target.name}")
                self._run(case, target)

    def _run(self, case: Case, target: Target) -> None:
        before = 0.0 if target.pid is None else thread_seconds(target.pid)
        command = [self.program, target.port, case.connections, self.seconds, case.rate, self.requests / case.requests]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            raise SystemExit(f"{target.name}, {case.name}: {done.stderr}")
        got: dict[str, Any] = json.loads(done.stdout)
        sent = got["requests"] + got["warm"]
        topic = case.requests.partition("-")[0]
        if topic != READ:
            self.acknowledged[topic] += sent
        payload = got["bytes"] if topic == READ else got["requests"] * BULK_BYTES
        key = f"{case.name}: {target.name}:"
        self.figures[f"{key} requests/s"].append(got["requests"] / got["seconds"])
        self.figures[f"{key} MB/s"].append(payload / 1e6 / got["seconds"])
        self.figures[f"{key} p50 us"].append(got["p50_us"])
        self.figures[f"{key} p99 us"].append(got["p99_us"])
        if target.pid is not None:
            used = thread_seconds(target.pid) - before
            self.figures[f"{key} cpu us"].append(used * 1e6 / sent)
            self.figures[f"{key} cpu s/GB"].append(used * 1e9 / payload)


def thread_seconds(pid: int) -> float:
    """Return the time for which the live threads of a process have run, to the nanosecond.

    `measure.cpu_seconds` counts in ticks, and knows the threads that have ended.
    """
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def check(bootstrap: str, acknowledged: Mapping[str, int]) -> None:
    """Raise SystemExit if the broker does not have exactly the records that were acknowledged."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench"})
    for topic, count in acknowledged.items():
        ends = [consumer.get_watermark_offsets(TopicPartition(topic, one), 10)[1] for one in range(PARTITIONS)]
        if sum(ends) != count:
            raise SystemExit(f"{topic} has {sum(ends)} records, and {count} were acknowledged")
    consumer.close()


def say(text: str) -> None:
    """Show what runs."""
    print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
