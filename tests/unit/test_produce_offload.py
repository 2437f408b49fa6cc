"""The memory of a mixed Produce whose client disconnects: the WAL buffer has the batches, and they stay charged."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.coordinator.interface_registry import DisklessTopic
from proxy.diskless.produce_rules import rules_of
from proxy.diskless.wal.failures import FailedBatches
from proxy.diskless.wal.outcome import Outcome
from proxy.produce_offload import _ClassicHalf, _PendingProduce
from proxy.produce_offload import produce as produce_handler
from proxy.protocol.errors import (
    KAFKA_STORAGE_ERROR,
    NONE,
    REQUEST_TIMED_OUT,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from proxy.wire.produce import (
    FIRST_TOPIC_ID,
    PartitionProduce,
    PartitionProduced,
    ProduceRequest,
    TopicProduce,
    build_produce_request,
)
from tests.batches import make_batch
from tests.unit.client.test_rights import metadata
from tests.unit.connection_double import PRODUCE, connected, produce, turns
from tests.unit.wire.trees import decode, response_type


@pytest.mark.parametrize("timed_out", ["never", "before", "after"])
async def test_batches_stay_charged_until_they_are_settled_though_the_client_has_gone(timed_out):
    opened: list[Any] = []

    def mixed(connection, request):
        parsed: Any = SimpleNamespace(acks=-1, version=3)
        pending = _PendingProduce(connection, request, connection.open_slot(request), parsed)
        pending._open += 1  # one batch
        pending._accepted = pending._classic_awaited = True
        connection.send_upstream([request.frame], _ClassicHalf(request, pending))
        opened.append(pending)

    sent = await connected(handlers={PRODUCE: mixed})
    sent.topics.nothing_diskless = False
    sent.send(produce(1))
    (pending,) = opened
    if timed_out == "before":
        pending._time_out()
    sent.client.close()
    sent.broker.close()
    await turns()
    if timed_out == "after":
        pending._time_out()
    assert sent.memory.used_bytes == len(produce(1)) - 4
    pending._settle([PartitionProduced(0, REQUEST_TIMED_OUT)], 0, Outcome(NONE), size=1)
    assert sent.memory.used_bytes == 0


class Intake:
    """Keeps its batches, and settles them at once."""

    def __init__(self) -> None:
        self.given: list[tuple[bytes, int]] = []
        self.outcome = Outcome(UNKNOWN_TOPIC_OR_PARTITION)

    def append(self, topic_id, partition, *rest):
        self.given.append((topic_id, partition))
        *_, settle = rest
        settle(self.outcome)


async def diskless(timeout_ms: int, version: int, acks: int = -1):
    """Return a client that has sent a Produce for a diskless topic while its broker is being asked."""
    entry = DisklessTopic("orders", b"o" * 16, 1, "live")
    sent = await connected(handlers={PRODUCE: produce_handler})
    intake = Intake()
    context = sent.context
    context.topic_defaults = SimpleNamespace(rules=lambda _: rules_of({}))
    context.intake, context.wall_clock_ms = intake, lambda: 1_700_000_000_000
    context.topics = SimpleNamespace(nothing_diskless=False, find=lambda _: entry)
    context.settings.authorization_cache_ms, context.settings.rack = 60_000, "rack-a"
    context.quotas = SimpleNamespace(throttle_produce=lambda *_: 0)
    context.index_watch = SimpleNamespace(is_full=lambda *_: False)
    context.wal = SimpleNamespace(failures=FailedBatches())
    named = entry.topic_id if version >= FIRST_TOPIC_ID else entry.name
    partitions = [PartitionProduce(0, memoryview(make_batch()))]
    parsed = ProduceRequest(version, None, acks, timeout_ms, [TopicProduce(named, partitions)])
    sent.send(request(PRODUCE, 1, b"".join(build_produce_request(parsed)), version))
    await turns()
    return sent, intake


def request(key, correlation_id, body, version):
    head = struct.pack(">hhih3s", key, version, correlation_id, 3, b"app") + (b"\0" if version >= 9 else b"")
    return struct.pack(">i", len(head) + len(body)) + head + body


def allow(sent):
    """The broker's answer: the client may do all."""
    (asked,) = sent.broker.frames()
    body = asked[4:8] + b"\0" + metadata(orders=0)
    sent.answer(struct.pack(">i", len(body)) + body)


