"""The core on the oldest supported brokers: Kafka 3.3.2, the first line with production-ready KRaft.

They offer Produce up to v9, Fetch up to v13, Metadata up to v12, and neither KIP-848 groups nor share groups.
"""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition

from proxy.demo.ports import HOST
from proxy.demo.stack import Stack, StackOptions
from tests.support.confluent import consumer, produce, read, take
from tests.support.java_tools import TOOLS, JavaTools, only
from tests.support.questions import ask_bytes, ask_on
from tests.support.raw import Raw
from tests.support.records import COMPRESSIONS, samples, stored
from tests.support.topics import CLASSIC, DISKLESS, KINDS, admin, create_topic, delete_topic, new_topic, offsets
from tests.support.transactional import send, transactional
from tests.support.twice import Twice, api_versions
from tests.support.waiting import wait_for

OLDEST = "3.3.2"
PARTITIONS = 3
FIRST_VERSIONS = {
    "Fetch(1)": 4,
    "ListOffsets(2)": 1,
    "CreateTopics(19)": 2,
    "DeleteTopics(20)": 1,
    "OffsetForLeaderEpoch(23)": 2,
    "WriteTxnMarkers(27)": 1,
    "DescribeConfigs(32)": 1,
    "DescribeLogDirs(35)": 1,
}
"""First versions that Kafka 4 serves."""

pytestmark = pytest.mark.stack


@pytest.fixture(scope="module")
def oldest() -> Iterator[Stack]:
    with Stack(StackOptions(broker_version=OLDEST)) as running:
        yield running


def test_the_versions_that_the_brokers_know_are_offered(oldest: Stack, tools: JavaTools) -> None:
    """The proxy leaves out only what Kafka 4 lacks too, like Fetch before v4, which used formats before v2."""
    direct, proxied = (
        tools.check(f"{TOOLS}.BrokerApiVersionsCommand", "--bootstrap-server", bootstrap)
        for bootstrap in (oldest.direct_bootstrap, oldest.bootstrap("rack-b"))
    )
    known = api_versions(direct)
    assert known[1]["Fetch(1)"] == "0 to 13"
    assert {known[1][name].partition(" to ")[0] for name in FIRST_VERSIONS} == {"0"}
    lasts = {name: int(known[1][name].partition(" to ")[2]) for name in FIRST_VERSIONS}
    offered = {
        name: f"{first} to {lasts[name]}" if first < lasts[name] else str(first)
        for name, first in FIRST_VERSIONS.items()
    }
    for node, apis in api_versions(proxied).items():
        assert apis.items() ^ (known[node] | offered).items() == set()


@pytest.mark.parametrize("kind", KINDS)
def test_records_of_every_compression_are_read_in_every_rack(oldest: Stack, kind: str) -> None:
    topic = new_topic(oldest, "oldest", kind)
    sent = []
    for place, codec in enumerate(COMPRESSIONS):
        more = samples(12, codec)
        idempotence = place % 2 == 0
        bootstrap = oldest.bootstrap(list(oldest.proxies)[place % 3])
        produce(bootstrap, topic, more, compression_type=codec, enable_idempotence=idempotence)
        sent += more
    for rack in oldest.proxies:
        assert read(oldest.bootstrap(rack), topic) == stored(sent)
    assert offsets(oldest, topic) == (0, len(sent))


def test_a_group_reads_both_kinds_and_resumes(oldest: Stack) -> None:
    topics = [new_topic(oldest, "oldest", kind) for kind in KINDS]
    for half in range(2):
        for topic in topics:
            produce(oldest.bootstrap("rack-a"), topic, samples(10, f"{half}"))
        with consumer(oldest.bootstrap("rack-c"), group_id=topics[0]) as client:
            client.subscribe(topics)
            messages = take(client, 20)
            client.commit(asynchronous=False)
        found = sorted((message.topic(), message.offset()) for message in messages)
        assert found == sorted((topic, 10 * half + offset) for topic in topics for offset in range(10))


