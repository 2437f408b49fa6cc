"""`diskless-proxy demo hello`: one diskless record from a producer in one rack to a consumer in another, step by step.

At a stack that `demo --serve` has started, by its information file. Producer and consumer are librdkafka, unmodified.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from proxy.config import load_settings
from proxy.demo.errors import StackError
from proxy.demo.info import lives
from proxy.demo.traffic import Traffic
from proxy.diskless.wal.segment import segment_key
from proxy.inspection.segments import SegmentFigures, segments_of_topic
from proxy.inspection.stores import object_sizes, open_stores

TOPIC = "hello"
PARTITION = 0
REPLICAS = 3
TIMEOUT_SECONDS = 60.0
POLL_SECONDS = 0.2
KIND = "diskless"
QUIET = {"log_level": 3}
"""Settings of librdkafka: log errors only. Brokers that have just started make it warn and retry."""


@dataclass(frozen=True, slots=True)
class Leader:
    """The partition's leader as one client sees it."""

    node_id: int
    rack: str
    address: str
    """`host:port`, of a proxy."""


@dataclass(frozen=True, slots=True)
class Hello:
    """The result of the command."""

    topic: str
    record: str
    partition: int
    offset: int
    produced_in: str
    """A rack."""
    producer_leader: Leader
    acknowledged_ms: float
    """From the making of the client."""
    consumed_in: str
    consumer_leader: Leader
    read_ms: float
    """From the acknowledgement until the consumer, which joins a group first, has the record."""
    object_url: str
    object_bytes: int
    broker_records: int
    """Records in the partition's log on the brokers."""
    record_bytes: int
    """Bytes of record batches, in and out, as all proxies count them."""
    crossed_bytes: int
    """Bytes that crossed from one rack to another."""


def read_info(path: Path) -> dict[str, Any]:
    """Return the information file of a running demo. Raises StackError with the remedy where there is none."""
    remedy = 'start one first, and leave it running: diskless-proxy demo --serve, or make demo ARGS="--serve"'
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        raise StackError(f"no demo runs: there is no {path}; {remedy}") from None
    except (OSError, ValueError) as error:
        raise StackError(f"{path} can't be read: {error}; {remedy}") from error
    if not lives(found):
        raise StackError(f"the demo of {path} has ended, or a part of it; {remedy}")
    if len(found.get("proxies", ())) < 2:
        raise StackError(f"{path} does not name proxies of two racks; {remedy}")
    return found


def say_hello(info: Mapping[str, Any], text: str, progress: Callable[[str], None] = lambda _: None) -> Hello:
    """Produce one record in the first rack, read it in the second one, and look where its bytes went.

    Creates the diskless topic `hello` where it is not there. Raises StackError where a step takes longer than
    TIMEOUT_SECONDS or a client is answered an error.
    """
    here, there, *_ = info["proxies"]
    first, second = info["proxies"][here], info["proxies"][there]
    traffic = Traffic({rack: f"http://{proxy['admin']}" for rack, proxy in info["proxies"].items()})
    try:
        progress(f"a diskless topic, {TOPIC}")
        _create(first["bootstrap"], len(info["brokers"]))
        progress(f"a producer in {here}")
        began = time.monotonic()
        sent = _produce(first["bootstrap"], text)
        acknowledged = time.monotonic()
        progress(f"a consumer in {there}")
        record = _consume(second["bootstrap"], sent)
        read = time.monotonic()
        leaders = [_leader(proxy["bootstrap"], info) for proxy in (first, second)]
        direct = ",".join(broker["address"] for broker in info["brokers"].values())
        on_brokers = _records_in_log(direct)
    except KafkaException as error:
        raise StackError(f"a client was answered: {error.args[0].str()}; are all parts of the demo alive?") from error
    traffic.look()
    offset = sent.offset()
    assert offset is not None
    stored = asyncio.run(_object(Path(first["config"]), offset))
    return Hello(
        topic=TOPIC,
        record=record,
        partition=PARTITION,
        offset=offset,
        produced_in=here,
        producer_leader=leaders[0],
        acknowledged_ms=round((acknowledged - began) * 1000, 1),
        consumed_in=there,
        consumer_leader=leaders[1],
        read_ms=round((read - acknowledged) * 1000, 1),
        object_url=f"{info['storage'].rstrip('/')}/{segment_key(stored.segment)}",
        object_bytes=stored.size_bytes or 0,
        broker_records=on_brokers,
        record_bytes=traffic.record_bytes(KIND),
        crossed_bytes=traffic.cross_rack_bytes(KIND),
    )


