"""The brokers' quotas apply to diskless traffic: a limited client gets exactly its rate, and no other client
notices."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Self

import pytest
from confluent_kafka import Consumer, Producer, ThrottleEvent, TopicPartition

from proxy.demo.stack import Stack
from proxy.quotas.token_bucket import BURST_S
from proxy.wire.cold import read_response
from proxy.wire.fetch import FetchRequest, PartitionFetch, TopicFetch, build_fetch_request
from proxy.wire.fetch_response import FetchResponse, parse_fetch_response
from proxy.wire.header import response_header_length
from proxy.wire.produce import PartitionProduce, ProduceRequest, TopicProduce, build_produce_request
from tests.batches import make_batch
from tests.support.metrics import Metrics
from tests.support.quotas import alter_quotas, known_limits, wait_until_known
from tests.support.raw import Raw, request
from tests.support.topics import CLASSIC, DISKLESS, KINDS, create_topic, new_topic, offsets
from tests.support.waiting import wait_for

RACK = "rack-a"
LIMIT = 1 << 20
"""Bytes per second."""
TOLERANCE = 0.15
SMALL_LIMIT = 100
SMALL_CLIENTS = 4
"""Number of client IDs: two tests take one each, and another one for a second try."""
BATCH = bytes(make_batch([os.urandom(5000)], timestamp_ms=int(time.time() * 1000)))
MEASURED_S = 12.0
WINDOWS = 3
"""Number of measurements: a machine that stalls moves bytes from one window into the next."""
BURST_BYTES = 10 * LIMIT
VALUE = os.urandom(8192)
SMALL_BATCHES = {"batch.size": 131_072, "linger.ms": 20, "acks": "all", "queue.buffering.max.kbytes": 1024}
"""Producer settings; a rate is steady only if a request is small compared with it."""
TIMEOUT_S = 60.0


def set_quotas(stack: Stack, limits: Mapping[str, float | None]) -> None:
    """Set both byte rates of client IDs through the proxy; None removes them."""

    def ask(frame: bytes) -> bytes | None:
        with Raw(stack.bootstrap(RACK)) as raw:
            assert raw.send(frame)
            return raw.answer()

    alter_quotas(ask, {(("client-id", client_id),): limit for client_id, limit in limits.items()})


class Moved:
    """Bytes that a client has moved, and the throttle time that it was given."""

    def __init__(self) -> None:
        self.size = 0
        self.throttled_s: list[float] = []

    def throttled(self, event: ThrottleEvent) -> None:
        if event.throttle_time > 0:
            self.throttled_s.append(event.throttle_time)

    def rates(self, stop: threading.Event) -> list[float]:
        """Return bytes per second, once the burst is spent and a second has passed: until it is LIMIT, or for
        WINDOWS."""
        wait_for(lambda: self.size > BURST_BYTES or stop.is_set(), "the burst that a quota lets through")
        time.sleep(1.0)
        rates: list[float] = []
        while len(rates) < WINDOWS and pytest.approx(LIMIT, rel=TOLERANCE) not in rates:
            began_s, size = time.monotonic(), self.size
            stop.wait(MEASURED_S)
            rates.append((self.size - size) / (time.monotonic() - began_s))
        return rates


def produce_until(stack: Stack, topic: str, client_id: str, moved: Moved, stop: Callable[[], bool]) -> None:
    """Produce as fast as possible, to all partitions in turns."""
    configs = {"bootstrap.servers": stack.bootstrap(RACK), "client.id": client_id, "throttle_cb": moved.throttled}
    producer = Producer({**configs, **SMALL_BATCHES})

    def delivered(error: Any, _message: Any) -> None:
        assert error is None, error
        moved.size += len(VALUE)

    while not stop():
        try:
            producer.produce(topic, VALUE, on_delivery=delivered)
            producer.poll(0)
        except BufferError:
            producer.poll(0.02)
    assert producer.flush(TIMEOUT_S) == 0


def consume_until(stack: Stack, topic: str, client_id: str, moved: Moved, stop: Callable[[], bool]) -> None:
    """Consume from the beginning, in small fetches."""
    configs = {"bootstrap.servers": stack.bootstrap(RACK), "client.id": client_id, "throttle_cb": moved.throttled}
    configs |= {"group.id": "unused", "enable.auto.commit": False, "fetch.message.max.bytes": 131_072}
    consumer = Consumer(configs)
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while not stop():
            for message in consumer.consume(100, 0.1):
                assert message.error() is None, message.error()
                moved.size += len(message.value() or b"")
    finally:
        consumer.close()


class Limited(NamedTuple):
    """Client IDs that have quotas."""

    steady: str
    """Client with LIMIT bytes per second."""
    small: list[str]
    """Clients with SMALL_LIMIT bytes per second each. A test takes one out: nobody else may use its burst, which
    refills slowly."""


@pytest.fixture(scope="module")
def limited(running_stack: Stack) -> Iterator[Limited]:
    """Set quotas, and wait until the proxies have read them."""
    new_topic(running_stack, "quota-first", DISKLESS)  # the proxies read no quotas before there is a diskless topic
    unique = uuid.uuid4().hex[:6]
    steady, small = f"steady-{unique}", [f"small-{unique}-{number}" for number in range(SMALL_CLIENTS)]
    limits = {steady: float(LIMIT), **dict.fromkeys(small, float(SMALL_LIMIT))}
    known = known_limits(running_stack, RACK)
    try:
        set_quotas(running_stack, limits)
        wait_until_known(running_stack, RACK, known + 2 * len(limits))
        yield Limited(steady, small)
    finally:
        set_quotas(running_stack, dict.fromkeys(limits))


class Asking:
    """One connection of a client ID that sends only the test's requests."""

    def __init__(self, stack: Stack, client_id: str) -> None:
        self._raw = Raw(stack.bootstrap(RACK))
        self._client_id = client_id

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._raw.close()

    def produce(self, *topics: str) -> Any:
        """Produce one batch of BATCH to partition 0 of each topic; return the answer as kio reads it."""
        partitions = [PartitionProduce(0, memoryview(BATCH))]
        asked = ProduceRequest(9, None, -1, 30_000, [TopicProduce(topic, partitions) for topic in topics])
        return self._ask(0, 9, b"".join(build_produce_request(asked)))

    def fetch(self, *topics: str, wait_ms: int = 5000) -> FetchResponse:
        """Fetch offset 0 of partition 0 of each topic."""
        asked = [TopicFetch(topic, [PartitionFetch(0, -1, 0, -1, -1, 1 << 20)]) for topic in topics]
        whole = FetchRequest(11, -1, wait_ms, 1, 1 << 20, 0, 0, -1, asked, [], "")
        return parse_fetch_response(self._ask(1, 11, build_fetch_request(whole), read=False), 11)

    def _ask(self, api_key: int, version: int, body: bytes, *, read: bool = True) -> Any:
        assert self._raw.send(request(api_key, version, body, client_id=self._client_id))
        answer = self._raw.answer()
        assert answer is not None
        body = answer[response_header_length(api_key, version, answer) :]
        return read_response(api_key, version, body) if read else body


