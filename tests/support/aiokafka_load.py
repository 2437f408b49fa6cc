"""Run aiokafka as an application under load, in its own process: `aiokafka_load.py produce|consume BOOTSTRAP TOPIC…`.

The process prints a JSON object per line for each record or error that it receives, like the Go program of the
conformance tests. It ends at SIGTERM, after all records are acknowledged.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

PARTITIONS = 3
PAUSE_SECONDS = 0.02


def say(event: str, **values: Any) -> None:
    print(json.dumps({"event": event, **values}), flush=True)


async def produce(bootstrap: str, topics: list[str], ended: asyncio.Event) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as client:
        waiting: set[asyncio.Task[None]] = set()

        async def acknowledge(future: asyncio.Future[Any], topic: str, partition: int, number: int) -> None:
            try:
                stored = await future
                say("acked", topic=topic, partition=partition, offset=stored.offset, number=number)
            except KafkaError as error:
                say("error", topic=topic, partition=partition, error=repr(error), number=number)

        number = 0
        while not ended.is_set():
            for topic in topics:
                future = await client.send(topic, str(number).encode(), partition=number % PARTITIONS)
                task = asyncio.create_task(acknowledge(future, topic, number % PARTITIONS, number))
                waiting.add(task)
                task.add_done_callback(waiting.discard)
            number += 1
            await asyncio.sleep(PAUSE_SECONDS)
        await asyncio.gather(*waiting)


async def consume(bootstrap: str, topics: list[str], ended: asyncio.Event) -> None:
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as client:
        client.assign([TopicPartition(topic, partition) for topic in topics for partition in range(PARTITIONS)])
        while not ended.is_set():
            try:
                got = await client.getmany(timeout_ms=200)
            except KafkaError as error:
                say("error", error=repr(error))
                continue
            for partition, messages in got.items():
                for one in messages:
                    number = int(one.value or b"-1")
                    say(
                        "record",
                        topic=partition.topic,
                        partition=partition.partition,
                        offset=one.offset,
                        number=number,
                    )


async def main() -> None:
    role, bootstrap, *topics = sys.argv[1:]
    ended = asyncio.Event()
    logging.disable()  # the library's own log lines are not errors of the application
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await (produce if role == "produce" else consume)(bootstrap, topics, ended)


if __name__ == "__main__":
    asyncio.run(main())
