"""The consumers of a load: assigned by hand, and in groups of both protocols."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from proxy.judge.operations import Assign, ClientKind, Close, Isolation, Poll
from proxy.verify.payload import read
from proxy.verify.shared import Shared

MAX_RECORDS = 500
"""Records of one line of the history."""
POLL_SECONDS = 0.1
COMMITS_APART_SECONDS = 1.0
STAY_SECONDS = (3.0, 12.0)
"""Shortest and longest time for which a group's moving member stays."""
WELL_SECONDS = 1.0
"""Time since the last record within which a group is well."""
AGAIN_SECONDS = 1.0
"""Time before a consumer that failed, or whose position is not in the log, starts again."""
WATERMARKS_SECONDS = 5.0
NOT_SUPPORTED = {
    KafkaError.UNSUPPORTED_VERSION,
    KafkaError._UNSUPPORTED_FEATURE,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
}
"""Errors by which a cluster says that it has no such groups for this client."""

Place = tuple[str, int]
"""Topic and partition."""


class Reading:
    """One librdkafka consumer, and its lines in the history."""

    def __init__(self, shared: Shared, kind: ClientKind, isolation: Isolation, **librdkafka: Any) -> None:
        """`librdkafka`: further settings; `_` stands for a dot."""
        self.view = f"{kind}/{isolation}"
        self.client, self.random = shared.introduce(kind, isolation, self.view)
        self.broken: KafkaError | None = None
        """The error after which it has to be replaced."""
        self.lost: set[Place] = set()
        """Partitions whose position is not in the log."""
        self.positions: dict[Place, int] = {}
        """Next offsets, since the assignment."""
        self.joined = False
        """Whether it was ever assigned anything."""
        self.read_at = 0.0
        """Time of the last record."""
        self._shared = shared
        self._rows: defaultdict[Place, list[tuple[int, int, int]]] = defaultdict(list)
        settings = shared.settings(
            self.client,
            isolation_level=str(isolation),
            enable_auto_commit=False,
            enable_partition_eof=True,
            check_crcs=True,
            **librdkafka,
        )
        self._errors = settings["error_cb"]
        self.librdkafka = Consumer(settings)

    def assigned(self, partitions: Sequence[Place]) -> None:
        """Write the line of an assignment, before its records."""
        self.report()
        self.joined = True
        self._shared.assigned.add(self.view)
        by_topic: defaultdict[str, list[int]] = defaultdict(list)
        for topic, partition in partitions:
            self.positions.pop((topic, partition), None)
            by_topic[topic].append(partition)
        for topic, numbers in by_topic.items():
            self._shared.history.write(Assign(client=self.client, topic=topic, partitions=numbers))

    def poll(self, seconds: float = POLL_SECONDS) -> None:
        """Take what has arrived, and write it down."""
        message = self.librdkafka.poll(seconds)
        taken = 0
        while message is not None:
            self._take(message)
            taken += 1
            message = self.librdkafka.poll(0) if taken < MAX_RECORDS else None
        self.report()
        if self._errors.fatal and self.broken is None:
            self.broken = KafkaError(KafkaError._FATAL)

    def _take(self, message: Message) -> None:
        topic, partition, offset, error = message.topic(), message.partition(), message.offset(), message.error()
        if error is None:
            assert topic is not None
            assert partition is not None
            assert offset is not None
            value = read(self._shared.run, message.key(), message.value())
            self._rows[topic, partition].append((offset, *value))
            self.positions[topic, partition] = offset + 1
        elif error.code() == KafkaError._PARTITION_EOF and topic and partition is not None and offset is not None:
            self.positions[topic, partition] = max(self.positions.get((topic, partition), 0), offset)
            self._shared.moved(self.view, topic, partition, offset)
        else:
            self._errors(error)
            if error.code() == KafkaError._AUTO_OFFSET_RESET and topic and partition is not None:
                self.lost.add((topic, partition))
            if error.fatal() or error.code() in NOT_SUPPORTED:
                self.broken = error

    def report(self) -> None:
        """Write down the records that were taken."""
        for (topic, partition), rows in self._rows.items():
            self._shared.history.write(Poll(client=self.client, topic=topic, partition=partition, records=rows))
            self._shared.moved(self.view, topic, partition, rows[-1][0] + 1)
            self.read_at = time.monotonic()
        self._rows.clear()

    def close(self) -> None:
        """Leave the group, if there is one."""
        self.report()
        with suppress(KafkaException, RuntimeError):
            self.librdkafka.close()
        self._shared.history.write(Close(client=self.client))


