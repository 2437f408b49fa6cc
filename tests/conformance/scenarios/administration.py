"""A topic's life, as an Admin client sees it."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.conformance.model import Ability, Client, ClientError
from tests.conformance.scenario import Observation, scenario
from tests.conformance.ways import Way, error_of
from tests.support.waiting import wait_for

PARTITIONS = 3


@scenario(Ability.TOPICS, Ability.DESCRIBE)
def a_topics_life(client: Client, way: Way) -> Observation:
    """Create a topic, describe it, delete it, and recreate it with another number of partitions."""
    topic = way.name_of("life")
    observed: Observation = {}

    def described(partitions: int) -> list[dict[str, Any]]:
        try:
            found = client.describe_topic(way.readers, topic)
        except ClientError:
            return []
        # Brokers learn of it one after the other, and any of them answers: one may still know the previous topic.
        return found if len(found) == partitions else []

    for partitions in (PARTITIONS, 1):
        client.create_topic(way.writers, topic, partitions, {"retention.ms": "7200000"})
        observed[f"described {partitions}"] = wait_for(partial(described, partitions), "a description")
        client.delete_topic(way.writers, topic)
        gone = wait_for(lambda: error_of(lambda: client.describe_topic(way.readers, topic)), "no description any more")
        observed[f"described gone {partitions}"] = gone
    return observed


@scenario(Ability.DESCRIBE, Ability.PRODUCE)
def a_description(client: Client, way: Way) -> Observation:
    """Describe a topic that somebody else has created."""
    return {"described": client.describe_topic(way.readers, way.topic("described", PARTITIONS))}


@scenario(Ability.CONFIGS)
def configs_of_a_topic(client: Client, way: Way) -> Observation:
    """Set configs at creation, then change them one at a time."""
    created = {"retention.ms": "7200000", "segment.bytes": "2000000"}
    altered = {"retention.ms": "3600000", "max.message.bytes": "70000"}
    topic = way.topic("configs", configs=created)

    def wait_for_configs(expected: dict[str, str]) -> None:
        # Brokers learn of them one after the other, and any of them answers.
        wait_for(lambda: expected.items() <= client.describe_configs(way.readers, topic).items(), f"{expected}")

    wait_for_configs(created)
    client.alter_configs(way.writers, topic, altered)
    wait_for_configs(created | altered)
    return {"refused": error_of(lambda: client.alter_configs(way.writers, topic, {"retention.ms": "soon"}))}
