"""Unmodified Java clients of 2017 (the oldest that Kafka 4 brokers serve: Produce v3, Fetch v5) and 2018 (Fetch v8)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from proxy.demo.stack import Stack
from tests.support.confluent import as_stored, consumer, produce, take
from tests.support.java_tools import TOOLS, JavaTools, java_program, only
from tests.support.records import samples
from tests.support.topics import CLASSIC, KINDS, admin, delete_topic, new_topic, offsets
from tests.support.twice import Twice

CLIENTS = ("client-0.11.0.3", "client-2.0.1")
CODECS = ("none", "gzip", "snappy", "lz4")
"""Codecs without zstd, which came with 2.1."""
COUNT = 20
TRANSACTION_SIZE, TRANSACTIONS = 7, 3
DESCRIBE_ACLS = {"client-0.11.0.3": "false", "client-2.0.1": "true"}
"""Whether the client can describe ACLs: Kafka 4 no longer has v0."""
CREATED = "newtopic"
"""Topic that Kafka's compatibility test creates and leaves behind."""
BROKERS = ("--broker-list", "{bootstrap}")


@pytest.fixture(scope="module", params=CLIENTS)
def old_jars(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def old_tools(old_jars: str, launcher: Path) -> Iterator[JavaTools]:
    with JavaTools(launcher, old_jars) as running:
        yield running


@pytest.fixture
def twice(stack: Stack, old_tools: JavaTools) -> Twice:
    return Twice(stack, old_tools)


@pytest.mark.parametrize("kind", KINDS)
def test_records_are_produced_and_consumed(twice: Twice, tmp_path: Path, kind: str) -> None:
    """Produce idempotently and not, with every codec, then read by a group; compare a diskless with a classic topic."""
    names = (new_topic(twice.stack, "old", CLASSIC), new_topic(twice.stack, "old", kind))
    acknowledged = only("producer_send_success", "partition", "offset", "key", "value")
    for place, codec in enumerate(CODECS):
        config = tmp_path / f"{codec}.properties"
        idempotent = "true" if place % 2 else "false"
        config.write_text(f"compression.type={codec}\nenable.idempotence={idempotent}\nretries=3\n")
        arguments = [*BROKERS, "--topic", "{name}", "--max-messages", str(COUNT), "--acks", "-1"]
        prefixed = ["--value-prefix", str(place), "--producer.config", str(config)]
        printed = twice.run(f"{TOOLS}.VerifiableProducer", [*arguments, *prefixed], names=names, clean=acknowledged)
        assert len(printed.out.splitlines()) == COUNT
    count = COUNT * len(CODECS)
    group = ["--group-id", "{name}-group", "--reset-policy", "earliest", "--verbose"]
    received = only("record_data", "value", "partition", "offset", "key")
    arguments = [*BROKERS, "--topic", "{name}", *group]
    # The client of 0.11 reads on after any count of messages.
    committed = f'"offset":{count}}}]'
    printed = twice.run(f"{TOOLS}.VerifiableConsumer", arguments, names=names, clean=received, until=committed)
    values = sorted(json.loads(line)[0] for line in printed.out.splitlines())
    assert values == sorted(f"{place}.{number}" for place in range(len(CODECS)) for number in range(COUNT))


@pytest.mark.parametrize("jars", CLIENTS)
def test_transactions_span_topics_and_offsets(stack: Stack, tmp_path: Path, jars: str) -> None:
    """Consume, copy, and commit both in one transaction, with the protocol of 0.11."""
    source, copy = (new_topic(stack, "copied", CLASSIC) for _ in range(2))
    sent = samples(COUNT, "copied", plain=True)
    produce(stack.bootstrap("rack-a"), source, sent)
    arguments = ["--broker-list", stack.bootstrap("rack-b"), "--input-topic", source, "--input-partition", "0"]
    arguments += ["--output-topic", copy, "--max-messages", str(COUNT), "--transactional-id", source]
    arguments += ["--consumer-group", source, "--transaction-size", str(TRANSACTION_SIZE)]
    main_class = f"{TOOLS}.TransactionalMessageCopier"
    copier = java_program("copier", tmp_path, main_class, *arguments, jars=(jars,), end_timeout_seconds=90)
    copier.start()
    assert copier.wait_ended() == 0, copier.log_tail()
    with consumer(stack.bootstrap("rack-c"), isolation_level="read_committed") as client:
        client.assign([TopicPartition(copy, 0, 0)])
        copied = [as_stored(message) for message in take(client, COUNT)]
    assert [(record.key, record.value) for record in copied] == [(sample.key, sample.value) for sample in sent]
    assert offsets(stack, copy) == (0, COUNT + TRANSACTIONS)  # with the end marker of each


@pytest.mark.parametrize("kind", KINDS)
def test_kafkas_own_compatibility_test_passes(twice: Twice, old_jars: str, kind: str) -> None:
    topic = new_topic(twice.stack, "compatible", kind)
    arguments = ["--bootstrap-server", twice.stack.bootstrap("rack-b"), "--topic", topic, "--num-cluster-nodes", "3"]
    for feature in ("offsets-for-times", "cluster-id", "create-topics"):
        arguments += [f"--{feature}-supported", "true"]
    arguments += ["--describe-acls-supported", DESCRIBE_ACLS[old_jars], "--expect-record-too-large-exception", "false"]
    try:
        assert "SUCCESS" in twice.tools.check(f"{TOOLS}.ClientCompatibilityTest", *arguments)
    finally:
        if CREATED in admin(twice.stack).list_topics(timeout=30).topics:
            delete_topic(twice.stack, CREATED)
