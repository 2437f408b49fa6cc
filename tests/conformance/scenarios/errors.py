"""Proxies reject the same things as brokers, with the same errors."""

from __future__ import annotations

from typing import Any

from tests.conformance.member import Member
from tests.conformance.model import Ability, Client, ClientError, Consuming, Producing
from tests.conformance.scenario import Observation, scenario
from tests.conformance.ways import CLASSIC, Way, error_of
from tests.support.records import Sample
from tests.support.waiting import wait_for

SMALL_BYTES, LARGE_BYTES = 100, 80_000
DAY_MS = 86_400_000


@scenario(Ability.PRODUCE, Ability.CONSUME)
def refused_records(client: Client, way: Way) -> Observation:
    """Send records that are too large or from the future; later records are accepted."""
    topic = way.topic("refused", configs={"max.message.bytes": "60000"})
    sent = way.samples(client, 1, "refused")
    timed = bool(sent[0].timestamp_ms)
    future = [one._replace(timestamp_ms=one.timestamp_ms + DAY_MS) for one in sent]
    large = client.express([Sample(b"large", b"x" * LARGE_BYTES, (), 0)])
    observed = {
        "large": client.produce(way.writers, topic, {0: large}, Producing())[0],
        "future": client.produce(way.writers, topic, {0: future}, Producing())[0] if timed else [],
        "after": client.produce(way.writers, topic, {0: sent}, Producing())[0],
    }
    assert all(one.error for one in observed["large"] + observed["future"])
    assert [one.error for one in observed["after"]] == [""]
    return observed


@scenario(Ability.TOPICS)
def refused_topics(client: Client, way: Way) -> Observation:
    """Use an existing name, an invalid name, an unknown config, and a missing topic."""
    taken = way.topic("taken")
    create = lambda name, partitions, **configs: error_of(  # noqa: E731
        lambda: client.create_topic(way.writers, name, partitions, configs)
    )
    observed = {
        "taken": create(taken, 1),
        "no name": create(way.name_of("what is this?"), 1),
        "no partitions": create(way.name_of("none"), 0),
        "no config": create(way.name_of("config"), 1, **{"no.such.config": "1"}),
        "no value": create(way.name_of("value"), 1, **{"retention.ms": "soon"}),
        "no topic": error_of(lambda: client.delete_topic(way.writers, way.name_of("missing"))),
    }
    assert all(observed.values())
    return observed


@scenario(Ability.PRODUCE, Ability.GROUPS, Ability.GROUP_ADMIN)
def refused_ends_of_groups(client: Client, way: Way) -> Observation:
    """Delete a group with members, and a missing one; an empty group can be deleted."""
    topic, group = way.topic("ends"), way.name_of("enders")
    with Member(client, way.readers, Consuming(topic, group=group)) as member:
        member.wait(lambda: member.assigned, "an assignment")
        client.produce(way.writers, topic, {0: way.samples(client, 1, "ends")}, Producing())
        member.wait(lambda: member.received, "a record")
        with_members = error_of(lambda: client.delete_group(way.writers, group))
    observed = {
        "with members": with_members,
        "empty": error_of(lambda: client.delete_group(way.writers, group)),
        "gone": error_of(lambda: client.delete_group(way.writers, group)),
    }
    assert [bool(error) for error in observed.values()] == [True, False, True]
    return observed


@scenario(Ability.PRODUCE, Ability.CONSUME, kinds=(CLASSIC,))
def created_by_sending(client: Client, way: Way) -> Observation:
    """Send to a missing topic: brokers create it, which is their default."""
    topic = way.name_of("created")
    sent = way.samples(client, 2, "created")
    sent_records = client.produce(way.writers, topic, {0: sent}, Producing())[0]
    assert [one.error for one in sent_records] == ["", ""]
    observed: Observation = {"sent": sent_records}

    def described() -> list[dict[str, Any]]:
        try:
            return client.describe_topic(way.readers, topic)
        except ClientError:  # brokers learn of it one after the other, and any of them answers
            return []

    if Ability.DESCRIBE in client.abilities:
        observed["described"] = wait_for(described, "a description")
    return observed
