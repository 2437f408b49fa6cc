"""One run: a load that faults may happen to, the reading of everything at its end, and the verdict.

    with Verification(VerifyOptions("127.0.0.1:19092", rate=200), Path("history.jsonl")) as running:
        running.wait_for(100)  # records that are acknowledged
        stack.kill_redis()
        stack.start_redis()
        running.wait_for(100)
        verdict = running.finish()
    assert verdict.ok, text(verdict)

All clients are threads of this process. Nothing waits longer than the times of VerifyOptions.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Event, Thread
from types import TracebackType

from confluent_kafka import Consumer

from proxy.judge.findings import Verdict
from proxy.judge.history import History, HistoryWriter
from proxy.judge.judge import judge
from proxy.judge.operations import ClientKind, Done, Isolation, Note, Run
from proxy.verify import topics
from proxy.verify.consumers import Member, keep_assigned
from proxy.verify.final import read_everything, settled_ends, watermarks
from proxy.verify.options import Choice, VerifyError, VerifyOptions
from proxy.verify.producers import END_SECONDS, TransactionalProducer, keep_sending
from proxy.verify.shared import Shared

POLL_SECONDS = 0.1
CLOSE_SECONDS = 60.0
"""How long the consumers get to leave their groups."""
MARGIN_SECONDS = 15.0
JOIN_SECONDS = 45.0
"""Time in which a group of the consumer protocol is assigned partitions, if the cluster has the protocol."""


class Verification:
    """A run from entering the context (or `start`) to `finish`. Leaving the context ends what still runs."""

    def __init__(self, options: VerifyOptions, history: Path) -> None:
        """`history` is the file to write."""
        self.options, self.path = options, history
        self.run = secrets.token_hex(4)
        self.phase = "starting"
        """The present step, for people."""
        self.topics = topics.Topics({})
        self._history: HistoryWriter | None = None
        self._shared: Shared | None = None
        self._producers: list[Thread] = []
        self._consumers: list[Thread] = []
        self._began = time.monotonic()

    def __enter__(self) -> Verification:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def sent(self) -> int:
        """Return the number of records sent so far."""
        return self._history.sent if self._history else 0

    @property
    def acknowledged(self) -> int:
        """Return the number of records acknowledged so far."""
        return self._history.acknowledged if self._history else 0

    @property
    def committed(self) -> int:
        """Return the number of transactions committed so far."""
        return self._history.committed if self._history else 0

    @property
    def read(self) -> int:
        """Return the number of records that all consumers together got so far."""
        return self._history.read.total() if self._history else 0

    def start(self) -> None:
        """Prepare the topics and start all clients. Raises VerifyError."""
        self.topics = topics.prepare(self.options, self.run)
        try:
            self._history = HistoryWriter(self.path)
        except OSError as error:
            raise VerifyError(f"cannot write {self.path}: {error.strerror or error}") from error
        self._history.write(
            Run(
                run=self.run,
                seed=self.options.seed,
                started=datetime.now(UTC).isoformat(timespec="seconds"),
                bootstrap=self.options.bootstrap,
                topics=self.topics.partitions,
            )
        )
        for note in self.topics.notes:
            self._history.write(Note(text=note))
        self._shared = Shared(self.options, self._history, self.run, self.topics.partitions)
        self._start_consumers(self._shared)
        self._start_producers(self._shared)
        self.phase, self._began = "load", time.monotonic()

    def _start_consumers(self, shared: Shared) -> None:
        groups = [ClientKind.CLASSIC]
        if self.options.consumer_protocol is not Choice.off:
            groups.append(ClientKind.CONSUMER)
        for isolation in Isolation:
            for kind in (ClientKind.ASSIGN, *groups):
                shared.positions[f"{kind}/{isolation}"] = {}
            work: list[Callable[[], None]] = [partial(keep_assigned, shared, isolation)]
            for kind in groups:
                members = [Member(shared, kind, isolation, moving=number > 0) for number in range(self.options.members)]
                work += [member.keep_reading for member in members]
            self._consumers += [shared.thread(f"consumer {isolation}", one) for one in work]

    def _start_producers(self, shared: Shared) -> None:
        options, names = self.options, self.topics.transactional
        kinds = 3 if names else 2
        rate = options.rate / (kinds * options.producers)
        work: list[Callable[[], None]] = []
        for number in range(options.producers):
            work += [partial(keep_sending, shared, kind, rate) for kind in (ClientKind.PLAIN, ClientKind.IDEMPOTENT)]
            if names:
                work.append(TransactionalProducer(shared, f"verify-{self.run}-{number}", rate, names).keep_sending)
        self._producers = [shared.thread("producer", one) for one in work]

    def check(self) -> None:
        """Raise VerifyError if a client of the load has failed in our own code."""
        if self._shared is not None and self._shared.failures:
            raise VerifyError(f"a client of the load failed: {'; '.join(self._shared.failures)}")

    def wait(self, ended: Event | None = None, progress: Callable[[], None] = lambda: None) -> None:
        """Let the load run for its time, or until `ended` is set, or its records are enough. Raises VerifyError."""
        ended = ended or Event()
        while time.monotonic() - self._began < self.options.seconds and not ended.wait(POLL_SECONDS):
            self.check()
            progress()
            if self.sent >= self.options.max_records:
                return

    def wait_for(self, records: int, transactions: int = 0, timeout_seconds: float = 120.0) -> None:
        """Wait until this many more records are acknowledged, and transactions committed. Raises VerifyError."""
        goal, committed_goal = self.acknowledged + records, self.committed + transactions
        deadline = time.monotonic() + timeout_seconds
        while self.acknowledged < goal or self.committed < committed_goal:
            self.check()
            if time.monotonic() > deadline:
                raise VerifyError(
                    f"after {timeout_seconds:.0f} s, {goal - self.acknowledged} more records are to be acknowledged, "
                    f"and {committed_goal - self.committed} more transactions to be committed"
                )
            time.sleep(POLL_SECONDS)

    def pause(self) -> None:
        """Let the producers send nothing, after what they have begun. Consumers go on."""
        if self._shared is not None:
            self._shared.paused.set()

    def resume(self) -> None:
        """Let the producers go on."""
        if self._shared is not None:
            self._shared.paused.clear()

    def finish(self, progress: Callable[[], None] = lambda: None) -> Verdict:
        """End the load in order, read everything, and judge. Raises VerifyError and HistoryError."""
        shared, history = self._shared, self._history
        if shared is None or history is None:
            raise VerifyError("the run was not started")
        options = self.options
        if self.sent >= options.max_records:
            self._write_note(f"the producers stopped early, after {self.sent:,} records")
        self.phase = "ending producers"
        shared.stopping.set()
        self._join(self._producers, options.delivery_timeout_seconds + END_SECONDS + MARGIN_SECONDS, progress)
        self.phase = "reading what is acknowledged"
        self._leave_out_unknown_groups(shared, progress)
        self._catch_up(shared, progress)
        shared.closing.set()
        self._join(self._consumers, CLOSE_SECONDS, progress)
        self.check()
        self.phase = "reading everything again"
        readers = [
            shared.thread(f"final {isolation}", partial(read_everything, shared, isolation)) for isolation in Isolation
        ]
        self._join(readers, None, progress)
        self.check()
        history.write(Done())
        history.close()
        self.phase = "judging"
        progress()
        verdict = judge(History(self.path), stuck_seconds=options.stuck_seconds)
        self.phase = "done"
        return verdict

    def _join(self, threads: list[Thread], seconds: float | None, progress: Callable[[], None]) -> None:
        deadline = None if seconds is None else time.monotonic() + seconds
        for thread in threads:
            while thread.is_alive() and (deadline is None or time.monotonic() < deadline):
                thread.join(POLL_SECONDS)
                progress()
            if thread.is_alive():
                self._write_note(f"a {thread.name} did not end within {seconds:.0f} s")

    def _leave_out_unknown_groups(self, shared: Shared, progress: Callable[[], None]) -> None:
        """Leave the groups of the consumer protocol out if none was ever assigned anything.

        librdkafka reports no error when brokers do not know the protocol.
        """
        views = [f"{ClientKind.CONSUMER}/{isolation}" for isolation in Isolation]
        if self.options.consumer_protocol is not Choice.auto:
            return
        while not shared.assigned.intersection(views):
            if time.monotonic() - self._began > JOIN_SECONDS:
                for view in views:
                    shared.leave_out(view, f"no member was assigned a partition within {JOIN_SECONDS:.0f} s")
                return
            time.sleep(POLL_SECONDS)
            progress()

    def _catch_up(self, shared: Shared, progress: Callable[[], None]) -> None:
        """Wait until every view is at the end of every log, or nothing has come for the grace."""
        grace_s = self.options.grace_seconds
        deadline = time.monotonic() + grace_s
        with ExitStack() as asking:
            consumers = {}
            for isolation in Isolation:
                own = topics.settings(self.options, group_id=f"verify-{self.run}", isolation_level=str(isolation))
                consumers[isolation] = Consumer(own)
                asking.callback(consumers[isolation].close)
            ends = settled_ends(lambda isolation: watermarks(consumers[isolation], shared, deadline), deadline)
        read, deadline = self.read, time.monotonic() + grace_s
        while time.monotonic() < deadline and self._behind(shared, ends):
            time.sleep(POLL_SECONDS)
            progress()
            self.check()
            if self.read != read:
                read, deadline = self.read, time.monotonic() + grace_s
        if behind := self._behind(shared, ends):
            self._write_note(f"after {grace_s:.0f} s without a record, {', '.join(behind)} had not read everything")

    def _behind(self, shared: Shared, ends: dict[Isolation, dict[tuple[str, int], int]]) -> list[str]:
        found = []
        for view, positions in list(shared.positions.items()):
            wanted = ends[Isolation(view.partition("/")[2])]
            if any(positions.get(place, 0) < end for place, end in wanted.items()):
                found.append(view)
        return found

    def _write_note(self, text: str) -> None:
        if self._history is not None:
            self._history.write(Note(text=text))

    def delete_topics(self) -> None:
        """Delete the topics that the run created."""
        if self.topics.created:
            topics.delete(self.options, self.topics.created)

    def close(self) -> None:
        """End what still runs, without a judgement. Repeatable."""
        if self._shared is not None:
            self._shared.stopping.set()
            self._shared.closing.set()
            deadline = time.monotonic() + MARGIN_SECONDS
            for thread in (*self._producers, *self._consumers):
                thread.join(max(0.0, deadline - time.monotonic()))
        if self._history is not None:
            with suppress(OSError):
                self._history.close()
