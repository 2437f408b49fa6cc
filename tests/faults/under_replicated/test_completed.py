"""Topics that are created before a broker ever ran are complete soon after it starts, even if proxies die meanwhile.

One of three racks has never had a broker. The tests read the state directly from the brokers.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import redis
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from typer.testing import CliRunner

from proxy.brokers.cluster import Cluster
from proxy.cli import app
from proxy.config import load_settings
from proxy.coordinator.connect import connect
from proxy.coordinator.shards import FLEET_PREFIX
from proxy.creation.replication import completion as module
from proxy.creation.replication.completion import Completion
from proxy.creation.replication.interface import Pending, replicas_digest
from proxy.creation.replication.keeper import LEASE
from proxy.creation.replication.store import RedisPendingTopics
from proxy.demo.stack import Stack
from tests.faults.under_replicated.conftest import LATE_NODE, WAIT_SECONDS, hold_lease
from tests.support.confluent import produce_to, read_partitions
from tests.support.fuse import Fuse, Killed
from tests.support.metrics import Metrics
from tests.support.readiness import wait_ready
from tests.support.records import Sample, samples, stored
from tests.support.routed import ON_A_REPLICA, Asked, broker_address, fetch, records_of, topic_id
from tests.support.topics import CLASSIC, DISKLESS, create_topic, delete_topic
from tests.support.waiting import wait_for

COMPLETE_SECONDS = 120.0
"""Seconds from the start of the missing broker."""
TOPICS = {("whole", CLASSIC): 6, ("whole", DISKLESS): 3, ("grown", CLASSIC): 2, ("grown", DISKLESS): 2}
"""Partitions of each topic; those of `grown` become GROWN."""
GROWN = 4
EXACT = [[1, 3, 2], [3, 2, 1]]
"""Replica assignment that the classic topic gets: the brokers reject it."""
RECORDS = 20
LIST = ["topics", "list", "--under-replicated"]

# No second try: the stack cannot be restored to a state in which a broker never ran.
pytestmark = [pytest.mark.stack, pytest.mark.timeout(300), pytest.mark.flaky(reruns=0)]

Replicas = dict[str, list[tuple[list[int], list[int]]]]
"""Replicas and in-sync replicas of each partition, by topic."""


def replicas(direct: AdminClient, topics: Sequence[str]) -> Replicas:
    """Return the replicas that a broker knows; empty for an unknown topic."""
    known = direct.list_topics(timeout=WAIT_SECONDS).topics
    return {
        topic: [(list(one.replicas), list(one.isrs)) for _, one in sorted(known[topic].partitions.items())]
        for topic in topics
        if topic in known
    }


def lease_holder(stack: Stack) -> str:
    """Return the rack of the proxy that completes topics."""
    with redis.Redis.from_url(stack.redis.url) as store:
        holder: Any = store.get(f"{FLEET_PREFIX}lease:{LEASE}")
    rack = holder.decode().partition("/")[0] if holder else ""
    return rack if rack in stack.proxies else ""


def kill_lease_holder(stack: Stack) -> str:
    """Send SIGKILL to a live proxy that completes topics; return its rack."""

    def alive() -> bool:
        rack = lease_holder(stack)
        return bool(rack) and stack.process(f"proxy-{rack}").running

    wait_for(alive, "nobody holds the lease")
    rack = lease_holder(stack)
    stack.kill_proxy(rack)
    return rack


def listed(stack: Stack) -> dict[str, list[dict[str, Any]]]:
    """Return the output of `topics list --under-replicated`, by topic."""
    config = str(stack.config_path("rack-a"))
    done = CliRunner().invoke(app, [*LIST, "--json", "--config", config])
    assert done.exit_code == 0, f"{done.stderr}\n{done.exception!r}"
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in json.loads(done.stdout)["partitions"]:
        rows.setdefault(row["topic"], []).append(row)
    return rows


def gauges(stack: Stack) -> list[float]:
    """Return the metrics of all running proxies: topics and partitions that lack replicas, and whether they have an
    age."""
    scraped = [Metrics(stack, rack) for rack in stack.proxies if stack.process(f"proxy-{rack}").running]
    names = ("under_replicated_topics", "under_replicated_partitions", "under_replicated_oldest_seconds")
    topics, partitions, age_s = (sum(metrics.value(name) for metrics in scraped) for name in names)
    return [topics, partitions, float(age_s > 0)]


@pytest.mark.timeout(450)
def test_topics_are_complete_after_the_broker_starts_although_proxies_are_killed(two_of_three: Stack) -> None:
    stack = two_of_three
    direct = AdminClient({"bootstrap.servers": stack.direct_bootstrap})
    client = AdminClient({"bootstrap.servers": stack.bootstrap("rack-b")})
    with pytest.raises(KafkaException, match="INVALID_REPLICATION_FACTOR"):
        direct.create_topics([NewTopic("refused", 1, 3)], request_timeout=30)["refused"].result(40)
    sent: dict[str, dict[int, list[Sample]]] = {}
    for (label, kind), partitions in TOPICS.items():
        name = f"{label}-{kind}"
        diskless = {"diskless.enable": "true"} if kind == DISKLESS else {}
        client.create_topics([NewTopic(name, partitions, 3, config=diskless)], request_timeout=30)[name].result(40)
        if label == "grown":
            grown = {"replica_assignment": EXACT} if kind == CLASSIC else {}
            client.create_partitions([NewPartitions(name, GROWN, **grown)], request_timeout=30)[name].result(40)
            partitions = GROWN
        sent[name] = {number: samples(RECORDS, f"{name}-{number}") for number in range(partitions)}
    brokers = [AdminClient({"bootstrap.servers": stack.kafka.address(node)}) for node in (1, 2)]
    counts = {name: len(of_topic) for name, of_topic in sent.items()}

    def heard_of() -> bool:
        known = [replicas(broker, list(sent)) for broker in brokers]
        return all({name: len(of_topic) for name, of_topic in found.items()} == counts for found in known)

    wait_for(heard_of, "not every broker knows all partitions")
    for name, of_topic in sent.items():
        produce_to(stack.bootstrap("rack-a"), name, of_topic)
    count = sum(map(len, sent.values()))
    assert all(sorted(has) == [1, 2] for of_topic in replicas(direct, list(sent)).values() for has, _ in of_topic)
    wait_for(lambda: gauges(stack) == [len(sent), count, 1.0], "the metrics do not show the missing replicas")
    rows = listed(stack)
    assert {name: len(of_topic) for name, of_topic in rows.items() if name in sent} == counts
    for row in (row for name in sent for row in rows[name]):
        assert (row["pending"], row["out_of_sync"], row["wanted"], row["missing"]) == (True, False, 3, 1), row
        assert row["kind"] in row["topic"]
        assert row["why"] == ["waiting for brokers"]

    table = CliRunner().invoke(app, [*LIST, "--diskless", "--config", str(stack.config_path("rack-a"))])
    assert table.exit_code == 0
    assert [name for name in sent if name in table.stdout] == ["whole-diskless", "grown-diskless"]
    assert table.stdout.count("waiting for brokers") == counts["whole-diskless"] + counts["grown-diskless"]

    killed = [kill_lease_holder(stack)]
    stack.start_broker(LATE_NODE, wait=False)
    deadline = time.monotonic() + COMPLETE_SECONDS

    def moved() -> int:
        return sum(LATE_NODE in has for of_topic in replicas(direct, list(sent)).values() for has, _ in of_topic)

    wait_for(lambda: moved() > 0, "no replica was added", deadline - time.monotonic())
    assert moved() < count, "all at once"
    killed.append(kill_lease_holder(stack))
    for rack in killed:
        stack.start_proxy(rack, wait=False)

    def complete() -> bool:
        found = replicas(direct, list(sent))
        return all(sorted(has) == sorted(in_sync) == [1, 2, 3] for one in found.values() for has, in_sync in one)

    wait_for(complete, f"not complete: {replicas(direct, list(sent))}", deadline - time.monotonic())
    for name, found in replicas(direct, list(sent)).items():
        leads = Counter(has[0] for has, _ in found)
        assert max(leads.values()) - min(leads[node] for node in (1, 2, 3)) <= 1, f"{name}: {leads}"
    assert [has for has, _ in replicas(direct, ["grown-classic"])["grown-classic"][-len(EXACT) :]] == EXACT
    wait_for(lambda: not wishes(stack), "what is complete is not forgotten")
    for rack in killed:
        wait_ready(stack.admin_url(rack))
    wait_for(lambda: gauges(stack) == [0.0, 0.0, 0.0], "the metrics still show missing replicas")
    assert not listed(stack).keys() & sent.keys()
    for name, of_topic in sent.items():
        got = read_partitions(stack.bootstrap("rack-c"), name, len(of_topic))
        assert got == [stored(of_topic[number]) for number in sorted(of_topic)], name
        if CLASSIC in name:
            asked, ids = [Asked(name, number, 0) for number in of_topic], {name: topic_id(stack, name)}
            logs = [records_of(fetch(broker_address(stack, node), ON_A_REPLICA, asked, ids)) for node in (1, LATE_NODE)]
            assert all(logs[0])
            assert logs[0] == logs[1], name


def wishes(stack: Stack) -> list[Pending]:
    """Return the stored wishes of topics that lack replicas."""

    async def ask() -> list[Pending]:
        settings = load_settings(stack.config_path("rack-a"))
        store, cluster = await connect(settings.redis), Cluster(settings)
        try:
            await cluster.refresh()
            return list(await RedisPendingTopics(store, lambda: cluster.cluster_id).all())
        finally:
            cluster.service.close()
            await store.aclose()

    return asyncio.run(ask())


class Victim(Fuse):
    """A proxy in this process that completes one topic and dies after a number of writes."""

    def __init__(self, stack: Stack, topic: str, writes: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(writes)
        self._settings = load_settings(stack.config_path("rack-a"))
        self._topic = topic
        self._monkeypatch = monkeypatch

    async def run(self) -> None:
        """Run until nothing is left to do, or until death."""
        store, cluster = await connect(self._settings.redis), Cluster(self._settings)
        self._monkeypatch.setattr(module, "reassign", self._reassign)
        try:
            await cluster.refresh()
            pending = _OfOneTopic(RedisPendingTopics(store, lambda: cluster.cluster_id), self._topic, self)
            completion = Completion(
                cluster,
                pending,
                owners=lambda: (),
                now_ms=lambda: time.time_ns() // 1_000_000,
                confirm_s=0.0,
                settle_s=0.0,
                partitions_at_once=1,
            )
            async with asyncio.timeout(WAIT_SECONDS):
                while await pending.all():
                    await completion.complete()
        finally:
            self._monkeypatch.undo()
            cluster.service.close()
            await store.aclose()

    async def _reassign(self, *arguments: Any) -> Any:
        return await self.write(lambda: REASSIGN(*arguments))


REASSIGN = module.reassign


class _OfOneTopic:
    """The store, reduced to one topic's wish."""

    def __init__(self, store: RedisPendingTopics, topic: str, victim: Victim) -> None:
        self._store = store
        self._topic = topic
        self._victim = victim

    async def remember(self, wishes: Sequence[Pending]) -> None:
        await self._victim.write(lambda: self._store.remember(wishes))

    async def bind(self, pending: Pending, topic_id: bytes) -> Pending:
        bound: Pending = await self._victim.write(lambda: self._store.bind(pending, topic_id))
        return bound

    async def change(self, was: Pending, to: Pending) -> bool:
        changed: bool = await self._victim.write(lambda: self._store.change(was, to))
        return changed

    async def all(self) -> tuple[Pending, ...]:
        return tuple(wish for wish in await self._store.all() if wish.name == self._topic)

    async def forget(self, wishes: Sequence[Pending]) -> None:
        if wishes:
            await self._victim.write(lambda: self._store.forget(wishes))


