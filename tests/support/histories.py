"""Histories of a simulated cluster without anomalies, for tests that plant some."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from proxy.judge.operations import (
    UNKNOWN_OFFSET,
    Ack,
    Assign,
    Begin,
    Client,
    ClientKind,
    Close,
    Done,
    End,
    Ended,
    Fail,
    Isolation,
    Log,
    Operation,
    Outcome,
    Poll,
    Reached,
    Run,
    Send,
)

TOPIC, PARTITIONS = "t", 2
PRODUCERS = (ClientKind.PLAIN, ClientKind.IDEMPOTENT, ClientKind.TRANSACTIONAL)
FIRST_READER = 10
VIEWS = tuple(
    (kind, isolation)
    for kind in (ClientKind.ASSIGN, ClientKind.CLASSIC, ClientKind.CONSUMER)
    for isolation in Isolation
)
MAX_STEP_US = 50_000


@dataclass
class Entry:
    """A record in the log; a marker has no producer."""

    producer: int = -1
    number: int = -1
    transaction: int = -1


@dataclass
class Simulation:
    """One run; producers are clients 0 to 2, consumers come after FIRST_READER."""

    random: Random
    operations: list[Operation] = field(default_factory=list)
    logs: list[list[Entry]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])
    lows: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    sent: dict[int, int] = field(default_factory=dict)
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    """Outcomes of ended transactions in the log, by number."""
    open: int = -1
    transactions: int = 0
    unanswered: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Producer, partition, number, offset (or unknown) of sends without an answer."""
    positions: dict[tuple[int, int], int] = field(default_factory=dict)
    at_us: int = 0

    def write(self, operation: Operation) -> None:
        self.at_us += self.random.randrange(1, MAX_STEP_US)
        operation.at_us = self.at_us
        self.operations.append(operation)

    def run(self, steps: int) -> list[Operation]:
        self.write(Run(run="simulated", topics={TOPIC: PARTITIONS}))
        for number, kind in enumerate(PRODUCERS):
            self.write(Client(client=number, kind=kind))
            self.sent[number] = 0
        for number, (kind, isolation) in enumerate(VIEWS, FIRST_READER):
            self.write(Client(client=number, kind=kind, isolation=isolation, view=f"{kind}/{isolation}"))
            self.assign(number, 0)
        self.transact()
        for producer in range(len(PRODUCERS)):
            self.send_to(producer, 0, 20, stored=True)  # enough for an acknowledgement of each
        self.transact()
        for _ in range(steps):
            self.random.choice((self.send, self.send, self.answer, self.poll, self.poll, self.transact, self.move))()
        self.end()
        return self.operations

    def send(self) -> None:
        producer, partition = self.random.choice((0, 1, 2)), self.random.randrange(PARTITIONS)
        if producer != 2 or self.open >= 0:
            self.send_to(producer, partition, self.random.randint(1, 5), self.random.random() < 0.95)

    def send_to(self, producer: int, partition: int, count: int, stored: bool) -> None:
        transaction = self.open if producer == 2 else -1
        first, self.sent[producer] = self.sent[producer], self.sent[producer] + count
        self.write(
            Send(client=producer, topic=TOPIC, partition=partition, first=first, count=count, transaction=transaction)
        )
        log = self.logs[partition]
        for number in range(first, first + count):
            self.unanswered.append((producer, partition, number, len(log) if stored else UNKNOWN_OFFSET))
            if stored:
                log.append(Entry(producer, number, transaction))
                if producer == 0 and self.random.random() < 0.05:
                    log.append(Entry(producer, number))  # a plain producer's retry

    def answer(self, everything: bool = False) -> None:
        taken = [one for one in self.unanswered if everything or self.random.random() < 0.7]
        self.unanswered = [one for one in self.unanswered if one not in taken]
        for producer, partition, number, offset in taken:
            if offset == UNKNOWN_OFFSET or self.random.random() < 0.05:
                self.write(Fail(client=producer, numbers=[number], error="_MSG_TIMED_OUT"))
            else:
                known = offset if self.random.random() < 0.95 else UNKNOWN_OFFSET
                self.write(Ack(client=producer, topic=TOPIC, partition=partition, records=[(number, known)]))

    def transact(self) -> None:
        if self.open < 0:
            self.open = self.transactions
            self.transactions += 1
            self.write(Begin(client=2, transaction=self.open))
            return
        self.answer(everything=True)
        commit = self.random.random() < 0.6
        self.write(End(client=2, transaction=self.open, commit=commit))
        outcome = Outcome.COMMITTED if commit else Outcome.ABORTED
        self.outcomes[self.open] = outcome
        for log in self.logs:
            if any(entry.transaction == self.open for entry in log):
                log.append(Entry())
        reported = outcome if self.random.random() < 0.9 else Outcome.UNKNOWN
        self.write(Ended(client=2, transaction=self.open, outcome=reported))
        self.open = -1

    def assign(self, reader: int, back: int) -> None:
        for partition in range(PARTITIONS):
            self.positions[reader, partition] = max(
                self.positions.get((reader, partition), 0) - back, self.lows[partition]
            )
        self.write(Assign(client=reader, topic=TOPIC, partitions=list(range(PARTITIONS))))

    def move(self) -> None:
        """Let a group's member start again where its group has committed."""
        if self.random.random() < 0.3:
            self.assign(FIRST_READER + self.random.randrange(2, len(VIEWS)), self.random.randrange(4))

    def poll(self) -> None:
        reader, partition = FIRST_READER + self.random.randrange(len(VIEWS)), self.random.randrange(PARTITIONS)
        self.take(reader, VIEWS[reader - FIRST_READER][1], partition, self.random.randint(1, 10))

    def stable(self, partition: int, isolation: Isolation) -> int:
        log = self.logs[partition]
        if isolation is Isolation.UNCOMMITTED:
            return len(log)
        unended = (at for at, one in enumerate(log) if one.transaction >= 0 and one.transaction not in self.outcomes)
        return next(unended, len(log))

    def take(self, reader: int, isolation: Isolation, partition: int, most: int) -> None:
        position = self.positions[reader, partition]
        rows: list[tuple[int, int, int]] = []
        end = self.stable(partition, isolation)
        while position < end and len(rows) < most:
            entry = self.logs[partition][position]
            aborted = self.outcomes.get(entry.transaction) is Outcome.ABORTED and isolation is Isolation.COMMITTED
            if entry.producer >= 0 and not aborted:
                rows.append((position, entry.producer, entry.number))
            position += 1
        self.positions[reader, partition] = position
        if rows:
            self.write(Poll(client=reader, topic=TOPIC, partition=partition, records=rows))

    def end(self) -> None:
        retention = self.random.random() < 0.3
        if self.open >= 0:
            self.transact()
        self.answer(everything=True)
        for producer in range(len(PRODUCERS)):
            self.write(Close(client=producer))
        for partition in range(PARTITIONS):
            for reader, (_, isolation) in enumerate(VIEWS, FIRST_READER):
                self.take(reader, isolation, partition, 1 << 30)
            self.lows[partition] = self.random.choice((0, len(self.logs[partition]) // 3)) if retention else 0
        for number, isolation in enumerate(Isolation, FIRST_READER + len(VIEWS)):
            self.write(Client(client=number, kind=ClientKind.FINAL, isolation=isolation, view=f"final/{isolation}"))
            self.assign(number, 0)
            for partition in range(PARTITIONS):
                low, high = self.lows[partition], self.stable(partition, isolation)
                self.write(Log(topic=TOPIC, partition=partition, isolation=isolation, low=low, high=high))
                self.take(number, isolation, partition, 1 << 30)
                self.write(Reached(client=number, topic=TOPIC, partition=partition))
        self.write(Done())


def clean_history(seed: int, steps: int = 150) -> Sequence[Operation]:
    """Return the history of a run without anomalies."""
    return Simulation(Random(seed)).run(steps)
