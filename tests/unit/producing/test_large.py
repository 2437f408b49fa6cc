"""A Produce that names very much: accepted and answered in turns, as a small one is at once."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from proxy.client.rights import ANY_ID, RIGHTS, WRITE, Rights, _Known
from proxy.coordinator.interface_registry import DisklessTopic, RegistrySnapshot
from proxy.diskless.wal.outcome import Outcome
from proxy.process.turns import Turns
from proxy.produce_offload import ProduceOffload
from proxy.producing import pending
from proxy.protocol.errors import INVALID_REQUEST, NONE, REQUEST_TIMED_OUT, UNKNOWN_TOPIC_OR_PARTITION
from proxy.wire.produce import (
    PartitionProduce,
    ProduceRequest,
    TopicProduce,
    TopicProduced,
    build_produce_request,
    build_produce_response,
    parse_produce_request,
)
from tests.batches import make_batch
from tests.unit.connection.test_last_words import until
from tests.unit.connection_double import PRODUCE, Sent, connected, response
from tests.unit.test_produce_offload import Intake, diskless_produce, request
from tests.unit.wire.trees import decode, response_type

VERSION, MANY = 9, 2_000
ENTRY = DisklessTopic("orders", b"o" * 16, MANY, "live")
BATCH = memoryview(make_batch())


def topic(name: str, *partitions: int) -> TopicProduce:
    return TopicProduce(name, [PartitionProduce(index, BATCH) for index in partitions])


def produce(correlation_id: int, *topics: TopicProduce, timeout_ms: int = 60_000) -> bytes:
    parsed = ProduceRequest(VERSION, None, -1, timeout_ms, list(topics))
    return request(PRODUCE, correlation_id, b"".join(build_produce_request(parsed)), VERSION)


async def client(intake: Intake) -> Sent:
    """Return a client that may write to a diskless topic."""
    made: list[ProduceOffload] = []
    sent = await connected(
        handlers={PRODUCE: lambda client, request: made[0].produce(client, request)}, memory_bytes=1 << 30
    )
    sent.produce_is_held = True
    sent.topics.take(RegistrySnapshot(2, (ENTRY,)))
    parts = diskless_produce(sent, intake)
    parts.turns = Turns(0.001)
    made.append(ProduceOffload(topics=sent.topics, classic=sent.classic, diskless=parts))
    rights = sent.connection.session[RIGHTS] = Rights(1e9, sent.now)
    rights._known["orders"] = _Known(float("inf"), NONE, WRITE, ANY_ID)
    intake.outcome = Outcome(NONE, 5)
    return sent


async def answers(sent: Sent, number: int) -> list[list[tuple[str, int, int]]]:
    """Return topic, partition and error code of everything in the next answers."""
    frames: list[bytes] = []
    async with asyncio.timeout(60):
        while len(frames) < number:
            await asyncio.sleep(0.001)
            frames += sent.client.frames()
    trees = [decode(response_type(PRODUCE, VERSION), frame[5:]) for frame in frames]
    return [
        [
            (one["name"], partition["index"], partition["error_code"])
            for one in tree["responses"]
            for partition in one["partition_responses"]
        ]
        for tree in trees
    ]


async def test_all_batches_are_taken_in_order_before_the_next_request() -> None:
    intake = Intake()
    sent = await client(intake)
    sent.send(produce(1, topic("orders", *range(MANY))) + produce(2, topic("orders", 5)))
    first, second = await answers(sent, 2)
    assert [partition for _, partition in intake.given] == [*range(MANY), 5]
    assert first == [("orders", index, NONE) for index in range(MANY)]
    assert second == [("orders", 5, NONE)]
    sent.unread.look_once(sent.now())  # the second answer had to wait for the first one
    assert sent.memory.used_bytes == 0


async def test_a_batch_that_the_clients_own_time_cuts_off_is_not_taken() -> None:
    class Slow(Intake):
        def append(self, topic_id: bytes, partition: int, *rest: Any, **more: Any) -> None:
            if partition == 300:
                time.sleep(1.2)
            super().append(topic_id, partition, *rest, **more)

    intake = Slow()
    sent = await client(intake)
    sent.send(produce(1, topic("orders", *range(MANY)), timeout_ms=1_000))
    (answered,) = await answers(sent, 1)
    taken = len(intake.given)
    assert 300 < taken < MANY
    assert [code for *_, code in answered] == [NONE] * taken + [REQUEST_TIMED_OUT] * (MANY - taken)
    async with asyncio.timeout(60):
        while sent.memory.used_bytes:  # noqa: ASYNC110 (nothing announces it)
            await asyncio.sleep(0.001)
    assert len(intake.given) == taken
    assert [partition for _, partition in intake.not_given] == list(range(taken, MANY)), "they are noted as failed"


async def test_a_topic_that_becomes_diskless_between_two_turns_does_not_go_to_the_broker() -> None:
    intake = Intake()
    sent = await client(intake)
    topics, judged, surely_classic = sent.topics, 0, sent.topics.surely_classic

    def judge(name: Any) -> bool:
        nonlocal judged
        judged += 1
        if judged == MANY + MANY // 2:  # the first half of the judgement that accepts
            made = DisklessTopic("classic-0", b"n" * 16, 1, "reserved")
            topics.take(RegistrySnapshot(3, (ENTRY, made)))
        return surely_classic(name)

    topics.surely_classic = judge  # type: ignore[method-assign]
    classic = [topic(f"classic-{number}", 0) for number in range(MANY)]
    sent.send(produce(1, *classic, topic("orders", 0)))
    await until(lambda: bool(sent.broker.written))
    (forwarded,) = sent.broker.frames()
    named = [one.topic for one in parse_produce_request(memoryview(forwarded)[8 + 5 + 1 :], VERSION).topics]
    assert named == [f"classic-{number}" for number in range(1, MANY)]
    answer = build_produce_response(VERSION, [TopicProduced(name, []) for name in named])
    sent.answer(response(1, b"\0" + answer))
    (answered,) = await answers(sent, 1)
    assert answered == [("classic-0", 0, UNKNOWN_TOPIC_OR_PARTITION), ("orders", 0, NONE)]
    assert topics.version == 3


@pytest.mark.parametrize("large", [False, True])
async def test_it_is_answered_alike_in_turns_and_at_once(large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the first batch of a partition that is named twice."""
    if large:

        def accept(self: Any) -> bool:
            self._large = True
            return False

        async def in_turns(self: Any) -> None:
            await self.accept_in_turns()

        monkeypatch.setattr(pending.PendingProduce, "accept", accept)
        monkeypatch.setattr(pending.PendingProduce, "ask_then_accept", in_turns)
    intake = Intake()
    sent = await client(intake)
    sent.send(produce(1, topic("orders", *range(200), 7, MANY), topic("orders", 8, 300)))
    (answered,) = await answers(sent, 1)
    twice, beyond = INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION
    assert answered == [
        *(("orders", index, NONE) for index in range(200)),
        ("orders", 7, twice),
        ("orders", MANY, beyond),
        ("orders", 8, twice),
        ("orders", 300, NONE),
    ]
    assert [partition for _, partition in intake.given] == [*range(200), 300]
