"""Client libraries and programs that each read a whole topic in their own way, with results in one form."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
import warnings
from base64 import b64decode
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import aiokafka
from aiokafka.record.default_records import DefaultRecordBatch
from confluent_kafka import TopicPartition

from proxy.demo import servers
from tests.conformance.clients.programs import run
from tests.support.confluent import consumer, take
from tests.support.java_tools import TOOLS, JavaTools, java_program
from tests.support.questions import ask
from tests.support.raw import Raw

with warnings.catch_warnings():
    # Its import raises warnings that are not ours to fix.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

METADATA, FETCH = 3, 1
VERIFIABLE_CONSUMER = f"{TOOLS}.VerifiableConsumer"
TIMEOUT_SECONDS = 60.0
BASE_OFFSET_BYTES, LENGTH_BYTES = 8, 4


class Read(NamedTuple):
    """A record in the form that all of these clients can report."""

    offset: int
    key: bytes | None
    value: bytes | None


Partitions = dict[int, list[Read]]
"""Records of each partition, in the order in which they arrived."""


@dataclass(frozen=True)
class Whole:
    """The topic to read, and what the clients need for it."""

    bootstrap: str
    topic: str
    counts: Mapping[int, int]
    """Number of records by partition; a client reads until it has this many."""
    tools: JavaTools
    directory: Path
    """Directory for the client's own files."""
    client_rack: str = ""
    """`client.rack` of clients that support it; if empty, they send no rack."""
    client_id: str = "whole"
    read_committed: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Further settings for confluent-kafka."""

    @property
    def count(self) -> int:
        """Return the number of records of all partitions."""
        return sum(self.counts.values())


def confluent_kafka(whole: Whole) -> Partitions:
    """Read with the current librdkafka."""
    settings = {"client_id": whole.client_id, "isolation_level": isolation(whole), **whole.settings}
    if whole.client_rack:
        settings["client_rack"] = whole.client_rack
    with consumer(whole.bootstrap, **settings) as client:
        client.assign([TopicPartition(whole.topic, partition, 0) for partition in whole.counts])
        messages: list[Any] = take(client, whole.count)
    return by_partition((one.partition(), Read(one.offset(), one.key(), one.value())) for one in messages)


def kcat(whole: Whole) -> Partitions:
    """Read with librdkafka of 2023, to the end of each partition."""
    program, environment = servers.kcat()
    settings = ["check.crcs=true", f"client.id={whole.client_id}", f"isolation.level={isolation(whole)}"]
    if whole.client_rack:
        settings.append(f"client.rack={whole.client_rack}")
    flags = [word for setting in settings for word in ("-X", setting)]
    done = run(
        [program, "-b", whole.bootstrap, "-C", "-t", whole.topic, "-o", "beginning", "-e", "-J", *flags],
        environment=environment,
    )
    assert done.returncode == 0, done.stderr.decode()
    events = [json.loads(line) for line in done.stdout.splitlines()]
    return by_partition(
        (one["partition"], Read(one["offset"], encoded(one["key"]), encoded(one["payload"]))) for one in events
    )


def franz_go(whole: Whole) -> Partitions:
    """Read with the program in tests/conformance/go."""
    flags = ["-topic", whole.topic, "-count", str(whole.count), "-isolation", isolation(whole)]
    flags += ["-client-id", whole.client_id, *(["-rack", whole.client_rack] if whole.client_rack else [])]
    done = run([servers.kafka_go_client(), "consume", "-bootstrap", whole.bootstrap, *flags])
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    events = [json.loads(line) for line in done.stdout.splitlines()]
    return by_partition(
        (one["partition"], Read(one["offset"], unpacked(one["key"]), unpacked(one["value"]))) for one in events
    )


def kafka_python(whole: Whole) -> Partitions:
    """Read with the current kafka-python."""
    settings = {"client_rack": whole.client_rack} if whole.client_rack else {}
    client = kafka.KafkaConsumer(
        bootstrap_servers=whole.bootstrap,
        client_id=whole.client_id,
        auto_offset_reset="earliest",
        isolation_level=isolation(whole),
        **settings,
    )
    got: list[tuple[int, Read]] = []
    with closing(client):
        client.assign([kafka.TopicPartition(whole.topic, partition) for partition in whole.counts])
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while len(got) < whole.count:
            assert time.monotonic() < deadline, f"only {len(got)} of {whole.count} records came"
            for messages in client.poll(timeout_ms=500).values():
                got += [(one.partition, Read(one.offset, one.key, one.value)) for one in messages]
    return by_partition(got)


def aio_kafka(whole: Whole) -> Partitions:
    """Read with the current aiokafka."""
    return asyncio.run(_aio_kafka(whole))


async def _aio_kafka(whole: Whole) -> Partitions:
    settings = {"client_rack": whole.client_rack} if whole.client_rack else {}
    got: list[tuple[int, Read]] = []
    async with aiokafka.AIOKafkaConsumer(
        bootstrap_servers=whole.bootstrap,
        client_id=whole.client_id,
        auto_offset_reset="earliest",
        isolation_level=isolation(whole),
        **settings,
    ) as client:
        client.assign([aiokafka.TopicPartition(whole.topic, partition) for partition in whole.counts])
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while len(got) < whole.count:
            assert time.monotonic() < deadline, f"only {len(got)} of {whole.count} records came"
            for messages in (await client.getmany(timeout_ms=500)).values():
                got += [(one.partition, Read(one.offset, one.key, one.value)) for one in messages]
    return by_partition(got)


def java(whole: Whole) -> Partitions:
    """Read with the current Java consumer."""
    named = ["--bootstrap-server", whole.bootstrap, "--max-messages", str(whole.count)]
    printed = whole.tools.check(VERIFIABLE_CONSUMER, *named, *verifiable(whole, "--command-config"))
    return verified(printed)


def old_java(jars: str) -> Callable[[Whole], Partitions]:
    """Return a reader with the Java consumer of that set of jars. Version 0.11 knows no end, so it is stopped when
    done."""

    def read(whole: Whole) -> Partitions:
        arguments = ["--broker-list", whole.bootstrap, *verifiable(whole, "--consumer.config")]
        name = f"{jars}-{uuid.uuid4().hex[:6]}"  # the output of an earlier one remains
        program = java_program(name, whole.directory, VERIFIABLE_CONSUMER, *arguments, jars=(jars,))
        program.start()
        try:
            deadline = time.monotonic() + TIMEOUT_SECONDS
            while program.log.read_text().count('"record_data"') < whole.count:
                assert program.running, program.log_tail()
                assert time.monotonic() < deadline, program.log_tail()
                time.sleep(0.05)
        finally:
            program.terminate()
            program.wait_ended()
        return verified(program.log.read_text())

    return read


def verifiable(whole: Whole, config_option: str) -> list[str]:
    """Return the arguments that all verifiable consumers share."""
    config = whole.directory / "consumer.properties"
    settings = {"client.id": whole.client_id, "isolation.level": isolation(whole), "check.crcs": "true"}
    settings |= {"client.rack": whole.client_rack} if whole.client_rack else {}
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    group = f"{whole.topic}-{uuid.uuid4().hex[:6]}"
    return ["--topic", whole.topic, "--group-id", group, "--verbose", config_option, str(config)]


def verified(printed: str) -> Partitions:
    """Return the records that a verifiable consumer has printed."""
    events = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    return by_partition(
        (one["partition"], Read(one["offset"], encoded(one["key"]), encoded(one["value"])))
        for one in events
        if one["name"] == "record_data"
    )


def by_hand(version: int) -> Callable[[Whole], Partitions]:
    """Return a reader that fetches like kafka-python 1.4 (Fetch v4): no sessions or racks, all partitions of a
    leader."""

    def read(whole: Whole) -> Partitions:
        with Raw(whole.bootstrap) as raw:
            metadata = ask(raw, METADATA, 1, topics=[{"name": whole.topic}])
        leaders: dict[int, list[int]] = defaultdict(list)
        for partition in metadata["topics"][0]["partitions"]:
            leaders[partition["leader_id"]].append(partition["partition_index"])
        got: Partitions = {}
        for broker in metadata["brokers"]:
            if indexes := leaders[broker["node_id"]]:
                with Raw(f"{broker['host']}:{broker['port']}") as raw:
                    got |= _read_by_hand(raw, whole, version, indexes)
        return got

    return read


def _read_by_hand(raw: Raw, whole: Whole, version: int, indexes: Sequence[int]) -> Partitions:
    got: Partitions = {index: [] for index in indexes}
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while left := [index for index in indexes if len(got[index]) < whole.counts[index]]:
        assert time.monotonic() < deadline, {index: len(records) for index, records in got.items()}
        partitions = [
            {
                "partition": index,
                "fetch_offset": got[index][-1].offset + 1 if got[index] else 0,
                "partition_max_bytes": 65_536,
                "current_leader_epoch": -1,
                "log_start_offset": -1,
                "last_fetched_epoch": -1,
            }
            for index in left
        ]
        limits = {"max_wait": 500, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": int(whole.read_committed)}
        topics = [{"topic": whole.topic, "partitions": partitions}]
        asked = {"replica_id": -1, "session_epoch": -1, **limits, "topics": topics}
        answer = ask(raw, FETCH, version, whole.client_id, **asked)
        assert answer.get("error_code", 0) == 0
        for one in answer["responses"][0]["partitions"] if answer["responses"] else ():
            assert one["error_code"] == 0, one
            assert one.get("preferred_read_replica", -1) == -1, one
            position = got[one["partition_index"]][-1].offset + 1 if got[one["partition_index"]] else 0
            got[one["partition_index"]] += [each for each in records(one["records"]) if each.offset >= position]
    return got


def records(batches: bytes | None) -> list[Read]:
    """Return the records of complete batches; the brokers may have sent a part of the last one."""
    found, rest = [], memoryview(batches or b"")
    while len(rest) >= BASE_OFFSET_BYTES + LENGTH_BYTES:
        size = BASE_OFFSET_BYTES + LENGTH_BYTES + int.from_bytes(rest[BASE_OFFSET_BYTES:][:LENGTH_BYTES], "big")
        if len(rest) < size:
            break
        batch = DefaultRecordBatch(bytes(rest[:size]))
        assert batch.validate_crc()
        if not batch.is_control_batch:
            found += [Read(record.offset, record.key, record.value) for record in batch]
        rest = rest[size:]
    return found


def isolation(whole: Whole) -> str:
    """Return an `isolation.level` for every client, because their defaults differ."""
    return "read_committed" if whole.read_committed else "read_uncommitted"


def by_partition(got: Iterable[tuple[int, Read]]) -> Partitions:
    """Group records by partition, in the order in which they arrived."""
    parted: Partitions = defaultdict(list)
    for partition, record in got:
        parted[partition].append(record)
    return dict(parted)


def encoded(text: str | None) -> bytes | None:
    """Encode a value that a program printed as text."""
    return None if text is None else text.encode()


def unpacked(text: str | None) -> bytes | None:
    """Decode a value that a program printed in base64."""
    return None if text is None else b64decode(text)
