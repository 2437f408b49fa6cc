"""The judge: a pure function from a history to its anomalies.

Memory grows with the records of the history, not with its operations: see `columns.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from proxy.judge import writes
from proxy.judge.columns import ACKNOWLEDGED, Records
from proxy.judge.evidence import with_operations
from proxy.judge.findings import Anomaly, Counts, Verdict
from proxy.judge.history import HistoryError
from proxy.judge.operations import (
    Ack,
    Assign,
    Begin,
    Client,
    ClientKind,
    Close,
    Done,
    End,
    Ended,
    Error,
    Fail,
    Log,
    Note,
    Operation,
    Outcome,
    Poll,
    Reached,
    Run,
    Send,
    Without,
)
from proxy.judge.places import judge_repeated
from proxy.judge.presence import Presence
from proxy.judge.progress import STUCK_SECONDS, Lag, Patience, Stall
from proxy.judge.reads import Reads
from proxy.judge.state import MAX_VIEWS, PartitionState, Reader, State, View

PRODUCERS = (ClientKind.PLAIN, ClientKind.IDEMPOTENT, ClientKind.TRANSACTIONAL)
MAX_NOTES = 100
MAX_ERRORS = 100
"""Different errors that are counted by name."""


def judge(history: Iterable[Operation], *, stuck_seconds: float = STUCK_SECONDS) -> Verdict:
    """Return the verdict on a history, which is iterated once, and again if it has anomalies.

    Raises HistoryError if the history is not one: an operation names something that no earlier one introduced.
    """
    judging = _Judging(stuck_seconds)
    for line, operation in enumerate(history, 1):
        try:
            judging.take(operation, line)
        except (KeyError, IndexError) as error:
            raise HistoryError(
                f"line {line}: the {operation.op} names something that no line before it introduced ({error}); "
                "the file is damaged, or lines of it are missing"
            ) from error
    verdict = judging.verdict()
    return with_operations(verdict, history) if verdict.findings else verdict


class _Judging:
    """The judging of one history."""

    def __init__(self, stuck_seconds: float) -> None:
        self._state = State()
        self._reads = Reads(self._state)
        self._stuck_us = int(stuck_seconds * 1_000_000)
        self._complete = False
        self._notes: list[str] = []
        self._errors: Counter[str] = Counter()
        self._kinds: dict[int, ClientKind] = {}

    def take(self, operation: Operation, line: int) -> None:
        """Take the next operation."""
        match operation:
            case Poll():
                self._reads.poll(operation, line)
            case Send():
                writes.send(self._state, operation, line)
            case Ack():
                writes.ack(self._state, operation, line)
            case Fail():
                writes.fail(self._state, operation, line)
                self._error(operation.client, operation.error, len(operation.numbers))
            case Begin():
                writes.begin(self._state, operation, line)
            case End():
                writes.end(self._state, operation, line)
            case Ended():
                writes.ended(self._state, operation, line)
                self._error(operation.client, operation.error)
            case Assign():
                self._reads.assign(operation)
            case Log():
                self._reads.log(operation)
            case Reached():
                self._reads.reached(operation)
            case _:
                self._take_other(operation, line)

    def _take_other(self, operation: Operation, line: int) -> None:
        match operation:
            case Run():
                for topic, partitions in operation.topics.items():
                    for number in range(partitions):
                        partition = PartitionState(len(self._state.partitions), topic, number)
                        self._state.partitions.append(partition)
                        self._state.places[topic, number] = partition
            case Client():
                self._introduce(operation, line)
            case Close():
                writes.close(self._state, operation, line)
            case Without():
                self._state.views[operation.view].judged = False
                self._note(f"without {operation.view}: {operation.reason}")
            case Error():
                self._error(operation.client, operation.error)
            case Note():
                self._note(operation.text)
            case Done():
                self._complete = True

    def _introduce(self, client: Client, line: int) -> None:
        state = self._state
        self._kinds[client.client] = client.kind
        if client.kind in PRODUCERS:
            state.producers[client.client] = Records(client.kind)
            state.patience[client.client] = Patience()
            state.outstanding[client.client] = 0
            if client.kind is ClientKind.TRANSACTIONAL:  # it has to get its producer ID
                state.patience[client.client].wait(client.at_us, line)
            return
        view = state.views.get(client.view)
        if view is None:
            if len(state.views) == MAX_VIEWS:
                raise KeyError(f"more than {MAX_VIEWS} views")
            view = state.views[client.view] = View(client.view, 1 << len(state.views), client.kind, client.isolation)
            if client.kind is not ClientKind.FINAL:
                for partition in state.partitions:
                    partition.lags[view.name] = Lag()
        state.readers[client.client] = Reader(client.client, view)

    def _note(self, text: str) -> None:
        if len(self._notes) < MAX_NOTES:
            self._notes.append(text)

    def _error(self, client: int, error: str, count: int = 1) -> None:
        name = f"{self._kinds[client]}: {error}"
        if error and (name in self._errors or len(self._errors) < MAX_ERRORS):
            self._errors[name] += count

    def verdict(self) -> Verdict:
        """Return the verdict after the last operation."""
        state = self._state
        presence = Presence(state, self._complete)
        presence.judge()
        judge_repeated(state)
        self._reads.judge()
        self._judge_progress()
        outcomes = Counter(transaction.outcome for transaction in state.transactions.values())
        counts = Counts(
            sent=sum(len(records) for records in state.producers.values()),
            acknowledged=presence.acknowledged,
            failed=presence.failed,
            failed_but_read=presence.failed_but_read,
            repeated=self._repeated(),
            deleted=presence.deleted,
            committed=outcomes[Outcome.COMMITTED],
            aborted=outcomes[Outcome.ABORTED],
            unknown=outcomes[Outcome.UNKNOWN] + outcomes[None],
            foreign=self._reads.foreign,
            read={view.name: view.read for view in state.views.values() if view.judged},
            errors=dict(self._errors),
        )
        return Verdict(self._complete, state.findings.totals, tuple(state.findings.kept), counts, tuple(self._notes))

    def _repeated(self) -> int:
        found = self._state.findings.totals
        places = sum(offset >= 0 for _, offset in self._state.repeated)
        return places - found.get(Anomaly.DUPLICATE, 0)

    def _judge_progress(self) -> None:
        state = self._state
        for client, patience in state.patience.items():
            who = f"{self._kinds[client]} producer {client}"
            self._stall(patience.worst, f"{who} had records to send, and none was acknowledged", client)
        for kind in PRODUCERS:
            sent = {client: one for client, one in state.producers.items() if one.kind is kind and len(one)}
            if sent and self._complete and not any(ACKNOWLEDGED in one.states for one in sent.values()):
                state.find(Anomaly.STUCK, f"no {kind} producer ever got an acknowledgement", clients=tuple(sent))
        for partition in state.partitions:
            for name, lag in partition.lags.items():
                if state.views[name].judged:
                    self._stall(lag.patience.worst, f"{name} got no record though there were some", None, partition)
            self._judge_final(partition)

    def _stall(
        self, stall: Stall, what: str, client: int | None = None, partition: PartitionState | None = None
    ) -> None:
        if stall.us > self._stuck_us:
            self._state.find(
                Anomaly.STUCK,
                f"{what} for {stall.us / 1e6:.1f} s, from {stall.began_us / 1e6:.1f} s on",
                partition,
                clients=() if client is None else (client,),
                lines=(stall.first_line, stall.last_line),
            )

    def _judge_final(self, partition: PartitionState) -> None:
        for view in self._state.views.values():
            if self._complete and view.kind is ClientKind.FINAL and view.isolation not in partition.reached:
                high = partition.highs.get(view.isolation)
                got = partition.covered.get(view.isolation, partition.low)
                self._state.find(
                    Anomaly.STUCK,
                    f"{view.name} got to offset {got}, and the log ends at {high}",
                    partition,
                    offsets=(got,),
                )
