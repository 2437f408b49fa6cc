"""Cached knowledge of classic topics: one request for all waiters, refreshed, expired, and bounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress

import pytest
import structlog

from proxy.brokers.upstream import BrokerUnreachable
from proxy.replicas import knowledge
from proxy.replicas.knowledge import Replicas
from proxy.wire.metadata import parse_metadata_request
from proxy.wire.partition_states import PartitionState
from tests.unit.wire.trees import encode, response_type

UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID = 3, 100
INTERVAL_S = 0.02


def id_of(name: str) -> bytes:
    return name.encode().ljust(16, b"\1")


class Brokers:
    """Answers Metadata v12 with a test's topics."""

    def __init__(self, *names: str) -> None:
        self.topics = {name: (id_of(name), [PartitionState(1, 0, (1, 2, 3), (1, 2, 3))]) for name in names}
        self.asked: list[list[str | bytes]] = []
        self.failure: Exception | None = None
        self.answering = asyncio.Event()
        self.answering.set()

    async def ask(self, api_key: int, api_version: int, body: bytes | list) -> memoryview:
        request = parse_metadata_request(body, api_version)
        assert (api_key, api_version, request.allow_auto_topic_creation) == (3, 12, False)
        assert request.topics
        asked = [topic.topic_id if topic.name is None else topic.name for topic in request.topics]
        assert len({type(key) for key in asked}) == 1, "brokers look at IDs only where there are any"
        self.asked.append(asked)
        await self.answering.wait()
        if self.failure is not None:
            raise self.failure
        topics = [self._topic(key) for key in asked]
        tree = {"throttle_time": 0, "brokers": [], "cluster_id": None, "controller_id": 1, "topics": topics}
        return memoryview(encode(response_type(3, 12), tree))

    def _topic(self, key: str | bytes) -> dict:
        name = next((name for name, (topic_id, _) in self.topics.items() if key in (name, topic_id)), None)
        operations = {"is_internal": False, "topic_authorized_operations": 0}
        if name is None:
            if isinstance(key, bytes):
                description = {"error_code": UNKNOWN_TOPIC_ID, "name": None, "topic_id": key}
            else:
                description = {"error_code": UNKNOWN_TOPIC_OR_PARTITION, "name": key, "topic_id": bytes(16)}
            return description | {"partitions": []} | operations
        topic_id, states = self.topics[name]
        partitions = [
            {
                "error_code": 0,
                "partition_index": index,
                "leader_id": state.leader,
                "leader_epoch": state.leader_epoch,
                "replica_nodes": list(state.replicas),
                "isr_nodes": list(state.isr),
                "offline_replicas": [],
            }
            for index, state in enumerate(states)
        ]
        return {"error_code": 0, "name": name, "topic_id": topic_id, "partitions": partitions} | operations

    def move(self, name: str, state: PartitionState) -> None:
        self.topics[name] = (self.topics[name][0], [state])


@asynccontextmanager
async def following(brokers: Brokers, *, interval_s: float = 60.0, max_topics: int = 100) -> AsyncIterator[Replicas]:
    replicas = Replicas(brokers.ask, asyncio.get_running_loop().time, interval_s=interval_s, max_topics=max_topics)
    task = asyncio.create_task(replicas.follow())
    try:
        yield replicas
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(condition, replicas: Replicas, used: Iterable[str] = ()) -> None:
    """Until it is so; the topics `used` are looked at meanwhile."""
    async with asyncio.timeout(30):
        while not condition():
            for name in used:
                replicas.topic(name)
            await asyncio.sleep(0.001)


async def test_a_topic_is_known_by_name_and_by_id_as_the_same_object() -> None:
    brokers = Brokers("a", "b")
    async with following(brokers) as replicas:
        assert replicas.topic("a") is None
        await replicas.know(["a", id_of("b")])
        known = replicas.topic("a")
        assert known is not None
        assert (known.name, known.topic_id) == ("a", id_of("a"))
        assert known.partitions == {0: PartitionState(1, 0, (1, 2, 3), (1, 2, 3))}
        assert replicas.topic(id_of("a")) is known
        assert replicas.topic("b") is replicas.topic(id_of("b")) is not None
        assert sorted(brokers.asked, key=str) == [["a"], [id_of("b")]]
        await replicas.know(["a", "b"])
        assert len(brokers.asked) == 2
        assert len(replicas) == 2


