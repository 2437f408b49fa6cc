"""`/api/topics`: diskless topics, and classic ones whose records have passed here, those that cross racks first."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from proxy.admin.api.question import ProcessAnswer, Question, shown
from proxy.protocol.topic_ids import uuid_text
from proxy.routing.racks import borders
from proxy.telemetry.stats import UNKNOWN_TOPIC

if TYPE_CHECKING:
    from proxy.replicas.knowledge import Replicas
    from proxy.telemetry.stats import Stats
    from proxy.topics.topics import Topics

_PER_STEP = 1_000
"""Counters to look at before other tasks of the event loop get a turn."""


class TopicFigures(NamedTuple):
    """One topic as one process knows it."""

    topic_id: str | None
    partitions: int | None
    diskless: bool
    produced_bytes: int = 0
    fetched_bytes: int = 0
    crossed_bytes: int = 0

    def added_to(self, other: TopicFigures | None) -> TopicFigures:
        """Return the sum of what two processes know of the same topic."""
        if other is None:
            return self
        return TopicFigures(
            other.topic_id or self.topic_id,
            self.partitions if other.partitions is None else other.partitions,
            other.diskless or self.diskless,
            other.produced_bytes + self.produced_bytes,
            other.fetched_bytes + self.fetched_bytes,
            other.crossed_bytes + self.crossed_bytes,
        )


async def collect(
    diskless: Topics, stats: Stats, replicas: Replicas, own_rack: str, question: Question
) -> dict[str, TopicFigures]:
    """Return the topics that match, by name. `document` applies `limit`, to the sum of all processes."""
    wanted = question.contains.lower()
    topics: dict[str, TopicFigures] = {}
    for number, entry in enumerate(diskless.all()):
        if number and number % _PER_STEP == 0:
            await asyncio.sleep(0)
        if wanted in entry.name.lower():
            topics[entry.name] = TopicFigures(uuid_text(entry.topic_id) or None, entry.partitions, True)
    for number, (way, name, size) in enumerate(stats.all_record_bytes()):
        if number and number % _PER_STEP == 0:
            await asyncio.sleep(0)
        kind, direction, client_rack, serving_rack = way
        name = UNKNOWN_TOPIC if name is None else name
        if wanted not in name.lower():
            continue
        moved = TopicFigures(
            None,
            None,
            kind == "diskless",
            size if direction == "produce" else 0,
            size if direction == "fetch" else 0,
            size * borders(client_rack, own_rack, serving_rack),
        )
        topics[name] = moved.added_to(topics.get(name))
    for name, topic in topics.items():
        if topic.partitions is None and (known := replicas.peek(name)) is not None:
            topics[name] = topic._replace(
                topic_id=uuid_text(known.topic_id) or None, partitions=len(known.partitions) or None
            )
    return topics


def document(answers: Iterable[ProcessAnswer], question: Question) -> dict[str, Any]:
    """Return the answer of `GET /api/topics`."""
    topics: dict[str, TopicFigures] = {}
    for one in answers:
        for name, topic in one.value.items():
            topics[name] = topic.added_to(topics.get(name))
    first = sorted(
        topics.items(),
        key=lambda one: (-one[1].crossed_bytes, -(one[1].produced_bytes + one[1].fetched_bytes), one[0]),
    )
    return {
        "total": len(topics),
        "topics": [{"name": shown(name)} | topic._asdict() for name, topic in first[: question.limit]],
    }
