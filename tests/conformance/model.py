"""Abilities and observations of a client, in the same words for every library."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, NamedTuple, Protocol

from tests.support.records import Headers, Sample

TIMEOUT_SECONDS = 60.0
RESTART_SECONDS = TIMEOUT_SECONDS / 3
"""Seconds without partitions after which a member restarts: a member of kafka-python's that joins before it knows its
topic may stay without partitions forever."""
HEARTBEAT_MS = 300
"""Heartbeat interval, because members of groups learn of a rebalance by it."""
EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3
"""ListOffsets' own numbers for these positions."""


class Ability(Enum):
    """Abilities that not every client has; a scenario names those that it needs."""

    PRODUCE = auto()
    """The client also stays long enough: it is not a program that ends, nor does it send before any answer."""
    IDEMPOTENCE = auto()
    TRANSACTIONS = auto()
    CONSUME = auto()
    GROUPS = auto()
    KIP_848 = auto()
    """The group protocol `consumer`."""
    LIST_OFFSETS = auto()
    MAX_TIMESTAMP = auto()
    DESCRIBE = auto()
    """Describe topics."""
    TOPICS = auto()
    """Create and delete topics."""
    CONFIGS = auto()
    GROUP_ADMIN = auto()
    """Describe a group's state and offsets, and delete the group."""


class ClientError(Exception):
    """An error that the library surfaced, by the library's name for it."""


@dataclass(frozen=True, slots=True)
class Sent:
    """The library's result for one sent record: an offset (-1 without acknowledgement) or an error."""

    partition: int
    offset: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class Received:
    """A record as the library gave it to the application."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    timestamp_type: str
    """`create` or `append`; empty if the library does not report it."""


class Assigned(NamedTuple):
    """All partitions that a group's member has after a rebalance: (topic, partition)."""

    partitions: frozenset[tuple[str, int]]


Event = Received | Assigned | None
"""None means that nothing new came for a moment."""


@dataclass(frozen=True, slots=True)
class Producing:
    """Options for sending records."""

    compression: str = "none"
    acks: str = "all"
    idempotent: bool = False
    max_message_bytes: int = 1_000_000
    """The client's own limit for one batch."""
    transaction: str = ""
    """Transactional ID that covers all records in one transaction."""
    commit: bool = True
    """False to abort the transaction."""


@dataclass(frozen=True, slots=True)
class Consuming:
    """Partitions to read: one partition, or as a member of a group that commits the taken records when it ends."""

    topic: str
    partition: int = 0
    group: str = ""
    start: int | str = "earliest"
    """`earliest`, `latest` or an offset; for a group, it applies if nothing is committed."""
    reset: str = "earliest"
    """`auto.offset.reset`: earliest, latest or error."""
    read_committed: bool = False
    kip_848: bool = False
    count: int = 0
    """Number of records to take, if known in advance; programs commit all that they have printed."""


class Client(Protocol):
    """One library, in one version, configured as one kind of client. Every method may raise ClientError."""

    name: str
    abilities: frozenset[Ability]
    compressions: Sequence[str]

    def express(self, wanted: Sequence[Sample]) -> list[Sample]:
        """Return the records in the form that this client can send; a timestamp of 0 is the time of sending."""

    def produce(
        self, bootstrap: str, topic: str, records: Mapping[int, Sequence[Sample]], how: Producing
    ) -> dict[int, list[Sent]]:
        """Send records to partitions; return the result of each, in the order of the records."""

    def consume(self, bootstrap: str, what: Consuming) -> Iterator[Event]:
        """Return a generator; closing it lets the client leave."""

    def list_offsets(self, bootstrap: str, topic: str, partition: int, timestamp: int) -> int:
        """Return the offset of the first record since a timestamp in milliseconds, or of a special timestamp."""

    def create_topic(self, bootstrap: str, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        """Create a topic with three replicas."""

    def describe_topic(self, bootstrap: str, topic: str) -> list[dict[str, Any]]:
        """Return for each partition its number as `partition`, and `replicas` and `leader_is_replica`."""

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        """Delete a topic, and wait for the end."""

    def describe_configs(self, bootstrap: str, topic: str) -> dict[str, str]:
        """Return the configs that are not the default, and perhaps more."""

    def alter_configs(self, bootstrap: str, topic: str, configs: Mapping[str, str]) -> None:
        """Set some configs, and leave the others as they are."""

    def group_offsets(self, bootstrap: str, group: str, topic: str) -> dict[int, int]:
        """Return the committed offset of each partition that has one."""

    def delete_group(self, bootstrap: str, group: str) -> None:
        """Delete a group with its offsets."""


class Base:
    """Common base of the adapters: every ability is refused until an adapter has it."""

    name = ""
    abilities: frozenset[Ability] = frozenset()
    compressions: Sequence[str] = ("none", "gzip", "snappy", "lz4", "zstd")

    def express(self, wanted: Sequence[Sample]) -> list[Sample]:
        return list(wanted)

    def __repr__(self) -> str:
        return self.name


def partitions_of(partitions: Sequence[tuple[int, int, Sequence[int]]]) -> list[dict[str, Any]]:
    """Build the answer of `describe_topic` from (partition, leader, replicas)."""
    return [
        {"partition": partition, "replicas": len(replicas), "leader_is_replica": leader in replicas}
        for partition, leader, replicas in sorted(partitions)
    ]
