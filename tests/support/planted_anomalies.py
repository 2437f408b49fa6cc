"""Plant one anomaly of each kind into a clean history."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random

from proxy.judge.findings import Anomaly
from proxy.judge.operations import (
    DAMAGED_CLIENT,
    UNKNOWN_OFFSET,
    Ack,
    ClientKind,
    End,
    Ended,
    Fail,
    Log,
    Operation,
    Outcome,
    Poll,
    Send,
)
from tests.support.histories import FIRST_READER, PRODUCERS, TOPIC, VIEWS

FINAL = FIRST_READER + len(VIEWS)
"""The final reader of everything; the next one reads committed records."""
ASSIGN, ASSIGN_COMMITTED = FIRST_READER, FIRST_READER + 1
"""Consumers that are never moved."""
BOUND_US = 120_000_000

Row = tuple[int, int, int]
"""Offset, producer, number."""
Record = tuple[int, int, int, int]
"""Producer, number, partition, offset."""


class NothingToPlantInError(Exception):
    """The history has no record that fits."""


class History:
    """A history that is changed in place."""

    def __init__(self, operations: Sequence[Operation], random: Random) -> None:
        self.operations = [operation.model_copy(deep=True) for operation in operations]
        self.random = random

    def polls(self, reader: int | None = None) -> Iterator[Poll]:
        for operation in self.operations:
            if isinstance(operation, Poll) and reader in (None, operation.client):
                yield operation

    def acked(self, *kinds: ClientKind, committed: bool = True) -> Record:
        """Choose an acknowledged record that retention has left; of a transaction, one that was committed."""
        lows = {one.partition: one.low for one in self.operations if isinstance(one, Log)}
        outcomes = self.transactions()
        found = [
            (operation.client, number, operation.partition, offset)
            for operation in self.operations
            if isinstance(operation, Ack) and PRODUCERS[operation.client] in (kinds or PRODUCERS)
            for number, offset in operation.records
            if offset != UNKNOWN_OFFSET and offset >= lows[operation.partition]
            if outcomes.get((operation.client, number), Outcome.COMMITTED)
            is (Outcome.COMMITTED if committed else Outcome.ABORTED)
        ]
        return self.choose(found)

    def may_be_sent_again(self, producer: int, number: int) -> bool:
        """Return whether an idempotent producer gave others up between the send of a record and its acknowledgement."""
        under_way = False
        for one in self.operations:
            if isinstance(one, Send) and one.client == producer and one.first <= number < one.first + one.count:
                under_way = True
            elif isinstance(one, Ack) and one.client == producer and number in dict(one.records):
                return False
            elif isinstance(one, Fail) and one.client == producer and under_way:
                return PRODUCERS[producer] is ClientKind.IDEMPOTENT
        return False

    def transactions(self) -> dict[tuple[int, int], Outcome]:
        """Return the reported outcome of each record of a transaction, by producer and number."""
        outcomes = {one.transaction: one.outcome for one in self.operations if isinstance(one, Ended)}
        return {
            (one.client, number): outcomes[one.transaction]
            for one in self.operations
            if isinstance(one, Send) and one.transaction >= 0
            for number in range(one.first, one.first + one.count)
        }

    def choose(self, among: Sequence[Record]) -> Record:
        if not among:
            raise NothingToPlantInError
        return self.random.choice(list(among))

    def remove(self, record: Record, *readers: int) -> None:
        """Let these consumers, or all, never get a record."""
        producer, number, _, _ = record
        for poll in self.polls():
            if not readers or poll.client in readers:
                poll.records = [row for row in poll.records if row[1:] != (producer, number)]

    def before_the_end(self, record: Record, reader: int) -> bool:
        """True if the consumer got another record of the partition after this one, and one before it."""
        offsets = [row[0] for poll in self.polls(reader) if poll.partition == record[2] for row in poll.records]
        return bool(offsets) and min(offsets) < record[3] < max(offsets)


def lost_write(history: History) -> None:
    history.remove(history.acked())


def lost_after_it_was_read(history: History) -> None:
    record = history.acked()
    history.remove(record, FINAL, FINAL + 1)


def lost_without_an_offset(history: History) -> None:
    if any(isinstance(one, Log) and one.low > 0 for one in history.operations):
        raise NothingToPlantInError  # retention may have deleted it
    record = history.acked()
    history.remove(record)
    for operation in history.operations:
        if isinstance(operation, Ack) and operation.client == record[0]:
            operation.records = [(n, UNKNOWN_OFFSET if n == record[1] else at) for n, at in operation.records]


def duplicate(history: History) -> None:
    producer, number, partition, _ = history.acked(ClientKind.IDEMPOTENT, ClientKind.TRANSACTIONAL)
    if history.may_be_sent_again(producer, number):
        raise NothingToPlantInError
    _append(history, partition, (producer, number))


def _append(history: History, partition: int, value: tuple[int, int]) -> None:
    """Let the final readers get one more record at the end of a partition."""
    high = max(one.high for one in history.operations if isinstance(one, Log) and one.partition == partition)
    for reader in (FINAL, FINAL + 1):
        *_, last = (poll for poll in history.polls(reader) if poll.partition == partition)
        last.records = [*last.records, (high, *value)]


def offset_with_two_records(history: History) -> None:
    one, other = history.acked(), history.acked()
    if one[2] != other[2] or one[:2] == other[:2]:
        raise NothingToPlantInError
    for poll in history.polls(FINAL):
        poll.records = [(row[0], *other[:2]) if row[1:] == one[:2] else row for row in poll.records]


def acknowledged_elsewhere(history: History) -> None:
    """Let a plain producer's record be at the end of the log only, and not where it was acknowledged."""
    record = history.acked(ClientKind.PLAIN)
    history.remove(record)
    _append(history, record[2], record[:2])
    offset = max(row[0] for poll in history.polls(FINAL) if poll.partition == record[2] for row in poll.records)
    for reader in range(FIRST_READER, FINAL):
        seen = Poll(client=reader, topic=TOPIC, partition=record[2], records=[(offset, *record[:2])])
        at = next(at for at, one in enumerate(history.operations) if isinstance(one, Log))
        seen.at_us = history.operations[at].at_us
        history.operations.insert(at, seen)


