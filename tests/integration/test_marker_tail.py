"""Markers that brokers write into placeholder topics end transactions in the coordinator.

Transactional producers are connected to the brokers themselves, so that only the markers come to the placeholder topic.
Enlistments and commits, which are a proxy's work, are called at the coordinator directly.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from proxy.brokers.cluster import Cluster
from proxy.config import load_settings
from proxy.coordinator.clock import wall_clock_ms
from proxy.coordinator.interface import Coordinator, FindRequest, LogAnswer, PartitionRun, ProposedBatch
from proxy.coordinator.interface_transactions import AbortedTransaction, EnlistAnswer, Enlistment, OpenTransaction
from proxy.demo.stack import Stack
from proxy.inspection.stores import open_stores
from proxy.markers.catching_up import CatchingUp
from proxy.markers.leaders import ShadowLeaders
from proxy.markers.reader import MarkerReader
from proxy.markers.reconciling import Reconciler
from proxy.markers.stats import MarkerStats
from proxy.telemetry.throttled_log import ThrottledLog
from tests.support.metrics import Metrics
from tests.support.topics import DISKLESS, new_topic
from tests.support.transactional import RawProducer
from tests.support.waiting import POLL_SECONDS, WAIT_SECONDS

TIMEOUT_S = 30.0
Value = TypeVar("Value")


@dataclass
class Log:
    """Partition 0 of a diskless topic, at the coordinator, and the proxy's own reader of its shadow."""

    topic: str
    topic_id: bytes
    coordinator: Coordinator
    catching_up: CatchingUp
    leaders: ShadowLeaders
    cluster: Cluster
    stats: MarkerStats

    async def enlist(self, producer: RawProducer, markers_from: int) -> EnlistAnswer:
        request = Enlistment(self.topic_id, 0, producer.producer_id, producer.epoch, markers_from)
        (answer,) = await self.coordinator.transactions.enlist([request])
        return answer

    async def append(self, producer: RawProducer, records: int = 2) -> None:
        """Commit a batch of a segment that nobody reads."""
        batch = ProposedBatch(
            100, records, 1_000, producer.producer_id, producer.epoch, producer.sequence(self.topic), 1
        )
        (answer,) = await self.coordinator.commit(os.urandom(16), [PartitionRun(self.topic_id, 0, 1, (batch,))])
        assert [one.error_code for one in answer.batches] == [0]
        producer.took(self.topic, 0, records)

    async def begin(self, producer: RawProducer, markers_from: int) -> None:
        """Add the partition to a transaction of the producer, and append records."""
        assert producer.add(self.topic) == 0
        assert await self.enlist(producer, markers_from) is EnlistAnswer.ENLISTED
        await self.append(producer)

    async def read(self) -> LogAnswer:
        (answer,) = await self.coordinator.find([FindRequest(self.topic_id, 0, 0, 1 << 40)])
        return answer

    async def position(self) -> int:
        ((position),) = await self.coordinator.transactions.positions([(self.topic_id, 0)])
        assert position is not None
        return position.next_offset

    async def until_stable(self, offset: int) -> LogAnswer:
        """Wait until the last stable offset is `offset`."""

        async def is_stable() -> LogAnswer | None:
            found = await self.read()
            return found if found.last_stable_offset == offset else None

        found = await eventually(is_stable)
        assert found is not None
        return found

    async def catch_up_to(self, position: int) -> None:
        """Apply markers until the position is reached: EndTxn is answered before the marker is written."""

        async def is_there() -> bool:
            await self.catching_up.catch_up([(self.topic_id, 0)])
            return await self.position() >= position

        await eventually(is_there)


@asynccontextmanager
async def opened(stack: Stack) -> AsyncIterator[Log]:
    topic = new_topic(stack, "markers", DISKLESS)
    settings = load_settings(stack.config_path("rack-a"))
    cluster = Cluster(settings)
    await cluster.refresh()
    async with open_stores(settings) as stores:
        (entry,) = stores.named([topic])
        transactions, stats = stores.coordinator.transactions, MarkerStats()
        leaders = ShadowLeaders(cluster.service.ask)
        log = ThrottledLog(asyncio.get_running_loop().time)
        reader = MarkerReader(transactions, leaders, stats, log, wall_clock_ms)
        catching_up = CatchingUp(transactions, reader, leaders, cluster.connection_to, timeout_s=TIMEOUT_S)
        try:
            yield Log(topic, entry.topic_id, stores.coordinator, catching_up, leaders, cluster, stats)
        finally:
            catching_up.close()
            cluster.service.close()


def producer_at_brokers(stack: Stack) -> RawProducer:
    return RawProducer(stack.direct_bootstrap.split(",")[0], f"markers-{uuid.uuid4().hex[:6]}")


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
async def test_the_end_of_a_transaction_is_applied(stack: Stack, commit: bool) -> None:
    async with opened(stack) as log:
        producer = producer_at_brokers(stack)
        await log.begin(producer, 0)
        assert (await log.read()).last_stable_offset == 0
        assert producer.end(commit=commit) == 0
        found = await log.until_stable(3)
        assert [(row.base_offset, row.last_offset, row.length) for row in found.rows] == [(0, 1, 100), (2, 2, 0)]
        aborted = AbortedTransaction(2, 0, producer.producer_id, 3)
        assert found.aborted == (() if commit else (aborted,))
        result = "committed" if commit else "aborted"
        ended = [Metrics(stack, rack).value("transactions_ended_total", result=result) for rack in stack.proxies]
        assert sum(ended) >= 1


