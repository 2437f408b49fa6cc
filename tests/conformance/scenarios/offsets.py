"""The beginning and the end of a log, and the records that a reader gets from any start."""

from __future__ import annotations

from tests.conformance.member import Member
from tests.conformance.model import EARLIEST, LATEST, MAX_TIMESTAMP, Ability, Client, Consuming, Producing
from tests.conformance.scenario import Observation, scenario
from tests.conformance.ways import Way, error_of, take

COUNT = 4
BEYOND = 1_000_000


@scenario(Ability.PRODUCE, Ability.LIST_OFFSETS)
def offsets_of_times(client: Client, way: Way) -> Observation:
    """List offsets of an empty log and of one with records: both ends, and the first record since a timestamp."""
    topic = way.topic("offsets")
    observed = {"empty": [client.list_offsets(way.readers, topic, 0, one) for one in (EARLIEST, LATEST)]}
    asked = []
    for batch in range(3):
        sent = way.samples(client, COUNT, f"batch-{batch}")
        # The samples' timestamps are the times of their creation, so that later batches are later.
        sent = [one._replace(timestamp_ms=one.timestamp_ms and one.timestamp_ms + 1000 * batch) for one in sent]
        client.produce(way.writers, topic, {0: sent}, Producing())
        asked.append(sent[0].timestamp_ms)
    observed["ends"] = [client.list_offsets(way.readers, topic, 0, one) for one in (EARLIEST, LATEST)]
    assert observed["ends"] == [0, 3 * COUNT]
    if asked[0]:
        times = [1, *asked, asked[-1] + 3_600_000]
        observed["times"] = [client.list_offsets(way.readers, topic, 0, one) for one in times]
    if Ability.MAX_TIMESTAMP in client.abilities:
        observed["latest of times"] = [client.list_offsets(way.readers, topic, 0, MAX_TIMESTAMP)]
    return observed


@scenario(Ability.PRODUCE, Ability.CONSUME)
def begin_anywhere(client: Client, way: Way) -> Observation:
    """Start at an offset, and beyond the end, where the reader is reset to the beginning or gets an error."""
    topic = way.topic("begin")
    sent = way.samples(client, COUNT, "begin")
    client.produce(way.writers, topic, {0: sent}, Producing())
    beyond = Consuming(topic, start=BEYOND)
    observed: Observation = {
        "offset": way.seen(take(client, way.readers, Consuming(topic, start=2), COUNT - 2)),
        "reset": way.seen(take(client, way.readers, beyond, COUNT)),
        "error": error_of(lambda: take(client, way.readers, Consuming(topic, start=BEYOND, reset="error"), 1)),
    }
    assert observed["error"]
    return observed


@scenario(Ability.PRODUCE, Ability.CONSUME)
def begin_at_the_end(client: Client, way: Way) -> Observation:
    """Start at the end: no earlier record is read."""
    topic = way.topic("end")
    before, after = way.samples(client, COUNT, "before"), way.samples(client, 1, "after")
    client.produce(way.writers, topic, {0: before}, Producing())
    with Member(client, way.readers, Consuming(topic, start="latest")) as reader:

        def came() -> bool:
            # The reader cannot report that it has found the end: records are sent until one arrives.
            client.produce(way.writers, topic, {0: after}, Producing())
            return bool(reader.received)

        reader.wait(came, "a record from the end")
    return {"values": {one.value for one in reader.received}, "old": min(one.offset for one in reader.received) < COUNT}