async def test_concurrent_lookups_share_one_request() -> None:
    brokers = Brokers("a", "b")
    brokers.answering.clear()
    async with following(brokers) as replicas:
        waiting = [asyncio.create_task(replicas.know(["a"])) for _ in range(5)]
        await until(lambda: brokers.asked, replicas)
        late = [asyncio.create_task(replicas.know(topics)) for topics in (["a"], ["a", "b"])]
        await asyncio.sleep(0)
        brokers.answering.set()
        await asyncio.gather(*waiting, *late)
        assert brokers.asked == [["a"], ["b"]]
        assert replicas.topic("b") is not None


@pytest.mark.parametrize("failure", [None, BrokerUnreachable("no broker")])
async def test_a_failed_lookup_is_not_repeated_at_once(failure) -> None:
    brokers = Brokers()
    brokers.failure = failure
    async with following(brokers) as replicas:
        with structlog.testing.capture_logs() as logged:
            await replicas.know(["a", id_of("a")])
            await replicas.know(["a"])
            await replicas.know([id_of("a")])
        assert replicas.topic("a") is None
        assert len(brokers.asked) == (2 if failure is None else 1)
        assert [line["event"] for line in logged] == ([] if failure is None else ["replicas_unknown"])


async def test_made_up_names_hold_up_nobody() -> None:
    """Anybody may name topics that exist nowhere, without end."""
    brokers = Brokers("real", "read")
    async with following(brokers, interval_s=INTERVAL_S, max_topics=10_000) as replicas:
        await replicas.know(["read"])
        ended = False

        async def make_up(first: str) -> None:
            number = 0
            while not ended:
                await replicas.know([f"{first}-{number + place}" for place in range(50_000)])
                number += 50_000

        made_up = [asyncio.create_task(make_up(first)) for first in "abc"]
        await until(lambda: len(brokers.asked) > 20, replicas)
        before = len(brokers.asked)
        await replicas.know(["real"])
        assert replicas.topic("real") is not None
        assert sum(map(len, brokers.asked[before:])) <= 2 * 5_000
        moved = PartitionState(2, 1, (1, 2, 3), (1, 2))
        brokers.move("read", moved)
        await until(lambda: replicas.topic("read").partitions == {0: moved}, replicas, ["read"])
        ended = True
        await asyncio.gather(*made_up)


async def test_an_invalid_topic_name_is_not_looked_up() -> None:
    """A broker ends the connection over a question with a name of 32,768 bytes, in which others stand, too."""
    brokers = Brokers("a")
    async with following(brokers) as replicas:
        for nonsense in ("", "x" * 250, "x" * 40_000, "a b", "a\n", "\u00e4", bytes(16)):
            await asyncio.gather(replicas.know([nonsense]), replicas.know(["x" * 249]))
            assert replicas.topic(nonsense) is None
        await replicas.know(["a"])
        assert brokers.asked == [["x" * 249], ["a"]]


async def test_after_a_failed_question_it_is_asked_again_soon(monkeypatch) -> None:
    monkeypatch.setattr(knowledge, "_WAIT_S", 0.01)
    brokers = Brokers("a")
    brokers.failure = BrokerUnreachable("the broker closed the connection")
    async with following(brokers) as replicas:
        await replicas.know(["a"])
        brokers.failure = None
        async with asyncio.timeout(30):
            while replicas.topic("a") is None:
                await replicas.know(["a"])
                await asyncio.sleep(0.001)


async def test_a_fetch_does_not_wait_forever(monkeypatch) -> None:
    monkeypatch.setattr(knowledge, "_WAIT_S", 0.01)
    brokers = Brokers("a")
    brokers.answering.clear()
    async with following(brokers) as replicas:
        await replicas.know(["a"])
        assert replicas.topic("a") is None
        brokers.answering.set()
        await until(lambda: replicas.topic("a"), replicas)


