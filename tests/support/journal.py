"""Journals on the brokers of a stack, and values that name themselves."""

from __future__ import annotations

import asyncio
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from proxy.brokers.cluster import Cluster
from proxy.config import Journal, Settings, load_settings
from proxy.coordinator.interface_journal import Appended, JournalRecord, JournalUnavailable
from proxy.demo.stack import Stack
from proxy.journal.journal import KafkaJournal
from proxy.telemetry.stats import Stats


def new_topic_name() -> str:
    """Return a name that no topic of the stack has."""
    return f"journal-{uuid.uuid4().hex[:12]}"


@asynccontextmanager
async def journal_of(
    stack: Stack,
    topic: str,
    *,
    partitions: int = 3,
    rack: str = "rack-a",
    opened: bool = True,
    proxy: Settings | None = None,
    **settings: Any,
) -> AsyncIterator[KafkaJournal]:
    """Yield a journal as the rack's proxy would have it, or with the settings `proxy`: an object for each process."""
    cluster = Cluster(proxy or load_settings(stack.config_path(rack)))
    # Everything stalls for a moment next to other tests.
    chosen = Journal(topic=topic, **{"timeout_ms": 30_000, "attempt_timeout_ms": 5_000, **settings})
    journal = KafkaJournal(chosen, cluster, partitions=partitions, stats=Stats())
    try:
        if opened:
            await journal.open()
        yield journal
    finally:
        await journal.close()
        cluster.service.close()


async def read_all(journal: KafkaJournal, partition: int, max_bytes: int = 65_536) -> list[JournalRecord]:
    """Return all records of a partition, from its start to its end."""
    position, end = await journal.start(partition), await journal.end(partition)
    records: list[JournalRecord] = []
    while position < end:
        records += await journal.read(partition, position, max_bytes)
        position = records[-1].position + 1
    return records


class Ledger:
    """The outcome of each append; every value is appended by one call."""

    def __init__(self) -> None:
        self.appended: dict[int, dict[bytes, Appended]] = defaultdict(dict)
        """Places of acknowledged values, by partition."""
        self.rejected: dict[int, list[bytes]] = defaultdict(list)
        """Values that were certainly not appended."""
        self.unknown: dict[int, list[bytes]] = defaultdict(list)
        self.reasons: set[str] = set()

    async def append(self, journal: KafkaJournal, partition: int, value: bytes) -> bool:
        """Append a value and note the outcome. Return whether it was acknowledged."""
        try:
            self.appended[partition][value] = await journal.append(partition, value)
        except JournalUnavailable as error:
            self.reasons.add(f"{error.appended}: {error}")
            (self.unknown if error.appended else self.rejected)[partition].append(value)
            return False
        return True

    async def write(self, name: str, journal: KafkaJournal, partition: int, done: asyncio.Event) -> None:
        """Append values of this name one after the other, until the event is set."""
        number = 0
        while not done.is_set():
            await self.append(journal, partition, f"{name}-{partition}-{number}".encode())
            number += 1

    async def check(self, journal: KafkaJournal, partition: int) -> None:
        """Compare the outcomes with the records of the journal."""
        records = await read_all(journal, partition)
        assert [record.position for record in records] == list(range(len(records)))
        times_ms = [record.time_ms for record in records]
        assert times_ms == sorted(times_ms)
        places = {record.value: Appended(record.position, record.time_ms) for record in records}
        assert len(places) == len(records), "a value is there twice"
        acknowledged = self.appended[partition]
        assert {value: places.get(value) for value in acknowledged} == acknowledged
        assert not [value for value in self.rejected[partition] if value in places]
        assert set(places) - set(acknowledged) <= set(self.unknown[partition])
