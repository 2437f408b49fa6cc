"""Run aiokafka as an application under load, in its own process: `aiokafka_load.py ROLE BOOTSTRAP CA TOPIC…`.

The role is `produce` or `consume`. `CA` is a file of certificates to trust; if it is empty, the client uses no TLS. The
process prints a JSON object per line for each record or error that it receives, like the Go program of the conformance
tests. It ends at SIGTERM, after all records are acknowledged.
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
from aiokafka.helpers import create_ssl_context

PARTITIONS = 3
PAUSE_SECONDS = 0.02


def say(event: str, **values: Any) -> None:
    print(json.dumps({"event": event, **values}), flush=True)


def security(ca_file: str) -> dict[str, Any]:
    """Return the client's settings for TLS."""
    if not ca_file:
        return {}
    return {"security_protocol": "SSL", "ssl_context": create_ssl_context(cafile=ca_file)}


async def produce(bootstrap: str, ca_file: str, topics: list[str], ended: asyncio.Event) -> None:
    more = security(ca_file)
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, **more) as client:
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


async def consume(bootstrap: str, ca_file: str, topics: list[str], ended: asyncio.Event) -> None:
    more = security(ca_file)
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", **more) as client:
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
    role, bootstrap, ca_file, *topics = sys.argv[1:]
    ended = asyncio.Event()
    logging.disable()  # the library's own log lines are not errors of the application
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await (produce if role == "produce" else consume)(bootstrap, ca_file, topics, ended)


if __name__ == "__main__":
    asyncio.run(main())
