"""Kafka's tools that change something: the same steps on fresh topics, directly and through a proxy."""

from __future__ import annotations

import json
import re
import time
import uuid
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from proxy.demo.stack import Stack
from tests.support.confluent import produce
from tests.support.java_tools import TOOLS, JavaTools, only
from tests.support.records import COMPRESSIONS, samples
from tests.support.topics import CLASSIC, KINDS, admin, new_topic
from tests.support.twice import Twice

TOPICS = f"{TOOLS}.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
GROUPS = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
CONSUMER = f"{TOOLS}.consumer.ConsoleConsumer"
PRODUCER = f"{TOOLS}.ConsoleProducer"
PRINTED = ("timestamp", "partition", "offset", "headers", "key", "value")
LINES = 4
ACKS = ("all", "1", "all", "1", "0")
"""Acks for each compression in turn. acks=0 comes last, because records after it could overtake it."""
GROUP_PROTOCOLS = ("classic", "consumer")


@pytest.fixture
def twice(stack: Stack, tools: JavaTools) -> Twice:
    return Twice(stack, tools)


def without_times(text: str) -> str:
    """Remove times and random IDs, which differ between any two runs."""
    text = re.sub(r"\b1\d{12}\b", "<time>", text)
    text = re.sub(r"TopicId: \S+", "TopicId: <ID>", text)
    return re.sub(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "<ID>", text)


def console_consumer(*more: str) -> list[str]:
    """Return the arguments that print every field of a topic's records."""
    formatter = [word for field in PRINTED for word in ("--formatter-property", f"print.{field}=true")]
    return ["--topic", "{name}", "--from-beginning", *formatter, *more]


@pytest.mark.parametrize("kind", KINDS)
def test_records_of_every_compression_are_read_back(twice: Twice, kind: str) -> None:
    """Compare a diskless topic with the classic one at the brokers."""
    names = (new_topic(twice.stack, "console", CLASSIC), new_topic(twice.stack, "console", kind))
    reader = [word for what in ("parse.key=true", "parse.headers=true") for word in ("--reader-property", what)]
    for place, codec in enumerate(COMPRESSIONS):
        acks = ["--command-property", f"acks={ACKS[place]}"]
        lines = (f"codec:{codec},n:{number}\tkey {number}\t{codec} {number} ä€😀\n" for number in range(LINES))
        arguments = ["--topic", "{name}", "--compression-codec", codec, *acks, *reader]
        twice.run(PRODUCER, arguments, stdin="".join(lines), names=names)
    count = LINES * len(COMPRESSIONS)
    for isolation, protocol in zip(("read_committed", "read_uncommitted"), GROUP_PROTOCOLS, strict=True):
        arguments = console_consumer("--isolation-level", isolation, "--max-messages", str(count))
        arguments += ["--group", f"{{name}}-{protocol}", "--command-property", f"group.protocol={protocol}"]
        printed = twice.run(CONSUMER, arguments, names=names, clean=without_times)
        offsets = [int(found) for found in re.findall(r"Offset:(\d+)", printed.out)]
        assert sorted(offsets) == list(range(count))
        assert all(f"\tcodec:{codec},n:3\t" in printed.out.replace(" ", "\t") for codec in COMPRESSIONS)
    described = twice.run(GROUPS, ["--describe", "--group", "{name}-consumer"], names=names, clean=without_times)
    assert f"<name> 0 {count} {count} 0" in described.out


