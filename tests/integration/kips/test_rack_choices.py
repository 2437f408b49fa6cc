"""Racks and leaders on the real stack: each rule of `leader_choice`, learned racks, KIP-1163's API, lifelines."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from proxy.demo.stack import Stack
from tests.support.questions import ask, ask_bytes
from tests.support.raw import Raw
from tests.support.topics import CLASSIC, DISKLESS, new_topic
from tests.unit.wire.proposed import DESCRIBE_TOPIC_PARTITIONS_REQUEST, METADATA_REQUEST, METADATA_RESPONSE
from tests.unit.wire.trees import decode, encode, response_type

FETCH, METADATA, API_VERSIONS, DESCRIBE_CLUSTER, DESCRIBE_TOPIC_PARTITIONS = 1, 3, 18, 60, 75
RACK = "rack-b"
PARTITIONS = 5


def hint(rack: str, name: str = "raw") -> str:
    """Return a client ID that names the client's rack."""
    return f"{name},diskless_rack_id={rack}"


@contextmanager
def proxy_restored(stack: Stack) -> Iterator[None]:
    """Restore the own settings of `RACK`'s proxy at the end."""
    own = dict(stack.proxies[RACK].settings)
    try:
        yield
    finally:
        stack.terminate_proxy(RACK)
        stack.proxies[RACK].settings = own
        stack.proxies[RACK].prepare()
        stack.start_proxy(RACK)


def restart(stack: Stack, **overrides: Any) -> None:
    """Restart the proxy of `RACK` with other settings."""
    stack.terminate_proxy(RACK)
    stack.configure_proxy(RACK, overrides)
    stack.start_proxy(RACK)


def metadata(stack: Stack, topic: str, client_id: str, rack: str = RACK) -> dict[str, Any]:
    """Return Metadata v12 of one topic from the rack's proxy, once every broker knows the topic."""
    deadline = time.monotonic() + 30
    while True:
        answer = ask(stack.bootstrap(rack), METADATA, 12, client_id, topics=[{"name": topic}])
        if len(answer["topics"][0]["partitions"]) == PARTITIONS:
            return answer
        assert time.monotonic() < deadline, answer
        time.sleep(0.1)


def leaders(partitions: list[dict[str, Any]]) -> dict[int, int]:
    """Return leaders by partition."""
    return {partition["partition_index"]: partition["leader_id"] for partition in partitions}


