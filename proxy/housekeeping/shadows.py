"""Bring diskless topics in line with their placeholder topics, after changes that were not completed.

- A placeholder topic with more partitions than its topic makes the topic grow. (A proxy died after CreatePartitions, or
  the partitions were added directly on the brokers.)
- A topic whose placeholder topic is gone is deleted. (It was deleted directly on the brokers or while no proxy ran, it
  was recreated under its name, or a proxy died after DeleteTopics.) The deletion is permanent, so it must be certain:
  at every check of `brokers.deleted_topics_confirm_ms`, no live broker of the registry's own Kafka cluster knows the
  placeholder topic by its ID. A broker that can't be asked, or that still knows it, restarts the time.
- A deletion that was begun, and whose placeholder topic is gone, is finished.
- Records in a placeholder topic's log are counted (`stray.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from proxy.brokers.broker_metadata import TOPICS_PER_STEP, ask_topics, denied_by_all
from proxy.brokers.cluster import Cluster
from proxy.brokers.upstream import BrokerUnreachable
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.creation.reservations import Reservations
from proxy.housekeeping.stray import StrayRecords
from proxy.topics.topics import Topics
from proxy.wire.errors import ProtocolError

log = structlog.get_logger()

LEAST_LOOKS = 3
"""Number of checks that have to agree, however short the time is set."""


@dataclass(slots=True)
class _Missing:
    """A shadow that no broker knows."""

    since_s: float
    looks: int = 0


class Shadows:
    """Compares what the registry and the brokers know."""

    def __init__(
        self,
        cluster: Cluster,
        topics: Topics,
        reservations: Reservations,
        *,
        confirm_s: float,
    ) -> None:
        """`confirm_s`: how long a shadow must be missing before its topic is deleted."""
        self._cluster = cluster
        self._topics = topics
        self._reservations = reservations
        self._confirm_s = confirm_s
        self._missing: dict[bytes, _Missing] = {}
        self.foreign = False
        """Whether the brokers that were asked last are those of another Kafka cluster."""
        self._all_missing = False
        self.stray = StrayRecords(cluster)
        self._refused: str | None = None
        self.stray_records: dict[str, int] = {}
        """Stray records by topic at the last check, in the proxy that holds the lease."""

    async def compare(self) -> None:
        """All topics, once. Raises CoordinatorUnavailable, BrokerUnreachable and ProtocolError; what was done stays."""
        live = {topic.topic_id: topic for topic in self._topics.all() if topic.state == "live"}
        deleting = [topic for topic in self._topics.all() if topic.state == "deleting"]
        try:
            await self._compare_live(live)
        except (CoordinatorUnavailable, BrokerUnreachable, ProtocolError):
            self._missing.clear()
            raise
        for topic in deleting:
            await self._reservations.forget(topic)
            log.info("diskless_topic_deleted", topic=topic.name, reason="its deletion had begun and was not finished")

    async def look_for_strays(self) -> None:
        """Count the records in shadows' logs. Raises BrokerUnreachable and ProtocolError."""
        counts = await self.stray.look([topic.topic_id for topic in self._topics.all() if topic.state == "live"])
        for name, count in counts.items():
            if count > self.stray_records.get(name, 0):
                log.error(
                    "stray_records",
                    topic=name,
                    count=count,
                    reason="a producer sent them to the brokers directly, not through the proxies; no reader gets them",
                    remedy="let producers reach only the proxies; then copy the records, and delete them on the "
                    "brokers: docs/operations/past-the-proxies.md",
                )
        self.stray_records = counts
        if self.stray.refused not in (None, self._refused):
            log.warning(
                "shadow_not_readable",
                reason=self.stray.refused,
                effect="records that a producer sends to the brokers directly, not through the proxies, may "
                "stay unnoticed",
                remedy="allow the proxy's principal Read on all topics",
            )
        self._refused = self.stray.refused

    def lease_lost(self) -> None:
        """Another proxy looks from now on."""
        self._missing.clear()
        self.stray_records = {}

    async def _compare_live(self, live: dict[bytes, DisklessTopic]) -> None:
        denied: set[bytes] = set()
        topic_ids = sorted(live)
        for start in range(0, len(topic_ids), TOPICS_PER_STEP):
            known = await ask_topics(self._cluster.service, topic_ids[start : start + TOPICS_PER_STEP])
            if not await self.decides(known.cluster_id):
                self._missing.clear()
                return
            for topic_id, shadow in known.topics.items():
                topic = live.get(topic_id)
                if topic is not None and shadow.partition_count > topic.partitions:
                    await self._reservations.open(topic.name, topic_id, shadow.partition_count)
                    log.info("diskless_topic_grown", topic=topic.name, partitions=shadow.partition_count)
            denied |= known.denied & live.keys()
        await self._delete_missing(live, sorted(denied))

    async def decides(self, cluster_id: str) -> bool:
        """Whether the brokers of that Kafka cluster have a say in what becomes of these topics: those of another one
        that somebody has named in the settings have none. Raises CoordinatorUnavailable."""
        ours = bool(cluster_id) and await self._topics.registry.belongs_to(cluster_id)
        if not ours and not self.foreign:
            log.error(
                "other_kafka_cluster",
                cluster_id=cluster_id,
                reason="the diskless topics of this coordinator belong to another Kafka cluster",
                remedy="check that brokers.bootstrap and redis.url belong together",
            )
        self.foreign = not ours
        return ours

    async def _delete_missing(self, live: dict[bytes, DisklessTopic], denied: Sequence[bytes]) -> None:
        """Delete those of the topics that were missing long enough; begin to watch the others."""
        if len(denied) == len(live) > 1:
            # As likely as that somebody deleted them all: the brokers' metadata was lost.
            if not self._all_missing:
                log.error(
                    "all_shadows_missing",
                    count=len(denied),
                    effect="nothing is deleted",
                    remedy="if they were deleted on purpose, delete each topic through a proxy, which cleans up",
                )
            self._all_missing = True
            self._missing.clear()
            return
        self._all_missing = False
        gone: set[bytes] = set()
        for start in range(0, len(denied), TOPICS_PER_STEP):
            gone |= await denied_by_all(self._cluster, denied[start : start + TOPICS_PER_STEP])
        now_s = asyncio.get_running_loop().time()
        for topic_id in gone - self._missing.keys():
            log.warning(
                "shadow_missing",
                topic=live[topic_id].name,
                effect=f"if it stays missing, the diskless topic and its records are deleted in {self._confirm_s:g} s",
            )
        self._missing = {topic_id: self._missing.get(topic_id, _Missing(now_s)) for topic_id in gone}
        for topic_id, missing in list(self._missing.items()):
            missing.looks += 1
            if missing.looks >= LEAST_LOOKS and now_s - missing.since_s >= self._confirm_s:
                await self._reservations.forget(live[topic_id])
                del self._missing[topic_id]
                log.warning(
                    "diskless_topic_deleted",
                    topic=live[topic_id].name,
                    reason="its placeholder topic was deleted on the brokers, not through the proxies",
                )
