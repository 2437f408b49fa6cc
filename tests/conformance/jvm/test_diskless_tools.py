"""Kafka's tools print the same for a diskless topic through a proxy as for a classic one at the brokers.

The exceptions are in docs/differences.md: a diskless partition has one replica in each rack, and is in object storage.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AdminClient

from proxy.demo.stack import Stack
from tests.support.confluent import produce_to
from tests.support.java_tools import TOOLS, JavaTools
from tests.support.records import samples
from tests.support.topics import CLASSIC, DISKLESS, KINDS, new_topic
from tests.support.twice import Twice
from tests.support.waiting import wait_for

PARTITIONS = 3
TOPIC = f"{TOOLS}.TopicCommand"
GROUPS = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
SHARE_GROUPS = f"{TOOLS}.consumer.group.ShareGroupCommand"
TRANSACTIONS = f"{TOOLS}.TransactionsCommand"
REASSIGN = f"{TOOLS}.reassign.ReassignPartitionsCommand"
ELECTION = f"{TOOLS}.LeaderElectionCommand"
CONFIGS = "kafka.admin.ConfigCommand"
OFFSETS = f"{TOOLS}.GetOffsetShell"


class Question(NamedTuple):
    """A command, where `{name}` is a topic."""

    main_class: str
    arguments: str
    answered: str
    """A word of the answer, so that two equal empty answers do not count as success."""
    exit_code: int = 0


QUESTIONS = {
    "under replicated": Question(TOPIC, "--describe --topic {name} --under-replicated-partitions", ""),
    "unavailable": Question(TOPIC, "--describe --topic {name} --unavailable-partitions", ""),
    "topics": Question(TOPIC, "--list --topic {name}", "<name>"),
    "there already": Question(TOPIC, "--create --topic {name} --if-not-exists", ""),
    "fewer partitions": Question(TOPIC, "--alter --topic {name} --partitions 1", "3 partition(s)", 1),
    "producers": Question(TRANSACTIONS, "describe-producers --topic {name} --partition 1", " 9 "),
    "producers of an empty one": Question(
        TRANSACTIONS, "describe-producers --topic {name} --partition 0", "ProducerId"
    ),
    "hanging": Question(TRANSACTIONS, "find-hanging --topic {name}", "ProducerId"),
    "hanging on a broker": Question(TRANSACTIONS, "find-hanging --topic {name} --broker-id 2", "ProducerId"),
    "preferred": Question(ELECTION, "--election-type PREFERRED --topic {name} --partition 1", "already elected"),
    "unclean": Question(ELECTION, "--election-type UNCLEAN --topic {name} --partition 1", "already elected"),
    "no such partition": Question(ELECTION, "--election-type PREFERRED --topic {name} --partition 7", "", 1),
    "reassignments": Question(REASSIGN, "--list", "No partition reassignments found"),
    "one more offset": Question(OFFSETS, "--topic-partitions {name}:0-3 --time latest", "<name>:1:10"),
    "earliest": Question(OFFSETS, "--topic {name} --time earliest", "<name>:1:0"),
    "tiered": Question(OFFSETS, "--topic {name} --time latest-tiered", ""),
    "local": Question(OFFSETS, "--topic {name} --time earliest-local", "<name>:1:0"),
    "groups": Question(GROUPS, "--describe --group {name}-readers --offsets", "<name> 1 8 10 2"),
    "offsets to go": Question(
        GROUPS, "--delete-offsets --group {name}-readers --topic {name}:2 --topic {name}:7", "<name> 2 Successful"
    ),
    "groups to go": Question(GROUPS, "--delete --group {name}-others", "was successful"),
    "set": Question(
        CONFIGS,
        "--alter --entity-type topics --entity-name {name} --add-config retention.ms=86400000,retention.bytes=1000000",
        "Completed",
    ),
    "not a number": Question(
        CONFIGS, "--alter --entity-type topics --entity-name {name} --add-config retention.ms=soon", "retention.ms", 1
    ),
    "delete": Question(
        CONFIGS, "--alter --entity-type topics --entity-name {name} --delete-config retention.bytes", "Completed"
    ),
}


@pytest.fixture(scope="module")
def twice(running_stack: Stack, tools: JavaTools) -> Twice:
    return Twice(running_stack, tools)


@pytest.fixture(scope="module")
def names(running_stack: Stack, tools: JavaTools) -> Iterator[tuple[str, str]]:
    """Create a topic of each kind with the same records, and two groups each that have read all but two per
    partition."""
    made = {kind: new_topic(running_stack, "tools", kind, PARTITIONS) for kind in KINDS}
    bootstrap = running_stack.bootstrap("rack-a")
    for topic in made.values():
        sent = {1: samples(10, "tools"), 2: samples(3, "tools")}
        produce_to(bootstrap, topic, sent, enable_idempotence=True)
        for group in (f"{topic}-readers", f"{topic}-others"):
            asked = [
                "--bootstrap-server",
                bootstrap,
                "--group",
                group,
                "--topic",
                f"{topic}:1",
                "--topic",
                f"{topic}:2",
            ]
            for position in (["--to-latest"], ["--shift-by", "-2"]):
                tools.check(GROUPS, *asked, "--reset-offsets", *position, "--execute")
    yield made[CLASSIC], made[DISKLESS]
    tools.check(TOPIC, "--bootstrap-server", bootstrap, "--delete", "--topic", "|".join(made.values()))


def without_own(text: str) -> str:
    """Remove producer IDs and times, which each topic has of its own, and topic IDs."""
    text = re.sub(r"(?m)^\s*\d+\s+(0\s+-1\s+\d+)\s+\d{13}\b", r"<ID> \1 <time>", text)
    return re.sub(r"TopicId: \S+", "TopicId: <ID>", text)


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_diskless_topic_is_described_like_a_classic_one(twice: Twice, names: tuple[str, str], name: str) -> None:
    question = QUESTIONS[name]
    printed = twice.run(
        question.main_class,
        question.arguments.split(),
        names=names,
        clean=without_own,
        exit_code=question.exit_code,
    )
    assert question.answered in printed.out + printed.err


def ask(twice: Twice, main_class: str, *arguments: str, exit_code: int = 0) -> str:
    printed = twice.tools.run(main_class, "--bootstrap-server", twice.stack.bootstrap(twice.rack), *arguments)
    assert printed.exit_code == exit_code, printed
    return printed.out + printed.err


def test_sizes_in_object_storage_are_reported_once(twice: Twice, names: tuple[str, str]) -> None:
    printed = ask(twice, f"{TOOLS}.LogDirsCommand", "--describe", "--topic-list", ",".join(names))
    printed_json = json.loads(next(line for line in printed.splitlines() if line.startswith("{")))
    found: dict[str, list[tuple[str, int]]] = {}
    for broker in printed_json["brokers"]:
        for directory in broker["logDirs"]:
            assert directory["error"] is None
            for one in directory["partitions"]:
                found.setdefault(one["partition"], []).append((directory["logDir"], one["size"]))
    classic, diskless = names
    for partition in range(PARTITIONS):
        ((directory, size),) = found[f"{diskless}-{partition}"]
        assert directory == twice.stack.storage_url
        assert (size > 0) == (partition > 0)
        assert len(found[f"{classic}-{partition}"]) == 3


@pytest.mark.parametrize("least", ["2", None])
def test_no_diskless_partition_is_under_its_min_isr(twice: Twice, names: tuple[str, str], least: str | None) -> None:
    """Nor is any at its minimum, with a replica in each rack and a minimum of one; the brokers' own value is 2."""
    _, diskless = names
    change = (
        ("--delete-config", "min.insync.replicas")
        if least is None
        else ("--add-config", f"min.insync.replicas={least}")
    )
    ask(twice, CONFIGS, "--alter", "--entity-type", "topics", "--entity-name", diskless, *change)
    for filtered in ("under-min-isr", "under-replicated", "at-min-isr"):
        listed = ask(twice, TOPIC, "--describe", "--topic", diskless, f"--{filtered}-partitions")
        assert f"Topic: {diskless}\tPartition:" not in listed, filtered
    described = ask(twice, TOPIC, "--describe", "--topic", diskless)
    assert described.count(f"Topic: {diskless}\tPartition:") == PARTITIONS


