"""Topics that are created by name: by CreateTopics of any shape, and on demand by Metadata."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from proxy.demo.stack import Stack
from tests.support.confluent import produce, read
from tests.support.metrics import Metrics
from tests.support.questions import ask
from tests.support.records import samples
from tests.support.waiting import wait_for

METADATA, CREATE_TOPICS, DELETE_TOPICS, DESCRIBE_CONFIGS = 3, 19, 20, 32
INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT, TOPIC_ALREADY_EXISTS = 38, 39, 36
INVALID_CONFIG, INVALID_REQUEST = 40, 42
RACK = "rack-a"


def by_name(kind: str) -> str:
    return f"{'diskless.' if kind == 'diskless' else ''}created-{uuid.uuid4().hex[:8]}"


def metadata(address: str, version: int, *names: str, creates: bool = False) -> dict[str, int]:
    reported = ask(
        address,
        METADATA,
        version,
        topics=[{"name": name, "topic_id": bytes(16)} for name in names],
        allow_auto_topic_creation=creates,
    )
    assert len(reported["topics"]) == len(names)
    return {topic["name"]: topic["error_code"] for topic in reported["topics"]}


def is_diskless(stack: Stack, name: str) -> bool:
    asked = [{"resource_type": 2, "resource_name": name, "configuration_keys": None}]
    (result,) = ask(stack.bootstrap(RACK), DESCRIBE_CONFIGS, 1, resources=asked)["results"]
    assert result["error_code"] == 0
    return any(config["name"] == "diskless.enable" for config in result["configs"])


def known(stack: Stack, *names: str) -> None:
    """Wait until every broker knows them: brokers learn of topics one after the other."""
    addresses = (*stack.direct_bootstrap.split(","), stack.bootstrap(RACK))
    wait_for(lambda: not any(any(metadata(one, 9, *names).values()) for one in addresses), "not known everywhere")


# On demand


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4, 8, 9, 12, 13])
def test_topics_created_on_demand_are_diskless_by_their_names(stack: Stack, version: int) -> None:
    """Topics of other names are created too, in the same request, by the brokers."""
    names = by_name("diskless"), by_name("diskless"), by_name("classic")
    wait_for(
        lambda: not any(metadata(stack.bootstrap(RACK), version, *names, creates=True).values()),
        "not created on demand",
    )
    known(stack, *names)
    assert [is_diskless(stack, name) for name in names] == [True, True, False]


def test_no_topic_is_created_if_the_request_does_not_allow_it(stack: Stack) -> None:
    name = by_name("diskless")
    assert metadata(stack.bootstrap(RACK), 9, name) == {name: 3}
    assert metadata(stack.direct_bootstrap.split(",")[0], 9, name) == {name: 3}
    bad = "diskless.not/a/name"
    assert metadata(stack.bootstrap(RACK), 9, bad, creates=True) == {bad: 17}


def test_a_producer_to_a_new_name_creates_a_diskless_topic(stack: Stack) -> None:
    name = by_name("diskless")
    sent = samples(20, "none")
    assert sorted(produce(stack.bootstrap("rack-b"), name, sent)) == list(range(20))
    assert len(read(stack.bootstrap("rack-c"), name)) == 20
    known(stack, name)
    assert read(stack.direct_bootstrap, name) == []


# CreateTopics


def create_both(stack: Stack, names: tuple[str, str], configs: dict[str, str | None], *, validate_only: bool) -> list:
    asked = [
        {
            "name": name,
            "num_partitions": 1,
            "replication_factor": 1,
            "assignments": [],
            "configs": [{"name": key, "value": value} for key, value in configs.items()],
        }
        for name in names
    ]
    reported = ask(stack.bootstrap(RACK), CREATE_TOPICS, 7, topics=asked, timeout=30_000, validate_only=validate_only)
    return [one for name in names for one in reported["topics"] if one["name"] == name]


@pytest.mark.parametrize(
    "configs",
    [
        {"retention.hours": "720"},
        {"compression.typ": "zstd"},
        {"segment.bytes": "abc"},
        {"segment.bytes": "1"},
        {"retention.ms": None},
        {"remote.storage": "true"},
    ],
)
def test_data_configs_that_no_broker_accepts_are_rejected(stack: Stack, configs: dict[str, str | None]) -> None:
    names = by_name("classic"), by_name("diskless")
    before = Metrics(stack, RACK).value("diskless_topics")
    for validate_only in (True, False):
        classic, diskless = create_both(stack, names, configs, validate_only=validate_only)
        assert (classic["error_code"], classic["configs"]) == (diskless["error_code"], diskless["configs"])
        assert classic["error_code"] in (INVALID_CONFIG, INVALID_REQUEST)
        assert classic["error_message"] == diskless["error_message"]
    assert Metrics(stack, RACK).value("diskless_topics") == before
    assert set(metadata(stack.bootstrap(RACK), 9, *names).values()) == {3}


@pytest.mark.parametrize("validate_only", [True, False])
def test_the_answer_has_the_configs_of_the_topic_and_not_of_its_placeholder(stack: Stack, validate_only: bool) -> None:
    names = by_name("classic"), by_name("diskless")
    configs = {"retention.ms": "3600000", "compression.type": "zstd", "min.insync.replicas": "1"}
    classic, diskless = create_both(stack, names, configs, validate_only=validate_only)
    assert classic["error_code"] == diskless["error_code"] == 0
    reported = [
        {one["name"]: (one["value"], one["config_source"]) for one in topic["configs"]} for topic in (classic, diskless)
    ]
    assert reported[1].pop("diskless.enable") == ("true", 1)
    assert reported[0] == reported[1]
    assert reported[1]["retention.ms"] == ("3600000", 1)


@pytest.mark.parametrize("version", range(2, 8))
def test_topics_with_assignments_and_of_any_version(stack: Stack, version: int) -> None:
    names = by_name("classic"), by_name("diskless")

    def create(assignments: list[list[int]], *, validate_only: bool, **configs: str) -> list[dict[str, Any]]:
        asked = [
            {
                "name": name,
                "num_partitions": -1,
                "replication_factor": -1,
                "assignments": [
                    {"partition_index": index, "broker_ids": nodes} for index, nodes in enumerate(assignments)
                ],
                "configs": [{"name": key, "value": value} for key, value in configs.items()],
            }
            for name in names
        ]
        answer = ask(
            stack.bootstrap(RACK), CREATE_TOPICS, version, topics=asked, timeout=30_000, validate_only=validate_only
        )
        reported: list[dict[str, Any]] = answer["topics"]
        assert [topic.pop("name") for topic in reported] == list(names)
        for topic in reported:
            topic.pop("topic_id", None)
            topic["error_message"] = (topic["error_message"] or "").replace(names[0], "N").replace(names[1], "N")
            for config in topic.pop("configs", None) or []:
                topic[config["name"]] = config["value"]
        return reported

    before = Metrics(stack, RACK).value("diskless_topics")
    for assignments, expected in (([[1, 2], [9, 1]], INVALID_REPLICA_ASSIGNMENT), ([[1, 2], [3, 1]], 0)):
        classic, diskless = create(assignments, validate_only=True)
        assert classic["error_code"] == diskless["error_code"] == expected
        assert classic["error_message"] == diskless["error_message"]
    classic, diskless = create([[1]], validate_only=True, **{"retention.ms": "soon"})
    assert classic["error_code"] == diskless["error_code"] == INVALID_CONFIG
    assert Metrics(stack, RACK).value("diskless_topics") == before
    assert set(metadata(stack.bootstrap(RACK), 9, *names).values()) == {3}

    for expected in (0, TOPIC_ALREADY_EXISTS):
        classic, diskless = create([[1, 2], [3, 1]], validate_only=False)
        assert classic["error_code"] == diskless["error_code"] == expected
        assert classic["error_message"] == diskless["error_message"]
    known(stack, *names)
    shadow = ask(stack.direct_bootstrap.split(",")[0], METADATA, 1, topics=[{"name": names[1]}])["topics"][0]
    assert sorted(one["replica_nodes"] for one in shadow["partitions"]) == [[1, 2], [3, 1]]
    assert [is_diskless(stack, name) for name in names] == [False, True]


def test_controllers_check_names_before_replicas(stack: Stack) -> None:
    """A reserved name is looked up in this order."""
    name = by_name("classic")

    def create(replicas: int, *, validate_only: bool) -> int:
        asked = [{"name": name, "num_partitions": 1, "replication_factor": replicas}]
        address = stack.direct_bootstrap.split(",")[0]
        answer = ask(address, CREATE_TOPICS, 7, topics=asked, timeout=30_000, validate_only=validate_only)
        (reported,) = answer["topics"]
        error_code: int = reported["error_code"]
        return error_code

    assert create(0, validate_only=True) == INVALID_REPLICATION_FACTOR
    assert create(1, validate_only=False) == 0
    assert create(0, validate_only=True) == TOPIC_ALREADY_EXISTS
