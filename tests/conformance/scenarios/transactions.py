"""Transactions that commit and abort."""

from __future__ import annotations

from tests.conformance.model import LATEST, Ability, Client, Consuming, Producing
from tests.conformance.scenario import Observation, scenario
from tests.conformance.ways import Way, take
from tests.support.waiting import wait_for

PARTITIONS = 2


@scenario(Ability.TRANSACTIONS, Ability.CONSUME, Ability.LIST_OFFSETS)
def transactions(client: Client, way: Way) -> Observation:
    """Read with both isolation levels: only `read_uncommitted` sees aborted records."""
    topic, transactional_id = way.topic("transactions", PARTITIONS), way.name_of("writer")
    counts = {"first": 4, "aborted": 3, "last": 2}
    sent_records = {}
    for label, count in counts.items():
        sent = {partition: way.samples(client, count, f"{label}-{partition}") for partition in range(PARTITIONS)}
        how = Producing(transaction=transactional_id, commit=label != "aborted")
        sent_records[label] = client.produce(way.writers, topic, sent, how)
    markers = len(counts)
    end = sum(counts.values()) + markers
    # EndTxn is answered before the last marker is written.
    wait_for(lambda: client.list_offsets(way.readers, topic, 0, LATEST) == end, "the last marker")
    committed, everything = Consuming(topic, read_committed=True), Consuming(topic)
    observed = {
        "sent": sent_records,
        "committed": way.seen(take(client, way.readers, committed, counts["first"] + counts["last"])),
        "everything": way.seen(take(client, way.readers, everything, sum(counts.values()))),
    }
    assert [one.offset for one in observed["committed"]] == [0, 1, 2, 3, 9, 10]
    return observed
