"""Anomalies, named as Jepsen's Kafka workload names them, and the verdict on a history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

MAX_FINDINGS_PER_KIND = 20
"""Findings of a kind that are kept with their evidence. The others are counted."""


class Anomaly(StrEnum):
    """Kinds of findings."""

    LOST_WRITE = "lost-write"
    """An acknowledged record that is not in the log at the end, and that retention has not deleted."""
    DUPLICATE = "duplicate"
    """A record of an idempotent or transactional producer at two places."""
    INCONSISTENT_OFFSETS = "inconsistent-offsets"
    """An offset with two records, or a record that was acknowledged at an offset where it is not."""
    ABORTED_READ = "G1a"
    """A record of an aborted transaction that a `read_committed` consumer got."""
    PRECOMMITTED_READ = "precommitted-read"
    """A record that a `read_committed` consumer got before its producer began to commit."""
    POLL_SKIP = "poll-skip"
    """A consumer got records before and after a record, and not the record itself."""
    NONMONOTONIC_POLL = "nonmonotonic-poll"
    """A consumer got an offset that is not above the one before, without a new assignment."""
    NONMONOTONIC_SEND = "nonmonotonic-send"
    """Two records of an idempotent or transactional producer are in the log in another order than they were sent."""
    UNSEEN = "unseen"
    """An acknowledged record that is in the log, and that some view never got."""
    STUCK = "stuck"
    """A client that had something to do made no progress for too long."""
    CORRUPT = "corrupt"
    """A record whose bytes, or whose partition, are not the ones that were sent. Jepsen has no name for it."""


class Value(NamedTuple):
    """Identity of a record."""

    client: int
    number: int

    def __str__(self) -> str:
        return f"{self.client}:{self.number}"


@dataclass(frozen=True, slots=True)
class Finding:
    """One anomaly with its evidence."""

    anomaly: Anomaly
    message: str
    topic: str = ""
    partition: int = -1
    offsets: tuple[int, ...] = ()
    values: tuple[Value, ...] = ()
    clients: tuple[int, ...] = ()
    lines: tuple[int, ...] = ()
    """Lines of the history that show it, in addition to those that concern the values and offsets."""
    operations: tuple[Mapping[str, Any], ...] = ()
    """The operations that show it, each with its `line` in the history."""

    def as_json(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        return {
            "anomaly": str(self.anomaly),
            "message": self.message,
            "topic": self.topic,
            "partition": self.partition,
            "offsets": list(self.offsets),
            "values": [str(value) for value in self.values],
            "clients": list(self.clients),
            "operations": [dict(operation) for operation in self.operations],
        }


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of a run."""

    sent: int = 0
    acknowledged: int = 0
    failed: int = 0
    """Records whose producers gave up. They may be in the log or not."""
    failed_but_read: int = 0
    repeated: int = 0
    """Records of plain producers that are in the log more than once, which Kafka allows."""
    deleted: int = 0
    """Acknowledged records below the start of the log at the end."""
    committed: int = 0
    aborted: int = 0
    unknown: int = 0
    """Transactions by outcome."""
    foreign: int = 0
    """Records of others that consumers got."""
    read: Mapping[str, int] = field(default_factory=dict)
    """Records by view; members of a group get some records twice."""
    errors: Mapping[str, int] = field(default_factory=dict)
    """Errors that clients reported, by kind of client and error."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement of a history."""

    complete: bool
    """Whether the run ended in order. Losses are found in complete histories only."""
    totals: Mapping[Anomaly, int]
    """Number of all findings by kind; kinds without any are left out."""
    findings: Sequence[Finding]
    """Findings with evidence, at most MAX_FINDINGS_PER_KIND of a kind."""
    counts: Counts
    notes: Sequence[str] = ()

    @property
    def ok(self) -> bool:
        """Return whether the history is complete and has no anomaly."""
        return self.complete and not self.totals


class Findings:
    """Findings as they are made, at most MAX_FINDINGS_PER_KIND of a kind."""

    def __init__(self) -> None:
        self.totals: dict[Anomaly, int] = {}
        self.kept: list[Finding] = []

    def add(self, finding: Finding) -> None:
        """Count a finding, and keep it unless there are too many of its kind."""
        self.totals[finding.anomaly] = count = self.totals.get(finding.anomaly, 0) + 1
        if count <= MAX_FINDINGS_PER_KIND:
            self.kept.append(finding)
