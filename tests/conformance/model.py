"""What the suite asks of a client, and what a client tells: the same words for every library."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, NamedTuple, Protocol

from tests.support.records import Headers, Sample

TIMEOUT_SECONDS = 60.0
BEGINS_ANEW_SECONDS = TIMEOUT_SECONDS / 3
"""Without partitions: a member of kafka-python's that joins before it has heard of its topic may stay so for ever."""
HEARTBEAT_MS = 300
"""Members of groups learn by it that there is a rebalance."""
EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3
"""ListOffsets' own numbers for them."""


class Ability(Enum):
    """What not every client can do; a scenario names those that it needs."""

    PRODUCE = auto()
    """And stays long enough for it: not a program that ends, nor a client that sends before anything was answered."""
    IDEMPOTENCE = auto()
    TRANSACTIONS = auto()
    CONSUME = auto()
    GROUPS = auto()
    KIP_848 = auto()
    """The group protocol `consumer`."""
    LIST_OFFSETS = auto()
    MAX_TIMESTAMP = auto()
    DESCRIBE = auto()
    """Topics."""
    TOPICS = auto()
    """Create and delete them."""
    CONFIGS = auto()
    GROUP_ADMIN = auto()
    """A group's state, offsets and end."""


class ClientError(Exception):
    """An error that the library surfaced, by the name that the library gives it."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What the library told of one record that was sent: an offset (-1 without acknowledgement) or an error."""

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
    """`create` or `append`; empty where the library does not tell."""


class Assigned(NamedTuple):
    """All that a group's member has now, after a rebalance: (topic, partition)."""

    partitions: frozenset[tuple[str, int]]


Event = Received | Assigned | None
"""None: nothing new for a moment."""


@dataclass(frozen=True, slots=True)
class Producing:
    """How records are sent."""

    compression: str = "none"
    acks: str = "all"
    idempotent: bool = False
    max_message_bytes: int = 1_000_000
    """The client's own limit, for one batch."""
    transaction: str = ""
    """A transactional ID, for all records in one transaction."""
    commit: bool = True
    """Else the transaction is aborted."""


@dataclass(frozen=True, slots=True)
class Consuming:
    """What is read: one partition, or as a member of a group, which commits what was taken when it ends."""

    topic: str
    partition: int = 0
    group: str = ""
    start: int | str = "earliest"
    """`earliest`, `latest` or an offset; of a group, where nothing is committed."""
    reset: str = "earliest"
    """`auto.offset.reset`: earliest, latest or error."""
    read_committed: bool = False
    kip_848: bool = False
    count: int = 0
    """How many will be taken, where that is known before; programs commit what they have printed."""


class Client(Protocol):
    """One library, in one version, set up as one kind of client. Every method may raise ClientError."""

    name: str
    abilities: frozenset[Ability]
    compressions: Sequence[str]

    def express(self, wanted: Sequence[Sample]) -> list[Sample]:
        """What this client can say of these records; a timestamp of 0 is the time of sending."""

    def produce(
        self, bootstrap: str, topic: str, records: Mapping[int, Sequence[Sample]], how: Producing
    ) -> dict[int, list[Sent]]:
        """Send records to partitions; what came of each, in the order of the records."""

    def consume(self, bootstrap: str, what: Consuming) -> Iterator[Event]:
        """A generator; closing it lets the client leave."""

    def list_offsets(self, bootstrap: str, topic: str, partition: int, timestamp: int) -> int:
        """The offset of the first record since a timestamp in milliseconds, or of one of the special ones."""

    def create_topic(self, bootstrap: str, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        """With three replicas."""

    def describe_topic(self, bootstrap: str, topic: str) -> list[dict[str, Any]]:
        """For each partition its number as `partition`, and `replicas` and `leader_is_replica`."""

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        """To its end."""

    def describe_configs(self, bootstrap: str, topic: str) -> dict[str, str]:
        """Those that are not the default, and perhaps more."""

    def alter_configs(self, bootstrap: str, topic: str, configs: Mapping[str, str]) -> None:
        """Set some, leave the others."""

    def group_offsets(self, bootstrap: str, group: str, topic: str) -> dict[int, int]:
        """The committed offset of each partition that has one."""

    def delete_group(self, bootstrap: str, group: str) -> None:
        """With its offsets."""


class Base:
    """What adapters share: everything is refused until they can do it."""

    name = ""
    abilities: frozenset[Ability] = frozenset()
    compressions: Sequence[str] = ("none", "gzip", "snappy", "lz4", "zstd")

    def express(self, wanted: Sequence[Sample]) -> list[Sample]:
        return list(wanted)

    def __repr__(self) -> str:
        return self.name


def partitions_of(partitions: Sequence[tuple[int, int, Sequence[int]]]) -> list[dict[str, Any]]:
    """As `describe_topic` answers, of (partition, leader, replicas)."""
    return [
        {"partition": partition, "replicas": len(replicas), "leader_is_replica": leader in replicas}
        for partition, leader, replicas in sorted(partitions)
    ]
