"""A load whose outcome is checked record by record: for the demo, and for tests that break parts meanwhile.

In every rack, processes of their own run idempotent producers (`acks=all`) and consumers on a classic and a diskless
topic. Every rack reads everything. `Tally` reports records that were lost, duplicated, out of order or different:

    with Load({"rack-a": stack.bootstrap("rack-a"), "rack-b": stack.bootstrap("rack-b")}) as load:   # starts it
        time.sleep(5)
        stack.kill_proxy("rack-a")
        stack.start_proxy("rack-a")
        time.sleep(5)
        tally = load.stop()
    assert tally.right, tally.findings

or, without anything to do meanwhile, `run_load(bootstraps, seconds=10)`. Clients ride out anything shorter than
`LoadOptions.delivery_timeout_seconds`; a rack that stays without proxy makes what it has not read `lost`, unless its
entry in `bootstraps` names other racks' proxies, too (`"host:port,host:port"`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from threading import Event, Lock
from types import TracebackType
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from proxy.demo.errors import StackCancelled, StackError
from proxy.demo.ledger import Ledger
from proxy.demo.payload import RUN_BYTES
from proxy.demo.tally import DISKLESS, KINDS, Tally
from proxy.demo.worker import Worker

POLL_SECONDS = 0.05
START_SECONDS = 60.0
CREATE_SECONDS = 40.0
FLUSH_MARGIN_SECONDS = 5.0
END_MARGIN_SECONDS = 20.0

PRODUCER_SETTINGS: Mapping[str, Any] = {
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 5,
    "queue.buffering.max.kbytes": 65_536,
    "reconnect.backoff.ms": 100,
    "reconnect.backoff.max.ms": 1_000,
}
CONSUMER_SETTINGS: Mapping[str, Any] = {
    # The client wants a name; without a subscription and commits no group comes of it.
    "group.id": "demo",
    "enable.auto.commit": False,
    # A consumer whose offset does not exist shall report that instead of beginning again.
    "auto.offset.reset": "error",
    "check.crcs": True,
    "reconnect.backoff.ms": 100,
    "reconnect.backoff.max.ms": 1_000,
}


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How much load, of what kind."""

    kinds: tuple[str, ...] = KINDS
    """One topic for each: `classic`, `diskless`."""
    partitions: int = 6
    replication_factor: int = 3
    producers_per_rack: int = 2
    """For each topic."""
    records_per_second: float = 200.0
    """Records per second of each producer."""
    record_bytes: int = 1024
    """Length of the values, at least `payload.MIN_RECORD_BYTES`."""
    warm_up_seconds: float = 0.0
    """Latencies of records that are sent before this do not count; the records themselves do."""
    delivery_timeout_seconds: float = 60.0
    """How long a producer tries before it reports a record as failed."""
    settle_seconds: float = 60.0
    """How long the consumers get, after the last acknowledgement, to read what is acknowledged."""
    producers_nice: int = 0
    """Niceness of the producers' processes. librdkafka spins while five or more messages of a partition wait for their
    answer and others wait behind them; a nice process takes no time from servers on the same machine."""
    producer_settings: Mapping[str, Any] = field(default_factory=dict)
    """librdkafka's, over PRODUCER_SETTINGS."""
    consumer_settings: Mapping[str, Any] = field(default_factory=dict)
    """librdkafka's, over CONSUMER_SETTINGS."""


