"""Run librdkafka as an application under load, in its own process: `confluent_load.py ROLE BOOTSTRAP CA TOPIC…`.

Arguments and output are those of `aiokafka_load`. It ends at SIGTERM, after all records are acknowledged.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from threading import Event
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

PARTITIONS = 3
PAUSE_SECONDS = 0.02
FLUSH_SECONDS = 60.0
NO_LINES = 0
"""The library's own log lines are not errors of the application."""
SAID_BY_THE_LIBRARY = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE}
"""Errors about connections, which the library retries by itself."""


def say(event: str, **values: Any) -> None:
    print(json.dumps({"event": event, **values}), flush=True)


def produce(settings: dict[str, Any], topics: list[str], ended: Event) -> None:
    client = Producer({**settings, "enable.idempotence": True, "linger.ms": 5})
    number = 0

    def acknowledge(error: KafkaError | None, message: Message) -> None:
        where = {"topic": message.topic(), "partition": message.partition(), "number": int(message.value() or b"-1")}
        if error is not None:
            say("error", error=str(error), **where)
        else:
            say("acked", offset=message.offset(), **where)

    while not ended.is_set():
        for topic in topics:
            client.produce(topic, str(number).encode(), partition=number % PARTITIONS, on_delivery=acknowledge)
        client.poll(0)
        number += 1
        time.sleep(PAUSE_SECONDS)
    left = client.flush(FLUSH_SECONDS)
    if left:
        say("error", error=f"{left} records are not acknowledged")


def consume(settings: dict[str, Any], topics: list[str], ended: Event) -> None:
    client = Consumer({**settings, "group.id": "unused", "enable.auto.commit": False, "auto.offset.reset": "earliest"})
    client.assign([TopicPartition(topic, partition, 0) for topic in topics for partition in range(PARTITIONS)])
    while not ended.is_set():
        for message in client.consume(100, 0.2):
            error = message.error()
            if error is not None:
                if error.code() not in SAID_BY_THE_LIBRARY:
                    say("error", error=str(error))
                continue
            where = {"topic": message.topic(), "partition": message.partition(), "offset": message.offset()}
            say("record", number=int(message.value() or b"-1"), **where)
    client.close()


def main() -> None:
    role, bootstrap, ca_file, *topics = sys.argv[1:]
    ended = Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": NO_LINES}
    if ca_file:
        settings |= {"security.protocol": "SSL", "ssl.ca.location": ca_file}
    (produce if role == "produce" else consume)(settings, topics, ended)


if __name__ == "__main__":
    main()
