"""The producers of one rack, as a process of their own: `python -m proxy.demo.producers`, see `channel.py`.

Settings: `run` (hex), `bootstrap`, `producers` (list of [number, kind, topic]), `partitions`, `records_per_second` (of
each), `record_bytes`, `warm_up_seconds`, `flush_seconds`, `nice`, `librdkafka` (settings of every producer).
Findings: `{"kind", "acknowledged": rows, "failed": rows}` as in `ledger.py`; `{"ready": true}` once all producers send.
"""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from threading import Barrier, Thread

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from proxy.demo.channel import Channel, Rows
from proxy.demo.ledger import NOT_MEASURED, UNKNOWN_OFFSET
from proxy.demo.payload import Writer, checksum

TICK_SECONDS = 0.1
"""A producer sends what is due at every tick, all to one partition, to the next partition at the next."""
PURGE_SECONDS = 5.0


class LoadProducer:
    """One idempotent producer with `acks=all`, in a thread of its own."""

    def __init__(self, channel: Channel, number: int, kind: str, topic: str) -> None:
        """`number` is unique in the load."""
        settings = channel.settings
        self._channel, self._topic = channel, topic
        self._writer = Writer(bytes.fromhex(settings["run"]), number, settings["record_bytes"])
        self._number = number
        self._rows = Rows(channel, kind=kind)
        self._sequence = 0
        self._broken = False
        self._measured_from = 0.0
        self._producer = self._connect()

    def _connect(self) -> Producer:
        settings = self._channel.settings
        return Producer(
            {
                "bootstrap.servers": settings["bootstrap"],
                "client.id": f"demo-producer-{self._number}",
                "error_cb": self._complain,
                **settings["librdkafka"],
            }
        )

    def run(self, together: Barrier) -> None:
        """Send until the order to finish, then wait for every delivery report."""
        together.wait()
        settings = self._channel.settings
        due, owed, tick = time.monotonic(), 0.0, 0
        self._measured_from = due + settings["warm_up_seconds"]
        while not self._channel.finishing.is_set():
            owed += settings["records_per_second"] * TICK_SECONDS
            for _ in range(int(owed)):
                self._send(tick % settings["partitions"])
            owed -= int(owed)
            tick += 1
            # Counted from now where a tick was late, so that nothing is made up for in a burst.
            due = max(due + TICK_SECONDS, time.monotonic())
            while (left := due - time.monotonic()) > 0:
                self._producer.poll(left)
            self._rows.flush()
            if self._broken:
                self._replace()
        self._settle(settings["flush_seconds"])
        self._rows.flush(now=True)

    def _send(self, partition: int) -> None:
        measured = time.monotonic() >= self._measured_from
        key, value = self._writer.record(self._sequence, measured)
        report = partial(self._delivered, self._sequence, checksum(key, value), measured)
        try:
            self._producer.produce(self._topic, value, key, partition, on_delivery=report)
        except BufferError:  # its queue is full: the tick is left out
            return
        except KafkaException as error:
            self._broken = self._broken or error.args[0].fatal()
            return
        self._sequence += 1

    def _delivered(
        self, sequence: int, sent_checksum: int, measured: bool, error: KafkaError | None, message: Message
    ) -> None:
        if error is not None:
            self._rows.add("failed", [self._number, sequence, error.name()])
            return
        offset, latency_s = message.offset(), message.latency()
        # librdkafka's own figure: from the call of `produce` to the arrival of the answer.
        latency_us = NOT_MEASURED if latency_s is None or not measured else int(latency_s * 1_000_000)
        told_offset = UNKNOWN_OFFSET if offset is None or offset < 0 else offset
        row = [self._number, sequence, message.partition(), told_offset, sent_checksum, latency_us]
        self._rows.add("acknowledged", row)

    def _complain(self, error: KafkaError) -> None:
        self._broken = self._broken or error.fatal()
        print(f"producer {self._number}: {error.str()}", file=sys.stderr, flush=True)

    def _replace(self) -> None:
        """A producer that met a fatal error sends nothing any more; another one goes on with the sequence."""
        self._settle(PURGE_SECONDS)
        self._producer = self._connect()
        self._broken = False

    def _settle(self, seconds: float) -> None:
        """Wait for the delivery reports; what is not delivered in time is given up, and reported as failed."""
        if self._producer.flush(seconds):
            self._producer.purge()
            self._producer.flush(PURGE_SECONDS)


def main() -> None:
    """Run all producers to their end."""
    channel = Channel()
    os.nice(channel.settings["nice"])
    producers = [LoadProducer(channel, *one) for one in channel.settings["producers"]]
    together = Barrier(len(producers), action=lambda: channel.send(ready=True))
    threads = [Thread(target=producer.run, args=(together,)) for producer in producers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