def test_a_plan_from_the_described_state_removes_no_replica(
    twice: Twice, names: tuple[str, str], tmp_path: Path
) -> None:
    """The tool's own plan has as many replicas as there are brokers, and the directories of object storage."""
    _, diskless = names
    topics, plan = tmp_path / "topics.json", tmp_path / "plan.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": diskless}]}))
    printed = ask(twice, REASSIGN, "--topics-to-move-json-file", str(topics), "--broker-list", "1,2,3", "--generate")
    current = json.loads(next(line for line in printed.splitlines() if line.startswith("{")))
    assert [len(one["replicas"]) for one in current["partitions"]] == [3] * PARTITIONS
    for one in current["partitions"]:
        del one["log_dirs"]
    plan.write_text(json.dumps(current))
    ask(twice, REASSIGN, "--reassignment-json-file", str(plan), "--execute")

    def replica_counts() -> list[int]:
        found = AdminClient({"bootstrap.servers": twice.stack.direct_bootstrap}).list_topics(diskless, 30)
        return [len(one.replicas) for one in found.topics[diskless].partitions.values()]

    wait_for(lambda: "No partition reassignments found" in ask(twice, REASSIGN, "--list"), "all are moved")
    assert replica_counts() == [3] * PARTITIONS


@pytest.mark.parametrize("with_classic", [False, True])
def test_a_share_consumer_throws_the_error(twice: Twice, names: tuple[str, str], with_classic: bool) -> None:
    classic, diskless = names
    topics = [classic, diskless] if with_classic else [diskless]
    printed = twice.tools.check("ShareReader", twice.stack.bootstrap(twice.rack), f"{diskless}-reader", *topics)
    assert "org.apache.kafka.common.errors.InvalidTopicException" in printed
    assert f"Share groups can't read diskless topics: {diskless}." in printed


def test_a_share_group_has_no_offsets_of_a_diskless_topic(twice: Twice, names: tuple[str, str]) -> None:
    _, diskless = names
    group = f"{diskless}-share"
    reset = ["--reset-offsets", "--group", group, "--topic", diskless, "--to-earliest", "--execute"]
    assert "InvalidTopicException" in ask(twice, SHARE_GROUPS, *reset)