def test_the_next_proxy_continues_wherever_the_first_was_killed(
    two_of_three: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic has two replicas of three, and an unfinished intent, both on the brokers and in the store."""
    stack = two_of_three
    stack.heal()
    if not stack.process(f"broker-{LATE_NODE}").running:
        stack.start_broker(LATE_NODE)
    direct = AdminClient({"bootstrap.servers": stack.direct_bootstrap})
    hold_lease(stack, 240_000)
    unharmed = Victim(stack, wish_for(stack, "unharmed"), None, monkeypatch)
    asyncio.run(unharmed.run())
    assert unharmed.writes >= 4
    # The brokers learn one after the other which replicas are in sync.
    wait_for(lambda: complete_of(direct, ["unharmed"]) == ["unharmed"], "what nobody harmed is not complete")
    left = []
    for writes in range(1, unharmed.writes + 1):
        victim = Victim(stack, wish_for(stack, f"victim-{writes}"), writes, monkeypatch)
        with pytest.raises(Killed):
            asyncio.run(victim.run())
        assert victim.writes == writes
        left.append(f"victim-{writes}")
    assert {wish.name for wish in wishes(stack)} >= set(left[:-1])
    for name in ("smaller", "gone"):
        with pytest.raises(Killed):
            asyncio.run(Victim(stack, wish_for(stack, name), 1, monkeypatch).run())  # it has found out the ID
    asyncio.run(make_smaller(stack, "smaller"))
    delete_topic(stack, "gone")
    hold_lease(stack, 1)
    wait_for(lambda: complete_of(direct, left) == left, "what a victim left is not complete")
    wish_for(stack, "never", wanted=4)  # there are three brokers
    wait_for(lambda: complete_of(direct, ["never"]) == ["never"], "not even three replicas")
    wait_for(lambda: 3 in (wish.made_replicas for wish in wishes(stack)), "that it has three is not remembered")
    accept = ["topics", "accept-replicas", "--config", str(stack.config_path("rack-b")), "never"]
    assert CliRunner().invoke(app, accept).exit_code == 0
    wait_for(lambda: not wishes(stack), "what is complete, gone or made smaller is not forgotten")
    assert [sorted(has) for has, _ in replicas(direct, ["smaller"])["smaller"]] == [[1], [2]]


def wish_for(stack: Stack, topic: str, wanted: int = 3) -> str:
    """Create a topic with two partitions of two replicas each, and the intent to add replicas; return its name."""
    made = [[1, 2], [2, 1]]
    create_topic(stack, topic, CLASSIC, assignment=made)
    long_ago_ms = time.time_ns() // 1_000_000 - 3_600_000

    async def remember() -> None:
        settings = load_settings(stack.config_path("rack-a"))
        store, cluster = await connect(settings.redis), Cluster(settings)
        try:
            await cluster.refresh()
            wish = Pending(topic, topic, wanted, 2, long_ago_ms, owner="gone", made_as=replicas_digest(made))
            await RedisPendingTopics(store, lambda: cluster.cluster_id).remember([wish])
        finally:
            cluster.service.close()
            await store.aclose()

    asyncio.run(remember())
    return topic


async def make_smaller(stack: Stack, topic: str) -> None:
    """Reduce each partition to one replica, as an operator might do."""
    cluster = Cluster(load_settings(stack.config_path("rack-a")))
    try:
        await cluster.refresh()
        assert await REASSIGN(cluster.service, {(topic, 0): [1], (topic, 1): [2]}) == {}
    finally:
        cluster.service.close()


def complete_of(direct: AdminClient, topics: Sequence[str]) -> list[str]:
    """Return the topics that have three replicas, all in sync."""
    return [
        name
        for name, partitions in replicas(direct, topics).items()
        if all(sorted(has) == sorted(in_sync) == [1, 2, 3] for has, in_sync in partitions)
    ]