def test_leaders_are_in_the_clients_rack(oldest: Stack) -> None:
    topic = new_topic(oldest, "oldest", DISKLESS, PARTITIONS)
    for rack, node in zip(oldest.proxies, oldest.kafka.racks, strict=True):

        def leaders(rack: str = rack) -> set[int]:
            described = admin(oldest, rack).list_topics(topic, timeout=30).topics[topic]
            return {partition.leader for partition in described.partitions.values()}

        wait_for(leaders, f"the broker of {rack} has heard of it")
        assert leaders() == {node}


@pytest.mark.parametrize("kind", KINDS)
def test_a_recreated_topic_is_empty(oldest: Stack, kind: str) -> None:
    topic = new_topic(oldest, "recreated", kind)
    produce(oldest.bootstrap("rack-a"), topic, samples(5, topic))
    delete_topic(oldest, topic)
    create_topic(oldest, topic, kind)
    if kind == CLASSIC:  # its leader may still know the old log
        wait_for(lambda: offsets(oldest, topic) == (0, 0), "the leader has heard of both")
    assert offsets(oldest, topic) == (0, 0)


def test_transactions_over_both_kinds(oldest: Stack) -> None:
    """The second one has an offset of a group, too; what an aborted one has read is read again."""
    source, *topics = (new_topic(oldest, "transactional", kind) for kind in (DISKLESS, *KINDS))
    produce(oldest.bootstrap("rack-a"), source, samples(2, "source"))
    producer = transactional(oldest.bootstrap("rack-b"), source)
    ends = [producer.abort_transaction, producer.commit_transaction] * 2
    for number, end in enumerate(ends):
        with consumer(oldest.bootstrap("rack-c"), group_id=source, isolation_level="read_committed") as client:
            client.subscribe([source])
            (read_again,) = take(client, 1)
            assert read_again.offset() == number // 2
            producer.begin_transaction()
            for topic in topics:
                send(producer, topic, b"%d" % number)
            position = [TopicPartition(source, 0, read_again.offset() + 1)]
            producer.send_offsets_to_transaction(position, client.consumer_group_metadata(), 60)
            end(60)
    for topic in topics:
        with consumer(oldest.bootstrap("rack-a"), isolation_level="read_committed") as client:
            client.assign([TopicPartition(topic, 0, 0)])
            assert [(message.offset(), message.value()) for message in take(client, 2)] == [(2, b"1"), (6, b"3")]


def test_java_copies_exactly_once(oldest: Stack, tools: JavaTools) -> None:
    """Kafka's own copier aborts at random, and copies what it has aborted again."""
    source, output = (new_topic(oldest, "copied", DISKLESS) for _ in range(2))
    sent = [b"%d" % number for number in range(30)]
    writer = transactional(oldest.bootstrap("rack-a"), f"{source}-writer")
    writer.begin_transaction()
    send(writer, source, *sent)
    writer.commit_transaction(60)
    names = ("--transactional-id", source, "--consumer-group", source, "--output-topic", output)
    tools.check(
        f"{TOOLS}.TransactionalMessageCopier",
        *("--broker-list", oldest.bootstrap("rack-b"), "--input-topic", source, "--input-partition", "0", *names),
        *("--transaction-size", "5", "--max-messages", "30", "--enable-random-aborts"),
    )
    with consumer(oldest.bootstrap("rack-c"), isolation_level="read_committed") as client:
        client.assign([TopicPartition(output, 0, 0)])
        assert [message.value() for message in take(client, 30)] == sent


