"""Records are read as they were sent, with every field."""

from __future__ import annotations

import random

from tests.conformance.model import Ability, Client, Consuming, Producing
from tests.conformance.scenario import Observation, scenario
from tests.conformance.ways import Way, take
from tests.support.records import Sample

PARTITIONS = 2
COUNT = 14
LARGE_BYTES = 1_000_000
MESSAGE_MAX_BYTES = 1_048_588
"""Default of the brokers."""


@scenario(Ability.PRODUCE, Ability.CONSUME)
def every_compression(client: Client, way: Way) -> Observation:
    """Send keys and values that are present, empty and null, headers and timestamps, idempotently and not in turns."""
    topic = way.topic("compression", PARTITIONS)
    expected: dict[int, list[Sample]] = {partition: [] for partition in range(PARTITIONS)}
    sent_records = {}
    for place, compression in enumerate(client.compressions):
        made = way.samples(client, COUNT, compression)
        sent = {partition: made[partition::PARTITIONS] for partition in range(PARTITIONS)}
        how = Producing(compression, idempotent=place % 2 == 0 and Ability.IDEMPOTENCE in client.abilities)
        sent_records[compression] = client.produce(way.writers, topic, sent, how)
        for partition, more in sent.items():
            expected[partition] += more
    read = {}
    for partition, wanted in expected.items():
        got = way.seen(take(client, way.readers, Consuming(topic, partition), len(wanted)))
        assert [(one.key, one.value, one.headers, one.timestamp_ms) for one in got] == wanted
        read[partition] = got
    return {"sent": sent_records, "read": read}


@scenario(Ability.PRODUCE, Ability.CONSUME)
def acknowledged_records(client: Client, way: Way) -> Observation:
    """Send records acknowledged by the leader, and by all replicas, each to its own partition."""
    return _sent_with(client, way, ("1", "all"))


@scenario(Ability.PRODUCE, Ability.CONSUME)
def records_without_acknowledgement(client: Client, way: Way) -> Observation:
    """Send from a client that leaves at once, to a topic that has just been created."""
    return _sent_with(client, way, ("0",))


def _sent_with(client: Client, way: Way, choices: tuple[str, ...]) -> Observation:
    topic = way.topic(f"acks-{choices[0]}", len(choices))
    sent_records, read = {}, {}
    for partition, acks in enumerate(choices):
        sent = way.samples(client, 6, f"acks-{acks}")
        sent_records[acks] = client.produce(way.writers, topic, {partition: sent}, Producing(acks=acks))
        read[acks] = way.seen(take(client, way.readers, Consuming(topic, partition), len(sent)))
        assert [one.value for one in read[acks]] == [sample.value for sample in sent]
    return {"sent": sent_records, "read": read}


@scenario(Ability.PRODUCE, Ability.CONSUME)
def large_records(client: Client, way: Way) -> Observation:
    """Send records nearly as large as brokers accept by default, plain and compressed."""
    topic = way.topic("large")
    chance = random.Random(LARGE_BYTES)
    values = [chance.randbytes(LARGE_BYTES // 2).hex().encode() for _ in range(2)]
    sent = client.express([Sample(b"large", value, (), 0) for value in values])
    sent_records = [
        client.produce(way.writers, topic, {0: sent}, Producing(compression, max_message_bytes=MESSAGE_MAX_BYTES))
        for compression in (client.compressions[0], client.compressions[-1])
    ]
    got = way.seen(take(client, way.readers, Consuming(topic), 2 * len(values)))
    assert [one.value for one in got] == 2 * values
    return {"sent": sent_records, "read": [(one.offset, one.key, hash(one.value)) for one in got]}
