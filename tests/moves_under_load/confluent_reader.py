"""librdkafka as an application that reads topics from their beginning."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.moves_under_load.books import CONNECTION, Place
from tests.moves_under_load.voice import METADATA_MS, Voice

STUCK_SECONDS = 20.0
STUCK = "nothing came, and the partition has more"
CONNECTIONS = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._RESOLVE,
}
_MAX_MESSAGES = 500
_ASK_SECONDS = 2.0


class ConfluentReader:
    """One consumer of all partitions; it is replaced if it is stuck, as an operator would do.

    It may get stuck at the brokers too: librdkafka 2.16 stays with the leader of a deleted and recreated topic as long
    as the new topic's leader epoch is lower than the old one's.
    """

    def __init__(self, voice: Voice, bootstrap: str, client_rack: str, topics: list[str]) -> None:
        self._voice = voice
        self._topics = topics
        self._settings = {
            "bootstrap.servers": bootstrap,
            "client.rack": client_rack,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "allow.auto.create.topics": False,
            "check.crcs": True,
            "topic.metadata.refresh.interval.ms": METADATA_MS,
            "error_cb": self._complain,
            "log_level": 2,
        }
        self._client = Consumer(self._settings)
        self._positions: dict[Place, int] = {}
        self._since_s: dict[Place, float] = {}
        """Time of the last record."""

    def read(self) -> None:
        """Read until the process ends."""
        look_s = 0.0
        while True:
            if time.monotonic() >= look_s:
                look_s = time.monotonic() + METADATA_MS / 1000
                self._look_for_partitions()
                self._look_for_stuck()
            self._take()

    def _assign(self) -> None:
        self._client.assign([TopicPartition(*place, offset) for place, offset in self._positions.items()])

    def _look_for_partitions(self) -> None:
        try:
            known = self._client.list_topics(timeout=_ASK_SECONDS).topics
        except KafkaException:
            return
        there = {
            (topic, partition) for topic in self._topics if topic in known for partition in known[topic].partitions
        }
        if new := sorted(there - self._positions.keys()):
            self._positions |= dict.fromkeys(new, 0)
            self._since_s |= dict.fromkeys(new, time.monotonic())
            self._assign()

    def _look_for_stuck(self) -> None:
        """Check the partition that has delivered nothing for the longest time."""
        place = min(self._since_s, key=self._since_s.__getitem__, default=None)
        if place is None or time.monotonic() - self._since_s[place] < STUCK_SECONDS:
            return
        self._since_s[place] = time.monotonic()
        try:
            _, end = self._client.get_watermark_offsets(TopicPartition(*place), timeout=_ASK_SECONDS, cached=False)
        except (KafkaException, TypeError):  # None if nobody answers
            return
        if end == self._positions[place]:
            return
        self._voice.error(STUCK)
        self._client.close()
        self._client = Consumer(self._settings)
        self._assign()

    def _take(self) -> None:
        out_of_range: dict[Place, int] = {}
        for message in self._client.consume(_MAX_MESSAGES, 0.2):
            place, offset = (message.topic() or "", message.partition() or 0), message.offset() or 0
            error = message.error()
            if error is None:
                self._positions[place] = offset + 1
                self._since_s[place] = time.monotonic()
                self._voice.record(place, offset, message.key(), message.value())
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                out_of_range[place] = offset
            else:
                self._complain(error)
        # This comes after the records of the same poll, because a new start at an offset affects all partitions.
        for place, offset in out_of_range.items():
            if offset == self._positions.get(place):  # otherwise the reader has gone on: the request was sent earlier
                self._voice.reset(place, offset)
                self._positions[place] = 0
        if out_of_range:
            self._assign()

    def _complain(self, error: KafkaError) -> None:
        self._voice.error(CONNECTION if error.code() in CONNECTIONS else error.name())
