"""Groups: who reads which records, and where reading continues."""

from __future__ import annotations

from tests.conformance.member import Member
from tests.conformance.model import LATEST, Ability, Client, Consuming, Producing
from tests.conformance.scenario import Observation, scenario
from tests.conformance.ways import Way, take

COUNT = 12
FIRST = 7
PARTITIONS = 4


@scenario(Ability.PRODUCE, Ability.GROUPS)
def group_goes_on(client: Client, way: Way) -> Observation:
    """Start a member after another one has left: it begins at the committed offset."""
    return _goes_on(client, way, kip_848=False)


@scenario(Ability.PRODUCE, Ability.GROUPS, Ability.KIP_848)
def kip_848_group_goes_on(client: Client, way: Way) -> Observation:
    """Do the same with the newer protocol."""
    return _goes_on(client, way, kip_848=True)


def _goes_on(client: Client, way: Way, kip_848: bool) -> Observation:
    topic, group = way.topic(f"group-{kip_848}"), way.name_of(f"readers-{kip_848}")
    sent = way.samples(client, COUNT, "group")
    client.produce(way.writers, topic, {0: sent}, Producing())
    what = Consuming(topic, group=group, kip_848=kip_848)
    observed: Observation = {"first": way.seen(take(client, way.readers, what, FIRST))}
    if Ability.GROUP_ADMIN in client.abilities:
        committed = client.group_offsets(way.writers, group, topic)
        observed["committed"] = committed
        observed["lag"] = client.list_offsets(way.writers, topic, 0, LATEST) - committed[0]
    observed["rest"] = way.seen(take(client, way.writers, what, COUNT - FIRST))
    assert [one.offset for one in observed["first"] + observed["rest"]] == list(range(COUNT))
    return observed


@scenario(Ability.PRODUCE, Ability.GROUPS)
def group_shares_partitions(client: Client, way: Way) -> Observation:
    """Let a second member take over half of the partitions; it gives them back when it leaves."""
    topic, group = way.topic("shared", PARTITIONS), way.name_of("sharers")
    what = Consuming(topic, group=group)
    sent = {partition: way.samples(client, 3, f"share-{partition}") for partition in range(PARTITIONS)}
    count = sum(len(samples) for samples in sent.values())
    with Member(client, way.writers, what) as one:
        one.wait(lambda: len(one.assigned) == PARTITIONS, "all partitions are the first member's")
        with Member(client, way.readers, what) as other:
            one.wait(lambda: len(one.assigned) == len(other.assigned) == PARTITIONS // 2, "both have half of them")
            assert not one.assigned & other.assigned
            client.produce(way.writers, topic, sent, Producing())
            one.wait(lambda: len(one.received) + len(other.received) >= count, "all records")
            halves = sorted(len(member.received) for member in (one, other))
            assert sum(halves) == count
        one.wait(lambda: len(one.assigned) == PARTITIONS, "all partitions are the first member's again")
        client.produce(way.writers, topic, sent, Producing())
        one.wait(lambda: len({*one.received, *other.received}) == 2 * count, "all records again")
    # Records whose offsets a leaving member could not commit are read twice, at the brokers too.
    return {"halves": halves, "read": way.seen({*one.received, *other.received})}
