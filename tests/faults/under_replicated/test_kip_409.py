"""KIP-409 on real brokers: topics and partitions that the brokers reject are created on the live brokers.

The third rack's broker is removed from the cluster, as if it had never existed; `test_completed.py` begins before it
ran.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from proxy.coordinator.shards import REPLICATION_PREFIX
from proxy.demo.stack import Stack
from tests.faults.under_replicated.conftest import LATE_NODE, WAIT_SECONDS, hold_lease
from tests.support.java_tools import TOOLS, JavaTools
from tests.support.questions import ask
from tests.support.waiting import wait_for

CREATE_TOPICS, CREATE_PARTITIONS = 19, 37
NONE, UNKNOWN_TOPIC_OR_PARTITION, TOPIC_ALREADY_EXISTS = 0, 3, 36
INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT = 38, 39
OFF = "rack-c"
"""Rack whose proxy has the setting off."""
KINDS = ("classic", "diskless")
EXACT = [[1, LATE_NODE, 2], [2, 1, LATE_NODE]]

# No second try: the stack cannot be restored to a state in which a broker never ran.
pytestmark = [pytest.mark.stack, pytest.mark.timeout(300), pytest.mark.flaky(reruns=0)]


@pytest.fixture(scope="module")
def with_one_off(two_of_three: Stack) -> Iterator[Stack]:
    """Turn the setting off at the proxy of one rack, and let no proxy complete anything."""
    stack = two_of_three
    stack.heal()
    hold_lease(stack, 600_000)
    stack.terminate_proxy(OFF)
    stack.configure_proxy(OFF, {"enable.under.replicated.topic.creation": False})
    stack.start_proxy(OFF)
    yield stack
    hold_lease(stack, 1)


@pytest.fixture(scope="module")
def one_lost(with_one_off: Stack, tools: JavaTools) -> Stack:
    lose(with_one_off, tools)
    return with_one_off


def lose(stack: Stack, tools: JavaTools) -> None:
    """Remove the third rack's broker from the cluster."""
    if stack.process(f"broker-{LATE_NODE}").running:
        stack.stop_broker(LATE_NODE)
        unregister = ("unregister", "--bootstrap-server", stack.kafka.address(1), "--id", str(LATE_NODE))
        assert tools.run(f"{TOOLS}.ClusterTool", *unregister).exit_code == 0


def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def code_of(done: Callable[[], Any]) -> int:
    """Return the error code of an Admin client's call."""
    try:
        done()
    except KafkaException as error:
        return int(error.args[0].code())
    return NONE


def create(
    bootstrap: str, name: str, replicas: int = 3, partitions: int = 2, *, validate_only: bool = False, **options: Any
) -> int:
    """Return the error code of a creation."""
    many = {} if "replica_assignment" in options else {"replication_factor": replicas}
    client = admin(bootstrap)
    topic = NewTopic(name, partitions, **many, **options)
    made = client.create_topics([topic], request_timeout=30, validate_only=validate_only)
    return code_of(lambda: made[name].result(40))


def grow(bootstrap: str, name: str, count: int, *, validate_only: bool = False, **options: Any) -> int:
    """Return the error code of adding partitions."""
    client = admin(bootstrap)
    made = client.create_partitions([NewPartitions(name, count, **options)], validate_only=validate_only)
    return code_of(lambda: made[name].result(40))


def replicas(stack: Stack, name: str, partitions: int | None = None) -> list[list[int]]:
    """Return each partition's replicas, once both brokers know `partitions` of them; none for an unknown topic."""
    clients = [admin(stack.kafka.address(node)) for node in (1, 2)]
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        known = [client.list_topics(timeout=WAIT_SECONDS).topics.get(name) for client in clients]
        found = [
            [list(one.replicas) for _, one in sorted(topic.partitions.items())] if topic else [] for topic in known
        ]
        if found[0] == found[1] and (partitions is None or len(found[0]) == partitions):
            return found[0]
        assert time.monotonic() < deadline, f"{name}: {found}"
        time.sleep(0.05)


