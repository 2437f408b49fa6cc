"""Kafka's own Java tools, unmodified, on both kinds of topics and through every rack's proxy."""

from __future__ import annotations

import json
import re
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from proxy.demo.stack import Stack
from tests.support.confluent import produce
from tests.support.metrics import Metrics
from tests.support.records import COMPRESSIONS, samples
from tests.support.topics import DISKLESS, KINDS, new_topic

TOOLS = "org.apache.kafka.tools"
TOPICS = f"{TOOLS}.TopicCommand"
GROUPS = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
LINES = 6
PRINTED = ("partition", "offset", "timestamp", "headers", "key", "value")


def run(stack: Stack, rack: str, tool: str, *arguments: str, stdin: str | None = None) -> str:
    """Return the output of the tool; it must exit with code 0."""
    done = stack.java(tool, "--bootstrap-server", stack.bootstrap(rack), *arguments, stdin=stdin, timeout=90)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def console_producer(stack: Stack, topic: str, compression: str) -> list[str]:
    """Send lines `header:value<tab>key<tab>value` with the console producer; return them as the console consumer prints
    them."""
    lines = [(f"codec:{compression}", f"key {number}", f"{compression} {number} ä€😀") for number in range(LINES)]
    arguments = ["--topic", topic, "--compression-codec", compression]
    for reads in ("parse.key=true", "parse.headers=true"):
        arguments += ["--reader-property", reads]
    text = "".join("\t".join(line) + "\n" for line in lines)
    run(stack, "rack-a", f"{TOOLS}.ConsoleProducer", *arguments, stdin=text)
    return ["\t".join(line) for line in lines]


def console_consumer(stack: Stack, rack: str, topic: str, count: int) -> list[str]:
    """Return the lines of the console consumer, which prints every field of a record."""
    arguments = ["--topic", topic, "--partition", "0", "--offset", "earliest", "--max-messages", str(count)]
    for printed in PRINTED:
        arguments += ["--formatter-property", f"print.{printed}=true"]
    return run(stack, rack, f"{TOOLS}.consumer.ConsoleConsumer", *arguments).splitlines()


@pytest.mark.parametrize("kind", KINDS)
def test_console_producer_and_consumer(stack: Stack, kind: str) -> None:
    topic = new_topic(stack, "console", kind)
    compressions = COMPRESSIONS if kind == DISKLESS else ("none", "zstd")
    sent = [line for compression in compressions for line in console_producer(stack, topic, compression)]
    with ThreadPoolExecutor() as pool:
        a, b, c = pool.map(lambda rack: console_consumer(stack, rack, topic, len(sent)), stack.proxies)
    assert a == b == c
    found = [re.fullmatch(r"CreateTime:(\d{13})\tPartition:0\tOffset:(\d+)\t(.*)", line) for line in a]
    assert [match and match[3] for match in found] == sent
    assert [match and match[2] for match in found] == [str(offset) for offset in range(len(sent))]


@pytest.mark.parametrize("kind", KINDS)
def test_verifiable_producer_and_consumer(stack: Stack, kind: str) -> None:
    topic = new_topic(stack, "verifiable", kind, partitions=3)
    arguments = ["--topic", topic, "--max-messages", "500"]
    produced = events(run(stack, "rack-a", f"{TOOLS}.VerifiableProducer", *arguments, "--acks", "-1"))
    acknowledged = {
        (event["partition"], event["offset"]) for event in produced if event["name"] == "producer_send_success"
    }
    assert len(acknowledged) == 500
    arguments += ["--group-id", f"{topic}-readers", "--reset-policy", "earliest", "--verbose"]
    consumed = events(run(stack, "rack-b", f"{TOOLS}.VerifiableConsumer", *arguments))
    records = [event for event in consumed if event["name"] == "record_data"]
    assert sorted(int(record["value"]) for record in records) == list(range(500))
    assert {(record["partition"], record["offset"]) for record in records} == acknowledged
    assert any(event["name"] == "offsets_committed" and event["success"] for event in consumed)


