"""Several sources in one Fetch: rounds until there are enough bytes, from any source."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from proxy.brokers.upstream import BrokerUnreachable
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.diskless.diskless_reader import PartitionRead
from proxy.fetching.asked import FetchAsked
from proxy.fetching.rounds import Fetching
from proxy.fetching.route import NOWHERE_NEAR, ROUTER
from proxy.process.memory import MemoryBudget
from proxy.protocol.errors import NOT_LEADER_OR_FOLLOWER
from proxy.replicas.choice import LeaderReason
from proxy.wire.fetch import parse_fetch_request
from proxy.wire.partition_states import PartitionState
from tests.unit.client_double import request_of
from tests.unit.fetching.broker_model import ALSO_NEAR, LEADER, NEAR, Log, Proxied, Reader, leader_reads
from tests.unit.fetching.test_routed import asked, batches

LONG_MS = 60_000
_REPLICAS = {0: NEAR, 1: ALSO_NEAR, 2: None}


def proxied_with(*partitions: int) -> Proxied:
    """Partition 0 of topic `t` has one near replica, 1 another, 2 none; all are empty."""
    states = {}
    for partition in partitions:
        replicas = tuple(node for node in (LEADER, _REPLICAS[partition]) if node is not None)
        states[partition] = PartitionState(LEADER, 5, replicas, replicas)
    proxied = Proxied({"t": states})
    for partition, state in states.items():
        for node in state.replicas:
            log = proxied.brokers[node].logs["t", partition] = Log()
            proxied.brokers[node].logs[proxied.known["t"].topic_id, partition] = log
    return proxied


def append(proxied: Proxied, node: int, partition: int, *sizes: int) -> None:
    log = proxied.brokers[node].logs["t", partition]
    log.batches, log.high_watermark = batches(*sizes), 3 * len(sizes)


def lengths(response: Any) -> list[tuple[str, int, int]]:
    return [
        (topic.topic, one.index, max(one.records_length, 0)) for topic in response.topics for one in topic.partitions
    ]


async def until_asked(proxied: Proxied, node: int, times: int) -> None:
    """Let the Fetch run until a broker was asked `times` times."""
    for _ in range(10_000):
        if len(proxied.brokers[node].asked) >= times:
            return
        await asyncio.sleep(0.001)
    pytest.fail(f"broker {node} was asked {len(proxied.brokers[node].asked)} times, not {times}")


@pytest.mark.parametrize(("node", "partition"), [(NEAR, 0), (ALSO_NEAR, 1), (LEADER, 2)])
async def test_records_of_any_source_end_the_wait(node: int, partition: int) -> None:
    proxied = proxied_with(0, 1, 2)
    names = [("t", 2, 0), ("t", 0, 0), ("t", 1, 0)]
    waiting = asyncio.create_task(proxied.fetch(asked(12, *names, max_wait_ms=LONG_MS)))
    await until_asked(proxied, LEADER, 3)
    assert not waiting.done()
    append(proxied, node, partition, 100)
    assert lengths(await waiting) == [("t", index, 100 if index == partition else 0) for _, index, _ in names]
    assert leader_reads(proxied) == {LeaderReason.NO_NEAR_REPLICA: 1}
    assert not proxied.memory.used_bytes
    topic_id = proxied.known["t"].topic_id
    assert {tuple(topic.topic for topic in one.topics) for one in proxied.brokers[NEAR].asked} == {(topic_id,)}


async def test_enough_is_what_all_have_together() -> None:
    proxied = proxied_with(0, 1)
    append(proxied, NEAR, 0, 100)
    waiting = asyncio.create_task(
        proxied.fetch(asked(12, ("t", 0, 0), ("t", 1, 0), min_bytes=250, max_wait_ms=LONG_MS))
    )
    await until_asked(proxied, ALSO_NEAR, 3)
    assert not waiting.done()
    # A source must wait until it has the missing bytes, or it would give the same answer again and again.
    assert proxied.brokers[NEAR].asked[-1].min_bytes == 250
    assert proxied.brokers[ALSO_NEAR].asked[-1].min_bytes == 150
    append(proxied, ALSO_NEAR, 1, 150)
    assert lengths(await waiting) == [("t", 0, 100), ("t", 1, 150)]


async def test_after_a_fetch_that_got_nothing_the_rounds_are_long_from_the_start() -> None:
    proxied = proxied_with(0, 1)
    proxied.set("fetch", mixed_wait_ms=5_000)
    broker = proxied.brokers[NEAR]
    request = asked(12, ("t", 0, 0), ("t", 1, 0), max_wait_ms=1)
    await proxied.fetch(request)
    assert broker.asked[0].max_wait_ms == 0
    before = len(broker.asked)
    append(proxied, NEAR, 0, 100)
    await proxied.fetch(request._replace(max_wait_ms=LONG_MS))
    assert 4_000 < broker.asked[before].max_wait_ms <= 5_000
    assert len(broker.asked) == before + 1
    await proxied.fetch(request)
    assert broker.asked[-1].max_wait_ms == 0


async def test_a_replica_that_fails_between_rounds_leaves_its_part_to_the_leader() -> None:
    proxied = proxied_with(0, 1)
    waiting = asyncio.create_task(proxied.fetch(asked(12, ("t", 0, 0), ("t", 1, 0), max_wait_ms=LONG_MS)))
    await until_asked(proxied, NEAR, 2)
    proxied.brokers[NEAR].reason = LeaderReason.UNREACHABLE
    await until_asked(proxied, LEADER, 2)
    assert not waiting.done()
    append(proxied, LEADER, 0, 100, 50)
    assert lengths(await waiting) == [("t", 0, 150), ("t", 1, 0)]
    assert leader_reads(proxied) == {LeaderReason.UNREACHABLE: 1}
    assert proxied.stats.leader_read_bytes == {LeaderReason.UNREACHABLE: 150}


@pytest.mark.parametrize("order", [("t", "d"), ("d", "t")])
@pytest.mark.parametrize("diskless_first_has_it", [True, False])
async def test_a_diskless_half_together_with_a_near_replica(
    order: tuple[str, str], diskless_first_has_it: bool
) -> None:
    proxied = proxied_with(0)
    entry = DisklessTopic("d", b"d" * 16, 1, "live")
    records: list[bytes] = []

    def read(requests: Any) -> list[PartitionRead]:
        assert [request.topic_id for request in requests] == [entry.topic_id]
        return [PartitionRead(0, list(records), sum(map(len, records)), 0, 3)]

    reader = proxied.reader = Reader(read)
    proxied.topics.diskless["d"] = entry
    proxied.allow("d")
    waiting = asyncio.create_task(proxied.fetch(asked(12, *((name, 0, 0) for name in order), max_wait_ms=LONG_MS)))
    await until_asked(proxied, NEAR, 3)
    assert not waiting.done()
    if diskless_first_has_it:
        records.append(b"r" * 70)
        reader.news[0].set()
    else:
        append(proxied, NEAR, 0, 100)
    sizes = {"d": 70, "t": 0} if diskless_first_has_it else {"d": 0, "t": 100}
    assert lengths(await waiting) == [(name, 0, sizes[name]) for name in order]
    assert not reader.listening
    assert not proxied.brokers[LEADER].asked
    near = {key: size for key, size in proxied.stats.record_bytes.items() if size}
    kind, name = ("diskless", "d") if diskless_first_has_it else ("classic", "t")
    assert near == {(kind, "fetch", "near", "near", name): sizes[name]}


async def test_a_leader_that_hangs_holds_up_the_others_for_a_grace_only() -> None:
    proxied = proxied_with(0, 2)
    append(proxied, NEAR, 0, 100)
    append(proxied, LEADER, 2, 50)
    names = [("t", 2, 0), ("t", 0, 0)]
    assert lengths(await proxied.fetch(asked(12, *names))) == [("t", 2, 50), ("t", 0, 100)]
    proxied.frozen = True
    proxied.set("fetch", replica_grace_ms=10)
    for version in (4, 7, 12, 13):
        response = await proxied.fetch(asked(version, *names, max_wait_ms=1))
        assert response is not None
        assert [size for _, _, size in lengths(response)] == [0, 100]
        of_leader = response.topics[0].partitions[0]
        assert (of_leader.error_code, of_leader.high_watermark, of_leader.last_stable_offset) == (0, 3, 3)
    assert proxied.session[ROUTER].leader_silence.since_s is not None
    proxied.frozen = False
    proxied.set("fetch", replica_grace_ms=60_000)
    assert lengths(await proxied.fetch(asked(12, *names))) == [("t", 2, 50), ("t", 0, 100)]
    assert proxied.session[ROUTER].leader_silence.since_s is None
    proxied.frozen = True
    proxied.set("fetch", replica_grace_ms=10)
    proxied.set("brokers", request_timeout_ms=0)
    with pytest.raises(BrokerUnreachable):
        await proxied.fetch(asked(12, *names))
    assert not proxied.memory.used_bytes


@pytest.mark.parametrize("has_spoken", [True, False])
async def test_a_leader_that_was_silent_long_ago_may_have_spoken_since(has_spoken: bool) -> None:
    proxied = proxied_with(0, 2)
    names = [("t", 2, 0), ("t", 0, 0)]
    proxied.set("fetch", replica_grace_ms=10)
    proxied.frozen = True
    response = await proxied.fetch(asked(12, *names))
    assert lengths(response) == [("t", 2, 0), ("t", 0, 0)]
    of_leader = response.topics[0].partitions[0]
    assert of_leader.error_code == NOT_LEADER_OR_FOLLOWER, (
        "no high watermark is known, and none is the end to librdkafka"
    )
    proxied.session[ROUTER].leader_silence.since_s -= 1e6
    proxied.upstream_bytes += has_spoken
    if has_spoken:
        assert lengths(await proxied.fetch(asked(12, *names))) == [("t", 2, 0), ("t", 0, 0)]
    else:
        with pytest.raises(BrokerUnreachable):
            await proxied.fetch(asked(12, *names))


async def test_a_slow_answer_of_the_leader_is_waited_for_as_long_as_it_comes() -> None:
    proxied = proxied_with(0, 2)
    append(proxied, LEADER, 2, 50)
    proxied.set("fetch", replica_grace_ms=500)

    async def ask(request: Any, api_key: int, version: int, body: bytes, question: Any) -> memoryview:
        for _ in range(800):
            await asyncio.sleep(0.001)
            proxied.upstream_bytes += 1
        return memoryview(proxied.brokers[LEADER].answer(version, body))

    proxied.ask = ask  # type: ignore[method-assign]
    assert lengths(await proxied.fetch(asked(12, ("t", 2, 0), ("t", 0, 0)))) == [("t", 2, 50), ("t", 0, 0)]


@pytest.mark.parametrize("error_code", [1, 6])
async def test_a_leader_that_hangs_after_a_replica_failed_ends_the_connection(error_code: int) -> None:
    proxied = proxied_with(0)
    proxied.brokers[NEAR].logs["t", 0].error_code, proxied.frozen = error_code, True
    proxied.set("brokers", request_timeout_ms=10)
    async with asyncio.timeout(20):
        with pytest.raises(BrokerUnreachable):
            await proxied.fetch(asked(12, ("t", 0, 0), max_wait_ms=1))


async def test_a_leaders_records_next_to_others_wait_for_memory_and_are_charged() -> None:
    proxied = proxied_with(0, 2)
    append(proxied, NEAR, 0, 100)
    append(proxied, LEADER, 2, 5000)
    memory = proxied.replica_memory = MemoryBudget(10_000)
    memory.take(9_000)
    waiting = asyncio.create_task(proxied.fetch(asked(12, ("t", 2, 0), ("t", 0, 0), max_wait_ms=LONG_MS)))
    await asyncio.wait([waiting], timeout=0.2)
    assert not waiting.done()
    assert memory.contended
    memory.give_back(9_000)
    assert lengths(await waiting) == [("t", 2, 5000), ("t", 0, 100)]
    assert not memory.used_bytes


@pytest.mark.parametrize("version", [4, 12, 16])
async def test_the_leaders_answer_streams_if_no_replica_is_left(version: int) -> None:
    """All readers of a rack have that at the same time, when its broker fails."""
    proxied = proxied_with(0, 1)
    for partition, node in ((0, NEAR), (1, ALSO_NEAR)):
        append(proxied, LEADER, partition, 100)
        proxied.brokers[node].reason = LeaderReason.UNREACHABLE
    request = asked(version, ("t", 0, 0), ("t", 1, 0), max_wait_ms=LONG_MS)
    response = await proxied.fetch(request._replace(session_epoch=0) if version >= 7 else request)
    assert [size for _, _, size in lengths(response)] == [100, 100]
    (forwarded,) = proxied.forwarded
    parsed = parse_fetch_request(forwarded.body, version)
    assert (parsed.session_id, parsed.session_epoch, parsed.topics) == (0, -1, request.topics)
    assert LONG_MS - 10_000 < parsed.max_wait_ms <= LONG_MS
    assert leader_reads(proxied) == {LeaderReason.UNREACHABLE: 2}
    assert proxied.stats.leader_read_bytes == {LeaderReason.UNREACHABLE: 200}


@pytest.mark.parametrize("steps", range(6))
async def test_news_and_a_cancellation_together_end_the_wait(steps: int) -> None:
    proxied = proxied_with(0)
    parsed = asked(12, ("t", 0, 0))
    request, client = request_of(1, 12, b""), cast(Any, proxied)
    whole = FetchAsked(request, parsed, parsed.topics, [], parsed.topics)
    fetching = Fetching(proxied.sources(), client, whole, NOWHERE_NEAR)
    news = asyncio.Event()
    far_s = proxied.now() + 1000

    async def wait() -> None:
        await fetching._wait(news, far_s, far_s)
        await asyncio.Event().wait()

    waiting = asyncio.create_task(wait())
    for _ in range(3):
        await asyncio.sleep(0)
    news.set()
    for _ in range(steps):
        await asyncio.sleep(0)
    waiting.cancel()
    for _ in range(20):
        await asyncio.sleep(0)
    assert waiting.cancelled()