def aborted_read(history: History) -> None:
    record = history.acked(ClientKind.TRANSACTIONAL, committed=False)
    for poll in history.polls(FINAL + 1):
        if poll.partition == record[2]:
            poll.records = sorted([*poll.records, (record[3], *record[:2])])


def precommitted_read(history: History) -> None:
    """Let a producer begin to commit only after a consumer got the transaction's records."""
    producer, number, _, _ = history.acked(ClientKind.TRANSACTIONAL)
    transaction = next(
        one.transaction
        for one in history.operations
        if isinstance(one, Send) and one.client == producer and one.first <= number < one.first + one.count
    )
    end, ended = (one for one in history.operations if isinstance(one, End | Ended) and one.transaction == transaction)
    polls = history.polls(ASSIGN_COMMITTED)
    reading = next((poll for poll in polls if any(row[1:] == (producer, number) for row in poll.records)), None)
    if reading is None:
        raise NothingToPlantInError
    rest = [one for one in history.operations if one is not end and one is not ended]
    at = next(at for at, one in enumerate(rest) if one is reading) + 1
    end.at_us = ended.at_us = reading.at_us
    history.operations = [*rest[:at], end, ended, *rest[at:]]


def poll_skip(history: History) -> None:
    record = history.acked()
    if not history.before_the_end(record, ASSIGN):
        raise NothingToPlantInError
    history.remove(record, ASSIGN)


def nonmonotonic_poll(history: History) -> None:
    *_, poll = (poll for poll in history.polls(ASSIGN) if len(poll.records) > 1)
    poll.records = [*poll.records, poll.records[-2]]