def keep_assigned(shared: Shared, isolation: Isolation) -> None:
    """Read all partitions from their beginning, without a group, until the end of the run."""
    places = [(topic, number) for topic, count in shared.topics.items() for number in range(count)]
    while not shared.closing.is_set():
        # A position that is not in the log is an error; starting again somewhere would hide it.
        reading = Reading(
            shared, ClientKind.ASSIGN, isolation, group_id=f"verify-{shared.run}", auto_offset_reset="error"
        )
        reading.assigned(places)
        reading.librdkafka.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in places])
        while not shared.closing.is_set() and reading.broken is None:
            reading.poll()
            if reading.lost and not shared.closing.wait(AGAIN_SECONDS):
                _resume(reading, places)
        reading.close()


def _resume(reading: Reading, places: Sequence[Place]) -> None:
    """Go on at the same offsets; after deletions at the start of the log."""
    starts = dict(reading.positions)
    for place in reading.lost:
        try:
            low, _ = reading.librdkafka.get_watermark_offsets(
                TopicPartition(*place), timeout=WATERMARKS_SECONDS, cached=False
            )
        except KafkaException:
            return  # it is tried again
        starts[place] = max(low, starts.get(place, low))
    reading.lost.clear()
    reading.librdkafka.assign([TopicPartition(*place, starts.get(place, OFFSET_BEGINNING)) for place in places])


class Member:
    """One member of a group. It commits what it has read; a moving one leaves and comes back again and again."""

    def __init__(self, shared: Shared, kind: ClientKind, isolation: Isolation, *, moving: bool) -> None:
        self._shared, self._kind, self._isolation, self._moving = shared, kind, isolation, moving
        self._view = f"{kind}/{isolation}"

    def keep_reading(self) -> None:
        """Read until the end of the run, or until the cluster shows that it has no such groups."""
        while not self._shared.closing.is_set():
            reading = self._join()
            self._read(reading)
            reading.close()
            if reading.broken is not None and reading.broken.code() in NOT_SUPPORTED:
                self._shared.leave_out(self._view, reading.broken.name())
                return
            if reading.broken is not None:
                self._shared.closing.wait(AGAIN_SECONDS)

    def _join(self) -> Reading:
        own: dict[str, Any] = {"group_protocol": str(self._kind)}
        if self._kind is ClientKind.CLASSIC:
            own["session_timeout_ms"] = 10_000
        group = f"verify-{self._shared.run}-{self._view.replace('/', '-')}"
        reading = Reading(
            self._shared, self._kind, self._isolation, group_id=group, auto_offset_reset="earliest", **own
        )

        def on_assign(_: Consumer, partitions: Sequence[TopicPartition]) -> None:
            reading.assigned([(one.topic, one.partition) for one in partitions])

        def on_revoke(_: Consumer, partitions: Sequence[TopicPartition]) -> None:
            reading.report()
            self._commit(reading, asynchronous=False)
            for one in partitions:
                reading.positions.pop((one.topic, one.partition), None)

        def on_lost(_: Consumer, partitions: Sequence[TopicPartition]) -> None:
            reading.report()
            for one in partitions:
                reading.positions.pop((one.topic, one.partition), None)

        reading.librdkafka.subscribe(
            list(self._shared.topics), on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost
        )
        return reading

    def _read(self, reading: Reading) -> None:
        shared, committed = self._shared, time.monotonic()
        stay_s, joined = reading.random.uniform(*STAY_SECONDS), 0.0
        while not shared.closing.is_set() and reading.broken is None:
            reading.poll()
            now = time.monotonic()
            if now - committed >= COMMITS_APART_SECONDS:
                committed = now
                self._commit(reading, asynchronous=True)
            joined = joined or now * reading.joined
            # A member stays in its group until its session expires, if it leaves before it has joined, or while the
            # coordinator is away. So it leaves if all is well.
            well = joined and now - reading.read_at < WELL_SECONDS
            if self._moving and well and now - joined > stay_s and not shared.stopping.is_set():
                return

    def _commit(self, reading: Reading, *, asynchronous: bool) -> None:
        offsets = [TopicPartition(*place, offset) for place, offset in reading.positions.items()]
        # A commit that fails lets the group read some records twice, which is no anomaly.
        with suppress(KafkaException):
            if offsets and asynchronous:
                reading.librdkafka.commit(offsets=offsets)
            elif offsets:
                reading.librdkafka.commit(offsets=offsets, asynchronous=False)
