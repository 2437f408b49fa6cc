"""Batches under every `compression.type` and `message.timestamp.*`: a diskless topic stores them like brokers do."""

from __future__ import annotations

import itertools
import random
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, NamedTuple

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from crc32c import crc32c

from proxy.demo.stack import Stack
from proxy.records.batches import HEADER_BYTES, BatchHeader, read_header
from proxy.records.compression import NAMES, compress
from tests.batches import make_batch, make_timed_batch
from tests.support.confluent import read_partitions
from tests.support.metrics import Metrics
from tests.support.questions import ask
from tests.support.raw import Raw
from tests.support.topics import CLASSIC, DISKLESS, admin, create_topic, new_topic

PRODUCE, FETCH = 0, 1
VERSION = 9
FETCH_VERSION = 11
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
UNKNOWN_TOPIC_OR_PARTITION, MESSAGE_TOO_LARGE, INVALID_TIMESTAMP, OUT_OF_ORDER, INVALID_RECORD = 3, 10, 32, 45, 87
NODE = 1
_READY_SECONDS = 30.0


class Produced(NamedTuple):
    """Fields of a partition's Produce answer that both kinds must share."""

    error_code: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    record_errors: tuple[tuple[int, str], ...]


class Side:
    """One of the two topics, with a connection to its server."""

    def __init__(self, address: str, topic: str) -> None:
        self.connection = Raw(address)
        self.topic = topic
        self.message: str | None = None
        """Error message of the last Produce."""

    def close(self) -> None:
        self.connection.close()

    def produce(self, batch: bytes | bytearray, partition: int = 0, acks: int = -1) -> Produced:
        data = [{"index": partition, "records": bytes(batch)}]
        answer = ask(
            self.connection,
            PRODUCE,
            VERSION,
            transactional_id=None,
            acks=acks,
            timeout=30_000,
            topic_data=[{"name": self.topic, "partition_data": data}],
        )
        (reported,) = answer["responses"][0]["partition_responses"]
        self.message = reported["error_message"]
        errors = tuple((one["batch_index"], one["batch_index_error_message"]) for one in reported["record_errors"])
        return Produced(
            reported["error_code"],
            reported["base_offset"],
            reported["log_append_time"],
            reported["log_start_offset"],
            errors,
        )

    def batches(self, offset: int = 0) -> list[bytes]:
        """Return everything from the offset on, batch by batch as it is read."""
        asked = [
            {
                "partition": 0,
                "current_leader_epoch": -1,
                "fetch_offset": offset,
                "log_start_offset": -1,
                "partition_max_bytes": 1 << 24,
            }
        ]
        answer = ask(
            self.connection,
            FETCH,
            FETCH_VERSION,
            replica_id=-1,
            max_wait=500,
            min_bytes=1,
            max_bytes=1 << 24,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[{"topic": self.topic, "partitions": asked}],
            forgotten_topics_data=[],
            rack_id="",
        )
        (reported,) = answer["responses"][0]["partitions"]
        assert reported["error_code"] == 0
        found, data = [], reported["records"] or b""
        while data:
            length = read_header(data).length
            found.append(data[:length])
            data = data[length:]
        return found


Sides = tuple[Side, Side]
Both = Callable[..., Sides]


@pytest.fixture
def both(stack: Stack) -> Iterator[Both]:
    """Create a classic topic, served by its leader, and a diskless one, served by a proxy; return when both work."""
    made: list[Side] = []

    def make(**configs: str) -> Sides:
        named = {name.replace("_", "."): value for name, value in configs.items()}
        classic = f"produce-classic-{uuid.uuid4().hex[:6]}"
        create_topic(stack, classic, CLASSIC, configs=named, assignment=[[NODE]])
        diskless = new_topic(stack, "produce", DISKLESS, configs=named)
        sides = Side(stack.kafka.address(NODE), classic), Side(stack.bootstrap("rack-b"), diskless)
        made.extend(sides)
        deadline = time.monotonic() + _READY_SECONDS
        for side in sides:
            while side.produce(b"").error_code in (3, 6):
                assert time.monotonic() < deadline
                time.sleep(0.05)
        return sides

    yield make
    for side in made:
        side.close()


