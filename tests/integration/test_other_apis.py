"""APIs other than Produce and Fetch that name a topic: the answers for a diskless topic, compared with a classic
one."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.demo.stack import Stack
from tests.support.confluent import produce_to
from tests.support.questions import ask
from tests.support.records import samples
from tests.support.topics import CLASSIC, DISKLESS, KINDS, new_topic
from tests.support.waiting import wait_for

METADATA, DESCRIBE_LOG_DIRS, ALTER_CONFIGS, DESCRIBE_CONFIGS = 3, 35, 44, 32
ALTER_REASSIGNMENTS, LIST_REASSIGNMENTS, DESCRIBE_PRODUCERS, DESCRIBE_TOPIC_PARTITIONS = 45, 46, 61, 75
UNKNOWN_TOPIC_OR_PARTITION, LOG_DIR_NOT_FOUND = 3, 57
ALTER_REPLICA_LOG_DIRS = 34
RACK = "rack-b"
RECORDS = (0, 12, 5)
SENT = {index: samples(count, "others", plain=True) for index, count in enumerate(RECORDS) if count}


@pytest.fixture(scope="module")
def topics(running_stack: Stack) -> dict[str, str]:
    """Create a topic of each kind, with the same records by idempotent producers, one after the other."""
    made = {kind: new_topic(running_stack, "others", kind, len(RECORDS)) for kind in KINDS}
    for name in made.values():
        produce_to(running_stack.bootstrap("rack-a"), name, SENT, enable_idempotence=True, linger_ms=200)
    return made


def brokers(stack: Stack) -> dict[int, str]:
    """Return the brokers' addresses that clients of the rack get."""
    metadata = ask(stack.bootstrap(RACK), METADATA, 12, topics=[])
    return {one["node_id"]: f"{one['host']}:{one['port']}" for one in metadata["brokers"]}


def metadata_of(stack: Stack, *names: str, direct: bool = False) -> dict[str, dict[str, Any]]:
    address = stack.direct_bootstrap.split(",")[0] if direct else stack.bootstrap(RACK)
    metadata = ask(address, METADATA, 12, topics=[{"name": name, "topic_id": bytes(16)} for name in names])
    return {topic["name"]: topic for topic in metadata["topics"]}


# Log directories


def directories(address: str, version: int, asked: list[dict[str, Any]] | None) -> dict[str, dict[str, list[Any]]]:
    """Return sizes by log directory, topic and partition, according to one broker."""
    answer = ask(address, DESCRIBE_LOG_DIRS, version, topics=asked)
    assert not answer.get("error_code", 0)
    assert all(one.get("total_bytes", 1) != 0 and not one["error_code"] for one in answer["results"])
    return {
        one["log_dir"]: {
            topic["name"]: [part["partition_size"] for part in sorted(topic["partitions"], key=_index)]
            for topic in one["topics"]
        }
        for one in answer["results"]
    }


def _index(partition: dict[str, Any]) -> int:
    index: int = partition["partition_index"]
    return index


@pytest.mark.parametrize("version", range(1, 6))
def test_object_storage_is_the_log_directory_of_diskless_partitions(
    stack: Stack, topics: dict[str, str], version: int
) -> None:
    """Over all brokers they appear once, with as many bytes as a classic replica of the same batches takes."""
    asked = [{"topic": name, "partitions": [0, 1, 2]} for name in topics.values()]
    by_broker = {node: directories(address, version, asked) for node, address in brokers(stack).items()}
    classic = [
        dirs[name][topics[CLASSIC]] for dirs in by_broker.values() for name in dirs if topics[CLASSIC] in dirs[name]
    ]
    found = {(node, name) for node, dirs in by_broker.items() for name in dirs if topics[DISKLESS] in dirs[name]}
    leader = metadata_of(stack, topics[DISKLESS])[topics[DISKLESS]]["partitions"][0]["leader_id"]
    assert found == {(leader, stack.storage_url)}
    assert classic == [by_broker[leader][stack.storage_url][topics[DISKLESS]]] * 3
    # All topics, if none is named.
    whole = {name for address in brokers(stack).values() for name in directories(address, version, None)}
    assert stack.storage_url in whole


def test_log_directories_of_classic_topics_alone_are_the_brokers(stack: Stack, topics: dict[str, str]) -> None:
    asked = [{"topic": topics[CLASSIC], "partitions": [1]}]
    for address in brokers(stack).values():
        ((name, sizes),) = directories(address, 5, asked).items()
        assert name != stack.storage_url
        assert sizes.keys() == {topics[CLASSIC]}


# Producers


def test_producers_are_described_in_the_same_way(stack: Stack, topics: dict[str, str]) -> None:
    def described(name: str) -> Any:
        asked = [{"name": name, "partition_indexes": [0, 1, 2, 9]}]
        for address in brokers(stack).values():
            (topic,) = ask(address, DESCRIBE_PRODUCERS, 0, topics=asked)["topics"]
            for partition in topic["partitions"]:
                for producer in partition["active_producers"]:
                    assert producer.pop("producer_id") >= 0
                    # This is the largest timestamp of its last batch, and the client chooses where that batch begins.
                    assert producer.pop("last_timestamp") in {one.timestamp_ms for one in SENT[_index(partition)]}
            yield topic["partitions"]

    classic, diskless = (list(described(topics[kind])) for kind in KINDS)
    assert classic == diskless
    assert [len(partition["active_producers"]) for partition in diskless[0]] == [0, 1, 1, 0]
    assert diskless[0][1]["active_producers"][0]["last_sequence"] == RECORDS[1] - 1
    assert diskless[0][3]["error_code"] == UNKNOWN_TOPIC_OR_PARTITION