def test_a_topic_from_creation_to_deletion(twice: Twice, tmp_path: Path) -> None:
    """Follow one topic through its life with the tools: topics, configs, groups, offsets, records, reassignment."""
    unique = uuid.uuid4().hex[:8]
    names = (f"life-{unique}-d", f"life-{unique}-p")
    assignment = ["--replica-assignment", "1:2:3,2:3:1,3:1:2"]
    for topic in names:  # these tools read their plans from files
        offsets = {"version": 1, "partitions": [{"topic": topic, "partition": 1, "offset": 4}]}
        (tmp_path / f"offsets-{topic}").write_text(json.dumps(offsets))
        moved = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [2, 1]}]}
        (tmp_path / f"moved-{topic}").write_text(json.dumps(moved))
    moved_file = ["--reassignment-json-file", f"{tmp_path}/moved-{{name}}"]
    reset = ["--group", "{name}-group", "--topic", "{name}", "--reset-offsets", "--execute"]
    reassign = f"{TOOLS}.reassign.ReassignPartitionsCommand"

    def step(main_class: str, *arguments: str, says: str, exit_code: int = 0) -> None:
        printed = twice.run(main_class, arguments, names=names, clean=without_times, exit_code=exit_code)
        assert says in printed.out + printed.err

    entity = ("--entity-type", "topics", "--entity-name", "{name}")
    step(TOPICS, "--create", "--topic", "{name}", *assignment, says="Created topic <name>")
    step(TOPICS, "--create", "--topic", "{name}", *assignment, says="already exists", exit_code=1)
    step(TOPICS, "--create", "--topic", "{name}/?", says="is invalid", exit_code=1)
    step(CONFIGS, "--alter", *entity, "--add-config", "retention.ms=1234567", says="Completed updating config")
    step(CONFIGS, "--alter", *entity, "--add-config", "retention.ms=never", says="retention.ms", exit_code=1)
    step(CONFIGS, "--describe", *entity, says="retention.ms=1234567")
    step(CONFIGS, "--alter", *entity, "--delete-config", "retention.ms", says="Completed updating config")
    more = ["--replica-assignment", "1:2:3,2:3:1,3:1:2,1:2:3"]
    step(TOPICS, "--alter", "--topic", "{name}", "--partitions", "4", *more, says="")
    step(TOPICS, "--alter", "--topic", "{name}", "--partitions", "2", says="", exit_code=1)
    verifiable = ("--topic", "{name}", "--max-messages", "8", "--repeating-keys", "2", "--acks", "-1")
    sent = only("producer_send_success", "value", "partition", "offset", "key")
    printed = twice.run(f"{TOOLS}.VerifiableProducer", verifiable, names=names, clean=sent)
    assert len(printed.out.splitlines()) == 8
    step(TOPICS, "--describe", "--topic", "{name}", says="PartitionCount: 4")
    for to in (["--to-earliest"], ["--shift-by", "2"], ["--to-offset", "1"], ["--to-latest"]):
        step(GROUPS, *reset, *to, says="<name>")
    step(GROUPS, "--describe", "--group", "{name}-group", says="<name>-group <name>")
    step(GROUPS, "--delete-offsets", "--group", "{name}-group", "--topic", "{name}:2", says="Successful")
    step(GROUPS, "--delete", "--group", "{name}-group", says="was successful")
    step(GROUPS, "--delete", "--group", "{name}-group", says="GroupIdNotFoundException")
    offset_file = ("--offset-json-file", f"{tmp_path}/offsets-{{name}}")
    step(f"{TOOLS}.DeleteRecordsCommand", *offset_file, says="partition: <name>-1")
    step(f"{TOOLS}.GetOffsetShell", "--topic", "{name}", "--time", "earliest", says="<name>:1:")
    step(reassign, *moved_file, "--execute", says="Successfully started partition reassignment")
    step(TOPICS, "--delete", "--topic", "{name}", says="")
    wait_until_gone(twice.stack, names)
    step(TOPICS, "--delete", "--topic", "{name}", says="does not exist", exit_code=1)


def wait_until_gone(stack: Stack, names: tuple[str, str]) -> None:
    """Wait for the deletion on all brokers: they learn of it one after the other, and the tool may ask any of them."""
    deadline = time.monotonic() + 30
    brokers = [*stack.direct_bootstrap.split(","), *(stack.bootstrap(rack) for rack in stack.proxies)]
    while any(
        set(names) & set(AdminClient({"bootstrap.servers": one}).list_topics(timeout=10).topics) for one in brokers
    ):
        assert time.monotonic() < deadline, f"{names} are still there"
        time.sleep(0.1)


def test_transactions_on_a_classic_topic(twice: Twice) -> None:
    names = (new_topic(twice.stack, "transactions", CLASSIC), new_topic(twice.stack, "transactions", CLASSIC))
    arguments = ["--topic", "{name}", "--num-records", "40", "--record-size", "10", "--throughput", "-1"]
    transactional = ["--transactional-id", "{name}", "--transaction-duration-ms", "1"]
    twice.run(f"{TOOLS}.ProducerPerformance", [*arguments, *transactional], names=names, clean=lambda _: "measured")
    for isolation in ("read_committed", "read_uncommitted"):
        read = ["--topic", "{name}", "--from-beginning", "--max-messages", "40", "--isolation-level", isolation]
        printed = twice.run(CONSUMER, read, names=names, clean=lambda text: str(len(text.splitlines())))
        assert printed.out == "40"
    transactions = f"{TOOLS}.TransactionsCommand"
    described = twice.run(transactions, ["describe", "--transactional-id", "{name}"], names=names, clean=state_only)
    assert "CompleteCommit" in described.out


def state_only(text: str) -> str:
    """Keep only the transaction's state: the rest depends on the moment."""
    return " ".join(re.findall(r"Complete\w+|Ongoing|Empty|Prepare\w+", text))


def test_a_share_group_reads_a_classic_topic(twice: Twice) -> None:
    names = (new_topic(twice.stack, "shared", CLASSIC), new_topic(twice.stack, "shared", CLASSIC))
    for topic in names:
        start_at_the_beginning(twice.stack, f"{topic}-group")
        produce(twice.stack.bootstrap("rack-a"), topic, samples(6, "shared", plain=True))
    arguments = ["--topic", "{name}", "--group", "{name}-group", "--max-messages", "6", "--timeout-ms", "30000"]
    shown = [word for field in PRINTED for word in ("--formatter-property", f"print.{field}=true")]
    printed = twice.run(
        f"{TOOLS}.consumer.ConsoleShareConsumer", [*arguments, *shown], names=names, clean=without_times
    )
    assert "Offset:5" in printed.out
    described = twice.run(
        f"{TOOLS}.consumer.group.ShareGroupCommand", ["--describe", "--group", "{name}-group"], names=names
    )
    assert "<name>-group <name> 0" in described.out


def start_at_the_beginning(stack: Stack, group: str) -> None:
    """Let a share group read the existing records."""
    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=[entry])
    client = admin(stack)
    client.incremental_alter_configs([resource])[resource].result(30)
