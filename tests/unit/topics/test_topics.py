"""The kind of a topic, diskless or classic, and above all: when a topic may be treated as classic."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import pytest

from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_registry import NO_CHANGE, DisklessTopic, RegistrySnapshot
from proxy.topics.topics import Topics
from tests.registry_model import ModelTopicRegistry

TOPIC_ID = b"i" * 16


class Lease:
    def __init__(self) -> None:
        self.runs = True
        self.number = 1

    def __call__(self) -> bool:
        return self.runs


async def loaded(registry=None):
    lease = Lease()
    topics = Topics(registry or ModelTopicRegistry(), lease_runs=lease, lease_number=lambda: lease.number)
    await topics.load()
    return topics, lease


def confirm(topics: Topics, topic: str | bytes, topic_id: bytes | None = TOPIC_ID) -> None:
    """Give the brokers' answer about a topic."""
    topics.classic.confirm(topic, topic_id, asked_s=topics.classic.now(), is_current=topics.is_current)


async def with_live_topic():
    registry = ModelTopicRegistry()
    await registry.reserve("orders", 3, {}, "owner")
    await registry.activate("orders", TOPIC_ID, 3)
    return await loaded(registry)


async def test_no_topic_is_known_before_the_first_load():
    topics = Topics(ModelTopicRegistry(), lease_runs=Lease())
    assert not topics.loaded
    assert not topics.nothing_diskless


async def test_a_live_topic_is_found_by_name_and_by_id():
    topics, _ = await with_live_topic()
    entry = topics.find("orders")
    assert entry is not None
    assert entry is topics.find(TOPIC_ID)
    assert (entry.state, entry.partitions) == ("live", 3)
    assert topics.is_diskless("orders", None)
    assert topics.is_diskless(None, TOPIC_ID)
    assert topics.find("other") is None
    assert not topics.nothing_diskless


async def test_a_name_with_another_topic_id_at_the_brokers_is_not_the_registrys_topic():
    """This proxy does not know that the topic was recreated, nor whether as a diskless one."""
    topics, _ = await with_live_topic()
    assert topics.is_diskless("orders", TOPIC_ID)
    assert topics.is_diskless("orders", bytes(16)), "brokers before topic IDs"
    assert not topics.is_diskless("orders", b"n" * 16)
    await topics.registry.reserve("reserved", 1, {}, "owner")
    await topics.load()
    assert topics.is_diskless("reserved", b"n" * 16), "its shadow is just being created"


async def test_every_other_name_is_classic_while_the_lease_runs():
    topics, lease = await with_live_topic()
    assert topics.surely_classic("other")
    lease.runs = False
    assert not topics.surely_classic("another")


async def test_an_unknown_id_may_be_the_placeholder_of_a_reserved_name():
    topics, _ = await loaded()
    assert topics.surely_classic(b"k" * 16)
    await topics.registry.reserve("orders", 3, {}, "owner")
    await topics.load()
    assert not topics.surely_classic(TOPIC_ID)
    # A reserved topic has no records: reading does no harm, except for a broker's session that continues.
    assert topics.is_read_as_classic(TOPIC_ID)
    assert topics.may_be_a_shadow(TOPIC_ID)
    assert not topics.surely_classic(TOPIC_ID), "not by being read"
    assert not topics.may_be_a_shadow(b"k" * 16)
    assert topics.surely_classic("other")
    assert topics.surely_classic(b"k" * 16), "seen before the name was reserved, so before the shadow was made"
    await topics.registry.activate("orders", TOPIC_ID, 3)
    await topics.load()
    assert topics.surely_classic(b"j" * 16)


async def test_ids_are_settled_when_the_names_that_were_reserved_are_live():
    topics, lease = await loaded()
    await topics.registry.reserve("orders", 3, {}, "owner")
    await topics.load()
    settled = asyncio.ensure_future(topics.settle_ids([TOPIC_ID, b"k" * 16]))
    await asyncio.sleep(0)
    await topics.registry.reserve("later", 3, {}, "owner")
    await topics.load()
    await asyncio.sleep(0)
    assert not settled.done()
    await topics.registry.activate("orders", TOPIC_ID, 3)
    await topics.load()
    await settled
    assert topics.surely_classic(b"k" * 16), "though `later` is still reserved"
    assert not topics.surely_classic(b"l" * 16)
    lease.runs = False
    await topics.settle_ids([b"l" * 16])  # a name of which this proxy has not heard may be reserved
    lease.runs = True
    assert not topics.surely_classic(b"l" * 16)