# Topics by ID, and configs that are only validated


def test_topics_are_described_by_their_ids(stack: Stack, topics: dict[str, str]) -> None:
    for name, topic in metadata_of(stack, *topics.values()).items():
        asked = [{"name": None, "topic_id": topic["topic_id"]}]
        (found,) = ask(stack.bootstrap(RACK), METADATA, 12, topics=asked)["topics"]
        assert found == topic
        pages = ask(
            stack.bootstrap(RACK), DESCRIBE_TOPIC_PARTITIONS, 0, topics=[{"name": name}], response_partition_limit=100
        )
        assert [one["leader_id"] for one in pages["topics"][0]["partitions"]] == [
            one["leader_id"] for one in topic["partitions"]
        ]


@pytest.mark.parametrize(("value", "error_code"), [("123456", 0), ("soon", 40)])
def test_configs_that_are_only_validated_stay(
    stack: Stack, topics: dict[str, str], value: str, error_code: int
) -> None:
    def retention(name: str) -> Any:
        asked = [{"resource_type": 2, "resource_name": name, "configuration_keys": ["retention.ms"]}]
        return ask(stack.bootstrap(RACK), DESCRIBE_CONFIGS, 4, resources=asked)["results"][0]["configs"][0]["value"]

    before = [retention(name) for name in topics.values()]
    change = [{"name": "retention.ms", "config_operation": 0, "value": value}]
    asked = [{"resource_type": 2, "resource_name": name, "configs": change} for name in topics.values()]
    answer = ask(stack.bootstrap(RACK), ALTER_CONFIGS, 1, resources=asked, validate_only=True)
    assert [one["error_code"] for one in answer["responses"]] == [error_code] * 2
    assert [retention(name) for name in topics.values()] == before


# Reassignments


def test_a_placeholder_topic_moves(stack: Stack) -> None:
    """It moves like a classic topic. A plan that could remove replicas unnoticed needs fewer racks than replicas: a
    unit test."""
    classic, diskless = (new_topic(stack, "moved", kind, 2) for kind in KINDS)
    wait_for(lambda: all(not one["error_code"] for one in metadata_of(stack, classic, diskless).values()), "not known")

    def alter(plans: dict[str, list[list[int] | None]]) -> dict[tuple[str, int], int]:
        asked = [
            {
                "name": name,
                "partitions": [{"partition_index": index, "replicas": plan} for index, plan in enumerate(plan_of)],
            }
            for name, plan_of in plans.items()
        ]
        answer = ask(
            stack.bootstrap(RACK),
            ALTER_REASSIGNMENTS,
            1,
            timeout=30_000,
            topics=asked,
            allow_replication_factor_change=True,
        )
        assert answer["error_code"] == 0
        return {
            (topic["name"], one["partition_index"]): one["error_code"]
            for topic in answer["responses"]
            for one in topic["partitions"]
        }

    def replicas(name: str) -> list[list[int]]:
        return [sorted(one["replica_nodes"]) for one in metadata_of(stack, name, direct=True)[name]["partitions"]]

    errors = alter({diskless: [[2], [3, 1]], classic: [[2], [3, 1]]})
    assert errors == {(name, index): 0 for name in (diskless, classic) for index in range(2)}
    wait_for(lambda: replicas(diskless) == replicas(classic) == [[2], [1, 3]], "not moved")
    assert alter({diskless: [[1, 3]]}) == {(diskless, 0): 0}
    wait_for(lambda: replicas(diskless) == [[1, 3], [1, 3]], "not moved")
    # None cancels; nothing is in progress, of either kind.
    assert set(alter({diskless: [None], classic: [None]}).values()) == {85}
    assert ask(stack.bootstrap(RACK), LIST_REASSIGNMENTS, 0, timeout=30_000, topics=None)["topics"] == []
    sent = produce_to(stack.bootstrap("rack-a"), diskless, {0: samples(3, "moved"), 1: samples(2, "moved")})
    assert sent == {0: [0, 1, 2], 1: [0, 1]}


def test_replicas_that_move_between_disks_are_the_placeholders(stack: Stack, topics: dict[str, str]) -> None:
    """There is no second disk here: every broker reports this for both kinds, because each has a replica of both."""
    asked = [{"path": "/nowhere", "topics": [{"name": name, "partitions": [0]} for name in topics.values()]}]
    for version in (1, 2):
        for address in brokers(stack).values():
            answer = ask(address, ALTER_REPLICA_LOG_DIRS, version, dirs=asked)
            errors = {one["topic_name"]: one["partitions"][0]["error_code"] for one in answer["results"]}
            assert errors == dict.fromkeys(topics.values(), LOG_DIR_NOT_FOUND)
