"""The memory of a mixed Produce whose client disconnects: the WAL buffer has the batches, and they stay charged."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from proxy.client.rights import ClientRights
from proxy.client.transactional_ids import ClientTransactionalIds
from proxy.coordinator.interface_registry import DisklessTopic, RegistrySnapshot
from proxy.diskless.wal.outcome import Outcome
from proxy.produce_offload import ProduceOffload
from proxy.producing.classic import ClassicHalf
from proxy.producing.parts import DisklessProduce
from proxy.producing.pending import PendingProduce
from proxy.protocol.errors import (
    KAFKA_STORAGE_ERROR,
    LEADER_NOT_AVAILABLE,
    NONE,
    REQUEST_TIMED_OUT,
    TOPIC_AUTHORIZATION_FAILED,
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
from tests.unit.connection_double import PRODUCE, Sent, connected, produce, turns
from tests.unit.wire.trees import decode, response_type


@pytest.mark.parametrize("timed_out", ["never", "before", "after"])
async def test_batches_stay_charged_until_they_are_settled_though_the_client_has_gone(timed_out):
    opened: list[Any] = []
    handled: list[DisklessProduce] = []

    def mixed(client, request):
        parsed = ProduceRequest(3, None, -1, 1_000, [])
        pending = PendingProduce(handled[0], client, request, client.open_slot(request), parsed)
        pending._open += 1  # one batch
        pending._accepted = pending._classic_awaited = True
        half = ClassicHalf(request, pending._classic_answered, pending._classic_lost)
        client.send_upstream([request.frame], half)
        opened.append(pending)

    sent = await connected(handlers={PRODUCE: mixed})
    handled.append(diskless_produce(sent, Intake()))
    sent.produce_is_held = True
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
        self.not_given: list[tuple[bytes, int]] = []
        """Batches that failed before they came here."""
        self.outcome = Outcome(UNKNOWN_TOPIC_OR_PARTITION)

    def append(self, topic_id, partition, *rest, **_):
        self.given.append((topic_id, partition))
        *_, settle = rest
        settle(self.outcome)

    def not_stored(self, topic_id, partition, *producer):
        self.not_given.append((topic_id, partition))

    refused = not_stored


class FullIndex:
    """The index of these partitions is full."""

    def __init__(self) -> None:
        self.full: set[tuple[bytes, int]] = set()

    def is_full(self, topic_id, partition):
        return (topic_id, partition) in self.full


def diskless_produce(sent: Sent, intake: Any) -> DisklessProduce:
    """Return the parts of Produces with diskless topics, in place of those of `sent`."""
    index_watch: Any = FullIndex()
    return DisklessProduce(
        classic=sent.classic,
        topics=sent.topics,
        topic_defaults=sent.parts.topics.topic_defaults,
        rights=ClientRights(sent.settings, sent.now),
        transactional_ids=ClientTransactionalIds(sent.settings, sent.now),
        additions=sent.parts.transactions.additions,
        quotas=sent.parts.clients.quotas,
        index_watch=index_watch,
        intake=intake,
        accounts=sent.accounts,
        racks=sent.racks,
        stats=sent.stats,
        memory=sent.memory,
        turns=sent.shared.turns,
        now=sent.now,
        wall_clock_ms=lambda: 1_700_000_000_000,
    )


async def diskless(timeout_ms: int, version: int, acks: int = -1, named: int = 1) -> tuple[Any, Intake]:
    """Return a client that has sent a Produce for a diskless topic while its broker is being asked.

    `named`: number of times that the request names the partition.
    """
    entry = DisklessTopic("orders", b"o" * 16, 1, "live")
    made: list[ProduceOffload] = []
    sent: Any = await connected(handlers={PRODUCE: lambda client, request: made[0].produce(client, request)})
    sent.produce_is_held = True
    sent.topics.take(RegistrySnapshot(2, (entry,)))
    intake = Intake()
    sent.diskless = diskless_produce(sent, intake)
    made.append(ProduceOffload(topics=sent.topics, classic=sent.classic, diskless=sent.diskless))
    topic = entry.topic_id if version >= FIRST_TOPIC_ID else entry.name
    partitions = [PartitionProduce(0, memoryview(make_batch()))] * named
    parsed = ProduceRequest(version, None, acks, timeout_ms, [TopicProduce(topic, partitions)])
    sent.send(request(PRODUCE, 1, b"".join(build_produce_request(parsed)), version))
    await turns()
    return sent, intake


def request(key, correlation_id, body, version):
    head = struct.pack(">hhih3s", key, version, correlation_id, 3, b"app") + (b"\0" if version >= 9 else b"")
    return struct.pack(">i", len(head) + len(body)) + head + body


def allow(sent, error_code=NONE):
    """Answer for the broker: the client may do all, unless there is an error."""
    (asked,) = sent.broker.frames()
    body = asked[4:8] + b"\0" + metadata(orders=error_code)
    sent.answer(struct.pack(">i", len(body)) + body)


def answered(sent, version: int) -> tuple[int, int]:
    """Return error code and throttle time of the only partition in the client's answer."""
    (frame,) = sent.client.frames()
    tree = decode(response_type(PRODUCE, version), frame[5:])
    return tree["responses"][0]["partition_responses"][0]["error_code"], tree["throttle_time"]


