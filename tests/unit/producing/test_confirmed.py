"""A Produce to a classic topic by name, without a lease: acknowledged only if the name still has the topic's ID."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any

import pytest

from proxy.coordinator.interface_registry import RegistrySnapshot
from proxy.process.turns import Turns
from proxy.produce_offload import ProduceOffload
from proxy.protocol.errors import KAFKA_STORAGE_ERROR, MESSAGE_TOO_LARGE, NONE, NOT_LEADER_OR_FOLLOWER
from proxy.wire.produce import (
    PartitionProduce,
    PartitionProduced,
    ProduceRequest,
    TopicProduce,
    TopicProduced,
    build_produce_request,
    build_produce_response,
    parse_produce_response,
)
from tests.batches import make_batch
from tests.unit.client.test_rights import metadata
from tests.unit.connection_double import PRODUCE, connected, turns
from tests.unit.test_produce_offload import Intake, diskless_produce, request

OLD, NEW = b"1" * 16, b"2" * 16
VERSION = 9


async def produced(*, acks: int = -1, lease_runs: bool = False) -> Any:
    """Return a client that has sent a Produce to a topic that was seen to be classic."""
    made: list[ProduceOffload] = []
    sent: Any = await connected(handlers={PRODUCE: lambda client, request: made[0].produce(client, request)})
    sent.produce_is_held = True
    runs = [True]
    topics = sent.topics
    topics._lease_runs = lambda: runs[0]
    topics.take(RegistrySnapshot(1, ()))
    assert topics.surely_classic("orders")
    topics.classic.confirm("orders", OLD, asked_s=topics.classic.now(), is_current=True)
    runs[0] = lease_runs
    diskless = diskless_produce(sent, Intake())
    diskless.turns = Turns(0.001)
    made.append(ProduceOffload(topics=topics, classic=sent.classic, diskless=diskless))
    partitions = [PartitionProduce(index, memoryview(make_batch())) for index in range(3)]
    parsed = ProduceRequest(VERSION, None, acks, 60_000, [TopicProduce("orders", partitions)])
    sent.send(request(PRODUCE, 1, b"".join(build_produce_request(parsed)), VERSION))
    await until(lambda: sent.broker.written)
    return sent


async def until(happened: Callable[[], object]) -> None:
    """Wait for large requests, which are handled in turns."""
    for _ in range(1_000):
        await turns()
        if happened():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it does not happen")


def answer(sent: Any, frame: bytes, body: bytes | memoryview) -> None:
    """Answer a request for the broker."""
    answered = frame[4:8] + b"\0" + bytes(body)
    sent.answer(struct.pack(">i", len(answered)) + answered)


def errors(sent: Any) -> list[tuple[int, int]]:
    """Return error code and base offset of each partition in the client's answer."""
    (frame,) = sent.client.frames()
    (topic,) = parse_produce_response(frame[5:], VERSION)
    return [(one.error_code, one.base_offset) for one in topic.partitions]


ANSWERS = [
    PartitionProduced(0, NONE, 7),
    PartitionProduced(1, NOT_LEADER_OR_FOLLOWER),
    PartitionProduced(2, MESSAGE_TOO_LARGE),
]
BODY = build_produce_response(VERSION, [TopicProduced("orders", ANSWERS)])
AS_IT_CAME = [(NONE, 7), (NOT_LEADER_OR_FOLLOWER, -1), (MESSAGE_TOO_LARGE, -1)]
REJECTED = [(KAFKA_STORAGE_ERROR, -1), (NOT_LEADER_OR_FOLLOWER, -1), (KAFKA_STORAGE_ERROR, -1)]
"""A placeholder topic takes no batch of that size: the classic topic may have taken it."""


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(("topic_id", "expected"), [(OLD, AS_IT_CAME), (NEW, REJECTED), (None, REJECTED)])
async def test_the_answer_waits_for_the_topics_id(
    topic_id: bytes | None, expected: list[tuple[int, int]], large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:
        monkeypatch.setattr("proxy.produce_offload._MOST_AT_ONCE", 1)
    sent = await produced()
    produce, question = sent.broker.frames()
    answer(sent, produce, BODY)
    await turns()
    assert sent.client.taken() == b""
    answer(sent, question, metadata(topic_id, orders=NONE) if topic_id else metadata())
    await until(lambda: sent.client.written)
    assert errors(sent) == expected
    assert sent.memory.used_bytes == 0


async def test_a_broker_that_goes_before_it_confirms_leaves_no_answer() -> None:
    sent = await produced()
    produce, _ = sent.broker.frames()
    answer(sent, produce, BODY)
    sent.broker.close()
    await turns()
    assert sent.client.taken() == b""
    assert sent.client.closing
    assert sent.memory.used_bytes == 0


async def test_nothing_is_asked_while_the_lease_runs() -> None:
    sent = await produced(lease_runs=True)
    (produce,) = sent.broker.frames()
    answer(sent, produce, BODY)
    await turns()
    assert errors(sent) == AS_IT_CAME


async def test_nobody_waits_for_an_answer_without_acks() -> None:
    sent = await produced(acks=0)
    assert len(sent.broker.frames()) == 1
    assert sent.memory.used_bytes == 0