def wait_until_heard_of(stack: Stack, topic: str) -> None:
    """Wait for the broker that `Asking` is connected to; others may know the topic earlier."""
    with Asking(stack, "free") as client:
        wait_for(lambda: client.fetch(topic, wait_ms=0).topics[0].partitions[0].error_code == 0, f"{topic} is known")


def test_a_produce_over_the_quota_is_stored_and_answered_at_once_with_its_throttle_time(
    stack: Stack, limited: Limited
) -> None:
    client_id = limited.small.pop()
    topics = [f"throttled-{kind}-{client_id}" for kind in KINDS]
    leader = sorted(stack.kafka.racks, key=lambda node: stack.kafka.racks[node] != RACK)
    for topic, kind in zip(topics, KINDS, strict=True):
        create_topic(stack, topic, kind, assignment=[leader])
        wait_until_heard_of(stack, topic)
    with Asking(stack, client_id) as client:
        answer = client.produce(*topics)
    assert {one.name: one.partition_responses[0].error_code for one in answer.responses} == dict.fromkeys(topics, 0)
    # Broker and proxy each count their half, of a little more than a batch.
    expected_s = (len(BATCH) - 10 * SMALL_LIMIT) / SMALL_LIMIT
    assert answer.throttle_time.total_seconds() == pytest.approx(expected_s, rel=0.1)
    assert offsets(stack, topics[0]) == offsets(stack, topics[1]) == (0, 1)


def test_a_fetch_over_the_quota_is_answered_at_once_and_empty(stack: Stack, limited: Limited) -> None:
    """The first batch is larger than the quota ever allows: it is returned anyway, once, and its bytes are charged."""
    topic = new_topic(stack, "throttled-read", DISKLESS)
    wait_until_heard_of(stack, topic)
    with Asking(stack, "free") as client:
        assert client.produce(topic).throttle_time.total_seconds() == 0
    with Asking(stack, limited.small.pop()) as client:
        first = client.fetch(topic)
        assert first.throttle_ms == 0
        assert first.topics[0].partitions[0].records_length == len(BATCH)
        second = client.fetch(topic)
        assert (second.topics, second.error_code) == ([], 0)
        assert second.throttle_ms / 1000 == pytest.approx(len(BATCH) / SMALL_LIMIT - BURST_S, rel=0.1)
    with Asking(stack, "free") as client:
        assert client.fetch(topic).topics == first.topics


@pytest.mark.timeout(300)
def test_a_limited_client_gets_its_rate_and_others_theirs(stack: Stack, limited: Limited) -> None:
    written = new_topic(stack, "quota-written", DISKLESS, partitions=2)
    read = new_topic(stack, "quota-read", DISKLESS)
    classic = new_topic(stack, "quota-classic", CLASSIC)
    client_id, stop = limited.steady, threading.Event()
    free, by_produce, by_consume = Moved(), Moved(), Moved()
    before = Metrics(stack, RACK)
    enough = BURST_BYTES + (WINDOWS * MEASURED_S + 8) * LIMIT
    with ThreadPoolExecutor(4) as threads:
        produce_until(stack, read, "free", free, lambda: free.size > enough)
        produce_until(stack, classic, "free", free, lambda: free.size > enough + BURST_BYTES)
        try:
            running = [
                threads.submit(produce_until, stack, written, client_id, by_produce, stop.is_set),
                threads.submit(consume_until, stack, read, client_id, by_consume, stop.is_set),
            ]
            measuring = [threads.submit(moved.rates, stop) for moved in (by_produce, by_consume)]
            measured = [one.result(WINDOWS * TIMEOUT_S) for one in measuring]
        finally:
            stop.set()
        for one in running:
            one.result(TIMEOUT_S)
    after = Metrics(stack, RACK)
    assert all(pytest.approx(LIMIT, rel=TOLERANCE) in rates for rates in measured), measured
    assert free.throttled_s == []
    for moved, direction in ((by_produce, "produce"), (by_consume, "fetch")):
        assert moved.throttled_s
        told_s = after.value("throttled_seconds_total", direction=direction)
        assert told_s > before.value("throttled_seconds_total", direction=direction)
