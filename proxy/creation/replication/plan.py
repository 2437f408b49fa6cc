"""The plan for a topic, or for new partitions, while brokers are missing (KIP-409); pure computation.

Each partition gets the live ones of its replicas, at least min(`min.insync.replicas`, replicas), so that producers can
use it whatever their `acks`. All partitions of a topic get the same number of replicas: brokers reject it otherwise.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple
from zlib import crc32

from proxy.creation.replication.placement import ReplicaList, place
from proxy.topics.topic_configs import MIN_INSYNC_REPLICAS

DEFAULT_REPLICATION_FACTOR = "default.replication.factor"
NUM_PARTITIONS = "num.partitions"
BROKER_CONFIGS = (DEFAULT_REPLICATION_FACTOR, MIN_INSYNC_REPLICAS, NUM_PARTITIONS)
"""Configs that a topic may leave to the brokers."""
MAX_PARTITIONS = 10_000
"""Maximum number of partitions of one topic; Kafka's controller creates no more in one request."""
_DEFAULT = -1


class Plan(NamedTuple):
    """How a topic, or some partitions, are made, and what they lack then."""

    replicas: tuple[ReplicaList, ...]
    """Replicas of each partition, the leader first; all live."""
    wanted_replicas: int
    """How many each is to have."""
    assignment: tuple[ReplicaList, ...] = ()
    """Replicas as the client named them, if it did."""
    kept: Mapping[int, ReplicaList] = {}
    """Replicas to reduce existing partitions to before: see `plan_partitions`. Only partitions that change."""

    @property
    def made_replicas(self) -> int:
        """Replicas that each partition is made with."""
        return len(self.replicas[0])


def plan_topic(
    topic: Any, racks: Mapping[int, str | None], defaults: Mapping[str, str | None], *, listened: Collection[int]
) -> Plan | None:
    """For a `CreatableTopic` that the brokers refuse; None where their refusal stands.

    `racks`: of the live brokers, by node ID. `defaults`: the brokers' `BROKER_CONFIGS`, those that are known.
    `listened`: node IDs that brokers may join with. A topic that is to have more replicas than that can't ever have
    them: mostly a typing error.
    """
    possible = racks.keys() | set(listened)
    configs = {str(config.name): config.value for config in topic.configs}
    least = _number(configs.get(MIN_INSYNC_REPLICAS) or defaults.get(MIN_INSYNC_REPLICAS))
    if topic.assignments:
        by_index = {int(one.partition_index): tuple(map(int, one.broker_ids)) for one in topic.assignments}
        asked = [replicas for _, replicas in sorted(by_index.items())]
        if sorted(by_index) != list(range(len(topic.assignments))) or not possible >= set().union(*asked):
            return None
        replicas = _alive(asked, racks, least)
        return None if replicas is None else Plan(replicas, len(asked[0]), tuple(asked))
    wanted = int(topic.replication_factor)
    if wanted == _DEFAULT:
        wanted = _number(defaults.get(DEFAULT_REPLICATION_FACTOR))
    partitions = int(topic.num_partitions)
    if partitions == _DEFAULT:
        partitions = _number(defaults.get(NUM_PARTITIONS))
    enough = least > 0 and min(least, wanted) <= len(racks) < wanted
    if not enough or wanted > len(possible) or not racks or not 0 < partitions <= MAX_PARTITIONS:
        return None
    placed = place([()] * partitions, len(racks), racks, start=crc32(str(topic.name).encode()))
    return Plan(tuple(placed), wanted)


def plan_partitions(
    name: str,
    existing: Sequence[ReplicaList],
    count: int,
    asked: Sequence[ReplicaList] | None,
    *,
    wanted: int,
    racks: Mapping[int, str | None],
    registered: Collection[int],
    listened: Collection[int],
    least: int,
) -> Plan | None:
    """For new partitions of a topic that the brokers refuse; None where their refusal stands.

    They give new partitions as many replicas as others of the topic have, also such of brokers that are registered no
    more, and take no other number. Which partition they look at, they don't say. So where too few brokers are
    registered, all have to let go of the replicas that nobody holds: they get them back with the new ones.

    `existing`: the partitions that are there. `count`: partitions in all. `asked`: of the new ones, where the client
    says it. `wanted`: replicas that the topic's partitions are to have. `registered`: also those that do not live.
    `listened`: node IDs that brokers may join with. `least`: its `min.insync.replicas`.
    """
    added = count - len(existing)
    if not existing or not 0 < added <= MAX_PARTITIONS or len(existing) > MAX_PARTITIONS or least <= 0:
        return None
    if asked is not None and (len(asked) != added or any(len(one) != wanted for one in asked)):
        return None
    if asked is not None and not {*racks, *registered, *listened} >= set().union(*asked):
        return None
    left = [tuple(node for node in replicas if node in registered) for replicas in existing]
    kept = {index: some for index, some in enumerate(left) if some != existing[index]}
    for replicas, letting_go in ((existing, {}), (left, kept)):
        made = len(replicas[0])
        if any(len(one) != made for one in replicas) or not min(least, wanted) <= made < wanted or made > len(racks):
            continue
        if asked is not None and (alive := _alive(asked, racks, made, exactly=made)) is not None:
            return Plan(alive, wanted, tuple(asked), letting_go)
        if asked is None and letting_go:
            placed = place([*replicas, *[()] * added], made, racks, start=crc32(name.encode()))
            return Plan(tuple(placed[len(existing) :]), wanted, (), letting_go)
    return None


def _alive(
    asked: Sequence[ReplicaList], racks: Mapping[int, str | None], least: int, *, exactly: int | None = None
) -> tuple[ReplicaList, ...] | None:
    """The live ones of the replicas, as many for each partition; None where they are too few, or none is missing."""
    wanted = len(asked[0])
    if any(len(one) != wanted or len(set(one)) != wanted for one in asked):
        return None
    alive = [tuple(node for node in one if node in racks) for one in asked]
    made = min(map(len, alive)) if exactly is None else exactly
    if least <= 0 or not max(1, min(least, wanted)) <= made < wanted or min(map(len, alive)) < made:
        return None
    return tuple(one[:made] for one in alive)


def _number(value: str | None) -> int:
    """0 where it is not known, or none: the brokers refuse what is none."""
    try:
        return int(value or 0)
    except ValueError:
        return 0
