"""The largest request of every API: no step of the loop that handles it takes longer than a slice may."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

import pytest

from proxy.assembly.context import Context
from proxy.assembly.handlers import build_handlers
from proxy.config import Listeners
from proxy.connection.connection import ClientConnection
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.diskless.time_lookup import TimeLookup
from proxy.wire.header import request_header
from proxy.wire.primitives import MAX_DECODED_ELEMENTS, MAX_REJECTED_ELEMENTS, write_count
from tests.coordinator_model import ModelCoordinator
from tests.support.echo_broker import CHUNK_BYTES, EchoBroker
from tests.support.loop_steps import Steps, measured_steps, unit_s
from tests.unit.connection.test_last_words import until
from tests.unit.connection_double import FakeTransport, frame
from tests.unit.parts import parts_of, settings_of, with_parts

NUMBER = int(os.environ.get("LARGE_REQUEST_ELEMENTS", "8000"))
"""Elements of a request. Without slices, this many take at least twice as long as a step may take."""
DECODED = min(NUMBER, MAX_DECODED_ELEMENTS - 100)
"""Elements of a request that is decoded as a whole."""
HALF = DECODED // 2
"""Topics with a partition each."""
LONGEST_STEP_UNITS = 12.0
"""Ten milliseconds or so."""
TOPIC_ID = b"d" * 16
_CREATED = b"\0\0\0\1\0\1" + b"\1\1\0"
"""One partition, one replica, no assignment, no configs."""


class Proxied:
    """A client of a whole proxy, whose broker is in the same process and whose coordinator is in memory."""

    def __init__(self, steps: Steps) -> None:
        coordinator: Any = ModelCoordinator()
        parts = parts_of(settings_of(), DisklessTopic("d", TOPIC_ID, NUMBER, "live"))
        parts.diskless.reader.coordinates._coordinator = coordinator
        log = parts.process.throttled_log
        lookup = TimeLookup(coordinator, parts.diskless.rows, log, max_rows=1, max_batch_bytes=1)
        parts = with_parts(parts, stores={"coordinator": coordinator}, diskless={"time_lookup": lookup})
        parts.brokers.cluster.connect = self._connect  # type: ignore[method-assign]
        context = Context(parts, build_handlers(parts))
        self._steps = steps
        self.connection = ClientConnection(context, Listeners(), 1)
        self.client = FakeTransport(self.connection)
        self.connection.connection_made(self.client)

    async def _connect(self, node_id: Any, protocol: Any) -> None:
        protocol.connection_made(EchoBroker(protocol, self._steps))

    async def ask(self, api_key: int, version: int, body: bytes) -> bytes:
        """The frame of the answer."""
        data = frame(request_header(api_key, version, 7, "app") + body)
        for start in range(0, len(data), CHUNK_BYTES):
            self.connection.data_received(data[start : start + CHUNK_BYTES])
            await asyncio.sleep(0)
        await until(lambda: self.client.closing or (bool(self.client.written) and not self.connection.busy))
        assert not self.client.closing, "the connection is to stay"
        return bytes(self.client.written)


def count(number: int) -> bytes:
    return write_count(number, True)


def indexes(size: int, rest: bytes = b"\0", number: int = NUMBER) -> bytes:
    """Partitions by ascending index, each with this many bytes after the index."""
    return count(number) + b"".join(one.to_bytes(4, "big") + bytes(size) + rest for one in range(number))


def names(rest: bytes, prefix: bytes = b"", number: int = NUMBER) -> bytes:
    """Topics of which one is diskless."""
    return count(number) + prefix + b"\x02d" + rest + classic_names(number - 1, rest, prefix)


def classic_names(number: int, rest: bytes, prefix: bytes = b"") -> bytes:
    return b"".join(prefix + b"\x07" + b"%06d" % one + rest for one in range(number))


def one_topic(partitions: bytes) -> bytes:
    return count(1) + b"\x02d" + partitions + b"\0"


FETCH_HEAD = b"\xff\xff\xff\xff" + bytes(4) + b"\0\0\0\1" + b"\x7f\0\0\0" + b"\0" + bytes(4) + b"\xff\xff\xff\xff"
"""A request of Fetch v12: a consumer that does not wait, and without a session."""
FETCH_END = b"\x01\x01\0"
"""No forgotten topics, no rack."""


def whole(name: bytes, rest: bytes) -> bytes:
    """Return as many topics as are read in one step, one of which has this name."""
    number = min(NUMBER, MAX_REJECTED_ELEMENTS // 2 - 1)
    return count(number) + b"\x02" + name + rest + classic_names(number - 1, rest)


def ids(rest: bytes) -> bytes:
    """Classic topics by ID."""
    return count(NUMBER // 2) + b"".join(one.to_bytes(16, "big") + rest for one in range(NUMBER // 2))


ONE_PARTITION = b"\2" + bytes(4) + b"\0"
LARGE: dict[str, tuple[int, int, Callable[[], bytes]]] = {
    "ListOffsets of partitions": (2, 7, lambda: bytes(5) + one_topic(indexes(4 + 8)) + b"\0"),
    "ListOffsets of topics": (2, 7, lambda: bytes(5) + names(count(1) + bytes(16) + b"\0\0") + b"\0"),
    "CreateTopics": (19, 7, lambda: count(NUMBER) + classic_names(NUMBER, _CREATED) + b"\0\0\x27\x10\1\0"),
    "DeleteTopics": (20, 5, lambda: names(b"") + b"\0\0\x27\x10\0"),
    "DeleteRecords": (21, 2, lambda: one_topic(indexes(8)) + b"\0\0\x27\x10\0"),
    "OffsetForLeaderEpoch": (23, 4, lambda: bytes(4) + one_topic(indexes(8)) + b"\0"),
    "DescribeConfigs": (32, 4, lambda: names(b"\0\0", b"\2") + b"\0\0\0"),
    "IncrementalAlterConfigs": (44, 1, lambda: names(count(0) + b"\0", b"\2") + b"\1\0"),
    "CreatePartitions": (37, 3, lambda: names(b"\0\0\0\2\0\0") + b"\0\0\x27\x10\1\0"),
    "AlterPartitionReassignments": (45, 0, lambda: b"\0\0\x27\x10" + one_topic(indexes(0, b"\0\0")) + b"\0"),
    "DescribeProducers": (61, 0, lambda: one_topic(indexes(0, b"")) + b"\0"),
    "Metadata": (3, 12, lambda: names(b"\0", bytes(16), DECODED) + b"\1\0\0"),
    "FindCoordinator": (10, 4, lambda: b"\0" + names(b"") + b"\0"),
    "DescribeTopicPartitions": (75, 0, lambda: names(b"\0") + b"\0\0\x07\xd0\xff\0"),
    "AlterConfigs": (33, 2, lambda: names(count(0) + b"\0", b"\2") + b"\1\0"),
    "Fetch of partitions": (1, 12, lambda: FETCH_HEAD + one_topic(indexes(28, number=DECODED)) + FETCH_END),
    "Fetch of classic topics": (
        1,
        12,
        lambda: FETCH_HEAD + count(HALF) + classic_names(HALF, b"\x02" + bytes(32) + b"\0\0") + FETCH_END,
    ),
    "Fetch that forgets topics": (
        1,
        12,
        lambda: (
            FETCH_HEAD
            + b"\x01"
            + count(DECODED // 2)
            + classic_names(DECODED // 2, b"\x02" + bytes(4) + b"\0")
            + b"\x01\0"
        ),
    ),
    "AddPartitionsToTxn": (
        24,
        3,
        lambda: b"\2t" + bytes(10) + count(HALF) + classic_names(HALF, ONE_PARTITION) + b"\0",
    ),
    "AddPartitionsToTxn with a diskless topic": (
        24,
        3,
        lambda: b"\2t" + bytes(10) + whole(b"d", ONE_PARTITION) + b"\0",
    ),
    "WriteTxnMarkers": (
        27,
        1,
        lambda: count(1) + bytes(11) + whole(b"d", ONE_PARTITION) + bytes(4) + b"\0\0",
    ),
    "ShareGroupHeartbeat": (76, 1, lambda: b"\2g\2m" + bytes(4) + b"\0" + whole(b"d", b"") + b"\0"),
    "ShareGroupHeartbeat that names too much": (76, 1, lambda: b"\2g\2m" + bytes(4) + b"\0" + names(b"") + b"\0"),
    "ShareFetch": (
        78,
        1,
        lambda: b"\2g\2m" + bytes(24) + ids(count(1) + bytes(4) + count(0) + b"\0\0") + count(0) + b"\0",
    ),
    "ShareAcknowledge": (
        79,
        1,
        lambda: b"\2g\2m" + bytes(4) + ids(count(1) + bytes(4) + count(0) + b"\0\0") + b"\0",
    ),
    "DescribeShareGroupOffsets": (
        90,
        1,
        lambda: count(1) + b"\2g" + names(count(1) + bytes(4) + b"\0") + b"\0\0",
    ),
    "AlterShareGroupOffsets": (91, 0, lambda: b"\2g" + one_topic(indexes(8)) + b"\0"),
}
"""Requests by name: API key, version, and body."""


@pytest.mark.parametrize("name", LARGE)
async def test_no_step_is_longer_than_a_slice_may_be(name: str) -> None:
    api_key, version, body = LARGE[name]
    asked, unit = body(), unit_s()
    longest = []
    for _ in range(3):
        with measured_steps() as steps:
            await Proxied(steps).ask(api_key, version, asked)
        unit = max(unit, unit_s())
        longest.append(steps.longest_s / unit)
        print(
            f"{name}: {steps.count} steps, {steps.total_s * 1000:.0f} ms, longest {steps.longest_s * 1000:.1f} ms", unit
        )
        if longest[-1] <= LONGEST_STEP_UNITS:
            return
    raise AssertionError(f"the longest step takes {min(longest):.1f} units of {sorted(longest)}")
