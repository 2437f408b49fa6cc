"""The producers: plain and idempotent ones, which send all the time, and transactional ones."""

from __future__ import annotations

import time

from confluent_kafka import KafkaException

from proxy.judge.operations import Begin, ClientKind, End, Ended, Outcome
from proxy.verify.sender import PURGE_SECONDS, Sender
from proxy.verify.shared import Shared

MAX_BURST = 8
MAX_SENDS = 4
"""Sends of a transaction."""
ABORTED_SHARE = 0.25
HELD_SHARE = 0.3
"""Share of transactions that stay open for a while with everything acknowledged."""
MAX_HELD_SECONDS = 0.3
CALL_SECONDS = 10.0
END_SECONDS = 60.0
"""How long the end of a transaction is tried."""
MAX_TRANSACTION_SECONDS = 30.0
"""Kafka's `transaction.timeout.ms`: below the time after which readers behind an open transaction are stuck."""
RETRY_SECONDS = 0.5


class Pace:
    """Spreads records over time. A producer that was late does not catch up in a burst."""

    def __init__(self, records_per_second: float) -> None:
        self._rate = records_per_second
        self._due = time.monotonic()

    def sent(self, records: int) -> None:
        """Note records; `left` then counts the time that they stand for."""
        self._due = max(self._due, time.monotonic() - 1.0) + records / self._rate

    def left(self) -> float:
        """Return the seconds until the next records are due."""
        return self._due - time.monotonic()


def keep_sending(shared: Shared, kind: ClientKind, records_per_second: float) -> None:
    """Send with a plain or idempotent producer until the end of the load."""
    timeout_ms = int(shared.options.delivery_timeout_seconds * 1000)

    def connect() -> Sender:
        return Sender(shared, kind, enable_idempotence=kind is ClientKind.IDEMPOTENT, delivery_timeout_ms=timeout_ms)

    sender, pace = connect(), Pace(records_per_second)
    while shared.sending:
        if sender.broken:
            sender.close(PURGE_SECONDS)
            sender = connect()
        if not sender.full:
            burst = sender.random.randint(1, MAX_BURST)
            sender.send(burst)
            pace.sent(burst)
        sender.poll(max(pace.left(), 0.01) if sender.full else 0)
        while ((left := pace.left()) > 0 or shared.paused.is_set()) and shared.sending:
            sender.poll(min(max(left, 0.05), 0.2))
    sender.close(shared.options.delivery_timeout_seconds + PURGE_SECONDS)


class TransactionalProducer:
    """One transactional producer, which is replaced under the same transactional ID when it has failed."""

    def __init__(self, shared: Shared, name: str, records_per_second: float, topics: tuple[str, ...]) -> None:
        """`topics`: those that take transactions."""
        self._shared, self._name, self._topics = shared, name, topics
        self._pace = Pace(records_per_second)
        self._transactions = 0

    def keep_sending(self) -> None:
        """Send transactions until the end of the load."""
        while self._shared.sending:
            sender = self._connect()
            try:
                if self._initialized(sender):
                    while self._shared.sending and not sender.broken and self._transact(sender):
                        pass
            finally:
                sender.close(PURGE_SECONDS)

    def _connect(self) -> Sender:
        options = self._shared.options
        timeout_s = min(options.delivery_timeout_seconds, MAX_TRANSACTION_SECONDS)
        return Sender(
            self._shared,
            ClientKind.TRANSACTIONAL,
            transactional_id=self._name,
            transaction_timeout_ms=int(MAX_TRANSACTION_SECONDS * 1000),
            delivery_timeout_ms=int(timeout_s * 1000),
        )

    def _initialized(self, sender: Sender) -> bool:
        while self._shared.sending and not sender.broken:
            try:
                sender.librdkafka.init_transactions(CALL_SECONDS)
                return True
            except KafkaException as error:
                if not error.args[0].retriable():
                    self._shared.stopping.wait(RETRY_SECONDS)
                    return False
                sender.poll(RETRY_SECONDS)
        return False

    def _transact(self, sender: Sender) -> bool:
        """Run one transaction; False if the producer has to be replaced."""
        number, self._transactions = self._transactions, self._transactions + 1
        try:
            sender.librdkafka.begin_transaction()
        except KafkaException:
            return False
        self._shared.history.write(Begin(client=sender.client, transaction=number))
        for _ in range(sender.random.randint(1, MAX_SENDS)):
            burst = sender.random.randint(1, MAX_BURST)
            sender.send(burst, number, self._topics)
            self._pace.sent(burst)
            sender.poll(min(self._pace.left(), MAX_HELD_SECONDS))
        commit = sender.random.random() >= ABORTED_SHARE
        if commit or sender.random.random() < 0.5:
            sender.flush(MAX_TRANSACTION_SECONDS)
        if sender.random.random() < HELD_SHARE:
            sender.poll(sender.random.random() * MAX_HELD_SECONDS)
        self._shared.history.write(End(client=sender.client, transaction=number, commit=commit))
        outcome, error = self._end(sender, commit)
        sender.poll(0)
        self._shared.history.write(Ended(client=sender.client, transaction=number, outcome=outcome, error=error))
        while ((left := self._pace.left()) > 0 or self._shared.paused.is_set()) and self._shared.sending:
            sender.poll(min(max(left, 0.05), 0.2))
        return outcome is not Outcome.UNKNOWN

    def _end(self, sender: Sender, commit: bool) -> tuple[Outcome, str]:
        """Commit or abort; a commit that fails for sure is aborted. Returns the outcome and the last error."""
        deadline, name = time.monotonic() + END_SECONDS, ""
        while True:
            try:
                if commit:
                    sender.librdkafka.commit_transaction(CALL_SECONDS)
                    return Outcome.COMMITTED, name
                sender.librdkafka.abort_transaction(CALL_SECONDS)
                return Outcome.ABORTED, name
            except KafkaException as raised:
                error = raised.args[0]
                name = error.name()
                if commit and error.txn_requires_abort():
                    commit = False
                elif not error.retriable() or time.monotonic() > deadline:
                    return Outcome.UNKNOWN, name
                sender.poll(0.1)