async def test_a_name_that_becomes_diskless_is_no_longer_seen_as_classic():
    topics, lease = await loaded()
    assert topics.surely_classic("orders")
    confirm(topics, "orders")
    await topics.registry.reserve("orders", 3, {}, "owner")
    await topics.load()
    await topics.registry.remove("orders")
    await topics.load()
    confirm(topics, "orders")
    lease.runs = False
    assert not topics.surely_classic("orders")


async def test_certainty_ends_with_the_lease_at_once():
    """Not with the next heartbeat, which may hang for seconds while the store does not answer."""
    topics, lease = await loaded()
    assert topics.nothing_diskless
    lease.runs = False
    assert not topics.nothing_diskless


@pytest.mark.parametrize("judge", [Topics.surely_classic, Topics.is_read_as_classic])
async def test_without_a_lease_only_known_classic_topics_are_classic(judge: Callable[[Topics, str | bytes], bool]):
    """Decision 0005: while the coordinator is away, running clients of classic topics continue."""
    topics, lease = await loaded()
    assert judge(topics, "orders")
    assert judge(topics, TOPIC_ID)
    assert judge(topics, "without an ID")
    confirm(topics, "orders")
    confirm(topics, "without an ID", None)
    lease.runs = False
    assert judge(topics, "orders")
    assert judge(topics, TOPIC_ID)
    assert not judge(topics, "without an ID")
    assert not judge(topics, "others")
    assert not judge(topics, b"o" * 16)
    assert not topics.nothing_diskless


