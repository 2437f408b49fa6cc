"""A Produce for one classic topic streams to the broker, also next to diskless topics; every other one is held there.

Whether it is held or streamed changes nothing that the broker, the client or the counters see.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.coordinator.interface_registry import DisklessTopic, RegistrySnapshot
from proxy.wire.header import request_header
from proxy.wire.primitives import NO_TAGS
from proxy.wire.produce import PartitionProduce, ProduceRequest, TopicProduce, build_produce_request
from tests.unit.connection.twins import IDS, NAMES, PRODUCE, Proxy, answer_to, split_frames
from tests.unit.connection_double import frame, turns

VERSIONS = range(3, 14)
CLASSIC, OTHER, DISKLESS = NAMES
SAME = (
    "to the broker",
    "to the client",
    "requests",
    "records",
    "unsettled",
    "answers",
    "bytes",
    "errors",
    "memory",
    "gate",
    "slots",
    "expected",
    "classic",
    "client",
    "life",
)
"""Everything of `Proxy.seen` that is the same after a whole request."""


def produce(
    number: int,
    version: int,
    *topics: str,
    size: int = 1_000,
    partitions: int = 1,
    acks: int = -1,
    client_id: str | None = "app",
    transactional_id: str | None = None,
    tagged: bytes = NO_TAGS,
) -> bytes:
    records = [PartitionProduce(index, memoryview(bytes(size)), tagged) for index in range(partitions)]
    named = [TopicProduce(IDS.get(topic, bytes(16)) if version >= 13 else topic, records) for topic in topics]
    body = build_produce_request(ProduceRequest(version, transactional_id, acks, 1_000, named))
    return frame(request_header(PRODUCE, version, number, client_id) + b"".join(map(bytes, body)))


async def proxy(*diskless: str, holds: bool = False) -> Proxy:
    """Return a proxy of one client, without the express lane; one that `holds` streams no Produce."""
    made = Proxy(lane=False, memory_bytes=1 << 20, limits={})
    made.sent.produce_is_held = holds
    await turns()
    register(made, 2, *diskless)
    return made


def register(made: Proxy, version: int, *diskless: str, state: str = "live") -> None:
    """Let these topics be in the registry, and no other one."""
    no_id = bytes(16)
    topics = (DisklessTopic(name, IDS[name] if state == "live" else no_id, 1, state) for name in diskless)
    made.sent.topics.take(RegistrySnapshot(version, tuple(topics)))


async def begin(made: Proxy, request: bytes) -> bool:
    """Send all of a request but its last byte. Return whether the broker has it then; otherwise it has nothing."""
    made.sent.send(request[:-1])
    await turns()
    came = bytes(made.sent.broker.written)
    assert came in (b"", request[:-1])
    return bool(came)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("partitions", [1, 3])
async def test_a_request_for_one_classic_topic_streams(version: int, partitions: int) -> None:
    made = await proxy(DISKLESS)
    request = produce(1, version, CLASSIC, partitions=partitions)
    assert await begin(made, request)
    assert made.sent.streams == 1
    assert made.sent.memory.used_bytes == 0
    made.sent.send(request[-1:])
    assert bytes(made.sent.broker.written) == request
    assert made.sent.streams == 0
    assert (
        sum(made.sent.stats.unsettled_bytes[IDS[CLASSIC] if version >= 13 else CLASSIC].values()) == 1_000 * partitions
    )
    assert made.sent.connection.session.client_id == "app"
    made.sent.answer(answer_to(request[4:], 0))
    assert split_frames(bytes(made.sent.client.written))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "topics", [(DISKLESS,), (CLASSIC, OTHER), (CLASSIC, DISKLESS), (DISKLESS, CLASSIC)], ids=" ".join
)
async def test_every_other_request_is_held(version: int, topics: tuple[str, ...]) -> None:
    made = await proxy(DISKLESS)
    request = produce(1, version, *topics)
    assert not await begin(made, request)
    assert made.sent.memory.used_bytes == len(request) - 4
    assert made.sent.streams == 0


@pytest.mark.parametrize("version", [3, 9, 12, 13])
async def test_the_lease_the_registry_and_reservations_are_asked_at_each_request(version: int) -> None:
    request = produce(1, version, CLASSIC)

    def lease_out(made: Proxy) -> None:
        """Let the lease end after the topic was seen as classic: such a request is confirmed by the broker."""
        classic = made.sent.topics.classic
        for topic in (CLASSIC, IDS[CLASSIC]):
            classic.note(topic)
            classic.confirm(topic, IDS[CLASSIC], asked_s=classic.now(), is_current=True)
        made.lease_runs = False

    def gone_back(made: Proxy) -> None:
        made.sent.topics.gone_back = True

    def diskless(made: Proxy) -> None:
        register(made, 3, DISKLESS, CLASSIC)

    def reserved(made: Proxy) -> None:
        register(made, 3, DISKLESS, CLASSIC, state="reserved")

    for change in (lease_out, gone_back, diskless, reserved):
        made = await proxy(DISKLESS)
        change(made)
        assert not await begin(made, request), change.__name__
    made = await proxy(DISKLESS)
    assert await begin(made, request)


async def test_an_id_that_comes_up_first_while_a_name_is_reserved_is_held() -> None:
    made = await proxy()
    register(made, 3, DISKLESS, state="reserved")
    assert not await begin(made, produce(1, 13, CLASSIC))
    made = await proxy()
    register(made, 3, DISKLESS, state="reserved")
    assert await begin(made, produce(1, 12, CLASSIC))


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_first_bytes_may_come_one_by_one(version: int) -> None:
    made, request = await proxy(DISKLESS), produce(1, version, "o" * 249, size=2_000, transactional_id="t" * 130)
    came = []
    for at in range(len(request)):
        made.sent.send(request[at : at + 1])
        came.append(len(made.sent.broker.written))
    assert bytes(made.sent.broker.written) == request
    begins = came.index(next(filter(None, came)))
    assert came[begins:] == list(range(begins + 1, len(request) + 1)), "each byte went on as it came"
    assert begins < 1_000, "it began before most of the records had come"


async def test_a_request_that_waited_for_memory_is_held() -> None:
    made = await proxy(DISKLESS)
    made.sent.memory.take(1 << 20)
    two = produce(1, 7, CLASSIC, OTHER)
    made.sent.send(two)
    made.sent.topics.take(RegistrySnapshot(3, ()))
    await turns()
    assert not made.sent.broker.written
    made.sent.memory.give_back(1 << 20)
    await turns()
    assert bytes(made.sent.broker.written) == two


async def test_a_topic_that_becomes_diskless_meanwhile_is_waited_for() -> None:
    """Creators of diskless topics wait until this proxy obeys the version in which the name is reserved."""
    made = await proxy(DISKLESS)
    request, before = produce(1, 7, CLASSIC), made.sent.topics.change
    assert await begin(made, request)
    register(made, 3, DISKLESS, CLASSIC, state="reserved")
    assert made.sent.topics.obeyed == before
    made.sent.send(request[-1:])
    assert bytes(made.sent.broker.written) == request
    assert made.sent.topics.obeyed.version == 3


def ends(made: Proxy) -> None:
    """Let the lease end."""
    made.lease_runs = False


def breaks(made: Proxy) -> None:
    """Let the lease end, and another one begin."""
    made.sent.topics._lease_number = lambda: 1


def goes_back(made: Proxy) -> None:
    """Let the registry lose changes."""
    made.sent.topics.gone_back = True


@pytest.mark.parametrize("diskless", [(), (DISKLESS,)], ids=["all classic", "next to a diskless topic"])
@pytest.mark.parametrize("change", [ends, breaks, goes_back])
async def test_a_request_by_name_whose_lease_has_ended_is_not_given_its_end(change: Any, diskless: Any) -> None:
    """Nobody waited for this proxy meanwhile: the name may be another topic's by now."""
    made = await proxy(*diskless)
    request = produce(1, 12, CLASSIC)
    assert await begin(made, request)
    change(made)
    made.sent.send(request[-1:])
    await turns()
    assert bytes(made.sent.broker.written) == request[:-1]
    assert made.sent.client.closing
    assert made.sent.broker.closing
    assert made.sent.streams == 0


