"""How much load, of what kind, against which cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from proxy.judge.progress import STUCK_SECONDS


class Choice(StrEnum):
    """Whether to use something that not every cluster has."""

    auto = "auto"
    """Use it if the cluster has it, and say in the report if not."""
    on = "on"
    """Require it."""
    off = "off"


class VerifyError(Exception):
    """The load cannot run; the text names the part, the likely cause and the next step."""


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """The options of a run."""

    bootstrap: str
    seconds: float = 30.0
    """How long producers send. Reading everything at the end comes on top."""
    seed: int = 0
    """Seed of all random choices. Times are not reproducible, so two runs with one seed are alike, not equal."""
    topics: tuple[str, ...] = ()
    """Existing topics to use, in place of new ones."""
    partitions: int = 3
    """Partitions of new topics."""
    replication_factor: int | None = None
    """Replicas of new topics; three, or one per broker if there are fewer brokers, by default."""
    diskless: Choice = Choice.auto
    """Whether one of the new topics is diskless."""
    transactions: Choice = Choice.auto
    """Whether transactional producers write to the topics."""
    consumer_protocol: Choice = Choice.auto
    """Whether groups of the consumer protocol (KIP-848) read the topics."""
    rate: float = 300.0
    """Records per second of all producers together."""
    record_bytes: int = 128
    """Length of each value."""
    producers: int = 2
    """Producers of each kind."""
    members: int = 2
    """Members of each group."""
    delivery_timeout_seconds: float = 60.0
    """Time after which a producer gives up a record."""
    grace_seconds: float = 60.0
    """Time without progress that consumers get at the end to read what is acknowledged."""
    stuck_seconds: float = STUCK_SECONDS
    """Time without progress after which a client is stuck."""
    max_records: int = 1_000_000
    """Records after which producers stop early; bounds the memory of the judge and the size of the history."""
    client_settings: Mapping[str, str] = field(default_factory=dict)
    """librdkafka's settings of every client, such as those of TLS and SASL."""
