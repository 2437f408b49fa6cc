"""Measure the CPU of a small request and its answer, with the express lane and without: `python -m benchmarks.express`.

Two connections with all handlers of a proxy, between transports that only count, are measured in turns. So the figures
are the cost of the proxy's own code, without the system calls, which are the same on both ways. Prints a table;
`--json FILE` writes all figures.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import gc
import json
import time
from pathlib import Path
from statistics import median
from typing import Any

from redis.asyncio import Redis
from rich.console import Console
from rich.table import Table

from benchmarks.raw_client import one_record
from proxy.assembly.handlers import build_handlers
from proxy.assembly.parts import build_parts
from proxy.config import Settings
from proxy.connection.connection import ClientConnection
from proxy.coordinator.clock import running_ms
from proxy.coordinator.fleet_lease import FleetLease
from proxy.coordinator.interface_registry import DisklessTopic, RegistrySnapshot
from proxy.protocol.api_keys import FETCH, HEARTBEAT, PRODUCE
from proxy.protocol.apis import request_is_flexible
from proxy.storage import open_storage
from proxy.wire.fetch import FetchRequest, PartitionFetch, TopicFetch, build_fetch_request
from proxy.wire.fetch_response import PartitionFetched, TopicFetched, build_fetch_response
from proxy.wire.header import request_header
from proxy.wire.primitives import INT32, NO_TAGS
from proxy.wire.produce import (
    FIRST_TOPIC_ID,
    PartitionProduce,
    PartitionProduced,
    ProduceRequest,
    TopicProduce,
    TopicProduced,
    build_produce_request,
    build_produce_response,
)

TOPIC, TOPIC_ID = "orders", bytes(range(1, 17))
OTHER = DisklessTopic("other", bytes(range(17, 33)), 1, "live")
BATCH_BYTES = 100
AT_A_TIME = 300
"""Requests between two looks at the clock."""
STEPS_TO_CONNECT = 10
"""Steps of the event loop until the broker is reached."""
CASES = (
    (PRODUCE, 7, False),
    (PRODUCE, 7, True),
    (PRODUCE, 12, False),
    (PRODUCE, 12, True),
    (PRODUCE, 13, True),
    (FETCH, 12, False),
    (FETCH, 12, True),
    (HEARTBEAT, 3, False),
)
"""API key, version, and whether there is a diskless topic, which is another one."""
NAMES = {PRODUCE: "Produce", FETCH: "Fetch that finds nothing", HEARTBEAT: "Heartbeat"}


class Counting(asyncio.Transport):
    """A transport that takes everything at once, and counts it."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.written_bytes = 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: Any) -> None:
        self.written_bytes += len(data)

    def writelines(self, list_of_data: Any) -> None:
        self.written_bytes += sum(map(len, list_of_data))

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


async def connect(*, lane: bool, diskless: bool) -> ClientConnection:
    """Connect a client to a proxy of its own, which has neither stores nor brokers."""
    settings = Settings(
        rack="rack-a",
        brokers={"bootstrap": ["127.0.0.1:9092"]},
        redis={"url": "redis://127.0.0.1:6379/0"},
        storage={"url": "file:///nowhere"},
    )
    parts = build_parts(settings, open_storage(settings.storage), Redis())
    lease = FleetLease()
    lease.extend(running_ms() + 10**9, begins=True)
    topics: Any = parts.topics.topics
    topics._lease_runs = lease.runs
    topics.take(RegistrySnapshot(1, (OTHER,) if diskless else ()))
    shared = dataclasses.replace(parts.clients.shared, express_lane=lane)
    for name in (TOPIC, TOPIC_ID):
        shared.stats.settle(name, TOPIC)

    async def connect_broker(node_id: int, protocol: Any) -> None:
        protocol.node_id = node_id
        protocol.connection_made(Counting())

    cluster: Any = parts.clients.cluster
    cluster.connect = connect_broker
    connection = ClientConnection(shared, build_handlers(parts), settings.listeners, 1)
    connection.connection_made(Counting())
    for _ in range(STEPS_TO_CONNECT):
        await asyncio.sleep(0)
    assert not connection.reading.gate.causes
    return connection


def bodies(api_key: int, version: int) -> tuple[bytes, bytes]:
    """Return the body of a request, and of its answer."""
    topic = TOPIC_ID if version >= FIRST_TOPIC_ID else TOPIC
    if api_key == PRODUCE:
        records = memoryview(one_record(bytes(BATCH_BYTES)))
        produced = [TopicProduce(topic, [PartitionProduce(0, records)])]
        parts = build_produce_request(ProduceRequest(version, None, -1, 30_000, produced))
        answer = build_produce_response(version, [TopicProduced(topic, [PartitionProduced(0, 0, 5, -1, 0)])])
        return b"".join(parts), answer
    if api_key == FETCH:
        asked = [TopicFetch(topic, [PartitionFetch(0, -1, 5, -1, -1, 1 << 20)])]
        request = build_fetch_request(FetchRequest(version, -1, 500, 1, 1 << 24, 0, 0, -1, asked, [], ""))
        fetched = [TopicFetched(topic, [PartitionFetched(0, 0, 5, 5, 0, (), 0)])]
        return request, b"".join(build_fetch_response(version, 0, fetched))
    return b"\0\5group" + bytes(4) + b"\0\6member", bytes(6)


def frames(api_key: int, version: int) -> list[tuple[bytes, bytes]]:
    """Return requests that differ in their correlation IDs, and their answers."""
    request, answer = bodies(api_key, version)
    tags = NO_TAGS if request_is_flexible(api_key, version) else b""
    made = []
    for number in range(AT_A_TIME):
        pair = (request_header(api_key, version, number, "rdkafka") + request, INT32.pack(number) + tags + answer)
        made.append((INT32.pack(len(pair[0])) + pair[0], INT32.pack(len(pair[1])) + pair[1]))
    return made


def measure(connection: ClientConnection, pairs: list[tuple[bytes, bytes]]) -> float:
    """Return the CPU of a request and its answer, in microseconds."""
    upstream = connection.broker_side.upstream
    assert upstream is not None
    from_client, from_broker = connection.data_received, upstream.data_received
    began_ns = time.thread_time_ns()
    for request, answer in pairs:
        from_client(request)
        from_broker(answer)
    used_ns = time.thread_time_ns() - began_ns
    assert not connection.answers.slots, "an answer is missing"
    return used_ns / len(pairs) / 1000


async def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slices", type=int, default=100, help="per case and way")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    table = Table("request", "next to a diskless topic", "ordinary path, µs", "express lane, µs", "ratio")
    found = []
    for api_key, version, diskless in CASES:
        ways = {lane: await connect(lane=lane, diskless=diskless) for lane in (False, True)}
        pairs, got = frames(api_key, version), dict[bool, list[float]]({False: [], True: []})
        gc.disable()
        for number in range(arguments.slices):
            for lane in (False, True) if number % 2 else (True, False):
                got[lane].append(measure(ways[lane], pairs))
        gc.enable()
        ordinary, express = (min(got[lane]) for lane in (False, True))
        ratio = median(with_lane / without for without, with_lane in zip(got[False], got[True], strict=True))
        name = f"{NAMES[api_key]} v{version}"
        found.append({"request": name, "diskless": diskless, "ordinary_us": ordinary, "express_us": express})
        found[-1]["ratio"] = ratio
        table.add_row(name, "yes" if diskless else "no", f"{ordinary:.1f}", f"{express:.1f}", f"{ratio:.2f}")
    Console().print(table)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
