"""The operations of a history, one JSON object a line.

A line is written before a client begins something (`client`, `send`, `begin`, `end`) and after something is known (all
others). So the order of the lines is an order in real time: if A completed before B began, A's line comes first.

A record's *value* is its producer's client number and its own number. No two records of a run have the same value.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, Field, TypeAdapter

FORMAT = 1
UNKNOWN_OFFSET = -1
FOREIGN_CLIENT = -1
"""Client number of a record that is not of this run."""
DAMAGED_CLIENT = -2
"""Client number of a record whose bytes are not the ones that were sent."""
NO_TRANSACTION = -1

Number = Annotated[int, Field(ge=0, lt=1 << 40)]
Partition = Annotated[int, Field(ge=0, lt=1 << 31)]
Offset = Annotated[int, Field(ge=0, lt=1 << 62)]


class ClientKind(StrEnum):
    """Kinds of producers and consumers."""

    PLAIN = "plain"
    IDEMPOTENT = "idempotent"
    TRANSACTIONAL = "transactional"
    ASSIGN = "assign"
    CLASSIC = "classic"
    """Member of a group of the classic protocol."""
    CONSUMER = "consumer"
    """Member of a group of the consumer protocol (KIP-848)."""
    FINAL = "final"
    """Reader of everything, after all producers have ended."""


class Isolation(StrEnum):
    """Kafka's isolation levels."""

    UNCOMMITTED = "read_uncommitted"
    COMMITTED = "read_committed"


class Outcome(StrEnum):
    """The outcome of a transaction, as far as its producer knows."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class _Operation(BaseModel):
    at_us: int = 0
    """Microseconds since the start of the run, when the line was written."""


class Run(_Operation):
    """The first line."""

    op: Literal["run"] = "run"
    format: Literal[1] = 1
    run: str
    """Name of the run, which is in every record."""
    seed: int = 0
    started: str = ""
    """Time of the start, ISO 8601 in UTC."""
    bootstrap: str = ""
    topics: dict[str, Partition]
    """Number of partitions by topic. Every consumer reads all of them."""


class Client(_Operation):
    """A client that starts. A client that replaces another one has a number of its own."""

    op: Literal["client"] = "client"
    client: Annotated[int, Field(ge=0, lt=1 << 22)]
    kind: ClientKind
    isolation: Isolation = Isolation.UNCOMMITTED
    """Isolation of a consumer."""
    view: str = ""
    """Name that consumers share if they read the topics together, as members of a group do. Empty for producers."""


class Send(_Operation):
    """Records that a producer sends to one partition in this order: the numbers from `first` on."""

    op: Literal["send"] = "send"
    client: int
    topic: str
    partition: Partition
    first: Number
    count: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    transaction: int = NO_TRANSACTION


class Ack(_Operation):
    """Records that were acknowledged: pairs of number and offset, which is -1 if the client did not get it."""

    op: Literal["ack"] = "ack"
    client: int
    topic: str
    partition: Partition
    records: list[tuple[Number, Annotated[int, Field(ge=-1, lt=1 << 62)]]]


class Fail(_Operation):
    """Records that a producer has given up. They may be in the log or not."""

    op: Literal["fail"] = "fail"
    client: int
    numbers: list[Number]
    error: str = ""


class Begin(_Operation):
    """A producer begins a transaction, whose number no other transaction of this client has."""

    op: Literal["begin"] = "begin"
    client: int
    transaction: Number


class End(_Operation):
    """A producer is about to commit a transaction, or to abort it."""

    op: Literal["end"] = "end"
    client: int
    transaction: Number
    commit: bool


class Ended(_Operation):
    """The end of a transaction is known."""

    op: Literal["ended"] = "ended"
    client: int
    transaction: Number
    outcome: Outcome
    error: str = ""


class Assign(_Operation):
    """Partitions that a consumer begins to read, at the start of the log or where its group has committed."""

    op: Literal["assign"] = "assign"
    client: int
    topic: str
    partitions: list[Partition]


class Poll(_Operation):
    """Records that a consumer got from one partition, in its order: offset, producer's client number, number."""

    op: Literal["poll"] = "poll"
    client: int
    topic: str
    partition: Partition
    records: list[tuple[Offset, int, Number]]


class Log(_Operation):
    """Start and end of a partition's log, after all producers have ended. The end is the last stable offset for
    `read_committed`."""

    op: Literal["log"] = "log"
    topic: str
    partition: Partition
    isolation: Isolation = Isolation.UNCOMMITTED
    low: Offset
    high: Offset


class Reached(_Operation):
    """A final reader has read a partition to the end of its log."""

    op: Literal["reached"] = "reached"
    client: int
    topic: str
    partition: Partition


class Close(_Operation):
    """A client ended in order."""

    op: Literal["close"] = "close"
    client: int


class Without(_Operation):
    """A view that the cluster does not support, and that is not judged."""

    op: Literal["without"] = "without"
    view: str
    reason: str


class Error(_Operation):
    """An error that a client reported. It is no anomaly by itself."""

    op: Literal["error"] = "error"
    client: int
    error: str


class Note(_Operation):
    """A fact about the run that its report repeats."""

    op: Literal["note"] = "note"
    text: str


class Done(_Operation):
    """The last line: every client has ended in order."""

    op: Literal["done"] = "done"


Operation = (
    Run
    | Client
    | Send
    | Ack
    | Fail
    | Begin
    | End
    | Ended
    | Assign
    | Poll
    | Log
    | Reached
    | Close
    | Without
    | Error
    | Note
    | Done
)
OPERATION: TypeAdapter[Operation] = TypeAdapter(Annotated[Operation, Field(discriminator="op")])
"""Parser of a line."""