@pytest.mark.parametrize("confirmed", [True, False])
async def test_the_cache_is_bounded_and_keeps_the_most_recently_used_topics(
    confirmed: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("proxy.topics.classic._MAX_SEEN_CLASSIC", 3)
    monkeypatch.setattr("proxy.topics.classic._MAX_UNCONFIRMED", 3)
    topics, _ = await loaded()
    assert topics.surely_classic("n" * 250), "a broker refuses it"
    for name in ("a", "b", "c", "a", "d"):
        assert topics.surely_classic(name)
        confirm(topics, name, TOPIC_ID if confirmed else None)
    assert [name for name in ("a", "b", "c", "d", "n" * 250) if topics.classic.was_noted(name)] == ["a", "c", "d"]


@pytest.mark.parametrize("leased", [True, False])
@pytest.mark.parametrize("gone_back", [True, False])
@pytest.mark.parametrize("entries", ["none", "reserved", "live"])
@pytest.mark.parametrize("topic", ["orders", "others", TOPIC_ID, b"o" * 16])
async def test_the_quick_look_answers_as_the_long_one(leased: bool, gone_back: bool, entries: str, topic: str | bytes):
    """The express lane asks the one, the ordinary path the other."""

    async def made() -> Topics:
        topics, lease = await loaded()
        topics.classic.note("known")
        if entries != "none":
            await topics.registry.reserve("orders", 3, {}, "owner")
        if entries == "live":
            await topics.registry.activate("orders", TOPIC_ID, 3)
        await topics.load()
        topics.gone_back, lease.runs = gone_back, leased
        return topics

    quick, long = await made(), await made()
    passes = long.nothing_diskless
    if passes:
        long.passed(topic)
    elif long.is_current and long.find(topic) is None:
        passes = long.surely_classic(topic)
    assert quick.pass_while_leased(topic) == passes
    assert quick.classic.was_noted(topic) == long.classic.was_noted(topic) == passes
    assert quick.any_diskless == (entries != "none")


async def test_topics_used_while_nothing_was_diskless_are_read_and_written_as_before():
    topics, lease = await loaded()
    topics.passed("orders")
    topics.passed(TOPIC_ID)
    confirm(topics, "orders")
    lease.runs = False
    topics.passed("late")
    confirm(topics, "late")
    assert topics.surely_classic("orders")
    assert topics.surely_classic(TOPIC_ID)
    assert not topics.surely_classic("late")


async def test_a_topic_that_became_diskless_meanwhile_is_not_cached():
    topics, lease = await with_live_topic()
    topics.passed("orders")
    topics.passed(TOPIC_ID)
    await topics.registry.begin_delete("orders", TOPIC_ID)
    await topics.registry.remove("orders")
    await topics.load()
    lease.runs = False
    assert not topics.surely_classic("orders")
    assert not topics.surely_classic(TOPIC_ID)


async def test_a_registry_that_went_back_leaves_only_topic_ids_sure():
    """Whatever the proxy has loaded, the store knows less: a name may be anything by now, an ID stays the same
    topic."""
    topics, _ = await loaded()
    await topics.registry.reserve("reserved", 3, {}, "owner")
    await topics.registry.remove("reserved")
    await topics.load()
    assert topics.surely_classic("orders")
    assert topics.surely_classic(TOPIC_ID)
    confirm(topics, "orders")
    topics.registry = type(topics.registry)()
    await topics.load()
    assert topics.gone_back
    assert not topics.nothing_diskless
    assert not topics.surely_classic("orders")
    assert topics.surely_classic(TOPIC_ID)
    # Reads do no harm there, and stay where they were.
    assert topics.is_read_as_classic("orders")
    assert not topics.is_read_as_classic("others")


async def test_an_older_answer_that_comes_later_changes_nothing():
    topics, _ = await with_live_topic()
    topics.take(RegistrySnapshot(0, ()))
    assert topics.find("orders") is not None


class Flaky(ModelTopicRegistry):
    """Fails the next `failures` loads."""

    failures = 0

    async def load(self, known=NO_CHANGE):
        if self.failures:
            self.failures -= 1
            raise CoordinatorUnavailable("no")
        return await super().load(known)


async def followed(topics):
    """Follow until a change has been acknowledged; the version that was loaded by then."""
    acknowledged = asyncio.Event()

    async def acknowledge():
        acknowledged.set()

    following = asyncio.create_task(topics.follow(acknowledge))
    try:
        await asyncio.wait_for(acknowledged.wait(), 10)
        return topics.version
    finally:
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following


async def test_changes_are_followed_and_acknowledged():
    topics, _ = await loaded()
    await topics.registry.reserve("orders", 3, {}, "owner")
    assert await followed(topics) == 1
    assert topics.find("orders") is not None


async def test_a_change_that_could_not_be_read_is_read_later():
    registry = Flaky()
    topics, _ = await loaded(registry)
    await registry.reserve("orders", 3, {}, "owner")
    registry.failures = 1
    assert await followed(topics) == 1
    assert topics.find("orders") == DisklessTopic("orders", bytes(16), 3, "reserved", {}, "owner")


async def test_a_creator_waits_for_requests_that_still_go_to_a_broker():
    registry = ModelTopicRegistry()
    topics, _ = await loaded(registry)
    before = topics.change
    topics.begin_stream("large")
    await registry.reserve("orders", 3, {}, "owner")
    await topics.load()
    assert not topics.nothing_diskless
    topics.begin_stream("later")
    assert topics.obeyed == before != topics.change
    assert topics.end_stream("large")
    assert topics.obeyed == topics.change
    assert not topics.end_stream("never begun")


@pytest.mark.parametrize("way", ["ends", "another begins", "the registry goes back"])
async def test_a_stream_is_judged_for_as_long_as_the_lease_runs_without_a_break(way: str):
    topics, lease = await loaded(ModelTopicRegistry())
    topics.begin_stream("large")
    if way == "ends":
        lease.runs = False
    elif way == "another begins":
        lease.number += 1
    else:
        topics.gone_back = True
    assert not topics.end_stream("large")
    lease.runs, topics.gone_back = True, False
    topics.begin_stream("next")
    assert topics.end_stream("next")


async def test_names_that_come_into_the_registry_are_noticed():
    topics, _ = await with_live_topic()
    taken = topics.names_taken
    await topics.registry.configure("orders", topics.change, {"retention.ms": "1"})
    await topics.load()
    assert topics.names_taken == taken
    await topics.registry.reserve("others", 1, {}, "owner")
    await topics.load()
    assert topics.names_taken == taken + 1