async def test_a_transaction_without_records_moves_only_the_position(stack: Stack) -> None:
    """Nobody follows the placeholder topic, so a proxy that waits for the marker reads it itself."""
    async with opened(stack) as log:
        producer = producer_at_brokers(stack)
        assert producer.add(log.topic) == 0
        assert producer.end(commit=True) == 0
        await log.catch_up_to(1)
        found = await log.read()
        assert (found.high_watermark, found.rows) == (0, ())
        assert await log.enlist(producer, 0) is EnlistAnswer.ENDED
        await log.begin(producer, 1)
        assert producer.end(commit=True) == 0
        await log.until_stable(3)


async def test_many_readers_of_one_shadow_apply_each_marker_once(stack: Stack) -> None:
    async with opened(stack) as log:
        producer, transactions = producer_at_brokers(stack), 8

        async def read_all_the_time() -> None:
            while True:
                await log.catching_up.catch_up([(log.topic_id, 0)])

        readers = [asyncio.ensure_future(read_all_the_time()) for _ in range(2)]
        try:
            for number in range(transactions):
                await log.begin(producer, number)
                assert producer.end(commit=number % 2 == 0) == 0
                await log.until_stable(3 * (number + 1))
        finally:
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)
        found = await log.read()
        assert [row.last_offset for row in found.rows if not row.length] == [2 + 3 * at for at in range(transactions)]
        assert [one.last_offset for one in found.aborted] == [5 + 6 * at for at in range(transactions // 2)]
        assert await log.position() == transactions


async def test_another_proxy_follows_after_the_tail_was_killed(stack: Stack) -> None:
    async with opened(stack) as log:
        producer, before = producer_at_brokers(stack), followed(stack)
        await log.begin(producer, 0)

        async def tails() -> list[str]:
            return [rack for rack, count in followed(stack).items() if count > before[rack]]

        for rack in await eventually(tails):
            stack.kill_proxy(rack)
        try:
            assert producer.end(commit=True) == 0
            await log.until_stable(3)
        finally:
            stack.heal()


def followed(stack: Stack) -> dict[str, float]:
    return {rack: Metrics(stack, rack).value("markers_followed") for rack in stack.proxies}


async def test_markers_that_were_deleted_are_counted(stack: Stack) -> None:
    async with opened(stack) as log:
        producer = producer_at_brokers(stack)
        for _ in range(3):
            assert producer.add(log.topic) == 0
            assert producer.end(commit=True) == 0
        await delete_markers(stack, log.topic, 2)
        await log.catch_up_to(3)
        assert log.stats.lost == 2


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
async def test_a_transaction_without_its_marker_ends_as_the_brokers_say(stack: Stack, commit: bool) -> None:
    """No proxy reads the marker before it is deleted. An hour later, no transaction of that time is open any more."""
    async with opened(stack) as log:
        producer, transactions = producer_at_brokers(stack), log.coordinator.transactions
        for rack in stack.proxies:
            stack.kill_proxy(rack)
        try:
            await log.begin(producer, 0)

            async def look() -> list[OpenTransaction]:
                return [one for one in await transactions.open_transactions() if one.topic_id == log.topic_id]

            later = Reconciler(
                transactions,
                look,
                log.catching_up.catch_up,
                log.leaders,
                log.cluster,
                log.stats,
                lambda: wall_clock_ms() + 3_600_000,
            )
            await later.reconcile()
            assert len(await look()) == 1, "it is ongoing at the brokers"
            assert producer.end(commit=commit) == 0
            await delete_markers(stack, log.topic, 1)
            await later.reconcile()
            found = await log.read()
            assert (found.high_watermark, found.last_stable_offset, len(found.aborted)) == (3, 3, 0 if commit else 1)
            assert (log.stats.lost, log.stats.reconciled) == (1, 1)
        finally:
            stack.heal()


async def delete_markers(stack: Stack, topic: str, offset: int) -> None:
    """Delete the markers before an offset of the placeholder topic, once they are there."""
    client = AdminClient({"bootstrap.servers": stack.direct_bootstrap})

    async def deleted() -> bool:
        (done,) = client.delete_records([TopicPartition(topic, 0, offset)], request_timeout=30).values()
        return done.exception(40) is None

    await eventually(deleted)


async def eventually(condition: Callable[[], Awaitable[Value]]) -> Value:
    """Return the first value that is true."""
    for _ in range(int(WAIT_SECONDS / POLL_SECONDS)):
        if value := await condition():
            return value
        await asyncio.sleep(POLL_SECONDS)
    raise AssertionError("waited too long")
