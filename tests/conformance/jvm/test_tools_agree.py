"""Kafka's tools that only read: the same command prints the same directly and through a proxy."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from proxy.demo.stack import Stack
from tests.support.confluent import produce_to
from tests.support.java_tools import TOOLS, JavaTools
from tests.support.records import samples
from tests.support.topics import CLASSIC, DISKLESS, KINDS, new_topic
from tests.support.twice import Twice, api_versions

PARTITIONS = 3
GROUPS = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
SHARE_GROUPS = f"{TOOLS}.consumer.group.ShareGroupCommand"
REASSIGN = f"{TOOLS}.reassign.ReassignPartitionsCommand"
CONFIGS = "kafka.admin.ConfigCommand"


BETWEEN_BROKERS = {
    "InitializeShareGroupState(83)",
    "ReadShareGroupState(84)",
    "WriteShareGroupState(85)",
    "DeleteShareGroupState(86)",
    "ReadShareGroupStateSummary(87)",
}


class Question(NamedTuple):
    """A command, where `{name}` is a topic."""

    main_class: str
    arguments: str
    answered: str
    """A word of the answer, so that two equal empty answers do not count as success."""
    clean: Callable[[str], str] = str
    exit_code: int = 0


def without_moments(text: str) -> str:
    """Remove the offsets, lags and times of the brokers' own metadata log, which always grows."""
    offset_and_lag = r"(?<= \S{22} )\d+ \d+"  # in the columns after a directory's ID
    return re.sub(offset_and_lag + r"|\d{2,}|(?<=Lag: )\d+|(?<=LagTimeMs: )\d+", "#", text)


def without_epoch(text: str) -> str:
    """Remove the epoch of finalized features, which is an offset of that log."""
    return re.sub(r"(?<=Epoch: )\d+", "#", text)


def without_controllers(text: str) -> str:
    """Also remove the controllers' own listeners, which the proxy does not show."""
    return without_moments(re.sub(r', "endpoints": \[.*?\]', "", text))


def without_object_storage(text: str) -> str:
    """Remove the extra log directory that a proxy reports: the tool asks for all topics, whatever it prints."""
    lines = []
    for line in text.splitlines():
        if line.startswith("{"):
            description = json.loads(line)
            for broker in description["brokers"]:
                broker["logDirs"] = [one for one in broker["logDirs"] if "://" not in one["logDir"]]
            line = json.dumps(description, separators=(",", ":"))
        lines.append(line)
    return "\n".join(lines)


def without_coordinator(text: str) -> str:
    """Remove the broker that coordinates a group, which depends on the group's name."""
    return re.sub(r"broker \d \(\d\)", "a broker", text)


QUESTIONS = {
    "topics": Question(f"{TOOLS}.TopicCommand", "--list", "<name>"),
    "topic": Question(f"{TOOLS}.TopicCommand", "--describe --topic {name}", "ReplicationFactor: 3"),
    "unknown topic": Question(f"{TOOLS}.TopicCommand", "--describe --topic nowhere", "does not exist", exit_code=1),
    "topic configs": Question(CONFIGS, "--describe --all --entity-type topics --entity-name {name}", "segment.bytes"),
    "client quotas": Question(CONFIGS, "--describe --entity-type users --entity-default", ""),
    "unknown group": Question(GROUPS, "--describe --group nobody", "GroupIdNotFoundException"),
    "groups": Question(f"{TOOLS}.GroupsCommand", "--list", "<name>-readers"),
    "no authorizer": Question(f"{TOOLS}.AclCommand", "--list", "SecurityDisabledException", exit_code=1),
    "log directories": Question(
        f"{TOOLS}.LogDirsCommand", "--describe --topic-list {name}", '"isFuture":false', without_object_storage
    ),
    "transactions": Question(f"{TOOLS}.TransactionsCommand", "list", "TransactionalId"),
    "of the maximum": Question(f"{TOOLS}.GetOffsetShell", "--topic-partitions {name} --time -3", "<name>:1:9"),
    "producers": Question(
        f"{TOOLS}.TransactionsCommand", "describe-producers --topic {name} --partition 0", "ProducerId"
    ),
    "quorum": Question(f"{TOOLS}.MetadataQuorumCommand", "describe --status", "LeaderId", without_controllers),
    "quorum replicas": Question(
        f"{TOOLS}.MetadataQuorumCommand", "describe --replication", "Observer", without_moments
    ),
    "features": Question(f"{TOOLS}.FeatureCommand", "describe", "transaction.version", without_epoch),
    "cluster": Question(f"{TOOLS}.ClusterTool", "cluster-id --bootstrap-server {bootstrap}", "Cluster ID"),
    "endpoints": Question(f"{TOOLS}.ClusterTool", "list-endpoints --bootstrap-server {bootstrap}", "rack-c"),
    "elected": Question(
        f"{TOOLS}.LeaderElectionCommand", "--election-type PREFERRED --topic {name} --partition 0", "already elected"
    ),
    "reassignments": Question(REASSIGN, "--list", "No partition reassignments found"),
    "share groups": Question(SHARE_GROUPS, "--list", ""),
    "streams groups": Question(f"{TOOLS}.streams.StreamsGroupCommand", "--list", ""),
    "client metrics": Question(f"{TOOLS}.ClientMetricsCommand", "--list", ""),
    "tokens": Question(f"{TOOLS}.DelegationTokenCommand", "--describe", "token", exit_code=1),
}
OF_BOTH_KINDS = {
    "group": Question(GROUPS, "--describe --group {name}-readers --offsets", "<name> 1 8 10 2"),
    "group state": Question(GROUPS, "--describe --group {name}-readers --state", "Empty", without_coordinator),
    "earliest": Question(f"{TOOLS}.GetOffsetShell", "--topic-partitions {name} --time -2", "<name>:2:0"),
    "latest": Question(f"{TOOLS}.GetOffsetShell", "--topic-partitions {name} --time -1", "<name>:1:10"),
    "by time": Question(f"{TOOLS}.GetOffsetShell", "--topic-partitions {name} --time 1000", "<name>:1:0"),
}


