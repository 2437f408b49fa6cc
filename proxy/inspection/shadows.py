"""The brokers' view of topics: classic ones, placeholder topics, and stray records in the logs of placeholder
topics."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from proxy.brokers.broker_metadata import TOPICS_PER_STEP, ask_topics
from proxy.brokers.cluster import Cluster
from proxy.brokers.upstream import BrokerUnreachable
from proxy.config import Settings
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.housekeeping.named_diskless import NamedDiskless
from proxy.housekeeping.stray import StrayRecords
from proxy.process.turns import Turns
from proxy.wire.errors import ProtocolError

PRESENT, MISSING, UNKNOWN = "present", "missing", "unknown"


@dataclass(frozen=True, slots=True)
class BrokersView:
    """The brokers' answers about diskless topics."""

    present: frozenset[bytes] = frozenset()
    denied: frozenset[bytes] = frozenset()
    stray_records: Mapping[str, int] = field(default_factory=dict)
    """Number of stray records by topic, for topics that have some."""
    failure: str | None = None
    """Why they could not be asked, or not be asked all."""

    def state_of(self, topic: DisklessTopic) -> str:
        """Return whether the topic's shadow is there."""
        if topic.topic_id in self.present:
            return PRESENT
        return MISSING if topic.topic_id in self.denied else UNKNOWN


async def all_topics(settings: Settings) -> dict[str, tuple[bytes, int]]:
    """IDs and partition counts of all topics that the proxy's principal may see, by name.

    Raises BrokerUnreachable and ProtocolError.
    """
    async with _cluster(settings) as cluster:
        known = await ask_topics(cluster.service, None)
    return {topic.name: (topic.topic_id, topic.partition_count) for topic in known.topics.values()}


async def classic_topics_named_diskless(settings: Settings, registered: Collection[str]) -> frozenset[str]:
    """Return the classic topics that are to be diskless by their names, as `housekeeping.named_diskless` says.

    Raises BrokerUnreachable and ProtocolError.
    """
    async with _cluster(settings) as cluster:
        turns = Turns(settings.limits.long_work_slice_ms / 1000)
        looking = NamedDiskless(
            cluster,
            turns,
            patterns=lambda: settings.default_diskless_topics,
            is_registered=lambda name: name in registered,
        )
        return frozenset(await looking.find())


async def look_at_shadows(settings: Settings, topics: Sequence[DisklessTopic]) -> BrokersView:
    """Return placeholder topics, and stray records in them; if brokers can't be reached, the reason."""
    topic_ids = [topic.topic_id for topic in topics if any(topic.topic_id)]
    present: set[bytes] = set()
    denied: set[bytes] = set()
    try:
        async with _cluster(settings) as cluster:
            for start in range(0, len(topic_ids), TOPICS_PER_STEP):
                known = await ask_topics(cluster.service, topic_ids[start : start + TOPICS_PER_STEP])
                present |= known.topics.keys()
                denied |= known.denied
            stray = StrayRecords(cluster)
            counts = await stray.look(sorted(present))
    except (BrokerUnreachable, ProtocolError) as error:
        return BrokersView(frozenset(present), frozenset(denied), failure=str(error))
    return BrokersView(frozenset(present), frozenset(denied), counts, stray.refused)


@asynccontextmanager
async def _cluster(settings: Settings) -> AsyncIterator[Cluster]:
    cluster = Cluster(settings)
    try:
        await cluster.refresh()
        yield cluster
    finally:
        cluster.service.close()
