"""One librdkafka producer, and its lines in the history."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from proxy.judge.findings import Value
from proxy.judge.operations import NO_TRANSACTION, UNKNOWN_OFFSET, Ack, ClientKind, Close, Fail, Send
from proxy.verify.payload import record
from proxy.verify.shared import Shared

MAX_OUTSTANDING = 1_000
"""Records without an answer, above which a producer sends no more."""
PURGE_SECONDS = 5.0


class Sender:
    """A producer of any kind. One thread uses it."""

    def __init__(self, shared: Shared, kind: ClientKind, **librdkafka: Any) -> None:
        """`librdkafka`: further settings; `_` stands for a dot."""
        self.client, self.random = shared.introduce(kind)
        self.outstanding = 0
        """Records without an answer."""
        self._shared = shared
        self._next = 0
        self._acked: defaultdict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
        self._failed: defaultdict[str, list[int]] = defaultdict(list)
        settings = shared.settings(self.client, acks="all", linger_ms=5, **librdkafka)
        self._errors = settings["error_cb"]
        self.librdkafka = Producer(settings)

    @property
    def broken(self) -> bool:
        """Return whether it has met a fatal error, after which it sends nothing any more."""
        return bool(self._errors.fatal)

    @property
    def full(self) -> bool:
        """Return whether it waits for too many answers."""
        return self.outstanding >= MAX_OUTSTANDING

    def send(self, count: int, transaction: int = NO_TRANSACTION, topics: tuple[str, ...] = ()) -> None:
        """Send records to one partition, which is chosen at random, of these topics or of all."""
        topic = self.random.choice(topics or tuple(self._shared.topics))
        partition = self.random.randrange(self._shared.topics[topic])
        first, self._next = self._next, self._next + count
        self._shared.history.write(
            Send(
                client=self.client, topic=topic, partition=partition, first=first, count=count, transaction=transaction
            )
        )
        for number in range(first, first + count):
            key, value = record(self._shared.run, Value(self.client, number), self._shared.options.record_bytes)
            try:
                self.librdkafka.produce(topic, value, key, partition, on_delivery=partial(self._answered, number))
                self.outstanding += 1
            except BufferError:
                self._failed["_QUEUE_FULL"].append(number)
            except KafkaException as error:
                self._failed[error.args[0].name()].append(number)
                self._errors.fatal = self._errors.fatal or error.args[0].fatal()
        self._report()

    def _answered(self, number: int, error: KafkaError | None, message: Message) -> None:
        self.outstanding -= 1
        if error is not None:
            self._failed[error.name()].append(number)
            return
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None
        assert partition is not None
        known = UNKNOWN_OFFSET if offset is None or offset < 0 else offset
        self._acked[topic, partition].append((number, known))

    def poll(self, seconds: float) -> None:
        """Take answers for this long at most."""
        self._serve(lambda: self.librdkafka.poll(max(0.0, seconds)))

    def flush(self, seconds: float) -> bool:
        """Wait until everything is answered. Returns whether it is."""
        self._serve(lambda: self.librdkafka.flush(seconds))
        return self.outstanding == 0

    def _serve(self, call: Callable[[], object]) -> None:
        """Run a call that takes answers. It raises the error that was fatal to the producer, if there was one."""
        try:
            call()
        except KafkaException as error:
            self._errors(error.args[0])
        except SystemError as error:
            # An answer was taken right after a callback that had raised an error: it counts, and so does that error.
            if not isinstance(error.__cause__, KafkaException):
                raise
            self._errors(error.__cause__.args[0])
        self._report()

    def _report(self) -> None:
        # In this order: if a record timed out, the judge wants to know which ones had no answer then.
        for error, numbers in self._failed.items():
            self._shared.history.write(Fail(client=self.client, numbers=numbers, error=error))
        for (topic, partition), records in self._acked.items():
            self._shared.history.write(Ack(client=self.client, topic=topic, partition=partition, records=records))
        self._acked.clear()
        self._failed.clear()

    def close(self, seconds: float) -> None:
        """Wait for the answers; give up the rest."""
        if not self.flush(seconds):
            self._serve(self.librdkafka.purge)
            self.flush(PURGE_SECONDS)
        self._shared.history.write(Close(client=self.client))