@pytest.mark.parametrize(("version", "acks"), [(13, -1), (12, 0), (9, 0), (3, 0)])
@pytest.mark.parametrize("change", [ends, breaks, goes_back])
async def test_an_id_is_never_another_topics_and_without_acknowledgement_nothing_is_promised(
    version: int, acks: int, change: Any
) -> None:
    made = await proxy(DISKLESS)
    request = produce(1, version, CLASSIC, acks=acks)
    assert await begin(made, request)
    change(made)
    made.sent.send(request[-1:])
    assert bytes(made.sent.broker.written) == request
    assert not made.sent.client.closing


REQUESTS = st.builds(
    produce,
    st.integers(0, 1 << 30),
    st.sampled_from(VERSIONS),
    st.sampled_from([CLASSIC, CLASSIC, OTHER, DISKLESS]),
    size=st.sampled_from([1, 100, 3_000]),
    partitions=st.sampled_from([1, 1, 3]),
    acks=st.sampled_from([-1, 1, 0]),
    client_id=st.sampled_from(["app", "app,diskless_rack_id=rack-b", None]),
    transactional_id=st.sampled_from([None, None, "copier"]),
    tagged=st.sampled_from([NO_TAGS, NO_TAGS, b"\1\5\1x"]),
) | st.builds(
    produce,
    st.integers(0, 1 << 30),
    st.sampled_from(VERSIONS),
    st.sampled_from([CLASSIC, DISKLESS]),
    st.sampled_from(NAMES),
    size=st.sampled_from([1, 2_000]),
)
STEPS = st.tuples(
    st.lists(REQUESTS, min_size=1, max_size=4),
    st.lists(st.integers(1, 60) | st.integers(200, 9_000), min_size=1, max_size=5),
    st.sets(st.sampled_from(NAMES), max_size=2),
    st.booleans(),
)