@pytest.mark.parametrize(("error_code", "noted"), [(NONE, 1), (TOPIC_AUTHORIZATION_FAILED, 0)])
async def test_the_requests_own_time_holds_while_the_broker_is_asked_for_rights(error_code: int, noted: int) -> None:
    """The later batches of a producer must not pass first; a client without the right must not stop a producer."""
    sent, intake = await diskless(timeout_ms=0, version=9)
    assert answered(sent, 9) == (REQUEST_TIMED_OUT, 0)
    allow(sent, error_code)
    await turns()
    assert intake.given == [], "what was answered so is not appended afterwards"
    assert intake.not_given == [(b"o" * 16, 0)] * noted
    assert sent.client.taken() == b""
    assert sent.memory.used_bytes == 0


async def test_a_partition_named_twice_of_a_topic_deleted_meanwhile_has_no_second_answer() -> None:
    sent, intake = await diskless(timeout_ms=0, version=9, named=2)
    assert answered(sent, 9) == (REQUEST_TIMED_OUT, 0)
    sent.topics.take(RegistrySnapshot(3, (DisklessTopic("orders", b"o" * 16, 1, "deleted"),)))
    allow(sent)
    await turns()
    assert (intake.given, intake.not_given, sent.client.taken()) == ([], [], b"")
    assert not sent.client.closing, "the connection is to stay"


@pytest.mark.parametrize(("error_code", "noted"), [(LEADER_NOT_AVAILABLE, 1), (TOPIC_AUTHORIZATION_FAILED, 0)])
async def test_a_batch_that_the_brokers_answer_rejects_for_now_is_noted(error_code: int, noted: int) -> None:
    """A client retries the batch after such an error: its later batches must not be stored before it."""
    sent, intake = await diskless(timeout_ms=60_000, version=9)
    allow(sent, error_code)
    await turns()
    assert answered(sent, 9) == (error_code, 0)
    assert (intake.given, intake.not_given) == ([], [(b"o" * 16, 0)] * noted)


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
    stats = sent.stats
    assert sum(stats.record_bytes.values()) == len(make_batch()), "what came is counted all the same"
    assert sum(stats.stored_bytes.values()) == stored


async def test_batches_that_a_full_index_would_reject_are_rejected_with_a_throttle_time() -> None:
    sent, intake = await diskless(timeout_ms=60_000, version=9)
    sent.diskless.index_watch.full.add((b"o" * 16, 0))
    allow(sent)
    await turns()
    assert (intake.given, intake.not_given) == ([], [(b"o" * 16, 0)])
    assert answered(sent, 9) == (KAFKA_STORAGE_ERROR, 1_000)
    assert sent.stats.index_full_batches == 1
    assert sent.memory.used_bytes == 0


async def test_a_client_over_its_quota_gets_the_time_and_is_not_read_from() -> None:
    sent, _ = await diskless(timeout_ms=60_000, version=9)
    sent.diskless.quotas.throttle_produce = lambda *_: 60_000
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