def remembered(stack: Stack) -> Counter[str]:
    """Return the number of wishes for each topic."""
    with redis.Redis.from_url(stack.redis.url) as store:
        keys: Any = store.keys(f"{REPLICATION_PREFIX}*:pending")
        wishes: list[Any] = [wish for key in keys for wish in store.hvals(key)]  # type: ignore[union-attr]
    assert all(b'"topic_id": "00000000' not in wish for wish in wishes), "an intent was left behind"
    return Counter(wish.partition(b'"name": "')[2].partition(b'"')[0].decode() for wish in wishes)


def test_partitions_of_topics_that_lost_a_broker_for_good(with_one_off: Stack, tools: JavaTools) -> None:
    """The brokers give new partitions as many replicas as the others have, including the lost broker."""
    stack, proxy = with_one_off, with_one_off.bootstrap("rack-a")
    names = {f"lost-{kind}": {"diskless.enable": "true"} if kind == "diskless" else {} for kind in KINDS}
    for name, config in names.items():
        assert create(proxy, name, partitions=3, config=config) == NONE
        assert all(len(one) == 3 for one in replicas(stack, name, 3))
    lose(stack, tools)
    for name in names:
        wishes = remembered(stack)[name]
        assert grow(stack.kafka.address(1), name, 5) == INVALID_REPLICATION_FACTOR
        assert grow(stack.bootstrap(OFF), name, 5) == INVALID_REPLICATION_FACTOR
        assert grow(proxy, name, 5, validate_only=True) == NONE
        assert all(len(one) == 3 for one in replicas(stack, name, 3)), "validating changed something"
        assert grow(proxy, name, 5) == NONE
        assert all(set(one) == {1, 2} for one in replicas(stack, name, 5))
        assert remembered(stack)[name] == wishes + 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_rejected_topic_is_created_and_its_missing_replicas_are_stored_as_a_wish(one_lost: Stack, kind: str) -> None:
    stack, name = one_lost, f"made-{kind}"
    config = {"diskless.enable": "true"} if kind == "diskless" else {}
    proxy = stack.bootstrap("rack-a")
    assert create(stack.direct_bootstrap, name) == INVALID_REPLICATION_FACTOR
    assert create(stack.bootstrap(OFF), name, config=config) == INVALID_REPLICATION_FACTOR
    assert create(proxy, name, config=config | {"min.insync.replicas": "3"}) == INVALID_REPLICATION_FACTOR
    assert create(proxy, name, config=config, validate_only=True) == NONE
    assert not replicas(stack, name)
    assert not remembered(stack)[name]
    assert create(proxy, name, partitions=4, config=config) == NONE
    found = replicas(stack, name, 4)
    assert all(set(one) == {1, 2} for one in found)
    assert Counter(one[0] for one in found) == {1: 2, 2: 2}
    assert remembered(stack)[name] == 1
    assert create(proxy, name, config=config) == TOPIC_ALREADY_EXISTS
    assert remembered(stack)[name] == 1
    sent: list[Any] = []
    producer = Producer({"bootstrap.servers": proxy, "acks": "all"})
    producer.produce(name, b"value", partition=3, on_delivery=lambda error, _: sent.append(error))
    assert producer.flush(WAIT_SECONDS) == 0
    assert sent == [None]


@pytest.mark.parametrize("kind", KINDS)
def test_an_exact_assignment_is_made_with_its_live_replicas(one_lost: Stack, kind: str) -> None:
    stack, name = one_lost, f"exact-{kind}"
    config = {"diskless.enable": "true"} if kind == "diskless" else {}
    proxy = stack.bootstrap("rack-b")
    exact = {"replica_assignment": EXACT, "config": config}
    assert create(stack.direct_bootstrap, name, **exact | {"config": {}}) == INVALID_REPLICA_ASSIGNMENT
    assert create(stack.bootstrap(OFF), name, **exact) == INVALID_REPLICA_ASSIGNMENT
    below = {"replica_assignment": [[1, LATE_NODE]], "config": config}
    assert create(proxy, name, partitions=1, **below) == INVALID_REPLICA_ASSIGNMENT
    assert create(proxy, name, **exact) == NONE
    assert replicas(stack, name, 2) == [[1, 2], [2, 1]]
    assert remembered(stack)[name] == 2
    more = {"replica_assignment": [[LATE_NODE, 2, 1]]}
    assert grow(stack.direct_bootstrap, name, 3, **more) == INVALID_REPLICA_ASSIGNMENT
    assert grow(stack.bootstrap(OFF), name, 3, **more) == INVALID_REPLICA_ASSIGNMENT
    assert grow(proxy, name, 3, validate_only=True, **more) == NONE
    assert remembered(stack)[name] == 2
    assert grow(proxy, name, 3, **more) == NONE
    assert replicas(stack, name, 3)[2] == [2, 1]
    assert remembered(stack)[name] == 4
    assert grow(proxy, name, 3) != NONE