def alter(stack: Stack, sides: Sides, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    client = admin(stack)
    for side in sides:
        resource = ConfigResource(ResourceType.TOPIC, side.topic, incremental_configs=[entry])
        for answer in client.incremental_alter_configs([resource]).values():
            answer.result(30)


def agree(sides: Sides, batch: bytes | bytearray, *, stamped: bool = False) -> Produced:
    """Require the same answer from both, except for the append time, which both or neither must return."""
    classic, diskless = (side.produce(batch) for side in sides)
    if stamped:
        now_ms = time.time() * 1000
        assert all(0 <= now_ms - reported.log_append_time_ms < 60_000 for reported in (classic, diskless)), (
            classic,
            diskless,
        )
        diskless = diskless._replace(log_append_time_ms=classic.log_append_time_ms)
    names = sides[1].topic, sides[0].topic
    assert [_without_times((place, text.replace(*names))) for place, text in diskless.record_errors] == [
        _without_times(one) for one in classic.record_errors
    ]
    if classic.error_code:
        diskless = diskless._replace(log_start_offset=classic.log_start_offset)
    assert diskless._replace(record_errors=()) == classic._replace(record_errors=())
    return classic


def _without_times(error: tuple[int, str]) -> tuple[int, str]:
    place, text = error
    return place, text.partition(" should be within")[0]


def header_fields(header: BatchHeader) -> tuple[Any, ...]:
    return header._replace(length=0, crc=0, partition_leader_epoch=0)


def read_back(sides: Sides, *, stamped: bool = False) -> list[BatchHeader]:
    """Require equal headers, right CRCs and equal records; return the headers of the diskless topic."""
    stored = [side.batches() for side in sides]
    headers = [[read_header(batch) for batch in batches] for batches in stored]
    assert len(stored[0]) == len(stored[1])
    for one, other, classic, diskless in zip(*stored, *headers, strict=True):
        assert crc32c(other[21:]) == diskless.crc
        if stamped and diskless.timestamp_type:
            assert abs(diskless.max_timestamp_ms - classic.max_timestamp_ms) < 60_000
            diskless = diskless._replace(max_timestamp_ms=classic.max_timestamp_ms)
        assert header_fields(diskless) == header_fields(classic)
        assert one[:8] == other[:8]
        records = [
            [(record.offset, record.key, record.value, record.headers) for record in DefaultRecordBatch(batch)]
            for batch in (one, other)
        ]
        assert records[0] == records[1]
    return headers[1]


def now_ms() -> int:
    return int(time.time() * 1000)


@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_batches_are_compressed_as_the_topic_requires(stack: Stack, both: Both, wanted: str) -> None:
    sides = both(compression_type=wanted)
    values = [b"a value that repeats itself, " * 200, None, b"", b"x"]
    sequence = 0
    for codec in range(5):
        batch = make_batch(
            values, codec=codec, timestamp_ms=now_ms(), producer_id=8_000_000, producer_epoch=0, base_sequence=sequence
        )
        assert agree(sides, batch).error_code == 0
        sequence += len(values)
    again = make_batch(
        values, codec=4, timestamp_ms=7, producer_id=8_000_000, producer_epoch=0, base_sequence=sequence - len(values)
    )
    assert agree(sides, again).base_offset == sequence - len(values), "the same to a producer that says it again"
    headers = read_back(sides)
    assert [header.compression for header in headers] == [NAMES.index(wanted.replace("uncompressed", "none"))] * 5
    assert [header.base_sequence for header in headers] == list(range(0, sequence, len(values)))
    (kept,) = read_partitions(stack.bootstrap("rack-c"), sides[1].topic, 1)
    assert [record.value for record in kept] == values * 5


def test_javas_client_reads_recompressed_and_stamped_batches(stack: Stack) -> None:
    """It rejects LZ4 blocks that depend on one another, and checks CRCs. The records fill several blocks."""
    label = f"java-{uuid.uuid4().hex[:6]}"
    configs = {"message.timestamp.type": "LogAppendTime"}
    line = b"0123456789" * 20
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        topic = new_topic(stack, label, DISKLESS, configs=configs | {"compression.type": codec})
        with closing(Side(stack.bootstrap("rack-a"), topic)) as side:
            while side.produce(b"").error_code == UNKNOWN_TOPIC_OR_PARTITION:
                time.sleep(0.05)
            assert side.produce(make_batch([line] * 1_000, timestamp_ms=5)).error_code == 0
    arguments = ["--bootstrap-server", stack.bootstrap("rack-b"), "--include", f"{label}-.*", "--from-beginning"]
    arguments += ["--max-messages", "4000", "--formatter-property", "print.timestamp=true", "--timeout-ms", "30000"]
    done = stack.java("org.apache.kafka.tools.consumer.ConsoleConsumer", *arguments)
    lines = done.stdout.splitlines()
    assert len(lines) == 4_000, done.stderr
    assert all(one.startswith("LogAppendTime:1") and one.endswith(line.decode()) for one in lines)


def test_size_is_checked_before_and_after_compression(stack: Stack, both: Both) -> None:
    sides = both(compression_type="gzip", max_message_bytes="2000")
    loose = make_batch([b"z" * 5_000], timestamp_ms=now_ms())
    assert agree(sides, loose).error_code == MESSAGE_TOO_LARGE
    alter(stack, sides, "compression.type", "uncompressed")
    packed = make_batch([b"z" * 5_000], codec=4, timestamp_ms=now_ms())
    deadline = time.monotonic() + _READY_SECONDS
    for side in sides:  # until the side has applied the change
        while side.produce(packed).error_code == 0:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert agree_code(sides, packed) == MESSAGE_TOO_LARGE


def agree_code(sides: Sides, batch: bytes | bytearray) -> int:
    classic, diskless = (side.produce(batch).error_code for side in sides)
    assert diskless == classic
    return classic


def test_levels_of_compression_are_obeyed(stack: Stack, both: Both) -> None:
    chance = random.Random(5)
    words = [bytes(chance.choices(b"abcdefgh", k=chance.randrange(3, 9))) for _ in range(300)]
    text = b" ".join(chance.choice(words) for _ in range(12_000))
    sizes = []
    for level in ("1", "19"):
        sides = both(compression_type="zstd", compression_zstd_level=level)
        assert agree(sides, make_batch([text], timestamp_ms=now_ms())).error_code == 0
        read_back(sides)
        sizes.append([len(side.batches()[0]) for side in sides])
    low, high = sizes
    assert high[0] < low[0]
    assert high[1] < low[1]
    assert all(abs(classic - diskless) < classic / 10 for classic, diskless in sizes)


def test_log_append_time(stack: Stack, both: Both) -> None:
    sides = both(message_timestamp_type="LogAppendTime")
    producer = {"producer_id": 8_000_001, "producer_epoch": 0}
    for sequence, (codec, timestamp_ms) in enumerate(itertools.product(range(5), (0, now_ms() + 10 * DAY_MS))):
        batch = make_batch([b"value"], codec=codec, timestamp_ms=timestamp_ms, base_sequence=sequence, **producer)
        assert agree(sides, batch, stamped=True).base_offset == sequence
    headers = read_back(sides, stamped=True)
    assert [header.timestamp_type for header in headers] == [1] * 10
    first = [side.produce(batch) for side in sides]
    assert [reported.base_offset for reported in first] == [9, 9]
    assert [reported.log_append_time_ms for reported in first] == [
        read_header(side.batches(9)[0]).max_timestamp_ms for side in sides
    ], "the time of the first append"
    (kept,) = read_partitions(stack.bootstrap("rack-c"), sides[1].topic, 1)
    assert [record.timestamp_ms for record in kept] == [header.max_timestamp_ms for header in headers]

    alter(stack, sides, "message.timestamp.type", "CreateTime")
    offset, deadline = 10, time.monotonic() + _READY_SECONDS
    for side in sides:  # until the side has applied the change
        while side.produce(make_batch([b"later"], timestamp_ms=now_ms())).log_append_time_ms != -1:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    for side in sides:
        types = [read_header(batch).timestamp_type for batch in side.batches()]
        assert types[:offset] == [1] * offset
        assert types[-1] == 0
    assert [read_header(batch) for batch in sides[1].batches()[:10]] == headers, "what was stamped stays so"


def test_recompression_under_log_append_time(stack: Stack, both: Both) -> None:
    sides = both(message_timestamp_type="LogAppendTime", compression_type="lz4")
    for codec in range(5):
        assert agree(sides, make_batch([b"v" * 900, b"w"], codec=codec, timestamp_ms=5), stamped=True).error_code == 0
    headers = read_back(sides, stamped=True)
    assert [(header.compression, header.timestamp_type) for header in headers] == [(3, 1)] * 5


def test_times_of_single_records_are_checked(stack: Stack, both: Both) -> None:
    bounds = {"message_timestamp_before_max_ms": str(DAY_MS), "message_timestamp_after_max_ms": str(HOUR_MS)}
    sides = both(**bounds)
    base = now_ms()
    good = [base, base - DAY_MS + HOUR_MS, base + HOUR_MS // 2, -1]
    for times, wrong in (
        (good, []),
        ([base, base - 2 * DAY_MS, base, base + 2 * HOUR_MS], [1, 3]),
        ([base - 2 * DAY_MS], [0]),
        ([base + 2 * HOUR_MS, *good], [0]),
        ([0], [0]),
        ([-1], []),
    ):
        for codec in (0, 1, 4):
            reported = agree(sides, make_timed_batch(times, codec=codec))
            assert reported.error_code == (INVALID_TIMESTAMP if wrong else 0), times
            assert [place for place, _ in reported.record_errors] == wrong
    read_back(sides)


def keyed(keys: list[bytes | None], codec: int = 0, **times: int) -> bytes:
    """Build a batch with a record for each key; `times` starts with the first record's, an hour apart."""
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 20)
    for offset, key in enumerate(keys):
        builder.append(offset, times.get("first_ms", now_ms()) + offset * HOUR_MS, key, b"value", [])
    return bytes(builder.build())


@pytest.mark.parametrize("wanted", ["producer", "zstd"])
def test_records_without_a_key_are_rejected_by_a_compacted_topic(both: Both, wanted: str) -> None:
    sides = both(cleanup_policy="compact,delete", compression_type=wanted)
    for codec in range(5):
        for keys, wrong in (
            ([b"k", b""], []),
            ([None], [0]),
            ([b"k", None, b"k", None, None, None], [1, 3, 4, 5]),
        ):
            batch = keyed(keys, codec, first_ms=now_ms() - DAY_MS)
            reported = agree(sides, batch)
            assert reported.error_code == (INVALID_RECORD if wrong else 0)
            assert [place for place, _ in reported.record_errors] == wrong
            classic, diskless = (side.message for side in sides)
            assert (diskless or "").replace(sides[1].topic, sides[0].topic) == (classic or "")
    late = keyed([b"k", None, b"k"], first_ms=now_ms() + HOUR_MS // 2)
    assert agree(sides, late).error_code == INVALID_TIMESTAMP, "which goes before"
    assert len(read_back(sides)) == 5


def test_a_topic_that_becomes_compacted_requires_keys(stack: Stack, both: Both) -> None:
    sides = both()
    keyless = keyed([None], 4)
    assert agree(sides, keyless).error_code == 0
    alter(stack, sides, "cleanup.policy", "compact")
    deadline = time.monotonic() + _READY_SECONDS
    for side in sides:  # until the side has applied the change
        while side.produce(keyless).error_code == 0:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert agree_code(sides, keyless) == INVALID_RECORD
    assert agree_code(sides, keyed([b"k"], 4)) == 0


def test_a_wrong_maximum_timestamp_is_corrected_if_records_are_read(stack: Stack, both: Both) -> None:
    sides = both(compression_type="gzip")
    batch = make_timed_batch([now_ms()] * 2, claimed_ms=now_ms() + 5 * DAY_MS)
    assert agree(sides, batch).error_code == 0
    read_back(sides)
    plain = both()
    assert agree(plain, batch).error_code == 0
    read_back(plain)


def test_records_that_contradict_the_header_are_rejected_if_they_are_read(stack: Stack, both: Both) -> None:
    sides = both(compression_type="zstd")
    times = [now_ms()] * 3
    good = bytes(make_timed_batch(times)[HEADER_BYTES:])
    for codec, payload in (
        (0, good[:-1]),
        (0, good + b"\0"),
        (0, good[:10] + good[:10] + good[:-9]),
        (1, compress(1, good[:-3])),
        (1, compress(1, good + good)),
        (1, b"no gzip at all"),
        (2, b"no snappy at all"),
        (3, b"no lz4 at all"),
        (1, bytes(compress(1, good))[:-12]),
    ):
        batch = make_timed_batch(times, codec=codec, payload=bytes(payload))
        reported = [side.produce(batch).error_code for side in sides]
        assert reported[0] == reported[1] != 0
    assert [side.batches() for side in sides] == [[], []]


def test_an_early_batch_is_held_until_another_proxy_gets_the_batches_before_it(stack: Stack) -> None:
    topic = new_topic(stack, "held", DISKLESS)
    first, second = (Side(stack.bootstrap(rack), topic) for rack in ("rack-a", "rack-c"))
    batches = [
        make_batch([b"v"] * 5, timestamp_ms=now_ms(), producer_id=8_000_002, producer_epoch=0, base_sequence=sequence)
        for sequence in (0, 5, 10, 20)
    ]
    with closing(first), closing(second), ThreadPoolExecutor(1) as other:
        for side in (first, second):
            while side.produce(b"").error_code == UNKNOWN_TOPIC_OR_PARTITION:
                time.sleep(0.05)
        early = other.submit(second.produce, batches[1])
        while Metrics(stack, "rack-c").value("held_batches") != 1:
            assert not early.done(), early.result()
        assert (first.produce(batches[0]).base_offset, early.result(30).base_offset) == (0, 5)
        assert second.produce(batches[2]).base_offset == 10
        assert first.produce(batches[1]).base_offset == 5, "a duplicate, whichever proxy is asked"
        assert first.produce(batches[3]).error_code == OUT_OF_ORDER, "nothing comes"
        assert [read_header(batch).base_sequence for batch in first.batches()] == [0, 5, 10]
