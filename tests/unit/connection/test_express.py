"""The express lane changes nothing but its cost: requests and answers take it, and everything else stays as it was."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.connection.gate import BROKER_FULL, CLIENT_FULL
from proxy.wire.fetch import FetchRequest, PartitionFetch, TopicFetch, build_fetch_request
from proxy.wire.header import request_header
from proxy.wire.primitives import NO_TAGS
from proxy.wire.produce import PartitionProduce, ProduceRequest, TopicProduce, build_produce_request
from tests.unit.connection.twins import FETCH, IDS, LIST_OFFSETS, NAMES, PRODUCE, Twins, answer_to
from tests.unit.connection_double import HEARTBEAT, METADATA, connected, frame, request, turns

OFFSET_COMMIT = 8
VERSIONS = range(3, 14)
STEPS = 24


def produce(
    number: int = 1,
    version: int = 7,
    topic: str = "orders",
    size: int = 100,
    *,
    partitions: tuple[int, ...] = (0,),
    acks: int = -1,
    client_id: str | None = "app",
    tagged: bytes = NO_TAGS,
) -> bytes:
    name = IDS[topic] if version >= 13 else topic
    records = [PartitionProduce(index, memoryview(bytes(size)), tagged) for index in partitions]
    body = build_produce_request(ProduceRequest(version, None, acks, 1_000, [TopicProduce(name, records)]))
    return frame(request_header(PRODUCE, version, number, client_id) + b"".join(map(bytes, body)))


def fetch(
    number: int = 1, version: int = 12, topic: str = "orders", offset: int = 5, *, session: tuple[int, int] = (0, -1)
) -> bytes:
    asked = [PartitionFetch(0, -1, offset, -1, -1, 1 << 20)]
    topics = [] if session[0] else [TopicFetch(IDS[topic] if version >= 13 else topic, asked)]
    body = build_fetch_request(FetchRequest(version, -1, 500, 1, 1 << 24, 0, *session, topics, [], ""))
    return frame(request_header(FETCH, version, number, "app") + body)


async def twins(memory_bytes: int = 1 << 20, *, diskless: tuple[str, ...] = (), **limits: int) -> Twins:
    both = Twins(memory_bytes, **limits)
    await turns()
    await both.registry(diskless)
    return both


@pytest.mark.parametrize("diskless", [(), ("events",)], ids=["all classic", "next to a diskless topic"])
@pytest.mark.parametrize("version", VERSIONS)
async def test_the_second_produce_takes_the_lane(version: int, diskless: tuple[str, ...]) -> None:
    both = await twins(diskless=diskless)
    for number in range(1, 5):
        await both.send(produce(number, version, size=10 * number, partitions=(number,)))
        await both.answer(answer_to(both.owed()[0], 0))
        both.answered += 1
        assert both.lane.expressed == number - 1
    assert both.ordinary.sent.stats.unsettled_bytes


@pytest.mark.parametrize("version", [10, 12, 13])
async def test_an_answer_with_node_endpoints_is_rewritten(version: int) -> None:
    both = await twins()
    await both.send(produce(1, version), produce(2, version))
    assert both.lane.expressed == 1
    await both.answer(*(answer_to(one, 2) for one in both.owed()))
    assert b"broker" not in both.lane.sent.client.written
    assert b"proxy" in both.lane.sent.client.written


async def test_a_topic_that_becomes_diskless_leaves_the_lane_at_once() -> None:
    both = await twins()
    await both.send(produce(1), produce(2))
    await both.registry(["orders"])
    await both.send(produce(3))
    assert both.lane.expressed == 1
    assert len(both.owed()) == 2
    await both.registry([])
    await both.send(produce(4))
    assert both.lane.expressed == 2


async def test_it_ends_with_the_lease() -> None:
    both = await twins(diskless=("events",))
    await both.send(produce(1), produce(2))
    both.lane.lease_runs = both.ordinary.lease_runs = False
    await both.send(produce(3))
    assert both.lane.expressed == 1
    assert len(both.owed()) == 2


async def test_a_registry_that_has_gone_back_ends_it() -> None:
    both = await twins(diskless=("events",))
    await both.send(produce(1), produce(2))
    await both.do(lambda proxy: setattr(proxy.sent.topics, "gone_back", True))
    await both.send(produce(3))
    assert both.lane.expressed == 1


async def test_memory_is_charged_while_the_broker_takes_no_more() -> None:
    both = await twins(diskless=("events",))
    await both.send(produce(1))

    def fill_up(proxy: Any) -> None:
        """Take the next request, and then no more."""
        broker = proxy.sent.broker
        write = broker.write

        def written(data: bytes) -> None:
            write(data)
            broker.protocol.pause_writing()

        broker.write = written
        broker.writelines = lambda buffers: written(b"".join(buffers))

    await both.do(fill_up)
    await both.send(produce(2, size=300))
    assert both.lane.expressed == 1
    assert both.lane.sent.connection.reading.gate.causes & BROKER_FULL
    assert both.lane.sent.memory.used_bytes == len(produce(2, size=300)) - 4
    await both.do(lambda proxy: proxy.sent.broker.protocol.resume_writing())
    assert both.lane.sent.memory.used_bytes == 0


async def test_a_held_request_waits_for_memory() -> None:
    both = await twins(memory_bytes=500, diskless=("events",))
    await both.send(produce(1))
    await both.do(lambda proxy: proxy.sent.memory.take(450))
    await both.send(produce(2))
    assert both.lane.expressed == 0
    assert len(both.owed()) == 1
    await both.do(lambda proxy: proxy.sent.memory.give_back(450))
    assert len(both.owed()) == 2


async def test_an_answer_waits_for_an_earlier_one() -> None:
    both = await twins()
    await both.send(produce(1), request(LIST_OFFSETS, 2, version=1), produce(3), request(HEARTBEAT, 4))
    assert both.lane.expressed == 2
    await both.answer(*(answer_to(one, 0) for one in both.owed()))
    await both.do(lambda proxy: proxy.held.fill())
    assert not both.lane.sent.connection.answers.slots


async def test_answers_to_a_client_that_takes_nothing_are_charged() -> None:
    both = await twins()
    await both.send(produce(1), produce(2))

    def unread(proxy: Any) -> None:
        proxy.sent.client.unsent = 60
        proxy.sent.client.protocol.pause_writing()

    await both.do(unread)
    assert both.lane.sent.connection.reading.gate.causes & CLIENT_FULL
    await both.answer(*(answer_to(one, 0) for one in both.owed()))
    assert both.lane.sent.unread.used_bytes == 60
    await both.send(produce(3))
    assert both.lane.expressed == 1
    await both.do(lambda proxy: setattr(proxy.sent.client, "unsent", 0) or proxy.sent.client.protocol.resume_writing())
    assert len(both.owed()) == 3


@pytest.mark.parametrize("version", [4, 7, 11, 12, 13, 16, 18])
@pytest.mark.parametrize("session", [(0, -1), (7, 1)])
async def test_a_fetch_that_finds_nothing_takes_the_lane_next_time(version: int, session: tuple[int, int]) -> None:
    both = await twins(diskless=("events",))
    for number in range(1, 4):
        epoch = session[1] + (number if session[0] else 0)
        await both.send(fetch(number, version, session=(session[0], epoch)))
        await both.answer(answer_to(both.owed()[0], number % 3))
        both.answered += 1
    assert both.lane.expressed == 2
    await both.registry(["orders"])
    await both.send(fetch(4, version, offset=6), fetch(5, version, offset=6))
    assert both.lane.expressed == 2


async def test_a_session_from_before_a_name_became_diskless_leaves_the_lane() -> None:
    both = await twins(diskless=("events",))
    for epoch in (1, 2):
        await both.send(fetch(epoch, session=(7, epoch)))
    assert both.lane.expressed == 1
    await both.registry(["events", "payments"])
    await both.send(fetch(3, session=(7, 3)))
    assert both.lane.expressed == 1
    assert len(both.owed()) == 2


@pytest.mark.parametrize("api_key", [HEARTBEAT, OFFSET_COMMIT])
async def test_apis_that_pass_take_the_lane_at_once(api_key: int) -> None:
    both = await twins()
    await both.send(request(api_key, 1, b"first"), request(api_key, 2, b"second"))
    assert both.lane.expressed == 2
    await both.answer(*(answer_to(one, 9) for one in both.owed()))


async def test_parts_of_requests_and_several_at_once_take_the_ordinary_path() -> None:
    both = await twins()
    await both.send(produce(1))
    two = produce(2) + produce(3)
    await both.send(
        two[:50], two[50:], produce(4) + produce(5), request(HEARTBEAT, 6) + produce(7)[:20], produce(7)[20:]
    )
    assert both.lane.expressed == 0
    await both.send(produce(8))
    assert both.lane.expressed == 1


@pytest.mark.parametrize(
    "other",
    [
        produce(3, acks=0),
        produce(3, client_id="other"),
        produce(3, topic="payments"),
        produce(3, partitions=(0, 1)),
        produce(3, 8),
        produce(3, 9),
        produce(3, size=0),
        frame(produce(3)[4:] + b"?"),
        frame(produce(3)[4:-1]),
        frame(produce(3)[4:14]),
        request(METADATA, 3),
    ],
    ids=[
        "acks",
        "client ID",
        "topic",
        "partitions",
        "version",
        "flexible",
        "empty",
        "longer",
        "shorter",
        "header",
        "API",
    ],
)
async def test_another_request_takes_the_ordinary_path(other: bytes) -> None:
    both = await twins()
    await both.send(produce(1), produce(2), other)
    assert both.lane.expressed == 1


async def test_tagged_fields_take_the_ordinary_path() -> None:
    both = await twins(diskless=("events",))
    await both.send(produce(1, 9), produce(2, 9, tagged=b"\1\5\1x"), produce(3, 9))
    assert both.lane.expressed == 1


async def test_a_frame_above_the_limit_is_rejected() -> None:
    both = await twins(max_frame_bytes=1_024)
    await both.send(produce(1, size=100), produce(2, size=100), produce(3, size=1_100))
    assert both.lane.expressed == 1
    assert both.lane.sent.client.closing


async def test_nothing_takes_the_lane_before_the_client_is_authenticated() -> None:
    sent = await connected()
    sent.require_sasl()
    sent.client = sent.connect()
    await turns()
    sent.send(request(HEARTBEAT, 1))
    await turns()
    assert sent.stats.protocol_errors == 1
    assert not sent.broker.taken()


REQUESTS = st.one_of(
    st.builds(
        produce,
        version=st.sampled_from([3, 7, 8, 9, 12, 12, 13]),
        topic=st.sampled_from([*NAMES, "orders", "orders"]),
        size=st.sampled_from([1, 20, 200]),
        partitions=st.sampled_from([(0,), (0,), (1,), (0, 1)]),
        acks=st.sampled_from([-1, -1, 1, 0]),
        client_id=st.sampled_from(["app", "app", "app,diskless_rack_id=rack-b", None]),
        tagged=st.sampled_from([NO_TAGS, NO_TAGS, NO_TAGS, b"\1\5\1x"]),
    ),
    st.builds(
        fetch,
        version=st.sampled_from([4, 11, 12, 13, 17]),
        topic=st.sampled_from([*NAMES, "orders"]),
        offset=st.sampled_from([5, 5, 6]),
        session=st.sampled_from([(0, -1), (0, -1), (7, 1), (7, 2)]),
    ),
    st.builds(request, st.sampled_from([HEARTBEAT, OFFSET_COMMIT, METADATA]), st.just(1), st.binary(max_size=9)),
    st.just(request(LIST_OFFSETS, 1, version=1)),
)
ACTIONS = st.one_of(
    st.tuples(
        st.just("send"), st.lists(REQUESTS, min_size=1, max_size=3), st.sampled_from(["each", "each", "join", "cut"])
    ),
    st.tuples(st.just("again"), st.integers(1, 4), st.just("each")),
    st.tuples(st.just("answer"), st.integers(1, 4), st.sampled_from(["each", "each", "join", "cut"])),
    st.tuples(st.just("registry"), st.sets(st.sampled_from(NAMES), max_size=2), st.none()),
    st.tuples(
        st.sampled_from(["lease", "settle", "full broker", "full client", "memory", "fill", "heartbeat of the fleet"]),
        st.integers(0, 2),
        st.none(),
    ),
    st.tuples(st.sampled_from(["drain", "broker goes", "client goes"]), st.just(0), st.none()),
)


class Run:
    """One run of random actions."""

    def __init__(self, both: Twins) -> None:
        self.both = both
        self.number = 0
        self.last: list[bytes] = [produce()]
        self.taken_bytes = 0
        self.full: set[str] = set()

    def numbered(self, one: bytes) -> bytes:
        self.number += 1
        return one[:8] + struct.pack(">i", self.number) + one[12:]

    async def act(self, action: str, what: Any, how: str | None) -> None:
        both = self.both
        if action == "send":
            self.last = what
            await both.send(*chunked([self.numbered(one) for one in what], how))
        elif action == "again":
            for _ in range(what):
                await both.send(self.numbered(self.last[-1]))
        elif action == "answer":
            owed = both.owed()[:what]
            both.answered += len(owed)
            await both.answer(*chunked([answer_to(one, index % 3) for index, one in enumerate(owed)], how))
        elif action == "registry":
            await both.registry(sorted(what))
        elif action == "lease":
            await both.do(lambda proxy: setattr(proxy, "lease_runs", bool(what)))
        elif action == "settle":
            await both.do(
                lambda proxy: [proxy.sent.stats.settle(one, NAMES[what]) for one in (NAMES[what], IDS[NAMES[what]])]
            )
        elif action == "memory":
            before, self.taken_bytes = self.taken_bytes, 400 * what
            await both.do(lambda proxy: proxy.sent.memory.take(self.taken_bytes) or proxy.sent.memory.give_back(before))
        elif action == "fill":
            await both.do(lambda proxy: proxy.held.slots and proxy.held.fill())
        elif action == "heartbeat of the fleet":
            await both.do(lambda proxy: setattr(proxy.sent.racks, "_fleet_racks", lambda: ("rack-a", "rack-b")))
        elif action in ("full broker", "full client"):
            await self.fill_up(action)
        else:
            await both.do(lambda proxy: ENDS[action](proxy.sent))

    async def fill_up(self, which: str) -> None:
        self.full ^= {which}
        full, of_client = which in self.full, which == "full client"

        def act(proxy: Any) -> None:
            transport = proxy.sent.client if of_client else proxy.sent.broker
            transport.unsent = 30 * full
            if not transport.closing:
                (transport.protocol.pause_writing if full else transport.protocol.resume_writing)()

        await self.both.do(act)


ENDS: dict[str, Any] = {
    "drain": lambda sent: sent.connection.drain(),
    "broker goes": lambda sent: sent.broker.close(),
    "client goes": lambda sent: sent.client.close(),
}


def chunked(frames: list[bytes], how: str | None) -> list[bytes]:
    whole = b"".join(frames)
    if how == "join" and whole:
        return [whole]
    if how == "cut" and whole:
        return [whole[: len(whole) // 3], whole[len(whole) // 3 :]]
    return frames


@given(actions=st.lists(ACTIONS, min_size=8, max_size=STEPS))
@example(actions=[("send", [produce(version=12)], "each"), ("again", 3, "each"), ("answer", 4, "each")])
@settings(max_examples=60, deadline=None)
async def test_any_run_is_the_same_with_and_without_the_lane(actions: list[tuple[str, Any, str | None]]) -> None:
    run = Run(await twins(memory_bytes=900, max_in_flight_requests=4))
    for action, what, how in actions:
        await run.act(action, what, how)