def old_produce(name: str, value: bytes) -> bytes:
    """Return the body of a Produce v2 of one record in a message set of magic 1, as clients of Kafka 0.10 send it."""
    message = struct.pack(">bbqi", 1, 0, int(time.time() * 1000), -1) + struct.pack(">i", len(value)) + value
    message = struct.pack(">I", zlib.crc32(message)) + message
    records = struct.pack(">qi", 0, len(message)) + message
    topic = struct.pack(">h", len(name)) + name.encode()
    return struct.pack(">hii", -1, 30_000, 1) + topic + struct.pack(">iii", 1, 0, len(records)) + records


def test_producers_older_than_0_11_still_work_while_there_are_diskless_topics(oldest: Stack) -> None:
    """Diskless topics do not support their record formats; their connection stays open if they name no diskless
    topic."""
    classic, diskless = "old-producer", new_topic(oldest, "old-producer", DISKLESS)
    create_topic(oldest, classic, CLASSIC, assignment=[[1, 2, 3]])
    leader = f"{HOST}:{oldest.ports.broker_port_start(0) + 1}"
    with Raw(leader) as raw:
        wait_for(lambda: old_produced(ask_on(raw, 0, 2, old_produce(classic, b"there"))) == 0, "its leader knows it")
    with pytest.raises(ConnectionError):
        ask_bytes(leader, 0, 2, old_produce(diskless, b"nowhere"))
    assert read(oldest.bootstrap("rack-b"), diskless) == read(oldest.direct_bootstrap, diskless) == []
    assert [record.value for record in read(oldest.bootstrap("rack-b"), classic)] == [b"there"]


def old_produced(answer: bytes) -> int:
    """Return the only error code of a Produce v2 response."""
    (length,) = struct.unpack_from(">h", answer, 4)
    code: int = struct.unpack_from(">h", answer, 4 + 2 + length + 4 + 4)[0]
    return code


@pytest.mark.parametrize("configs", [{}, {"message.timestamp.difference.max.ms": "3600000"}])
@pytest.mark.parametrize("hours", [-2, 0, 2])
def test_times_are_bounded_as_these_brokers_bound_them(oldest: Stack, configs: dict[str, str], hours: int) -> None:
    """Before KIP-937, one config bounds times in both directions; without it there is no bound."""
    outcomes = []
    for kind in KINDS:
        topic = new_topic(oldest, "timed", kind, configs=configs)
        producer = Producer({"bootstrap.servers": oldest.bootstrap("rack-a"), "message.timeout.ms": 60_000})
        errors: list[str | None] = []
        producer.produce(
            topic,
            b"value",
            timestamp=int(time.time() * 1000) + hours * 3_600_000,
            on_delivery=lambda error, _, errors=errors: errors.append(error and error.name()),
        )
        producer.flush(90)
        outcomes.append(errors)
    refused = bool(configs) and hours != 0
    assert outcomes == [["INVALID_TIMESTAMP" if refused else None]] * 2


@pytest.mark.parametrize("jars", ["kafka", "client-0.11.0.3"])
def test_java_clients_old_and_new(oldest: Stack, launcher: Path, tools: JavaTools, jars: str) -> None:
    names = (new_topic(oldest, "oldest", CLASSIC), new_topic(oldest, "oldest", DISKLESS))
    sent = only("producer_send_success", "value", "partition", "offset")
    received = only("record_data", "value", "partition", "offset")
    with nullcontext(tools) if jars == "kafka" else JavaTools(launcher, jars) as running:
        twice = Twice(oldest, running, "rack-c")
        servers = "--bootstrap-server" if jars == "kafka" else "--broker-list"
        arguments = [servers, "{bootstrap}", "--topic", "{name}", "--max-messages", "100"]
        produced = twice.run(f"{TOOLS}.VerifiableProducer", arguments, names=names, clean=sent)
        arguments += ["--group-id", "{name}-group", "--reset-policy", "earliest", "--verbose"]
        consumed = twice.run(
            f"{TOOLS}.VerifiableConsumer", arguments, names=names, clean=received, until='"offset":100}]'
        )
    assert len(produced.out.splitlines()) == 100
    assert consumed.out == produced.out
