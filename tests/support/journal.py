"""Journals on the brokers of a stack, and values that name themselves."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from proxy.brokers.cluster import Cluster
from proxy.config import Journal, load_settings
from proxy.coordinator.interface_journal import JournalRecord
from proxy.demo.stack import Stack
from proxy.journal.journal import KafkaJournal
from proxy.telemetry.stats import Stats


def new_topic_name() -> str:
    """Return a name that no topic of the stack has."""
    return f"journal-{uuid.uuid4().hex[:12]}"


@asynccontextmanager
async def journal_of(
    stack: Stack, topic: str, *, partitions: int = 3, rack: str = "rack-a", opened: bool = True, **settings: Any
) -> AsyncIterator[KafkaJournal]:
    """Yield a journal as the rack's proxy would have it: an object for each process."""
    cluster = Cluster(load_settings(stack.config_path(rack)))
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