def nonmonotonic_send(history: History) -> None:
    """Let two records of one send change places everywhere."""
    producer, number, _, offset = history.acked(ClientKind.IDEMPOTENT, ClientKind.TRANSACTIONAL)
    sends = [one for one in history.operations if isinstance(one, Send) and one.client == producer]
    (send,) = (one for one in sends if one.first <= number < one.first + one.count)
    _, other, _, other_offset = history.acked(PRODUCERS[producer])
    if other == number or not send.first <= other < send.first + send.count:
        raise NothingToPlantInError
    swap = {number: other, other: number}
    places = {number: other_offset, other: offset}
    for operation in history.operations:
        if isinstance(operation, Ack) and operation.client == producer:
            operation.records = [(one, places.get(one, at)) for one, at in operation.records]
        if isinstance(operation, Poll):
            operation.records = [
                (at, client, swap.get(one, one) if client == producer else one) for at, client, one in operation.records
            ]


def unseen(history: History) -> None:
    """Let a consumer never get the last record of a partition."""
    partition = history.random.choice([poll.partition for poll in history.polls(ASSIGN)])
    rows = [row for poll in history.polls(ASSIGN) if poll.partition == partition for row in poll.records]
    offset, producer, number = max(rows)
    lows = [one.low for one in history.operations if isinstance(one, Log) and one.partition == partition]
    acks = [one for one in history.operations if isinstance(one, Ack) and one.client == producer]
    outcome = history.transactions().get((producer, number), Outcome.COMMITTED)
    acked = any(number == each[0] for one in acks for each in one.records)
    if not acked or offset < max(lows) or outcome is not Outcome.COMMITTED:
        raise NothingToPlantInError
    history.remove((producer, number, partition, offset), ASSIGN)


def stuck(history: History) -> None:
    """Let nothing happen for a while, when a producer waits for an answer."""
    answers = [at for at, one in enumerate(history.operations) if isinstance(one, Ack)]
    for operation in history.operations[history.random.choice(answers) :]:
        operation.at_us += BOUND_US + 1


def final_reader_stuck(history: History) -> None:
    reached = [one for one in history.operations if one.op == "reached"]
    history.operations.remove(history.random.choice(reached))


def corrupt(history: History) -> None:
    record = history.acked()
    for poll in history.polls(FINAL):
        poll.records = [(row[0], DAMAGED_CLIENT, 0) if row[1:] == record[:2] else row for row in poll.records]


Plant = Callable[[History], None]
PLANTS: dict[Plant, tuple[Anomaly, set[Anomaly]]] = {
    lost_write: (Anomaly.LOST_WRITE, set()),
    lost_after_it_was_read: (Anomaly.LOST_WRITE, {Anomaly.POLL_SKIP}),
    lost_without_an_offset: (Anomaly.LOST_WRITE, set()),
    duplicate: (Anomaly.DUPLICATE, set()),
    offset_with_two_records: (
        Anomaly.INCONSISTENT_OFFSETS,
        {Anomaly.DUPLICATE, Anomaly.LOST_WRITE, Anomaly.POLL_SKIP},
    ),
    acknowledged_elsewhere: (Anomaly.INCONSISTENT_OFFSETS, {Anomaly.POLL_SKIP}),
    aborted_read: (Anomaly.ABORTED_READ, set()),
    precommitted_read: (Anomaly.PRECOMMITTED_READ, set()),
    poll_skip: (Anomaly.POLL_SKIP, {Anomaly.UNSEEN}),
    nonmonotonic_poll: (Anomaly.NONMONOTONIC_POLL, set()),
    nonmonotonic_send: (Anomaly.NONMONOTONIC_SEND, set()),
    unseen: (Anomaly.UNSEEN, set()),
    stuck: (Anomaly.STUCK, set()),
    final_reader_stuck: (Anomaly.STUCK, set()),
    corrupt: (Anomaly.CORRUPT, {Anomaly.LOST_WRITE}),
}
"""The anomaly that each plant is, and others that it may bring with it."""


def planted(plant: Plant, operations: Sequence[Operation], random: Random, tries: int = 100) -> Sequence[Operation]:
    """Return a copy of a history with an anomaly in it. Raises NothingToPlantInError."""
    history = History(operations, random)
    for _ in range(tries):
        try:
            plant(history)
        except NothingToPlantInError:  # nothing was changed
            continue
        return history.operations
    raise NothingToPlantInError