def test_every_version_treats_each_topic_of_a_request_separately(one_lost: Stack) -> None:
    stack = one_lost
    for version in range(2, 8):
        topics = [
            {"name": f"raw-{version}", "num_partitions": 1, "replication_factor": 3},
            {"name": f"raw-{version}-direct", "num_partitions": 1, "replication_factor": 2},
            {"name": f"raw-{version}-none", "num_partitions": 1, "replication_factor": 0},
            {"name": "", "num_partitions": 1, "replication_factor": 3},
            {"name": f"raw-{version}-default", "num_partitions": -1 if version >= 4 else 1, "replication_factor": 3},
        ]
        created = ask(stack.bootstrap("rack-a"), CREATE_TOPICS, version, topics=topics, timeout=30_000)["topics"]
        codes = {topic["name"]: topic["error_code"] for topic in created}
        assert [topic["name"] for topic in created] == [topic["name"] for topic in topics]
        assert codes == {
            f"raw-{version}": NONE,
            f"raw-{version}-direct": NONE,
            f"raw-{version}-none": INVALID_REPLICATION_FACTOR,
            "": 17,
            f"raw-{version}-default": NONE,
        }
        if version >= 5:
            (made,) = (topic for topic in created if topic["name"] == f"raw-{version}")
            assert (made["num_partitions"], made["replication_factor"]) == (1, 2)
            assert {"min.insync.replicas"} <= {config["name"] for config in made["configs"]}
        if version >= 7:
            assert any(made["topic_id"])
    assert all(remembered(stack)[f"raw-{version}"] == 1 for version in range(2, 8))
    assert not any("direct" in name or "none" in name for name in remembered(stack))


def test_java_tools_notice_nothing(one_lost: Stack, tools: JavaTools) -> None:
    stack = one_lost
    main = f"{TOOLS}.TopicCommand"
    for name in ("java-classic", "diskless.java"):
        arguments = ("--create", "--topic", name, "--partitions", "3")
        off = tools.run(main, "--bootstrap-server", stack.bootstrap(OFF), *arguments)
        assert off.exit_code, off
        assert "replication factor of 3 cannot be reached" in off.out + off.err
        done = tools.run(main, "--bootstrap-server", stack.bootstrap("rack-a"), *arguments)
        assert done.exit_code == 0, done
        assert len(replicas(stack, name, 3)) == 3
        assert remembered(stack)[name] == 1
    grown = ("--alter", "--topic", "java-classic", "--partitions", "5")
    done = tools.run(main, "--bootstrap-server", stack.bootstrap("rack-a"), *grown)
    assert done.exit_code == 0, done
    assert all(set(one) == {1, 2} for one in replicas(stack, "java-classic", 5))
    assert remembered(stack)["java-classic"] == 1, "the wish is about all partitions"


def test_automatic_topic_creation_works_too(one_lost: Stack) -> None:
    stack, sent = one_lost, []
    for name in ("on-demand", "diskless.on-demand"):
        producer = Producer({"bootstrap.servers": stack.bootstrap("rack-a"), "topic.metadata.refresh.interval.ms": 500})
        producer.produce(name, b"value", on_delivery=lambda error, _: sent.append(error))
        assert producer.flush(WAIT_SECONDS) == 0
        assert set(replicas(stack, name, 1)[0]) == {1, 2}
        assert remembered(stack)[name] == 1
    assert sent == [None, None]


def test_without_the_store_the_brokers_error_is_returned_and_nothing_is_created(one_lost: Stack) -> None:
    stack = one_lost
    stack.pause("redis")
    try:
        assert create(stack.bootstrap("rack-a"), "forgotten") == INVALID_REPLICATION_FACTOR
    finally:
        stack.resume("redis")
    assert not replicas(stack, "forgotten")
    wait_for(lambda: create(stack.bootstrap("rack-a"), "forgotten") in (NONE, TOPIC_ALREADY_EXISTS), "no store again")
    assert remembered(stack)["forgotten"] == 1
