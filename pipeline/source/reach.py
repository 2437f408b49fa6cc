"""The coordinator and the registry, held open: a stream asks them with every trigger."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from pipeline.source.errors import SourceError
from pipeline.source.gather import gathered
from pipeline.source.selection import ChosenTopic
from proxy.config import ConfigError, Settings, load_settings
from proxy.coordinator.by_settings import coordinator_on, registry_on
from proxy.coordinator.connect import connect
from proxy.coordinator.interface import Coordinator, LogDescription
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.coordinator.registry import RedisTopicRegistry
from proxy.journal.opened import opened_journal


class LogEnds(NamedTuple):
    """The beginning and the end of a log for a query."""

    log_start_offset: int
    high_watermark: int
    end_offset: int
    """End for this query: the high watermark, or the last stable offset under `read_committed`."""


class Reach:
    """The coordinator's side of a query."""

    def __init__(self, registry: RedisTopicRegistry, coordinator: Coordinator) -> None:
        self._registry = registry
        self.coordinator = coordinator

    async def topics(self) -> tuple[DisklessTopic, ...]:
        """Return the registry as it is now. Raises CoordinatorUnavailable."""
        return (await self._registry.load()).topics


@asynccontextmanager
async def reached(settings: Settings) -> AsyncIterator[Reach]:
    """For the time of the context. Nothing is asked yet."""
    client = await connect(settings.redis)
    try:
        async with opened_journal(settings) as journal:
            coordinator = coordinator_on(client, settings, journal)
            yield Reach(registry_on(client, settings, coordinator), coordinator)
    finally:
        await client.aclose()


async def ends_of(
    coordinator: Coordinator, topics: Iterable[ChosenTopic], *, committed: bool
) -> dict[tuple[str, int], LogEnds]:
    """Return the present beginning and end of the logs, by topic and partition, without missing logs.

    `committed`: the query reads committed records only. Raises CoordinatorUnavailable.
    """
    chosen = list(topics)
    described = await gathered(lambda topic: coordinator.describe(topic.topic_id, topic.partitions), chosen)
    return {
        (topic.name, partition): _ends(one, committed)
        for topic, of_topic in zip(chosen, described, strict=True)
        for partition, one in zip(topic.partitions, of_topic, strict=True)
        if one is not None
    }


def _ends(log: LogDescription, committed: bool) -> LogEnds:
    end_offset = log.last_stable_offset if committed else log.high_watermark
    return LogEnds(log.log_start_offset, log.high_watermark, end_offset)


def settings_of(path: str) -> Settings:
    """Return the proxy's settings file, with the environment over it. Raises SourceError."""
    try:
        return load_settings(Path(path))
    except ConfigError as error:
        raise SourceError(str(error)) from error
