"""Measure the cost of parsing messages: `python -m benchmarks.wire`.

Figures are microseconds of CPU per call, the fastest of many (which other load on the machine affects least) and the
median. Prints a table and writes `benchmarks/results/wire.json`. If kio is the alternative, its native decoder of the
same bytes is measured too.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import platform
import time
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader
from redis.asyncio import Redis
from rich.console import Console
from rich.table import Table

from proxy.assembly.handlers import build_handlers
from proxy.assembly.parts import build_parts
from proxy.client.authentication import Authentication
from proxy.client.handler import Handler
from proxy.client.request import Request
from proxy.client.session import Session
from proxy.config import Settings
from proxy.coordinator.interface_registry import DisklessTopic, RegistrySnapshot
from proxy.protocol.api_keys import METADATA
from proxy.storage import open_storage
from proxy.telemetry.stats import Stats
from proxy.wire.fetch_response import (
    PartitionFetched,
    TopicFetched,
    build_fetch_response,
    parse_fetch_response,
)
from proxy.wire.fetch_stream import FetchEndpointStream
from proxy.wire.metadata import rewrite_metadata_response
from proxy.wire.partition_leaders import HASH_SLOTS, HashedLeaders, Leaders, ReplicaLeaders, SoleLeader
from proxy.wire.primitives import unsigned_varint
from proxy.wire.produce import (
    PartitionProduce,
    ProduceRequest,
    TopicProduce,
    build_produce_request,
    parse_produce_request,
)
from proxy.wire.produce_stream import ProduceStream, count_produced
from proxy.wire.steps import Rewrite, at_once

RESULTS = Path(__file__).parent / "results" / "wire.json"
RECORDS = bytes(16_384)
CHUNK_BYTES = 65_536
CALLS = 300
PRODUCE_TOPICS_AT = 7
"""Position after a null transactional ID, acks and timeout."""
COUNTED = partial(Stats().count_records, "classic", "produce", "rack-a", "rack-b")


def proxy_address(node_id: int) -> tuple[str, int]:
    return "127.0.0.1", 19100 + node_id


def produce_body(count: int = 50) -> bytes:
    """Build Produce v9 with batches of 16 KiB."""
    partitions = [PartitionProduce(index, memoryview(RECORDS)) for index in range(count)]
    request = ProduceRequest(9, None, -1, 30_000, [TopicProduce("orders", partitions)])
    return b"".join(build_produce_request(request))


def fetch_topics() -> list[TopicFetched]:
    """Build a hundred partitions with 16 KiB each."""
    partitions = [PartitionFetched(index, 0, 5, 5, 0, (RECORDS,), len(RECORDS)) for index in range(100)]
    return [TopicFetched(bytes(range(16)), partitions)]


def metadata_body() -> bytes:
    """Build Metadata v12 of three brokers and 1,000 topics of 12 partitions with three replicas."""
    out = bytearray(4) + b"\x04"
    for node_id in (1, 2, 3):
        out += node_id.to_bytes(4, "big") + b"\x0ebroker.local." + (9092).to_bytes(4, "big") + b"\x00\x00"
    out += b"\x00" + bytes(4) + unsigned_varint(1001)
    nodes = b"\x04" + b"".join(node_id.to_bytes(4, "big") for node_id in (1, 2, 3))
    for topic in range(1000):
        out += b"\x00\x00" + b"\x0b" + f"topic-{topic:04}".encode() + topic.to_bytes(16, "big") + b"\x00" + b"\x0d"
        for partition in range(12):
            out += (
                b"\x00\x00"
                + partition.to_bytes(4, "big")
                + b"\x00\x00\x00\x01"
                + bytes(4)
                + nodes
                + nodes
                + b"\x01\x00"
            )
        out += bytes(4) + b"\x00"
    return bytes(out + b"\x00")


async def metadata_handler(settings: Settings, diskless: int) -> Handler:
    """Build the handler of Metadata, with the parts of a whole proxy."""
    parts = build_parts(settings, open_storage(settings.storage), Redis())
    every = range(0, 1000, 1000 // diskless)
    entries = (DisklessTopic(f"topic-{n:04}", n.to_bytes(16, "big"), 12, "live") for n in every)
    parts.topics.topics.take(RegistrySnapshot(1, tuple(entries)))
    return build_handlers(parts).handle[METADATA]


class Asking:
    """A client of a whole proxy, whose broker answers Metadata."""

    def __init__(self, body: bytes, diskless: int, leader_choice: str) -> None:
        settings = Settings(
            rack="rack-a",
            leader_choice=leader_choice,
            brokers={"bootstrap": ["127.0.0.1:9092"]},
            redis={"url": "redis://127.0.0.1:6379/0"},
            storage={"url": "file:///nowhere"},
        )
        authentication = Authentication(False, time.monotonic, max_bytes=1 << 20, max_requests=100)
        self.session = Session(settings.listeners, 1, authentication)
        self.session.host = "10.0.0.1"
        self._metadata = asyncio.run(metadata_handler(settings, diskless))
        self._body = memoryview(body)

    def forward(self, request: Request, rewrite: Rewrite) -> None:
        answer = rewrite(self._body)
        if isinstance(answer, Generator):
            at_once(answer)

    def __call__(self) -> None:
        client: Any = self
        self._metadata(
            client, Request(METADATA, 12, 1, "app,diskless_rack_id=rack-a", memoryview(b""), memoryview(b""))
        )


def stream(body: bytes) -> None:
    """Process a response in chunks as a socket delivers them."""
    through, view = FetchEndpointStream(17, proxy_address), memoryview(body)
    for at in range(0, len(body), CHUNK_BYTES):
        through.feed(view[at : at + CHUNK_BYTES])
    through.finish()


def count_streamed(body: bytes) -> None:
    """Count the topics of a request in chunks as a socket delivers them."""
    through, view = ProduceStream(9, COUNTED, begins_at=PRODUCE_TOPICS_AT), memoryview(body)
    for at in range(0, len(body), CHUNK_BYTES):
        through.feed(view[at : at + CHUNK_BYTES])
    through.count()


def cases() -> dict[str, Callable[[], object]]:
    produce, answer, topics = produce_body(), metadata_body(), fetch_topics()
    fetch = b"".join(build_fetch_response(17, 0, topics))
    names = {f"topic-{topic:04}" for topic in range(1000)}
    half = {f"topic-{topic:04}" for topic in range(0, 1000, 2)}

    def rewrite(
        is_diskless: Callable[[str | None, bytes | None], bool] | None, leaders: Leaders = SoleLeader(2)
    ) -> object:
        return rewrite_metadata_response(answer, 12, address_of=proxy_address, is_diskless=is_diskless, leaders=leaders)

    def all_led(leaders: Leaders) -> Callable[[], object]:
        return lambda: rewrite(lambda name, topic_id: name in names, leaders)

    slots = HASH_SLOTS // 4
    whole: dict[str, Callable[[], object]] = {
        f"Metadata v12, 12,000 partitions: whole handler, {share}, {choice}": Asking(answer, count, choice)
        for share, count in (("half diskless", 500), ("all diskless", 1000))
        for choice in ("sticky", "round_robin", "partition_hash", "replica")
    }
    parsed = parse_produce_request(produce, 9)
    whole_produce, one_produce = memoryview(produce), memoryview(produce_body(1))
    kio_produce = entity_reader(load_request_schema(0, 9))
    kio_fetch = entity_reader(load_response_schema(1, 17))
    kio_metadata = entity_reader(load_response_schema(3, 12))
    return {
        "Produce v9, 50 x 16 KiB: parse": lambda: parse_produce_request(produce, 9),
        "Produce v9, 50 x 16 KiB: build": lambda: build_produce_request(parsed),
        "Produce v9, 50 x 16 KiB: count in 64 KiB chunks": lambda: count_streamed(produce),
        "Produce v9, 50 x 16 KiB: count at once": lambda: count_produced(whole_produce, PRODUCE_TOPICS_AT, 9, COUNTED),
        "Produce v9, 1 x 16 KiB: count at once": lambda: count_produced(one_produce, PRODUCE_TOPICS_AT, 9, COUNTED),
        "Produce v9, 50 x 16 KiB: kio decodes": lambda: kio_produce(produce, 0),
        "Fetch v17, 100 x 16 KiB: parse": lambda: parse_fetch_response(fetch, 17),
        "Fetch v17, 100 x 16 KiB: build": lambda: build_fetch_response(17, 0, topics),
        "Fetch v17, 100 x 16 KiB: stream in 64 KiB chunks": lambda: stream(fetch),
        "Fetch v17, 100 x 16 KiB: kio decodes": lambda: kio_fetch(fetch, 0),
        "Metadata v12, 12,000 partitions: addresses": lambda: rewrite(None),
        "Metadata v12, 12,000 partitions: addresses, no topic diskless": lambda: rewrite(lambda name, topic_id: False),
        "Metadata v12, 12,000 partitions: addresses and all leaders": all_led(SoleLeader(2)),
        "Metadata v12, 12,000 partitions: addresses and half of the leaders": lambda: rewrite(
            lambda name, topic_id: name in half
        ),
        "Metadata v12, 12,000 partitions: all leaders, partition_hash": all_led(HashedLeaders((1, 2, 3, 2) * slots)),
        "Metadata v12, 12,000 partitions: all leaders, replica": all_led(ReplicaLeaders((2,), 2)),
        **whole,
        "Metadata v12, 12,000 partitions: kio decodes": lambda: kio_metadata(answer, 0),
    }


def measure(call: Callable[[], object]) -> dict[str, float]:
    """Return microseconds, fastest and median; calls of milliseconds are repeated less."""
    times: list[float] = []
    deadline_s = time.perf_counter() + 3
    gc.collect()
    while len(times) < CALLS and (len(times) < 10 or time.perf_counter() < deadline_s):
        begin = time.thread_time_ns()
        call()
        times.append((time.thread_time_ns() - begin) / 1000)
    return {"fastest_us": round(min(times), 1), "median_us": round(median(times), 1)}


def main() -> None:
    """Measure, write the results and print them."""
    figures = {name: measure(call) for name, call in cases().items()}
    machine = {"python": platform.python_version(), "machine": platform.machine(), "cpus": os.cpu_count()}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"machine": machine, "figures": figures}, indent=2) + "\n")
    table = Table("message", "fastest µs", "median µs")
    for name, figure in figures.items():
        table.add_row(name, f"{figure['fastest_us']:,.0f}", f"{figure['median_us']:,.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
