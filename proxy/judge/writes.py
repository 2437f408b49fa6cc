"""Enter the operations of producers: sends, acknowledgements and transactions."""

from __future__ import annotations

from proxy.judge.columns import ACKNOWLEDGED, FAILED
from proxy.judge.operations import (
    UNKNOWN_OFFSET,
    Ack,
    Begin,
    ClientKind,
    Close,
    End,
    Ended,
    Fail,
    Isolation,
    Outcome,
    Send,
)
from proxy.judge.places import place
from proxy.judge.state import PartitionState, State, Transaction

_TIMED_OUT = "_MSG_TIMED_OUT"


def send(state: State, operation: Send, line: int) -> None:
    """Enter records. Their numbers go on where the client's earlier ones ended."""
    records = state.producers[operation.client]
    if operation.first != len(records):
        raise KeyError(operation.first)
    if operation.transaction >= 0:
        state.transactions[operation.client, operation.transaction]
    partition = state.places[operation.topic, operation.partition]
    records.send(partition.index, operation.count, operation.transaction)
    _begun(state, operation.client, operation.count, operation.at_us, line)


def ack(state: State, operation: Ack, line: int) -> None:
    """Enter acknowledgements."""
    client, records = operation.client, state.producers[operation.client]
    partition = state.places[operation.topic, operation.partition]
    for number, offset in operation.records:
        records.states[number] = ACKNOWLEDGED
        if offset == UNKNOWN_OFFSET:
            continue
        records.acked_at[number] = offset
        place(state, partition, offset, client, number)
        transaction = state.transaction(records, client, number)
        for view in state.views.values():
            if transaction is None or view.isolation is Isolation.UNCOMMITTED:
                _expect(partition, view.name, offset, operation.at_us, line)
        if transaction is not None:
            transaction.ends[partition.index] = max(transaction.ends.get(partition.index, 0), offset)
    _progress(state, client, len(operation.records), operation.at_us, line)


def fail(state: State, operation: Fail, line: int) -> None:
    """Enter records that their producer gave up. That is no progress.

    If records time out, librdkafka bumps its producer epoch and sends all unacknowledged records again. Brokers can't
    recognize them as duplicates (https://github.com/confluentinc/librdkafka/issues/4953).
    """
    records = state.producers[operation.client]
    if operation.error == _TIMED_OUT and records.kind is ClientKind.IDEMPOTENT:
        records.send_again()
    for number in operation.numbers:
        if records.states[number] != ACKNOWLEDGED:
            records.states[number] = FAILED
    state.outstanding[operation.client] -= len(operation.numbers)
    state.patience[operation.client].wait(operation.at_us, line)


def begin(state: State, operation: Begin, line: int) -> None:
    """Enter a transaction. Its producer has got its producer ID."""
    _progress(state, operation.client, 0, operation.at_us, line)
    state.transactions[operation.client, operation.transaction] = Transaction()


def end(state: State, operation: End, line: int) -> None:
    """Note that a transaction is about to end."""
    transaction = state.transactions[operation.client, operation.transaction]
    transaction.committing = transaction.committing or operation.commit
    _begun(state, operation.client, 1, operation.at_us, line)


def ended(state: State, operation: Ended, line: int) -> None:
    """Note the outcome of a transaction."""
    transaction = state.transactions[operation.client, operation.transaction]
    transaction.outcome = operation.outcome
    if operation.outcome is Outcome.UNKNOWN:
        state.outstanding[operation.client] -= 1
        return
    _progress(state, operation.client, 1, operation.at_us, line)
    if operation.outcome is Outcome.COMMITTED:
        for index, offset in transaction.ends.items():
            for view in state.views.values():
                if view.isolation is Isolation.COMMITTED:
                    _expect(state.partitions[index], view.name, offset, operation.at_us, line)


def close(state: State, operation: Close, line: int) -> None:
    """Note that a client has ended. A producer that still waited has waited until now."""
    if operation.client in state.patience:
        state.patience[operation.client].progress(operation.at_us, line, more=False)


def _expect(partition: PartitionState, view: str, offset: int, at_us: int, line: int) -> None:
    lag = partition.lags.get(view)
    if lag is not None:
        lag.expect(offset, at_us, line)


def _begun(state: State, client: int, count: int, at_us: int, line: int) -> None:
    state.outstanding[client] += count
    state.patience[client].wait(at_us, line)


def _progress(state: State, client: int, count: int, at_us: int, line: int) -> None:
    state.outstanding[client] -= count
    state.patience[client].progress(at_us, line, state.outstanding[client] > 0)
