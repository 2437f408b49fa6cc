"""Partitions with fewer replicas than they should have, from the proxies' records and the brokers' answers.

Two similar states are distinguished. *Pending*: a topic was created while brokers were missing, and a proxy adds the
missing replicas (`proxy/creation/replication`). *Out of sync*: a replica exists and lags, or its broker is down.
`kafka-topics --under-replicated-partitions` lists the latter, and the brokers fix it themselves. A partition may be in
both states.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import NamedTuple

from proxy.brokers.cluster import Cluster
from proxy.brokers.service import ServiceConnection
from proxy.brokers.states import ClassicTopic
from proxy.config import Settings
from proxy.coordinator.connect import connect
from proxy.creation.replication.interface import Pending
from proxy.creation.replication.progress import PartitionWish, Progress, partition_wishes
from proxy.creation.replication.reassignments import TOPICS_PER_REQUEST, ask_replicas
from proxy.creation.replication.store import RedisPendingTopics
from proxy.inspection.stores import InspectionError, open_registry
from proxy.wire.partition_states import PartitionState

CLASSIC, DISKLESS = "classic", "diskless"
BEING_MADE = "being made"
UNKNOWN = "not known to the brokers"
HIDDEN = "not shown to the proxies"
OUT_OF_SYNC = "out of sync"
_STATES = {
    Progress.WAITING: "waiting for brokers",
    Progress.SYNCING: "copying",
    Progress.LOWERED: "made smaller",
    Progress.COMPLETE: "complete",
}


class ShortPartition(NamedTuple):
    """One partition; or a topic of which no partition is known, its figures then empty."""

    topic: str
    kind: str
    topic_id: bytes
    partition: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    wanted: int | None
    """Number of replicas it is to have, if it is pending; else None."""
    missing: int
    """Number of replicas that it lacks, or that are not in sync."""
    pending_since: str | None
    """Time in ISO 8601 since which it is pending; else None, because the brokers don't report a time."""
    why: tuple[str, ...]
    """Reasons in the words of docs/operations/missing-brokers.md: why it is pending, if it is, and OUT_OF_SYNC last."""

    @property
    def pending(self) -> bool:
        """Return whether a proxy is to give it more replicas."""
        return self.wanted is not None

    @property
    def out_of_sync(self) -> bool:
        """Return whether a replica lags, or is on a broker that is down."""
        return OUT_OF_SYNC in self.why


async def under_replicated(settings: Settings) -> list[ShortPartition]:
    """Both kinds, by topic and partition.

    Raises BrokerUnreachable, ProtocolError and CoordinatorUnavailable.
    """
    diskless = {topic.name for topic in await open_registry(settings)}
    async with _opened(settings) as (cluster, pending):
        topics = (await ask_replicas(cluster.service, None)).topics
        wishes = await pending.all()
        hidden = await _hidden(cluster.service, wishes, {topic.topic_id for topic in topics})
    return sorted(short_partitions(topics, wishes, diskless, hidden), key=lambda one: (one.topic, one.partition or 0))


async def accept_replicas(settings: Settings, names: Sequence[str]) -> None:
    """Accept the replicas that these topics have: the proxies forget the missing ones.

    Raises InspectionError if one topic is not pending, and then forgets nothing; BrokerUnreachable and
    CoordinatorUnavailable.
    """
    async with _opened(settings) as (_, pending):
        wishes = [wish for wish in await pending.all() if wish.name in names]
        for name in set(names) - {wish.name for wish in wishes}:
            raise InspectionError(
                f"{name} does not wait for replicas; `topics list --under-replicated` lists the topics that do"
            )
        await pending.forget(wishes)


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[tuple[Cluster, RedisPendingTopics]]:
    cluster = Cluster(settings)
    client = await connect(settings.redis)
    try:
        await cluster.refresh()
        yield cluster, RedisPendingTopics(client, lambda: cluster.cluster_id)
    finally:
        cluster.service.close()
        await client.aclose()


async def _hidden(service: ServiceConnection, wishes: Sequence[Pending], known: set[bytes]) -> set[str | bytes]:
    """IDs, and names of intents, of the topics that the proxy's principal may not describe."""
    left = {wish.name if wish.is_intent else wish.topic_id for wish in wishes if wish.topic_id not in known}
    asked, hidden = list(left), set[str | bytes]()
    for start in range(0, len(asked), TOPICS_PER_REQUEST):
        for some in _names_and_ids(asked[start : start + TOPICS_PER_REQUEST]):
            hidden |= (await ask_replicas(service, some)).hidden
    return hidden


def _names_and_ids(keys: Sequence[str | bytes]) -> Iterator[list[str | bytes]]:
    """Yield names and IDs apart, because brokers ignore names in a request with IDs."""
    for kind in (str, bytes):
        if some := [key for key in keys if isinstance(key, kind)]:
            yield some


def short_partitions(
    topics: Sequence[ClassicTopic],
    wishes: Sequence[Pending],
    diskless: set[str],
    hidden: Collection[str | bytes] = (),
) -> Iterator[ShortPartition]:
    """Yield the short partitions of the topics; `diskless` has names of diskless topics.

    `hidden` has IDs, and names of intents, of topics that the brokers don't show.
    """
    by_topic: dict[str | bytes, list[Pending]] = {}
    for wish in wishes:
        by_topic.setdefault(wish.name if wish.is_intent else wish.topic_id, []).append(wish)
    for topic in topics:
        of_topic = by_topic.pop(topic.topic_id, [])
        since = _moment(min((wish.since_ms for wish in of_topic), default=0))
        pending = partition_wishes(topic, of_topic)
        for number, partition in topic.partitions.items():
            open_wish = pending.get(number)
            if open_wish is not None and open_wish.progress is Progress.COMPLETE:
                open_wish = None
            if open_wish is not None or _lags(partition):
                yield _short(topic, number, partition, open_wish, since, _kind(topic.name, diskless, of_topic))
    for key, of_topic in by_topic.items():
        unseen = BEING_MADE if of_topic[0].is_intent else UNKNOWN
        yield ShortPartition(
            of_topic[0].name,
            _kind(of_topic[0].name, diskless, of_topic),
            of_topic[0].topic_id,
            None,
            (),
            (),
            max(wish.replication_factor or max(map(len, wish.assignment)) for wish in of_topic),
            0,
            _moment(min(wish.since_ms for wish in of_topic)),
            (HIDDEN if key in hidden else unseen,),
        )


def _short(
    topic: ClassicTopic, number: int, partition: PartitionState, wish: PartitionWish | None, since: str, kind: str
) -> ShortPartition:
    lagging = len(set(partition.replicas) - set(partition.isr))
    why = [_STATES[wish.progress]] if wish is not None else []
    why += [OUT_OF_SYNC] if _lags(partition) else []
    return ShortPartition(
        topic.name,
        kind,
        topic.topic_id,
        number,
        partition.replicas,
        partition.isr,
        wish.wanted if wish is not None else None,
        wish.missing if wish is not None else lagging,
        since if wish is not None else None,
        tuple(why),
    )


def _lags(partition: PartitionState) -> bool:
    return not set(partition.replicas) <= set(partition.isr)


def _kind(name: str, diskless: set[str], wishes: Sequence[Pending]) -> str:
    return DISKLESS if name in diskless or any(wish.shadow for wish in wishes) else CLASSIC


def _moment(since_ms: int) -> str:
    return datetime.fromtimestamp(since_ms / 1000, UTC).isoformat(timespec="seconds")
