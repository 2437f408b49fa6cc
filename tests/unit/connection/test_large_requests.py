"""The largest request of every API: no step of the loop that handles it takes longer than a slice may."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from typing import Any, cast

import pytest

from proxy.assembly.handlers import build_handlers
from proxy.config import Listeners
from proxy.connection.connection import ClientConnection
from proxy.coordinator.interface import BatchAnswer, LogDescription, PartitionRun, RunAnswer
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.coordinator.shards import partition_key, shard_of
from proxy.diskless.time_lookup import TimeLookup
from proxy.diskless.wal.buffer import WalBuffer
from proxy.protocol.apis import API_TABLE, Treatment
from proxy.wire.header import request_header
from tests.coordinator_model import ModelCoordinator
from tests.support.echo_broker import CHUNK_BYTES, EchoBroker
from tests.support.large_requests import LARGE, SMALL
from tests.support.loop_steps import Steps, measured_steps, unit_s
from tests.support.memory_log import MemoryObjects
from tests.unit.connection.test_last_words import until
from tests.unit.connection_double import FakeTransport, frame
from tests.unit.parts import parts_of, settings_of, with_parts

NUMBER = 8_000
"""Elements of a request in the quick tests. Without slices, they take at least twice as long as a step may take."""
LONGEST_STEP_UNITS = 15.0
"""Ten milliseconds or so."""
ATTEMPTS, PAUSE_S = 6, 0.5
"""The pause gets longer by this with each attempt."""
TOPIC_ID = b"d" * 16


class Coordinator(ModelCoordinator):
    """Accepts every batch, in no time that counts."""

    def __init__(self, steps: Steps) -> None:
        super().__init__()
        self._steps = steps

    async def commit(self, segment: bytes, runs: Sequence[PartitionRun], *, not_after_ms: int = 0) -> list[RunAnswer]:
        await asyncio.sleep(0)  # as the journal and the store take a step of the loop at least
        began = time.thread_time()
        answers = [
            RunAnswer(run.topic_id, run.partition, 0, tuple(BatchAnswer(0, 5, -1, False) for _ in run.batches), 0, 6)
            for run in runs
        ]
        self._steps.not_counted_s += time.thread_time() - began
        return answers

    async def describe(self, topic_id: bytes, partitions: Sequence[int]) -> list[LogDescription | None]:
        await asyncio.sleep(0)
        began = time.thread_time()
        described: list[LogDescription | None] = [LogDescription(0, 9, 100, 1, 9) for _ in partitions]
        self._steps.not_counted_s += time.thread_time() - began
        return described

    async def catch_up(self, logs: Iterable[tuple[bytes, int]]) -> None:
        """Find the shards of the logs, as with a journal."""
        assert {shard_of(partition_key(*log), 16) for log in logs}


class Transport(FakeTransport):
    """Transport to the client, whose own work does not count: it copies answers, of which the proxy hands on parts."""

    def __init__(self, protocol: asyncio.Protocol, steps: Steps) -> None:
        super().__init__(protocol)
        self._steps = steps

    def write(self, data: Any) -> None:
        began = time.thread_time()
        super().write(data)
        self._steps.not_counted_s += time.thread_time() - began


class Proxied:
    """A client of a whole proxy, whose broker is in the same process and whose coordinator is in memory."""

    def __init__(self, steps: Steps, partitions: int) -> None:
        coordinator: Any = Coordinator(steps)
        parts = parts_of(settings_of(), DisklessTopic("d", TOPIC_ID, partitions, "live"))
        parts.diskless.reader.coordinates._coordinator = coordinator
        log = parts.process.throttled_log
        lookup = TimeLookup(coordinator, parts.diskless.rows, log, max_rows=1, max_batch_bytes=1)
        parts = with_parts(parts, stores={"coordinator": coordinator}, diskless={"time_lookup": lookup})
        wal, storage = cast(WalBuffer, parts.diskless.buffer), cast(Any, MemoryObjects())
        wal._coordinator, wal.hedge._storage = coordinator, storage
        parts.brokers.cluster.connect = self._connect  # type: ignore[method-assign]
        self._steps = steps
        self.connection = ClientConnection(parts.clients.shared, build_handlers(parts), Listeners(), 1)
        self.client = Transport(self.connection, steps)
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


@pytest.mark.parametrize("name", LARGE)
async def test_no_step_is_longer_than_a_slice_may_be(name: str) -> None:
    await measure(name, NUMBER)


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("name", [name for name, large in LARGE.items() if large.most > NUMBER])
async def test_no_step_of_the_largest_request_is_longer(name: str) -> None:
    await measure(name, LARGE[name].most)


@pytest.mark.parametrize(
    ("name", "times"),
    [("Fetch of partitions", 33), ("Metadata", 33), ("DescribeLogDirs of topics", 33), ("Produce to both", 11)],
)
async def test_the_memory_budget_has_what_is_decoded_of_a_request_too(name: str, times: int) -> None:
    """Each partition of a Produce counts, as most of its bytes are records."""
    api_key, version, body, _ = LARGE[name]
    asked = body(1_000)
    proxied = Proxied(Steps(), 1_000)
    memory = proxied.connection._shared.memory
    assert memory.used_bytes == 0
    answering = asyncio.create_task(proxied.ask(api_key, version, asked))
    most = 0
    while not answering.done():
        await asyncio.sleep(0)
        most = max(most, memory.used_bytes)
    await answering
    assert round(most / len(asked)) == times
    assert memory.used_bytes == 0


def test_every_api_that_is_not_just_passed_on_is_measured() -> None:
    handled = {key for key, api in API_TABLE.items() if api.treatment in (Treatment.REWRITE, Treatment.INTERCEPT)}
    assert handled <= {large.api_key for large in LARGE.values()} | SMALL.keys()
    assert not SMALL.keys() & {large.api_key for large in LARGE.values()}


async def measure(name: str, number: int) -> None:
    """Fail if a step of the request with this many elements takes too long in each attempt.

    Next to other work on the same cores and caches, a step takes up to three times as long: later attempts wait for
    that to end.
    """
    api_key, version, body, most = LARGE[name]
    asked, unit = body(min(number, most)), unit_s()
    longest = []
    for attempt in range(ATTEMPTS):
        await asyncio.sleep(attempt * PAUSE_S)
        with measured_steps() as steps:
            await Proxied(steps, number).ask(api_key, version, asked)
        unit = max(unit, unit_s())
        longest.append(steps.longest_s / unit)
        print(
            f"{name}: {steps.count} steps, {steps.total_s * 1000:.0f} ms, longest {steps.longest_s * 1000:.1f} ms", unit
        )
        if longest[-1] <= LONGEST_STEP_UNITS:
            return
    raise AssertionError(f"the longest step takes {min(longest):.1f} units of {sorted(longest)}")
