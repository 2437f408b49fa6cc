"""Everything that the judge knows while it reads a history."""

from __future__ import annotations

from dataclasses import dataclass, field

from proxy.judge.columns import Owners, Records, unpacked
from proxy.judge.findings import Anomaly, Finding, Findings
from proxy.judge.operations import NO_TRANSACTION, ClientKind, Isolation, Outcome
from proxy.judge.progress import Lag, Patience

MAX_VIEWS = 60
WHERE_ACKNOWLEDGED = 1 << 62
"""Bit in `Records.views`: a final reader got the record at the offset of its acknowledgement."""


@dataclass(slots=True)
class View:
    """Consumers that read the topics together."""

    name: str
    bit: int
    kind: ClientKind
    isolation: Isolation
    judged: bool = True
    """False if the cluster does not support its kind of consumer."""
    read: int = 0


@dataclass(slots=True)
class Reader:
    """One consumer."""

    number: int
    view: View
    positions: dict[int, int] = field(default_factory=dict)
    """Next offset by index of the partition, since the assignment."""


@dataclass(slots=True)
class PartitionState:
    """One partition."""

    index: int
    topic: str
    number: int
    owners: Owners = field(default_factory=Owners)
    low: int = 0
    """Start of the log at the end of the run."""
    highs: dict[Isolation, int] = field(default_factory=dict)
    lags: dict[str, Lag] = field(default_factory=dict)
    """Lags by view."""
    covered: dict[Isolation, int] = field(default_factory=dict)
    """Offset up to which a final reader has read."""
    reached: set[Isolation] = field(default_factory=set)
    """Isolations with a final reader that has got to the end."""

    def __str__(self) -> str:
        return f"{self.topic}[{self.number}]"


@dataclass(slots=True)
class Transaction:
    """One transaction."""

    committing: bool = False
    """Whether its producer has begun to commit."""
    outcome: Outcome | None = None
    seen: bool = False
    """Whether a `read_committed` view got one of its records."""
    ends: dict[int, int] = field(default_factory=dict)
    """Highest acknowledged offset by index of the partition."""

    @property
    def committed(self) -> bool:
        """Return whether it was committed: its producer knows, or a `read_committed` consumer shows it."""
        if self.outcome is None or self.outcome is Outcome.UNKNOWN:
            return self.committing and self.seen
        return self.outcome is Outcome.COMMITTED

    @property
    def aborted(self) -> bool:
        """Return whether its producer knows that it was aborted."""
        return self.outcome is Outcome.ABORTED


@dataclass(slots=True)
class Gap:
    """Offsets that a consumer did not get between two polls."""

    partition: PartitionState
    reader: Reader
    first: int
    end: int


class State:
    """The state, and the findings so far."""

    def __init__(self) -> None:
        self.findings = Findings()
        self.partitions: list[PartitionState] = []
        self.places: dict[tuple[str, int], PartitionState] = {}
        self.producers: dict[int, Records] = {}
        self.patience: dict[int, Patience] = {}
        """Patience with each producer."""
        self.outstanding: dict[int, int] = {}
        """Records and transactions without an answer, by producer."""
        self.readers: dict[int, Reader] = {}
        self.views: dict[str, View] = {}
        self.transactions: dict[tuple[int, int], Transaction] = {}
        self.gaps: list[Gap] = []
        self.repeated: set[tuple[int, int]] = set()
        """Packed values and further offsets of records, which are judged at the end. A complement (`~offset`) marks an
        offset with two records."""

    def transaction(self, records: Records, client: int, number: int) -> Transaction | None:
        """Return the transaction of a record, or None if it has none."""
        transaction = records.transactions[number]
        return None if transaction == NO_TRANSACTION else self.transactions[client, transaction]

    def visible(self, isolation: Isolation, value: int) -> bool:
        """Return whether a packed value must be visible with this isolation, if it is in the log."""
        client, number = unpacked(value)
        transaction = self.transaction(self.producers[client], client, number)
        return transaction is None or isolation is Isolation.UNCOMMITTED or transaction.committed

    def find(
        self,
        anomaly: Anomaly,
        message: str,
        partition: PartitionState | None = None,
        *,
        offsets: tuple[int, ...] = (),
        values: tuple[int, ...] = (),
        clients: tuple[int, ...] = (),
        lines: tuple[int, ...] = (),
    ) -> None:
        """Add a finding; values are packed."""
        self.findings.add(
            Finding(
                anomaly,
                message,
                partition.topic if partition else "",
                partition.number if partition else -1,
                tuple(sorted(set(offsets))),
                tuple(unpacked(value) for value in dict.fromkeys(values) if value >= 0),
                clients,
                lines,
            )
        )