@pytest.fixture(scope="module")
def twice(running_stack: Stack, tools: JavaTools) -> Twice:
    return Twice(running_stack, tools)


@pytest.fixture(scope="module")
def topics(running_stack: Stack, tools: JavaTools) -> Iterator[dict[str, str]]:
    """Create a topic of each kind with the same records, and a group each that has read all but two per partition."""
    made = {kind: new_topic(running_stack, "asked", kind, PARTITIONS) for kind in KINDS}
    bootstrap = ("--bootstrap-server", running_stack.bootstrap("rack-a"))
    for topic in made.values():
        produce_to(running_stack.bootstrap("rack-a"), topic, {1: samples(10, "asked"), 2: samples(3, "asked")})
        group = [*bootstrap, "--group", f"{topic}-readers", "--topic", f"{topic}:1", "--topic", f"{topic}:2"]
        for position in (["--to-latest"], ["--shift-by", "-2"]):
            tools.check(GROUPS, *group, "--reset-offsets", *position, "--execute")
    yield made
    tools.check(f"{TOOLS}.TopicCommand", *bootstrap, "--delete", "--topic", "|".join(made.values()))


def ask(twice: Twice, question: Question, names: tuple[str, str]) -> None:
    printed = twice.run(
        question.main_class,
        question.arguments.split(),
        names=names,
        clean=question.clean,
        exit_code=question.exit_code,
    )
    assert question.answered in printed.out + printed.err


@pytest.mark.parametrize("name", [*QUESTIONS, *OF_BOTH_KINDS])
def test_the_answer_is_the_same(twice: Twice, topics: dict[str, str], name: str) -> None:
    ask(twice, (QUESTIONS | OF_BOTH_KINDS)[name], (topics[CLASSIC], topics[CLASSIC]))


@pytest.mark.parametrize("name", OF_BOTH_KINDS)
def test_a_diskless_topic_looks_like_a_classic_one(twice: Twice, topics: dict[str, str], name: str) -> None:
    ask(twice, OF_BOTH_KINDS[name], (topics[CLASSIC], topics[DISKLESS]))


def test_no_listener_of_a_controller_is_shown(twice: Twice) -> None:
    direct, proxied = (
        twice.tools.check(f"{TOOLS}.MetadataQuorumCommand", "--bootstrap-server", bootstrap, "describe", "--status")
        for bootstrap in (twice.stack.direct_bootstrap, twice.stack.bootstrap(twice.rack))
    )
    assert "CONTROLLER://" in direct
    assert "CONTROLLER://" not in proxied
    assert "CurrentVoters" in proxied


def test_configs_of_a_broker_are_its_own(twice: Twice) -> None:
    """The answer includes the broker's listeners: an operator who asks wants to see the broker's own configuration."""
    asked = ["--describe", "--all", "--entity-type", "brokers", "--entity-name", "3"]
    printed = twice.run(CONFIGS, asked, endpoints_only=False)
    assert "advertised.listeners=PLAINTEXT://broker 3" in printed.out


def test_versions_are_the_range_that_broker_and_proxy_share(twice: Twice) -> None:
    """APIs between brokers are missing; the rest is as the broker offers it, for every broker."""
    main_class = f"{TOOLS}.BrokerApiVersionsCommand"
    direct, proxied = (
        twice.tools.run(main_class, "--bootstrap-server", bootstrap)
        for bootstrap in (twice.stack.direct_bootstrap, twice.stack.bootstrap(twice.rack))
    )
    twice.assert_no_broker_address(proxied)
    wanted = {
        node: {api: versions for api, versions in apis.items() if api not in BETWEEN_BROKERS}
        for node, apis in api_versions(direct.out).items()
    }
    assert api_versions(proxied.out) == wanted
    assert wanted.keys() == {1, 2, 3}
    assert wanted[1]["Fetch(1)"] == "4 to 18"