class Load:
    """A load that runs from entering the context (or `start`) to `stop`; leaving the context kills what still runs."""

    def __init__(self, bootstraps: Mapping[str, str], options: LoadOptions | None = None) -> None:
        """Take, by rack, the `host:port` of the proxy for its clients (several separated by commas)."""
        self.bootstraps = dict(bootstraps)
        self.options = options or LoadOptions()
        self._run = os.urandom(RUN_BYTES)
        self.topics = {kind: f"demo-{kind}-{self._run[:3].hex()}" for kind in self.options.kinds}
        """Names by kind; `start` creates them."""
        self._ledgers = {kind: Ledger(topic, list(self.bootstraps)) for kind, topic in self.topics.items()}
        self._complaints: list[str] = []
        self._lock = Lock()
        self._ready: set[str] = set()
        self._producers: list[Worker] = []
        self._consumers: list[Worker] = []

    def __enter__(self) -> Load:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def start(self, cancelled: Event | None = None) -> None:
        """Create the topics; start the consumers, and when all of them read, the producers; returns when all send.

        Raises StackError where something does not start in time or the load was started before, StackCancelled as
        soon as `cancelled` is set.
        """
        if self._consumers:
            raise StackError("a load can be started only once")
        cancelled = cancelled or Event()
        try:
            self._create_topics()
            for rack in self.bootstraps:
                self._consumers.append(self._start_consumers(rack))
            self._wait_ready(self._consumers, cancelled)
            numbers = count()
            for rack in self.bootstraps:
                self._producers.append(self._start_producers(rack, numbers))
            self._wait_ready(self._producers, cancelled)
        except BaseException:
            self.close()
            raise

    def tally(self, *, final: bool = False) -> Tally:
        """Return the present tally, from any thread. With `final`, `findings` names what has not been read."""
        with self._lock:
            topics = {kind: ledger.tally(final=final) for kind, ledger in self._ledgers.items()}
            return Tally(topics, tuple(self._complaints))

    def check(self) -> None:
        """Raises StackError where a process of the load has ended by itself."""
        for worker in (*self._producers, *self._consumers):
            worker.check()

    def stop(self, hurried: Event | None = None) -> Tally:
        """Send no more, wait for all delivery reports, let every rack read to the end, and count.

        Takes at most the delivery timeout, twice the settle time and a minute. Raises StackError where a process of
        the load has failed, StackCancelled as soon as `hurried` is set: what was under way then can't be judged.
        """
        hurried = hurried or Event()
        options = self.options
        self._finish(self._producers, options.delivery_timeout_seconds + END_MARGIN_SECONDS, hurried)
        deadline = time.monotonic() + options.settle_seconds
        while time.monotonic() < deadline and not self._settled() and not hurried.wait(POLL_SECONDS):
            for worker in self._consumers:
                worker.check()
        # All is read, or time is up; a record that is stored twice may still lie at the end.
        self._finish(self._consumers, options.settle_seconds + END_MARGIN_SECONDS, hurried)
        self.close()
        return self.tally(final=True)

    def pids(self) -> list[int]:
        """Return the process IDs of the load: the consumers of each rack, then the producers of each."""
        return [worker.pid for worker in (*self._consumers, *self._producers)]

    def close(self) -> None:
        """Kill what still runs. Repeatable."""
        for worker in (*self._producers, *self._consumers):
            worker.close()

    def _create_topics(self) -> None:
        bootstrap, options = next(iter(self.bootstraps.values())), self.options
        client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})  # what goes wrong comes as an error
        new = [
            NewTopic(
                topic,
                options.partitions,
                options.replication_factor,
                config={"diskless.enable": "true"} if kind == DISKLESS else {},
            )
            for kind, topic in self.topics.items()
        ]
        for topic, made in client.create_topics(new, request_timeout=CREATE_SECONDS).items():
            try:
                made.result(CREATE_SECONDS)
            except (KafkaException, TimeoutError) as error:
                raise StackError(f"can't create the topic {topic} through {bootstrap}: {error}") from error

    def _start_consumers(self, rack: str) -> Worker:
        settings = {
            "run": self._run.hex(),
            "bootstrap": self.bootstraps[rack],
            "topics": self.topics,
            "partitions": self.options.partitions,
            "finish_seconds": self.options.settle_seconds,
            "librdkafka": {**CONSUMER_SETTINGS, **self.options.consumer_settings},
        }
        return self._worker(f"consumers in {rack}", "proxy.demo.consumers", settings, rack)

    def _start_producers(self, rack: str, numbers: count[int]) -> Worker:
        options = self.options
        timeouts = {"delivery.timeout.ms": int(options.delivery_timeout_seconds * 1000)}
        settings = {
            "run": self._run.hex(),
            "bootstrap": self.bootstraps[rack],
            "producers": [
                [next(numbers), kind, topic]
                for kind, topic in self.topics.items()
                for _ in range(options.producers_per_rack)
            ],
            "partitions": options.partitions,
            "records_per_second": options.records_per_second,
            "record_bytes": options.record_bytes,
            "warm_up_seconds": options.warm_up_seconds,
            "flush_seconds": options.delivery_timeout_seconds + FLUSH_MARGIN_SECONDS,
            "nice": options.producers_nice,
            "librdkafka": {**PRODUCER_SETTINGS, **timeouts, **options.producer_settings},
        }
        return self._worker(f"producers in {rack}", "proxy.demo.producers", settings, rack)

    def _worker(self, name: str, module: str, settings: Mapping[str, Any], rack: str) -> Worker:
        return Worker(name, module, settings, lambda finding: self._take(name, rack, finding))

    def _take(self, name: str, rack: str, finding: dict[str, Any]) -> None:
        with self._lock:
            if finding.get("ready"):
                self._ready.add(name)
                return
            kind = finding["kind"]
            ledger = self._ledgers[kind]
            ledger.acknowledged(finding.get("acknowledged", ()))
            ledger.failed(finding.get("failed", ()))
            ledger.read(rack, finding.get("read", ()))
            if "complaint" in finding:
                self._complaints.append(f"the consumer of {self.topics[kind]} in {rack}: {finding['complaint']}")

    def _wait_ready(self, workers: list[Worker], cancelled: Event) -> None:
        deadline = time.monotonic() + START_SECONDS
        while waiting := [worker.name for worker in workers if worker.name not in self._ready]:
            self.check()
            if cancelled.wait(POLL_SECONDS):
                raise StackCancelled("the load was ended while it started")
            if time.monotonic() > deadline:
                raise StackError(f"after {START_SECONDS:.0f} s these clients are not ready: {', '.join(waiting)}")

    def _settled(self) -> bool:
        with self._lock:
            return all(ledger.settled() for ledger in self._ledgers.values())

    def _finish(self, workers: list[Worker], timeout_seconds: float, hurried: Event) -> None:
        deadline = time.monotonic() + timeout_seconds
        for worker in workers:
            worker.finish()
        while not all(worker.ended for worker in workers):
            self.check()
            if hurried.wait(POLL_SECONDS):
                raise StackCancelled("the load was ended without waiting")
            if time.monotonic() > deadline:
                return


def run_load(
    bootstraps: Mapping[str, str],
    seconds: float,
    options: LoadOptions | None = None,
    *,
    progress: Callable[[Tally], None] = lambda _: None,
) -> Tally:
    """Run a load for `seconds`, to its end. Raises StackError, see `Load`; `progress` is called twice a second."""
    with Load(bootstraps, options) as load:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 0.5))
            load.check()
            progress(load.tally())
        return load.stop()