def answered(sent, version: int) -> tuple[int, int]:
    """Return error code and throttle time of the only partition in the client's answer."""
    (frame,) = sent.client.frames()
    tree = decode(response_type(PRODUCE, version), frame[5:])
    return tree["responses"][0]["partition_responses"][0]["error_code"], tree["throttle_time"]


async def test_the_requests_own_time_holds_while_the_broker_is_asked_for_rights() -> None:
    sent, intake = await diskless(timeout_ms=0, version=9)
    assert answered(sent, 9) == (REQUEST_TIMED_OUT, 0)
    allow(sent)
    await turns()
    assert intake.given == [], "what was answered so is not appended afterwards"
    assert sent.client.taken() == b""
    assert sent.memory.used_bytes == 0


@pytest.mark.parametrize(("version", "code"), [(9, UNKNOWN_TOPIC_OR_PARTITION), (13, UNKNOWN_TOPIC_ID)])
async def test_a_topic_that_is_deleted_meanwhile_is_unknown_as_the_client_named_it(version: int, code: int) -> None:
    sent, intake = await diskless(timeout_ms=60_000, version=version)
    allow(sent)
    await turns()
    assert intake.given == [(b"o" * 16, 0)]
    assert answered(sent, version)[0] == code
    assert sent.memory.used_bytes == 0


@pytest.mark.parametrize(
    ("outcome", "stored"),
    [
        (Outcome(NONE, 5), len(make_batch())),
        (Outcome(NONE, 5, duplicate=True), 0),
        (Outcome(KAFKA_STORAGE_ERROR), 0),
    ],
    ids=["stored", "stored before", "refused"],
)
async def test_bytes_count_as_stored_once_and_only_if_they_are(outcome: Outcome, stored: int) -> None:
    sent, intake = await diskless(timeout_ms=60_000, version=9)
    intake.outcome = outcome
    allow(sent)
    await turns()
    stats = sent.context.stats
    assert sum(stats.record_bytes.values()) == len(make_batch()), "what came is counted all the same"
    assert sum(stats.stored_bytes.values()) == stored


async def test_batches_that_a_full_index_would_reject_are_rejected_with_a_throttle_time() -> None:
    sent, intake = await diskless(timeout_ms=60_000, version=9)
    sent.context.index_watch.is_full = lambda topic_id, partition: (topic_id, partition) == (b"o" * 16, 0)
    allow(sent)
    await turns()
    assert intake.given == []
    assert answered(sent, 9) == (KAFKA_STORAGE_ERROR, 1_000)
    assert sent.context.stats.index_full_batches == 1
    assert sent.memory.used_bytes == 0


async def test_a_client_over_its_quota_gets_the_time_and_is_not_read_from() -> None:
    sent, _ = await diskless(timeout_ms=60_000, version=9)
    sent.context.quotas = SimpleNamespace(throttle_produce=lambda *_: 60_000)
    allow(sent)
    await turns()
    assert answered(sent, 9)[1] == 60_000
    assert not sent.client.reading
    sent.client.close()


@pytest.mark.parametrize("error_code", [NONE, KAFKA_STORAGE_ERROR])
async def test_a_request_without_a_waiting_client_leaves_no_answer_behind(error_code: int) -> None:
    """It would count as one that waits for its turn, and one day the client would not be read from any more."""
    sent, intake = await diskless(timeout_ms=1_000, version=9, acks=0)
    intake.outcome = Outcome(error_code)
    allow(sent)
    await turns()
    assert intake.given == [(b"o" * 16, 0)]
    assert sent.memory.used_bytes == 0
    assert sent.connection.answers.held_bytes == 0
    assert sent.client.taken() == b""
    assert sent.client.closing is (error_code != NONE)