@pytest.mark.timeout(300)
def test_topics_groups_and_offsets_on_both_kinds(stack: Stack) -> None:
    unique = uuid.uuid4().hex[:6]
    classic, readers = f"tools-classic-{unique}", f"tools-readers-{unique}"
    diskless = new_topic(stack, "tools", DISKLESS, partitions=2)
    run(stack, "rack-b", TOPICS, "--create", "--topic", classic, "--partitions", "2")
    assert {classic, diskless} <= set(run(stack, "rack-c", TOPICS, "--list").split())
    for topic in (classic, diskless):
        produce(stack.bootstrap("rack-a"), topic, samples(10, topic), partition=1)
    described = run(stack, "rack-b", TOPICS, "--describe", "--topic", diskless)
    shown = re.findall(r"Partition: (\d)\tLeader: (\d)\tReplicas: (\S+)\tIsr: (\S+)", described)
    assert [(partition, leader) for partition, leader, _, _ in shown] == [("0", "2"), ("1", "2")]
    for _, _, replicas, in_sync in shown:
        assert replicas == in_sync
        assert replicas.startswith("2,"), "the leader comes first"
        assert sorted(replicas.split(",")) == ["1", "2", "3"], "one of each rack"

    both = ["--topic", classic, "--topic", diskless]
    offset_shell = ["--topic-partitions", f"{classic}:1,{diskless}:1"]
    assert sorted(run(stack, "rack-b", f"{TOOLS}.GetOffsetShell", *offset_shell).split()) == sorted(
        [f"{classic}:1:10", f"{diskless}:1:10"]
    )
    group = ["--group", readers]
    run(stack, "rack-a", GROUPS, *group, *both, "--reset-offsets", "--to-earliest", "--execute")
    run(stack, "rack-b", GROUPS, *group, "--topic", f"{diskless}:1", "--reset-offsets", "--shift-by", "4", "--execute")
    lines = run(stack, "rack-c", GROUPS, *group, "--describe").splitlines()
    lag = {tuple(fields[1:6]) for line in lines if (fields := line.split()) and fields[0] == readers}
    assert lag == {
        (classic, "0", "0", "0", "0"),
        (classic, "1", "0", "10", "10"),
        (diskless, "0", "0", "0", "0"),
        (diskless, "1", "4", "10", "6"),
    }

    run(stack, "rack-b", TOPICS, "--delete", "--topic", f"{classic}|{diskless}")
    assert not {classic, diskless} & set(run(stack, "rack-a", TOPICS, "--list").split())


def test_kafka_topics_itself_rejects_unknown_configs(stack: Stack) -> None:
    """The tool checks names before it sends anything. Admin clients can set `diskless.enable`, this tool cannot."""
    to_proxy = ("--bootstrap-server", stack.bootstrap("rack-a"))
    done = stack.java(TOPICS, *to_proxy, "--create", "--topic", "refused", "--config", "diskless.enable=true")
    assert done.returncode == 1
    assert "Unknown topic config name: diskless.enable" in done.stdout + done.stderr


def test_kafka_topics_creates_a_diskless_topic_by_its_name(stack: Stack) -> None:
    """`default_diskless_topics` is for tools that cannot set `diskless.enable`."""
    topic = f"diskless.{uuid.uuid4().hex[:8]}"
    before = Metrics(stack, "rack-a").value("diskless_topics")
    run(stack, "rack-a", TOPICS, "--create", "--topic", topic, "--partitions", "2")
    assert Metrics(stack, "rack-a").value("diskless_topics") == before + 1
    run(stack, "rack-a", TOPICS, "--delete", "--topic", topic)
    assert Metrics(stack, "rack-a").value("diskless_topics") == before


def events(printed: str) -> list[dict[str, object]]:
    """Return the JSON lines that the verifiable tools print."""
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
