"""The topics and partitions that a query reads, out of the registry."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pipeline.source.errors import SourceError
from pipeline.source.options import Selection
from proxy.coordinator.interface_registry import DisklessTopic

LIVE = "live"


class ChosenTopic(NamedTuple):
    """A topic as the registry has it now."""

    name: str
    topic_id: bytes
    partitions: tuple[int, ...]
    """Partitions that are read."""


def choose(topics: Iterable[DisklessTopic], selection: Selection, *, missing_ok: bool = False) -> list[ChosenTopic]:
    """Return the chosen topics, by name. A pattern may choose none.

    Raises SourceError for a named topic or partition that does not exist, unless `missing_ok`: those of a stream may
    have been deleted since it began.
    """
    live = {topic.name: topic for topic in topics if topic.state == LIVE}
    if selection.pattern is not None:
        matching = (topic for name, topic in live.items() if selection.pattern.fullmatch(name))
        return sorted(ChosenTopic(topic.name, topic.topic_id, tuple(range(topic.partitions))) for topic in matching)
    named = selection.partitions or {}
    chosen = []
    for name in sorted((*selection.names, *named)):
        topic = live.get(name)
        if topic is None:
            if missing_ok:
                continue
            raise SourceError(
                f"{name} is not a diskless topic; see `diskless-proxy topics list`, and read classic topics "
                'with format("kafka")'
            )
        partitions = tuple(named.get(name) or range(topic.partitions))
        beyond = [partition for partition in partitions if partition >= topic.partitions]
        if beyond and not missing_ok:
            raise SourceError(f"{name} has {topic.partitions} partitions; there is no {name}-{beyond[0]} to assign")
        chosen.append(ChosenTopic(name, topic.topic_id, tuple(one for one in partitions if one < topic.partitions)))
    return chosen
