"""A Produce that nobody answers names topics by IDs which may be those of topics that are being created."""

from __future__ import annotations

import asyncio

import pytest

from proxy.client.rights import ANY_ID, RIGHTS, WRITE, Rights, _Known
from proxy.coordinator.interface_registry import NO_TOPIC_ID, DisklessTopic, RegistrySnapshot
from proxy.diskless.wal.outcome import Outcome
from proxy.process.turns import Turns
from proxy.produce_offload import ProduceOffload
from proxy.protocol.errors import NONE
from proxy.wire.produce import PartitionProduce, ProduceRequest, TopicProduce, build_produce_request
from tests.batches import make_batch
from tests.unit.connection.test_last_words import until
from tests.unit.connection_double import PRODUCE, Sent, connected, turns
from tests.unit.test_produce_offload import Intake, diskless_produce, request

VERSION = 13
CLASSIC, NEW = b"c" * 16, b"n" * 16
BATCH = memoryview(make_batch())
SMALL, LARGE = 1, 2_000


def reserved(name: str) -> DisklessTopic:
    return DisklessTopic(name, NO_TOPIC_ID, 1, "reserved")


async def produce(
    topic_id: bytes, number: int, *, timeout_ms: int = 60_000, keeps_s: float = 30.0
) -> tuple[Sent, Intake]:
    """Return a client that has sent a Produce with `number` partitions while `orders` is being created."""
    made: list[ProduceOffload] = []
    sent = await connected(
        handlers={PRODUCE: lambda client, request: made[0].produce(client, request)}, memory_bytes=1 << 30
    )
    sent.produce_is_held = True
    sent.topics.take(RegistrySnapshot(2, (reserved("orders"),)))
    intake = Intake()
    intake.outcome = Outcome(NONE, 5)
    parts = diskless_produce(sent, intake)
    parts.turns = Turns(0.001)
    made.append(ProduceOffload(topics=sent.topics, classic=sent.classic, diskless=parts, keeps_s=lambda: keeps_s))
    rights = sent.connection.session[RIGHTS] = Rights(1e9, sent.now)
    rights._known["orders"] = _Known(float("inf"), NONE, WRITE, ANY_ID)
    partitions = [PartitionProduce(index, BATCH) for index in range(number)]
    parsed = ProduceRequest(VERSION, None, 0, timeout_ms, [TopicProduce(topic_id, partitions)])
    sent.send(request(PRODUCE, 1, b"".join(build_produce_request(parsed)), VERSION))
    if timeout_ms and keeps_s:
        await until(lambda: bool(sent.topics._taken._waiters))  # type: ignore[attr-defined]
    return sent, intake


@pytest.mark.parametrize("number", [SMALL, LARGE])
async def test_a_classic_topics_records_wait_for_topics_that_are_being_created(number: int) -> None:
    sent, intake = await produce(CLASSIC, number)
    sent.topics.take(RegistrySnapshot(3, (reserved("orders"), reserved("later"))))
    await turns(100)
    assert not sent.client.closing
    assert sent.broker.written == b""
    # The topic existed before `later` was reserved.
    sent.topics.take(RegistrySnapshot(4, (DisklessTopic("orders", NEW, LARGE, "live"), reserved("later"))))
    await until(lambda: sent.broker.written != b"")
    assert not sent.client.closing
    assert len(sent.broker.frames()) == 1
    await until(lambda: sent.memory.used_bytes == 0)
    assert intake.given == []


@pytest.mark.parametrize("number", [SMALL, LARGE])
async def test_records_of_a_topic_that_turns_out_to_be_diskless_are_not_sent_to_a_broker(number: int) -> None:
    sent, intake = await produce(NEW, number)
    sent.topics.take(RegistrySnapshot(3, (DisklessTopic("orders", NEW, LARGE, "live"),)))
    await until(lambda: sent.memory.used_bytes == 0)
    assert not sent.client.closing
    assert sent.broker.written == b""
    assert intake.given == [(NEW, index) for index in range(number)]


@pytest.mark.parametrize("number", [SMALL, LARGE])
@pytest.mark.parametrize(("timeout_ms", "keeps_s"), [(0, 30.0), (60_000, 0.0)])
async def test_the_clients_own_timeout_or_the_limit_ends_the_wait(number: int, timeout_ms: int, keeps_s: float) -> None:
    sent, intake = await produce(CLASSIC, number, timeout_ms=timeout_ms, keeps_s=keeps_s)
    await until(lambda: sent.memory.used_bytes == 0)
    assert sent.client.closing
    assert sent.broker.written == b""
    assert intake.given == []


async def test_records_that_the_lost_broker_can_not_get_end_the_connection() -> None:
    """Another broker is just being asked to stand in, so the connection would go on, and nobody would know."""
    sent, _ = await produce(CLASSIC, SMALL)
    sent.any_broker_serves, sent.now_s = True, 1_000.0
    reached = asyncio.Event()

    async def wait(*_: object) -> str:
        await reached.wait()
        return ""

    sent.connection.broker_side.reach = wait  # type: ignore[method-assign]
    sent.broker.close()
    await turns()
    assert not sent.client.closing
    sent.topics.take(RegistrySnapshot(3, (DisklessTopic("orders", NEW, 1, "live"),)))
    await until(lambda: sent.client.closing)
    assert sent.broker.frames() == []
    assert sent.memory.used_bytes == 0
    reached.set()