async def test_topics_in_use_are_refreshed_and_change_the_version() -> None:
    brokers = Brokers("a")
    async with following(brokers, interval_s=INTERVAL_S) as replicas:
        await replicas.know(["a"])
        known, version = replicas.topic("a"), replicas.version
        await until(lambda: len(brokers.asked) >= 3, replicas, ["a"])
        assert replicas.topic("a") is known
        assert replicas.version == version
        brokers.move("a", PartitionState(2, 1, (1, 2, 3), (2, 3)))
        await until(lambda: replicas.version != version, replicas, ["a"])
        changed = replicas.topic("a")
        assert changed is not None
        assert changed.partitions == {0: PartitionState(2, 1, (1, 2, 3), (2, 3))}
        assert replicas.topic(id_of("a")) is changed


async def test_stale_topics_are_refreshed_at_once_but_not_all_the_time() -> None:
    brokers = Brokers("a")
    async with following(brokers) as replicas:
        await replicas.know(["a"])
        brokers.move("a", PartitionState(3, 1, (1, 2, 3), (3,)))
        for _ in range(50):
            replicas.stale(["a", "not known"])
            await asyncio.sleep(0)
        await until(lambda: replicas.topic("a").partitions[0].leader == 3, replicas)
        assert len(brokers.asked) <= 3


async def test_a_recreated_topic_has_its_new_id_and_a_deleted_one_is_forgotten() -> None:
    brokers = Brokers("a", "b")
    async with following(brokers) as replicas:
        await replicas.know(["a", "b"])
        brokers.topics["a"] = (b"n" * 16, [PartitionState(2, 0, (2,), (2,))])
        del brokers.topics["b"]
        replicas.stale(["a", "b"])
        await until(lambda: replicas.topic("b") is None, replicas)
        recreated = replicas.topic("a")
        assert recreated is not None
        assert recreated.topic_id == b"n" * 16
        assert replicas.topic(id_of("a")) is replicas.topic(id_of("b")) is None
        assert len(replicas) == 1


async def test_cached_topics_stay_while_no_broker_answers() -> None:
    brokers = Brokers("a")
    async with following(brokers, interval_s=INTERVAL_S) as replicas:
        await replicas.know(["a"])
        known = replicas.topic("a")
        brokers.failure = BrokerUnreachable("no broker")
        await until(lambda: len(brokers.asked) >= 4, replicas, ["a"])
        assert replicas.topic("a") is known
        brokers.failure = None
        brokers.move("a", PartitionState(2, 1, (1, 2, 3), (2, 3)))
        await until(lambda: replicas.topic("a") is not known, replicas)


async def test_topics_that_nobody_reads_expire() -> None:
    brokers = Brokers("a", "b")
    async with following(brokers, interval_s=INTERVAL_S) as replicas:
        await replicas.know(["a", "b"])
        await until(lambda: len(replicas) == 1, replicas, ["a"])
        assert replicas.topic("a") is not None
        assert replicas.topic(id_of("b")) is None


async def test_no_more_than_so_many_are_known_and_those_in_use_stay() -> None:
    brokers = Brokers("a", "b", "c")
    async with following(brokers, max_topics=2) as replicas:
        with structlog.testing.capture_logs() as logged:
            await replicas.know(["a", "b"])
            await replicas.know(["c"])
        assert [line["event"] for line in logged] == ["replicas_forgotten"]
        assert (replicas.topic("c"), len(replicas)) == (None, 2)
        assert replicas.topic("a") is not None


async def test_a_topic_that_is_not_read_is_evicted() -> None:
    brokers = Brokers("a", "b", "c")
    async with following(brokers, interval_s=INTERVAL_S, max_topics=2) as replicas:
        await replicas.know(["a", "b"])
        rounds = len(brokers.asked) + 4
        await until(lambda: len(brokers.asked) >= rounds, replicas, ["a"])
        await replicas.know(["c"])
        assert replicas.topic("c") is not None
        assert replicas.topic("a") is not None
        assert replicas.topic("b") is None


async def test_many_topics_are_asked_for_in_steps() -> None:
    names = [f"topic-{number}" for number in range(250)]
    brokers = Brokers(*names)
    async with following(brokers, interval_s=1.0, max_topics=1000) as replicas:
        await replicas.know(names)
        assert len(replicas) == 250
        assert [len(asked) for asked in brokers.asked[:3]] == [100, 100, 50]
        await until(lambda: len(brokers.asked) >= 6, replicas, names)
        assert sorted(key for asked in brokers.asked[3:6] for key in asked) == sorted(names)
