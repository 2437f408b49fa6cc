"""A client of one kind as an application that reads topics from their beginning: `reader.py KIND RUN BOOTSTRAP
CLIENT_RACK TOPIC…`.

Prints a JSON object per line for each record, error, or out-of-range offset, after which it starts over; reads
partitions that topics gain; ends at SIGTERM. RUN is the run's ID in hexadecimal, which values carry; CLIENT_RACK may be
empty.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError as AiokafkaError
from aiokafka.errors import OffsetOutOfRangeError

from tests.moves_under_load.confluent_reader import ConfluentReader
from tests.moves_under_load.voice import METADATA_MS, Voice
from tests.moves_under_load.wire_reader import WireReader


async def read_by_aiokafka(voice: Voice, bootstrap: str, topics: list[str]) -> None:
    """Read with aiokafka until the process ends."""
    positions: dict[TopicPartition, int] = {}
    client = AIOKafkaConsumer(
        bootstrap_servers=bootstrap.split(","),
        auto_offset_reset="none",
        enable_auto_commit=False,
        metadata_max_age_ms=METADATA_MS,
    )
    async with client:
        while True:
            there = {
                TopicPartition(topic, partition)
                for topic in topics
                for partition in client.partitions_for_topic(topic) or ()
            }
            if new := there - positions.keys():
                positions |= dict.fromkeys(sorted(new), 0)
                client.assign(list(positions))
                for place, offset in positions.items():
                    client.seek(place, offset)
            if not positions:
                await asyncio.sleep(0.1)
                continue
            try:
                taken = await client.getmany(timeout_ms=200)
            except OffsetOutOfRangeError as error:
                for place, offset in error.args[0].items():
                    voice.reset(place, offset)
                    positions[place] = 0
                    client.seek(place, 0)
                continue
            except AiokafkaError as error:
                voice.error(type(error).__name__)
                await asyncio.sleep(0.1)
                continue
            for place, messages in taken.items():
                for one in messages:
                    positions[place] = one.offset + 1
                    voice.record(place, one.offset, one.key, one.value)


def main() -> None:
    kind, run, bootstrap, client_rack, *topics = sys.argv[1:]
    logging.disable()  # a library's own log lines are not errors of the application
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    voice = Voice(run)
    if kind == "librdkafka":
        ConfluentReader(voice, bootstrap, client_rack, topics).read()
    elif kind == "aiokafka":
        asyncio.run(read_by_aiokafka(voice, bootstrap, topics))
    else:
        asyncio.run(WireReader(voice, bootstrap, topics, int(kind.removeprefix("fetch-v"))).read())


if __name__ == "__main__":
    main()
