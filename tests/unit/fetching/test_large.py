"""Fetches of very many classic partitions on a foreign listener: complete answers, and no long step of the loop."""

from __future__ import annotations

import asyncio
import gc
import time
import warnings
from contextlib import suppress
from typing import Any

import pytest

from proxy.client.request import Request
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.fetch_router import FetchRouter
from proxy.process.turns import Turns
from proxy.wire.fetch import FetchRequest, PartitionFetch, TopicFetch, build_fetch_request
from proxy.wire.fetch_response import FetchResponse, parse_fetch_response
from proxy.wire.header import request_header
from proxy.wire.partition_states import PartitionState
from tests.support.loop_steps import Steps, measured_steps, unit_s
from tests.unit.fetching.broker_model import LEADER, NEAR, Log, ModelBroker, Proxied, leader_reads

LONGEST_STEP_UNITS = 12.0
"""Ten milliseconds or so."""
MOST_NEAR = 2_000
MANY = 20_000
_IN_SYNC = PartitionState(LEADER, 5, (LEADER, NEAR), (LEADER, NEAR))


class Broker(ModelBroker):
    """A broker whose own work does not count."""

    steps: Steps | None = None

    def answer(self, version: int, body: bytes) -> bytes:
        began = time.thread_time()
        answer = super().answer(version, body)
        if self.steps is not None:
            self.steps.not_counted_s += time.thread_time() - began
        return answer


def proxied(partitions: int) -> Proxied:
    """Return a client of topic `t`, which its leader and a near replica have, and of a diskless topic `d`."""
    made = Proxied({"t": dict.fromkeys(range(partitions), _IN_SYNC)})
    record = (0, 2, bytes(8) + (88).to_bytes(4, "big") + bytes(88))
    for node in (LEADER, NEAR):
        made.brokers[node] = Broker()
        for index in range(partitions):
            log = Log([record] if index % 10 == 0 else [], high_watermark=3 if index % 10 == 0 else 0)
            for topic in ("t", b"t".ljust(16, b"\0")):
                made.brokers[node].logs[topic, index] = log
    return made


def request(partitions: int, version: int, *, diskless: bool = False) -> Request:
    topic: Any = (lambda name: name) if version < 13 else (lambda name: name.encode().ljust(16, b"\0"))
    topics = [TopicFetch(topic("t"), [PartitionFetch(one, -1, 0, -1, -1, 1 << 20) for one in range(partitions)])]
    if diskless:
        topics.append(TopicFetch(topic("d"), [PartitionFetch(0, -1, 0, -1, -1, 1 << 20)]))
    body = build_fetch_request(FetchRequest(version, -1, 0, 1, 1 << 30, 0, 0, -1, topics, [], ""))
    frame = memoryview(request_header(1, version, 7, "client") + body)
    return Request(1, version, 7, "client", frame, frame[len(frame) - len(body) :])


async def answered(of: Proxied, asked: Request) -> tuple[FetchResponse, float]:
    """Return the answer, and the longest step in units of work."""
    parts: Any = of
    router = FetchRouter(topics=parts.topics, racks=parts.racks, sources=of.sources())
    unit = unit_s()
    with measured_steps() as steps:
        for broker in of.brokers.values():
            if isinstance(broker, Broker):
                broker.steps = steps
        body = await of.answer(router.fetch, asked)
    body = body or b"".join(of.response)
    longest = steps.longest_s / max(unit, unit_s())
    print(f"{steps.count} steps, longest {steps.longest_s * 1000:.1f} ms, {longest:.1f} units")
    return parse_fetch_response(body, asked.api_version), longest


def assert_complete(response: FetchResponse, partitions: int, *others: str | bytes) -> None:
    first, *rest = response.topics
    assert [one.index for one in first.partitions] == list(range(partitions))
    assert [bool(one.records_length) for one in first.partitions] == [index % 10 == 0 for index in range(partitions)]
    assert [topic.topic for topic in rest] == list(others)


async def shortest(partitions: int, asked: Request, diskless: bool = False) -> tuple[FetchResponse, Proxied]:
    """Fail if a step takes too long in each of three attempts."""
    longest = []
    for _ in range(3):
        of = proxied(partitions)
        if diskless:
            entry = DisklessTopic("d", b"d".ljust(16, b"\0"), 0, "live")
            of.topics.diskless |= {"d": entry, entry.topic_id: entry}
            of.allow("d")
        response, took = await answered(of, asked)
        longest.append(took)
        if took <= LONGEST_STEP_UNITS:
            return response, of
    raise AssertionError(f"the longest step takes {min(longest):.1f} units of {sorted(longest)}")


@pytest.mark.parametrize("version", [4, 11, 12, 13])
async def test_the_most_partitions_that_are_read_near(version: int) -> None:
    response, of = await shortest(MOST_NEAR, request(MOST_NEAR, version))
    assert_complete(response, MOST_NEAR)
    assert not of.brokers[LEADER].asked
    assert leader_reads(of) == {}


@pytest.mark.parametrize("version", [4, 13])
async def test_more_partitions_stream_from_the_leader(version: int) -> None:
    response, of = await shortest(MANY, request(MANY, version))
    assert_complete(response, MANY)
    assert not of.brokers[NEAR].asked
    assert leader_reads(of) == {"too_many": MANY}
    assert sum(of.stats.leader_read_bytes.values()) == MANY // 10 * 100


@pytest.mark.parametrize("version", [4, 11, 13])
async def test_more_partitions_next_to_a_diskless_one(version: int) -> None:
    response, of = await shortest(MANY, request(MANY, version, diskless=True), diskless=True)
    assert_complete(response, MANY, "d" if version < 13 else b"d".ljust(16, b"\0"))
    assert not of.brokers[NEAR].asked
    assert leader_reads(of) == {"too_many": MANY}
    assert sum(of.stats.leader_read_bytes.values()) == MANY // 10 * 100


@pytest.mark.parametrize("last", range(1, 7))
async def test_a_client_that_leaves_in_any_turn_leaves_no_read_that_nobody_awaits(
    last: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    of: Any = proxied(200)
    router = FetchRouter(topics=of.topics, racks=of.racks, sources=of.sources())
    next_turn, count = Turns.next, 0

    async def end_in_turn(turns: Turns) -> float:
        nonlocal count
        count += 1
        if count == last:
            raise asyncio.CancelledError
        return await next_turn(turns)

    monkeypatch.setattr(Turns, "next", end_in_turn)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with suppress(asyncio.CancelledError):
            await of.answer(router.fetch, request(200, 13))
        gc.collect()
    assert not [str(warning.message) for warning in caught]
