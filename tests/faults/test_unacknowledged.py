"""Records with acks 0 of a client that has left are stored, as on a broker, if they arrived before the end."""

from __future__ import annotations

import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import TopicPartition

from proxy.demo.stack import Stack
from tests.batches import make_batch
from tests.support.confluent import consumer, take
from tests.support.questions import filled
from tests.support.raw import Raw, request
from tests.support.routed import LEADER, RACK, listener, topic_id
from tests.support.topics import CLASSIC, DISKLESS, create_topic, offsets
from tests.unit.wire.trees import encode, request_type

PRODUCE, VERSION = 0, 9
FROZEN_SECONDS = 2.5
"""Seconds that are longer than the proxy takes to notice ended connections that it does not read from, and shorter than
the time until a hanging broker is fenced."""
SENT = {"one": (1, 20), "many": (40, 900_000)}
"""Number and size of records: one that waits alone, and far more than sockets and buffers on the way hold."""


def frame(topic: str, value: bytes) -> bytes:
    """Build a Produce request with acks 0."""
    data = [{"name": topic, "partition_data": [{"index": 0, "records": bytes(make_batch([value]))}]}]
    entity = request_type(PRODUCE, VERSION)
    return request(PRODUCE, VERSION, encode(entity, filled(entity, {"timeout": 30_000, "topic_data": data})))


@pytest.mark.parametrize("kind", [CLASSIC, DISKLESS])
@pytest.mark.parametrize("sent", SENT)
def test_all_records_are_stored_although_the_broker_hangs_when_the_client_leaves(
    stack: Stack, kind: str, sent: str
) -> None:
    count, size = SENT[sent]
    topic = f"unacknowledged-{kind}-{sent}-{uuid.uuid4().hex[:6]}"
    create_topic(stack, topic, kind, assignment=[[LEADER, 1, 3]] if kind == CLASSIC else None)
    # The leader's broker must know the topic and lead it; otherwise it would reject the records.
    topic_id(stack, topic)
    offsets(stack, topic)
    values = [f"{number:0{size}d}".encode() for number in range(count)]

    def send_and_leave() -> None:
        with Raw(listener(stack, LEADER, RACK)) as client:
            for value in values:
                assert client.send(frame(topic, value))

    stack.pause(f"broker-{LEADER}")
    try:
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(send_and_leave)
            time.sleep(FROZEN_SECONDS)
            stack.resume(f"broker-{LEADER}")
            sending.result()
    finally:
        stack.resume(f"broker-{LEADER}")
    with consumer(stack.bootstrap("rack-b")) as reader:
        reader.assign([TopicPartition(topic, 0, 0)])
        assert [record.value() for record in take(reader, count)] == values