def described(stack: Stack, topics: list[str], client_id: str) -> dict[str, dict[int, int]]:
    """Return leaders from DescribeTopicPartitions, page by page."""
    cursor, pages, found = None, 0, {topic: {} for topic in topics}
    while True:
        answer = ask(
            stack.bootstrap(RACK),
            DESCRIBE_TOPIC_PARTITIONS,
            0,
            client_id,
            topics=[{"name": topic} for topic in sorted(topics)],
            response_partition_limit=2,
            cursor=cursor,
        )
        pages += 1
        for topic in answer["topics"]:
            assert len(topic["partitions"]) <= 2
            found[topic["name"]] |= leaders(topic["partitions"])
        cursor = answer["next_cursor"]
        if cursor is None:
            assert pages == -(-PARTITIONS * len(topics) // 2), "the limit is the broker's, and so is the cursor"
            return found


def agrees(stack: Stack, topics: list[str], client_id: str) -> list[dict[int, int]]:
    """Return the topics' leaders in Metadata, and require the same in all pages of DescribeTopicPartitions."""
    found = {topic: leaders(metadata(stack, topic, client_id)["topics"][0]["partitions"]) for topic in topics[:-1]}
    found[topics[-1]] = leaders(metadata(stack, topics[-1], client_id)["topics"][0]["partitions"])
    assert described(stack, topics[-1:], client_id) == {topics[-1]: found[topics[-1]]}
    return [found[topic] for topic in topics]


def topics_of(stack: Stack, label: str) -> tuple[str, str]:
    """Create a classic and a diskless topic."""
    classic = new_topic(stack, label, CLASSIC, PARTITIONS)
    return classic, new_topic(stack, label, DISKLESS, PARTITIONS)


def test_sticky_pages_agree_and_classic_topics_keep_their_leaders(stack: Stack) -> None:
    classic, diskless = topics_of(stack, "choices-sticky")
    for rack, node in (("rack-a", 1), ("rack-c", 3)):
        of_classic, of_diskless = agrees(stack, [classic, diskless], hint(rack))
        assert set(of_diskless.values()) == {node}
        direct = ask(stack.kafka.address(1), METADATA, 12, topics=[{"name": classic}])
        assert of_classic == leaders(direct["topics"][0]["partitions"])
        assert described(stack, [classic, diskless], hint(rack)) == {classic: of_classic, diskless: of_diskless}


def test_the_rack_of_a_fetch_is_used_for_the_next_metadata(stack: Stack) -> None:
    _, diskless = topics_of(stack, "choices-learned")
    client_id = f"learner-without-a-hint-{uuid.uuid4().hex[:6]}"
    assert set(leaders(metadata(stack, diskless, client_id)["topics"][0]["partitions"]).values()) == {2}
    with Raw(stack.bootstrap(RACK)) as raw:
        ask(raw, FETCH, 11, client_id, replica_id=-1, max_bytes=1, session_epoch=-1, rack_id="rack-c")
        same = ask(raw, METADATA, 12, client_id, topics=[{"name": diskless}])
        assert set(leaders(same["topics"][0]["partitions"]).values()) == {3}
    elsewhere = metadata(stack, diskless, client_id)
    assert set(leaders(elsewhere["topics"][0]["partitions"]).values()) == {3}
    start = stack.ports.broker_port_start(list(stack.proxies).index("rack-c"))
    assert {broker["port"] - start for broker in elsewhere["brokers"]} == {1, 2, 3}
    assert set(leaders(metadata(stack, diskless, "another")["topics"][0]["partitions"]).values()) == {2}


@pytest.mark.timeout(300)
def test_the_other_choices(stack: Stack) -> None:
    """Try them one after the other, because each needs a restart of the proxy."""
    topics = [new_topic(stack, f"choices-{n}", DISKLESS, PARTITIONS) for n in range(3)]
    with proxy_restored(stack):
        restart(stack, leader_choice="round_robin")
        round_robin_moves_with_every_metadata_and_describe_agrees(stack, topics[0])
        restart(stack, leader_choice="partition_hash")
        partition_hash_spreads_partitions_alike_for_all_clients(stack, topics)
        restart(stack, leader_choice="replica", kip1163_api=True, fleet={"lifelines": 1})
        replica_changes_nothing_but_the_leader(stack, topics[0])
        proposed_versions_are_served(stack, topics[0])
        lifelines_serve(stack)
        replica_while_the_racks_broker_is_away_and_back(stack, topics[0])


def round_robin_moves_with_every_metadata_and_describe_agrees(stack: Stack, topic: str) -> None:
    # For a rack without brokers, all brokers take turns.
    turns = [set(agrees(stack, [topic], hint("rack-nowhere", f"client-{n}"))[0].values()) for n in range(6)]
    assert all(len(turn) == 1 for turn in turns)
    assert [*map(sorted, turns[:3])] == [*map(sorted, turns[3:])]
    assert set.union(*turns) == {1, 2, 3}
    assert set(agrees(stack, [topic], "client")[0].values()) == {2}


def partition_hash_spreads_partitions_alike_for_all_clients(stack: Stack, topics: list[str]) -> None:
    first, second = (agrees(stack, topics, hint("rack-nowhere", name)) for name in ("one", "two"))
    assert first == second
    # Fifteen partitions are spread over three brokers.
    assert len({node for each in first for node in each.values()}) > 1
    assert {node for each in agrees(stack, topics, "client") for node in each.values()} == {2}


def leaders_and_answers(stack: Stack, topic: str) -> tuple[dict[int, int], dict[str, Any], dict[str, Any]]:
    """Return the leaders for a client of `RACK`, the proxy's Metadata, and a broker's."""
    answer = metadata(stack, topic, hint(RACK))
    direct = ask(stack.kafka.address(1), METADATA, 12, topics=[{"name": topic}])
    return leaders(answer["topics"][0]["partitions"]), answer, direct


def replica_changes_nothing_but_the_leader(stack: Stack, topic: str) -> None:
    def without_leaders(answer: dict[str, Any]) -> list[dict[str, Any]]:
        found = [partition | {"leader_id": 0} for partition in answer["topics"][0]["partitions"]]
        return sorted(found, key=lambda partition: partition["partition_index"])

    now, answer, direct = leaders_and_answers(stack, topic)
    assert set(now.values()) == {2}, "all partitions have a replica on each of the three brokers"
    assert without_leaders(answer) == without_leaders(direct)
    assert agrees(stack, [topic], hint(RACK)) == [now]


def replica_while_the_racks_broker_is_away_and_back(stack: Stack, topic: str) -> None:
    stack.stop_broker(2)
    deadline = time.monotonic() + 60
    now, direct = {0: 2}, {}
    while 2 in now.values() or now != leaders(direct["topics"][0]["partitions"]):
        assert time.monotonic() < deadline, "the rack has no broker, and still the leaders are not the true ones"
        now, _, direct = leaders_and_answers(stack, topic)
    stack.start_broker(2)
    deadline = time.monotonic() + 60
    while set(now.values()) != {2}:
        assert time.monotonic() < deadline, "broker 2 is back and does not lead"
        now, _, _ = leaders_and_answers(stack, topic)
        time.sleep(0.2)


def proposed_versions_are_served(stack: Stack, diskless: str) -> None:
    """Check Metadata v14 and DescribeTopicPartitions v1 of KIP-1163 for a client that names its rack without a hint."""
    versions = ask(stack.bootstrap(RACK), API_VERSIONS, 3, client_software_name="a", client_software_version="1")
    highest = {each["api_key"]: each["max_version"] for each in versions["api_keys"]}
    assert (highest[METADATA], highest[DESCRIBE_TOPIC_PARTITIONS]) == (14, 1)
    classic = new_topic(stack, "choices-proposed", CLASSIC, PARTITIONS)
    metadata(stack, classic, "knows")  # waits until the topic is known here
    topics = [{"name": name, "topic_id": bytes(16)} for name in (classic, diskless)]
    asked = {
        "topics": topics,
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
        "rack_id": "rack-c",
    }
    body = ask_bytes(stack.bootstrap(RACK), METADATA, 14, encode(METADATA_REQUEST, asked))
    found = {topic["name"]: topic for topic in decode(METADATA_RESPONSE, body)["topics"]}
    assert (found[classic]["is_diskless"], found[diskless]["is_diskless"]) == (False, True)
    assert [partition["preferred_produce_brokers"] for partition in found[classic]["partitions"]] == [[]] * PARTITIONS
    assert [partition["preferred_produce_brokers"] for partition in found[diskless]["partitions"]] == [[3]] * PARTITIONS
    assert set(leaders(found[diskless]["partitions"]).values()) == {3}
    page = {"topics": [{"name": diskless}], "response_partition_limit": 3, "cursor": None, "rack_id": "rack-a"}
    page_body = encode(DESCRIBE_TOPIC_PARTITIONS_REQUEST, page)
    answer = decode(
        response_type(DESCRIBE_TOPIC_PARTITIONS, 0),
        ask_bytes(stack.bootstrap(RACK), DESCRIBE_TOPIC_PARTITIONS, 1, page_body),
    )
    assert set(leaders(answer["topics"][0]["partitions"]).values()) == {1}
    assert answer["next_cursor"] == {"topic_name": diskless, "partition_index": 3}


def lifelines_serve(stack: Stack) -> None:
    """An additional node leads nothing, and its address bootstraps clients into their own rack."""
    hinted = ask(stack.bootstrap(RACK), METADATA, 12, hint(RACK, "old"), topics=None)
    nodes = {broker["node_id"]: broker for broker in hinted["brokers"]}
    (lifeline,) = nodes.keys() - stack.kafka.racks.keys()
    assert nodes[lifeline]["rack"] in {"rack-a", "rack-c"}
    named = {hinted["controller_id"]}
    for topic in hinted["topics"]:
        for partition in topic["partitions"]:
            named |= {partition["leader_id"], *partition["replica_nodes"], *partition["isr_nodes"]}
    assert lifeline not in named
    address = f"{nodes[lifeline]['host']}:{nodes[lifeline]['port']}"
    assert address == stack.bootstrap(nodes[lifeline]["rack"])
    own = [broker for broker in hinted["brokers"] if broker["node_id"] != lifeline]
    deadline = time.monotonic() + 30
    through: list[dict[str, Any]] = []
    # The other rack's proxy learns with its next heartbeat that this one serves again.
    while sorted(map(str, through)) != sorted(map(str, own)):
        assert time.monotonic() < deadline, through
        through = ask(address, METADATA, 12, hint(RACK, "old"), topics=[])["brokers"]
    # Tools that contact all brokers do not get this node, nor do clients whose rack is that of the port.
    cluster = ask(stack.bootstrap(RACK), DESCRIBE_CLUSTER, 1, hint(RACK, "old"), endpoint_type=1)
    assert {broker["broker_id"] for broker in cluster["brokers"]} == set(stack.kafka.racks)
    without = ask(stack.bootstrap(RACK), METADATA, 12, "no-hint", topics=[])
    assert {broker["node_id"] for broker in without["brokers"]} == set(stack.kafka.racks)
