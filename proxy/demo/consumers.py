"""The consumers of one rack, as a process of their own: `python -m proxy.demo.consumers`, see `channel.py`.

One consumer per topic reads all its partitions from their beginning, assigned by hand: without a group no rebalance can
make a record come twice. On the order to finish, each reads on to the end of every partition.

Settings: `run` (hex), `bootstrap`, `topics` (by kind), `partitions`, `finish_seconds`, `librdkafka` (settings of every
consumer).

Findings: `{"kind", "read": rows}` as in `ledger.py`; `{"ready": true}` once all consumers read; `{"kind", "complaint":
text}` when one can't continue.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from threading import Barrier, Thread

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from proxy.demo.channel import FLUSH_SECONDS, Channel, Rows
from proxy.demo.ledger import FOREIGN_PRODUCER, NOT_MEASURED
from proxy.demo.payload import checksum, now_ns, read

MAX_MESSAGES = 1000
ASK_SECONDS = 5.0


class LoadConsumer:
    """One consumer, in a thread of its own."""

    def __init__(self, channel: Channel, kind: str, topic: str) -> None:
        settings = channel.settings
        self._channel, self._kind = channel, kind
        self._run = bytes.fromhex(settings["run"])
        self._rows = Rows(channel, kind=kind)
        self._partitions = [TopicPartition(topic, number) for number in range(settings["partitions"])]
        self._next_offsets = dict.fromkeys(range(settings["partitions"]), 0)
        self._stuck = False
        self._consumer = Consumer(
            {
                "bootstrap.servers": settings["bootstrap"],
                "client.id": f"demo-consumer-{kind}",
                "error_cb": self._note,
                **settings["librdkafka"],
            }
        )

    def run(self, together: Barrier) -> None:
        """Read until the order to finish, then to the end."""
        self._wait_known()
        self._consumer.assign([TopicPartition(one.topic, one.partition, OFFSET_BEGINNING) for one in self._partitions])
        together.wait()
        while not self._channel.finishing.is_set():
            self._take()
        self._read_to_the_end(time.monotonic() + self._channel.settings["finish_seconds"])
        self._rows.flush(now=True)
        self._consumer.close()

    def _wait_known(self) -> None:
        """Until the rack knows the topic, which another rack has only just made."""
        while self._ends() is None and not self._channel.finishing.is_set():
            time.sleep(FLUSH_SECONDS)

    def _ends(self) -> dict[int, int] | None:
        """Return the end offset of every partition, as this rack sees it; None if it is unknown."""
        try:
            found = {
                one.partition: self._consumer.get_watermark_offsets(one, timeout=ASK_SECONDS)
                for one in self._partitions
            }
        except KafkaException as error:
            self._note(error.args[0])
            return None
        return {partition: offsets[1] for partition, offsets in found.items() if offsets is not None}

    def _read_to_the_end(self, deadline: float) -> None:
        ends = None
        while time.monotonic() < deadline and not self._stuck:
            ends = ends or self._ends()
            if ends and all(self._next_offsets[partition] >= end for partition, end in ends.items()):
                return
            self._take()
        self._channel.send(kind=self._kind, complaint="did not get to the end of its partitions")

    def _take(self) -> None:
        first = self._consumer.poll(FLUSH_SECONDS)
        if first is not None:
            self._note_down([first, *self._consumer.consume(MAX_MESSAGES, 0)])
        self._rows.flush()

    def _note_down(self, messages: Iterable[Message]) -> None:
        arrived_ns = now_ns()
        for message in messages:
            if (error := message.error()) is not None:
                self._fail(error)
                continue
            partition, offset, key, value = message.partition(), message.offset(), message.key(), message.value()
            assert partition is not None
            assert offset is not None
            self._next_offsets[partition] = offset + 1
            sent = read(self._run, value)
            if sent is None:
                row = [FOREIGN_PRODUCER, 0, partition, offset, 0, NOT_MEASURED]
            else:
                latency_us = (arrived_ns - sent.sent_ns) // 1000 if sent.measured else NOT_MEASURED
                row = [sent.producer, sent.sequence, partition, offset, checksum(key, value), latency_us]
            self._rows.add("read", row)

    def _fail(self, error: KafkaError) -> None:
        self._note(error)
        # Its position is lost. Starting again somewhere would hide what is wrong: it stays where it is.
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            self._stuck = True
            self._channel.send(kind=self._kind, complaint=error.str())

    def _note(self, error: KafkaError) -> None:
        print(f"consumer of the {self._kind} topic: {error.str()}", file=sys.stderr, flush=True)


def main() -> None:
    """Run all consumers to their end."""
    channel = Channel()
    consumers = [LoadConsumer(channel, kind, topic) for kind, topic in channel.settings["topics"].items()]
    together = Barrier(len(consumers), action=lambda: channel.send(ready=True))
    threads = [Thread(target=consumer.run, args=(together,)) for consumer in consumers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
