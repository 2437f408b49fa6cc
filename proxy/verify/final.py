"""The reading of everything, after all producers have ended: what is not found here is lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from confluent_kafka import Consumer, KafkaException, TopicPartition

from proxy.judge.operations import ClientKind, Isolation, Log, Reached
from proxy.verify.consumers import Place, Reading
from proxy.verify.shared import Shared

ASK_SECONDS = 5.0
AGAIN_SECONDS = 0.5

Watermarks = Mapping[Place, tuple[int, int]]
"""Start and end of the log by topic and partition."""


def watermarks(consumer: Consumer, shared: Shared, deadline: float) -> Watermarks | None:
    """Return start and end of all logs, as the consumer's isolation sees them; None if they are not known in time."""
    found: dict[Place, tuple[int, int]] = {}
    for topic, count in shared.topics.items():
        for partition in range(count):
            while (topic, partition) not in found:
                try:
                    offsets = consumer.get_watermark_offsets(
                        TopicPartition(topic, partition), timeout=ASK_SECONDS, cached=False
                    )
                except KafkaException:
                    offsets = None
                if offsets is not None:
                    found[topic, partition] = offsets
                elif time.monotonic() > deadline:
                    return None
                else:
                    time.sleep(AGAIN_SECONDS)
    return found


def settled_ends(ask: Callable[[Isolation], Watermarks | None], deadline: float) -> dict[Isolation, dict[Place, int]]:
    """Return the ends of the logs that are not empty, when no transaction is open any more, or at the deadline.

    A coordinator answers that a transaction has ended before it has written the markers, so for a moment the last
    stable offsets do not say that its records are to be read.
    """
    while True:
        ends = {}
        for isolation in Isolation:
            ends[isolation] = {place: high for place, (low, high) in (ask(isolation) or {}).items() if high > low}
        if ends[Isolation.COMMITTED] == ends[Isolation.UNCOMMITTED] or time.monotonic() > deadline:
            return ends
        time.sleep(AGAIN_SECONDS)


def read_everything(shared: Shared, isolation: Isolation) -> None:
    """Read every partition from the start to the end of its log; give up after the grace without progress."""
    reading = Reading(
        shared, ClientKind.FINAL, isolation, group_id=f"verify-{shared.run}", auto_offset_reset="earliest"
    )
    grace_s = shared.options.grace_seconds
    ends = watermarks(reading.librdkafka, shared, time.monotonic() + grace_s)
    if ends is not None:
        _write(shared, isolation, ends)
        reading.assigned(list(ends))
        reading.librdkafka.assign([TopicPartition(*place, low) for place, (low, _) in ends.items()])
        _read(shared, reading, ends, grace_s)
        if (after := watermarks(reading.librdkafka, shared, time.monotonic() + grace_s)) is not None:
            # Retention may have deleted records meanwhile. The end stays the one that was read to.
            _write(shared, isolation, {place: (low, ends[place][1]) for place, (low, _) in after.items()})
    reading.close()


def _write(shared: Shared, isolation: Isolation, logs: Watermarks) -> None:
    for (topic, partition), (low, high) in logs.items():
        shared.history.write(Log(topic=topic, partition=partition, isolation=isolation, low=low, high=max(low, high)))


def _read(shared: Shared, reading: Reading, ends: Watermarks, grace_s: float) -> None:
    left, deadline = dict(ends), time.monotonic() + grace_s
    while left and time.monotonic() < deadline and reading.broken is None:
        before = sum(reading.positions.values())
        reading.poll()
        for place, (low, high) in list(left.items()):
            if reading.positions.get(place, low) >= high:
                shared.history.write(Reached(client=reading.client, topic=place[0], partition=place[1]))
                del left[place]
        if sum(reading.positions.values()) != before:
            deadline = time.monotonic() + grace_s