def lines(hello: Hello) -> list[str]:
    """Return the result for people, a line each."""
    producer, consumer = hello.producer_leader, hello.consumer_leader
    return [
        f"Produced in {hello.produced_in}: {hello.record!r}, acknowledged as offset {hello.offset} of "
        f"{hello.topic}-{hello.partition}, {hello.acknowledged_ms:.0f} ms after the client was made.",
        f"  To this client the partition is led by broker {producer.node_id} of {producer.rack}, at "
        f"{producer.address}, a port of its rack's proxy.",
        f"Stored: {hello.object_url} ({hello.object_bytes} bytes).",
        f"  On the brokers' disks: {hello.broker_records} records of this partition.",
        f"Read in {hello.consumed_in}: {hello.record!r}, {hello.read_ms / 1000:.1f} s later, of which most is the "
        "joining of a group.",
        f"  To this client the same partition is led by broker {consumer.node_id} of {consumer.rack}, at "
        f"{consumer.address}.",
        f"Counted by the proxies meanwhile: {hello.record_bytes:,} bytes of records in and out, of which "
        f"{hello.crossed_bytes:,} crossed from a client to another rack.",
    ]


def _create(bootstrap: str, brokers: int) -> None:
    topic = NewTopic(TOPIC, 1, min(REPLICAS, brokers), config={"diskless.enable": "true"})
    client = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    try:
        client.create_topics([topic], request_timeout=TIMEOUT_SECONDS)[TOPIC].result(TIMEOUT_SECONDS)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def _produce(bootstrap: str, text: str) -> Message:
    acknowledged: list[tuple[KafkaError | None, Message]] = []
    producer = Producer({"bootstrap.servers": bootstrap, **QUIET})
    producer.produce(
        TOPIC, text.encode(), partition=PARTITION, on_delivery=lambda error, sent: acknowledged.append((error, sent))
    )
    producer.flush(TIMEOUT_SECONDS)
    if not acknowledged:
        raise StackError(f"the record was not acknowledged within {TIMEOUT_SECONDS:g} s")
    ((error, sent),) = acknowledged
    if error is not None:
        raise KafkaException(error)
    return sent


def _consume(bootstrap: str, sent: Message) -> str:
    """Return the text of the record that was sent, as a member of a group reads it."""
    reading = {"group.id": f"{TOPIC}-readers", "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": bootstrap, **reading, **QUIET})
    try:
        consumer.subscribe([TOPIC])
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            message = consumer.poll(POLL_SECONDS)
            if message is None:
                continue
            if (error := message.error()) is not None:
                raise KafkaException(error)
            if message.offset() == sent.offset():
                return (message.value() or b"").decode()
    finally:
        consumer.close()
    raise StackError(f"the record was not read within {TIMEOUT_SECONDS:g} s")


def _leader(bootstrap: str, info: Mapping[str, Any]) -> Leader:
    client = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    found = client.list_topics(TOPIC, timeout=TIMEOUT_SECONDS)
    node_id = found.topics[TOPIC].partitions[PARTITION].leader
    broker = found.brokers[node_id]
    return Leader(node_id, info["brokers"][str(node_id)]["rack"], f"{broker.host}:{broker.port}")


def _records_in_log(direct_bootstrap: str) -> int:
    consumer = Consumer({"bootstrap.servers": direct_bootstrap, "group.id": "unused", **QUIET})
    try:
        first, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, PARTITION), TIMEOUT_SECONDS)
    finally:
        consumer.close()
    return int(end - first)


async def _object(config: Path, offset: int) -> SegmentFigures:
    """Return the object that holds the record.

    Raises StackError where it is none: the topic was there, as a classic one.
    """
    async with open_stores(load_settings(config)) as stores:
        (topic,) = stores.named([TOPIC])
        sizes = await object_sizes(stores.storage, lambda _: None)
        for figures in await segments_of_topic(stores, topic, sizes, lambda _: None):
            if any(extent.base_offset <= offset <= extent.last_offset for extent in figures.extents):
                return figures
    raise StackError(f"no object holds offset {offset} of {TOPIC}")
