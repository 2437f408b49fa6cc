"""Kafka Streams' own WordCountDemo, unmodified, with diskless and classic topics at either end."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from proxy.demo.stack import Stack
from tests.docs.recipes import recipe, written
from tests.support.confluent import consumer, produce, take
from tests.support.java_tools import java_program
from tests.support.metrics import Metrics
from tests.support.records import Sample
from tests.support.topics import CLASSIC, DISKLESS, create_topic, delete_topic

DEMO = "org.apache.kafka.streams.examples.wordcount.WordCountDemo"
IN_MEMORY = "org.apache.kafka.streams.state.BuiltInDslStoreSuppliers$InMemoryDslStoreSuppliers"
"""Store in memory, because the default store is a native library of 70 MB."""
INPUT, OUTPUT = "streams-plaintext-input", "streams-wordcount-output"
LINES = ("all streams lead to kafka", "hello kafka streams")
COUNTS = {"all": 1, "lead": 1, "to": 1, "hello": 1, "streams": 2, "kafka": 2}
STORE = "KSTREAM-AGGREGATE-STATE-STORE-0000000003"
HINTED = "rack-c"


@pytest.mark.parametrize(
    ("input_kind", "output_kind", "guarantee"),
    [
        (DISKLESS, CLASSIC, "exactly_once_v2"),
        (CLASSIC, DISKLESS, "at_least_once"),
        (DISKLESS, DISKLESS, "exactly_once_v2"),
    ],
)
def test_words_are_counted(stack: Stack, tmp_path: Path, input_kind: str, output_kind: str, guarantee: str) -> None:
    """Streams appends `-StreamThread-1-consumer` and similar to the client ID; the rack in the ID still counts."""
    bootstrap = stack.bootstrap("rack-a")
    create_topic(stack, INPUT, input_kind)
    create_topic(stack, OUTPUT, output_kind)
    application_id = f"word-count-{input_kind}-{output_kind}"
    internal = []
    if input_kind == output_kind == DISKLESS:
        # Streams' own topics are classic, unless they exist already.
        internal = [f"{application_id}-{STORE}-changelog", f"{application_id}-{STORE}-repartition"]
        create_topic(stack, internal[0], DISKLESS, configs={"cleanup.policy": "compact"})
        create_topic(stack, internal[1], DISKLESS)
    now_ms = int(time.time() * 1000)
    produce(bootstrap, INPUT, [Sample(None, line.encode(), (), now_ms) for line in LINES])
    served = requests_by(stack, HINTED)
    properties = recipe(
        stack,
        "docs/clients/streams.md",
        bootstrap_servers=bootstrap,
        application_id=application_id,
        client_id=f"word-count,diskless_rack_id={HINTED}",
        processing_guarantee=guarantee,
        state_dir=str(tmp_path / "state"),
        dsl_store_suppliers_class=IN_MEMORY,
    )
    file = tmp_path / "streams.properties"
    program = java_program("word-count", tmp_path, DEMO, written(file, properties))
    program.start()
    try:
        assert counts(bootstrap) == COUNTS, program.log_tail()
    finally:
        program.terminate()
        program.wait_ended()
        for topic in (INPUT, OUTPUT, *internal):
            delete_topic(stack, topic)
    assert requests_by(stack, HINTED) > served


def counts(bootstrap: str) -> dict[str, int]:
    """Return the last count of each word, once there are as many counts as words."""
    with consumer(bootstrap, isolation_level="read_committed") as client:
        client.assign([TopicPartition(OUTPUT, 0, 0)])
        messages = take(client, sum(COUNTS.values()))
    return {message.key().decode(): struct.unpack(">q", message.value())[0] for message in messages}


def requests_by(stack: Stack, rack: str) -> float:
    """Return the numbers of Fetch and Produce requests that the rack's proxy has received."""
    metrics = Metrics(stack, rack)
    return metrics.value("requests_total", api="Fetch") + metrics.value("requests_total", api="Produce")