def chunks(data: bytes, sizes: list[int]) -> list[bytes]:
    """Cut at these sizes, again and again."""
    cut, number = [], 0
    while data:
        size = sizes[number % len(sizes)]
        cut.append(data[:size])
        data, number = data[size:], number + 1
    return cut


@given(steps=st.lists(STEPS, min_size=1, max_size=5))
@settings(max_examples=60, deadline=None)
async def test_held_or_streamed_the_broker_gets_the_same_bytes_and_the_counters_the_same_counts(steps: Any) -> None:
    both = streams, holds = await proxy(), await proxy(holds=True)
    for number, (requests, sizes, diskless, lease_runs) in enumerate(steps):
        for one in both:
            register(one, 3 + number, *diskless)
            one.lease_runs = lease_runs
        answered = len(split_frames(bytes(holds.sent.broker.written)))
        for chunk in chunks(b"".join(requests), sizes):
            for one in both:
                one.sent.send(chunk)
            assert streams.sent.broker.written.startswith(holds.sent.broker.written)
        await turns(4)
        same(streams, holds)
        for index, request in enumerate(split_frames(bytes(holds.sent.broker.written))[answered:]):
            if any(slot.api_key == PRODUCE for slot in holds.sent.connection.answers.slots) and expects(holds, request):
                for one in both:
                    one.sent.answer(answer_to(request, index % 3))
        await turns(4)
        same(streams, holds)


def expects(made: Proxy, request: bytes) -> bool:
    """Return whether the broker owes the answer to a request next."""
    expected = made.sent.broker.protocol.expected  # type: ignore[attr-defined]
    return bool(expected) and expected[0].correlation_id == int.from_bytes(request[4:8])


def same(streams: Proxy, holds: Proxy) -> None:
    one, other = streams.seen(), holds.seen()
    assert {what: one[what] for what in SAME} == {what: other[what] for what in SAME}
