"""Topics that were made while brokers were missing get the rest of their replicas as brokers come (KIP-409).

One round looks at every wish that is remembered (`interface.py`):

1. an intent whose owner is gone, or has had its time, is settled by what the brokers know of the name;
2. a topic that has all its replicas in sync, or that nobody knows any more, is forgotten;
3. partitions that can have more replicas are reassigned, as many at once as the settings allow.

What has been begun is written down nowhere but at the brokers, so every step may be repeated, and by two proxies at
once. Reassignments of others are left alone. What is forgotten for other reasons than that it is done has to look so at
every look of `confirm_s`: a broker's view may be an old one.

Which replica leads is left to the brokers (`auto.leader.rebalance.enable`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple, TypeVar

import structlog

from proxy.brokers.broker_metadata import Partition
from proxy.brokers.cluster import Cluster
from proxy.brokers.service import ServiceConnection
from proxy.brokers.states import ClassicTopic
from proxy.brokers.upstream import BrokerUnreachable
from proxy.creation.replication.interface import Pending, PendingTopics
from proxy.creation.replication.placement import ReplicaList
from proxy.creation.replication.progress import (
    PartitionWish,
    Progress,
    can_grow,
    is_made_by,
    partition_wishes,
    targets,
)
from proxy.creation.replication.reassignments import (
    TOPICS_PER_REQUEST,
    KnownReplicas,
    ReassignmentsRefused,
    ask_replicas,
    list_reassignments,
    reassign,
)

log = structlog.get_logger()

LEAST_LOOKS = 3
"""Number of checks that have to agree, however short the time is set."""
_STALE_S = 5.0
"""After so long an answer about reassignments that are under way does not hold any more."""
_OPEN = (Progress.WAITING, Progress.SYNCING)
_Key = TypeVar("_Key", str, bytes)
_Doubtful = dict[str | bytes, list[Pending]]
"""Wishes that may have to be forgotten, by the ID or name of a topic, or by their own."""


class UnderReplicated(NamedTuple):
    """The work that is left, as of the last round."""

    topics: int = 0
    partitions: int = 0
    """Partitions, without those of topics that the proxy's principal may not describe."""
    oldest_since_ms: int | None = None
    """Milliseconds since 1970; None where nothing is left."""


@dataclass(slots=True)
class _Doubt:
    """Something that may have to be forgotten."""

    since_s: float
    looks: int = 0


class _Topic(NamedTuple):
    """A topic with wishes, as the brokers know it."""

    known: ClassicTopic
    wishes: tuple[Pending, ...]
    partitions: dict[int, PartitionWish]

    @property
    def open(self) -> tuple[int, ...]:
        """Partitions that are not complete, and still to be."""
        return tuple(number for number, wish in self.partitions.items() if wish.progress in _OPEN)

    @property
    def done(self) -> bool:
        """Whether every partition that was wished for is there, and complete."""
        expected = {
            wish.first_partition + index for wish in self.wishes for index in range(len(wish.assignment))
        } | self.partitions.keys()
        return all(
            number in self.partitions and self.partitions[number].progress is Progress.COMPLETE for number in expected
        )


class Completion:
    """Makes wishes come true, round by round."""

    def __init__(
        self,
        cluster: Cluster,
        store: PendingTopics,
        *,
        owners: Callable[[], Collection[str]],
        now_ms: Callable[[], int],
        confirm_s: float,
        settle_s: float,
        partitions_at_once: int,
    ) -> None:
        """`owners`: the live proxies. `settle_s`: how long a wish's owner, and the controller, may still be at it.

        `confirm_s`: how long a topic must be missing, or smaller than it was made, before its wishes are forgotten.
        """
        self._cluster = cluster
        self._store = store
        self._owners = owners
        self._now_ms = now_ms
        self._confirm_s = confirm_s
        self._settle_ms = settle_s * 1000
        self.partitions_at_once = partitions_at_once
        self._doubts: dict[str | bytes, _Doubt] = {}
        """Doubts by the keys of the doubtful wishes."""
        self._refused: dict[Partition, int] = {}
        """Error codes of the last reassignments that were refused."""
        self._hidden: frozenset[str] = frozenset()
        """Names of topics with wishes that the proxy's principal may not describe."""
        self.left = UnderReplicated()

    def lease_lost(self) -> None:
        """Another proxy looks from now on."""
        self._doubts.clear()
        self._refused.clear()
        self._hidden = frozenset()
        self.left = UnderReplicated()

    async def complete(self) -> None:
        """One round.

        Raises CoordinatorUnavailable, BrokerUnreachable, ProtocolError and ReassignmentsRefused; what was done stays.
        """
        wishes = await self._store.all()
        if not wishes:
            self.lease_lost()
            return
        try:
            await self._complete(wishes)
        except ReassignmentsRefused:
            raise
        except Exception:
            self._doubts.clear()  # they have to be there at every look
            raise

    async def _complete(self, wishes: Sequence[Pending]) -> None:
        hidden = list[Pending]()
        settled, doubtful, missing = await self._settle([wish for wish in wishes if wish.is_intent], hidden)
        topics, unknown = await self._look([*(wish for wish in wishes if not wish.is_intent), *settled], hidden)
        self._tell(topics, hidden)
        doubtful |= await self._forget_done(topics)
        await self._raise_made(topics)
        refused = None
        try:
            await self._reassign([topic for topic in topics if topic.open])
        except ReassignmentsRefused as error:
            refused = error
        # At the end, as a broker that hangs may keep it up.
        doubtful |= await self._gone(missing) | await self._gone(unknown)
        await self._forget_doubtful(doubtful)
        if refused is not None:
            raise refused

    async def _settle(
        self, intents: Sequence[Pending], hidden: list[Pending]
    ) -> tuple[list[Pending], _Doubtful, dict[str, list[Pending]]]:
        """Bind those that came true; those of whose name there is another topic, by ID; and the others, by name.

        Those of topics that the brokers don't show are added to `hidden`.
        """
        owners = self._owners()
        left = [wish for wish in intents if not self._is_young(wish) or wish.owner not in owners]
        answer = await self._ask(list({wish.name: wish for wish in left}))
        known = {topic.name: topic for topic in answer.topics}
        bound, doubtful, missing = list[Pending](), _Doubtful(), dict[str, list[Pending]]()
        for wish in left:
            topic = known.get(wish.name)
            if wish.name in answer.hidden:
                hidden.append(wish)
            elif topic is None:
                missing.setdefault(wish.name, []).append(wish)
            elif is_made_by(wish, topic):
                seen_through = replace(wish, topic_id=topic.topic_id)
                if not await self._store.change(wish, seen_through):
                    continue  # somebody else has settled it
                bound.append(seen_through)
                log.info("under_replicated_topic_settled", topic=wish.name, reason="its creator did not complete it")
            else:
                doubtful[wish.pending_id] = [wish]
        return bound, doubtful, missing

    async def _look(
        self, wishes: Sequence[Pending], hidden: list[Pending]
    ) -> tuple[list[_Topic], dict[bytes, list[Pending]]]:
        """The topics that a broker knows; and the wishes for those that it does not, by topic ID.

        Those for topics that it doesn't show are added to `hidden`.
        """
        by_topic: dict[bytes, list[Pending]] = {}
        for wish in wishes:
            by_topic.setdefault(wish.topic_id, []).append(wish)
        answer = await self._ask(list(by_topic))
        of_topics = [(known, by_topic.pop(known.topic_id)) for known in answer.topics]
        topics = await asyncio.to_thread(
            lambda: [_Topic(known, tuple(some), partition_wishes(known, some)) for known, some in of_topics]
        )
        for topic_id in answer.hidden & by_topic.keys():
            hidden += by_topic.pop(topic_id)  # type: ignore[arg-type]
        return topics, by_topic

    async def _ask(self, topics: Sequence[str | bytes], connection: ServiceConnection | None = None) -> KnownReplicas:
        """Return what a broker, or that of the connection, knows about topics, by name or ID."""
        found, denied, hidden = list[ClassicTopic](), set[str | bytes](), set[str | bytes]()
        for start in range(0, len(topics), TOPICS_PER_REQUEST):
            some = topics[start : start + TOPICS_PER_REQUEST]
            answer = await ask_replicas(connection or self._cluster.service, some)
            found += answer.topics
            denied |= answer.denied
            hidden |= answer.hidden
        return KnownReplicas(tuple(found), frozenset(denied), frozenset(hidden))

    async def _gone(self, missing: Mapping[_Key, list[Pending]]) -> _Doubtful:
        """Return the wishes for topics, by name or ID, that no live broker knows, except for young wishes."""
        asked = [key for key, wishes in missing.items() if not any(map(self._is_young, wishes))]
        return {key: missing[key] for key in (await self._denied_by_all(asked) if asked else ())}

    async def _denied_by_all(self, topics: Sequence[_Key]) -> list[_Key]:
        if not self._cluster.view.brokers:
            raise BrokerUnreachable("no broker is known")
        denied = list(topics)
        for node_id in sorted(self._cluster.view.brokers):
            connection = self._cluster.connection_to(node_id)
            try:
                answer = await self._ask(denied, connection)
            finally:
                connection.close()
            denied = [key for key in denied if key in answer.denied]
            if not denied:
                break
        return denied

    def _is_young(self, wish: Pending) -> bool:
        """Whether what was asked of the brokers for its sake may still be under way."""
        return abs(self._now_ms() - wish.since_ms) < self._settle_ms  # clocks differ a little

    def _tell(self, topics: Sequence[_Topic], hidden: Sequence[Pending]) -> None:
        still_open = [topic for topic in topics if topic.open]
        wishes = [*hidden, *(wish for topic in still_open for wish in topic.wishes)]
        partitions = sum(len(topic.open) for topic in still_open)
        names = frozenset(wish.name for wish in hidden)
        since_ms = min((wish.since_ms for wish in wishes), default=None)
        self.left = UnderReplicated(len(still_open) + len(names), partitions, since_ms)
        if not names <= self._hidden:
            log.warning(
                "under_replicated_topics_hidden",
                topics=sorted(names),
                reason="the proxy's principal may not describe them, so they get no more replicas",
                remedy="allow it Describe on these topics, or accept the replicas that they have with `topics "
                "accept-replicas`",
            )
        self._hidden = names

    async def _forget_done(self, topics: Sequence[_Topic]) -> _Doubtful:
        """The wishes that are fulfilled; the others of those that are not open are doubtful, by topic ID."""
        doubtful = _Doubtful()
        for topic in topics:
            if topic.open or any(map(self._is_young, topic.wishes)):
                continue
            if not topic.done:
                doubtful[topic.known.topic_id] = list(topic.wishes)
                continue
            await self._store.forget(topic.wishes)
            seconds = (self._now_ms() - min(wish.since_ms for wish in topic.wishes)) / 1000
            log.info("under_replicated_topic_completed", topic=topic.known.name, seconds=round(seconds, 1))
        return doubtful

    async def _forget_doubtful(self, doubtful: _Doubtful) -> None:
        """Return the wishes that were doubtful for long enough."""
        now_s = asyncio.get_running_loop().time()
        self._doubts = {key: self._doubts.get(key, _Doubt(now_s)) for key in doubtful}
        for key, doubt in list(self._doubts.items()):
            doubt.looks += 1
            if doubt.looks >= LEAST_LOOKS and now_s - doubt.since_s >= self._confirm_s:
                await self._store.forget(doubtful[key])
                del self._doubts[key]
                log.info(
                    "under_replicated_topic_forgotten",
                    topic=doubtful[key][0].name,
                    reason="the topic was deleted, was never created, or got fewer replicas on purpose",
                )

    async def _raise_made(self, topics: Sequence[_Topic]) -> None:
        """Remember what partitions have by now: with fewer than that, somebody has taken some away."""
        for topic in topics:
            counted = [one.known for one in topic.partitions.values() if one.progress is not Progress.LOWERED]
            if not topic.open or not all(set(known.replicas) <= set(known.isr) for known in counted):
                continue
            made = min(len(known.replicas) for known in counted)
            for wish in topic.wishes:
                if not wish.assignment and wish.made_replicas < made < wish.replication_factor:
                    await self._store.change(wish, replace(wish, made_replicas=made))

    async def _reassign(self, topics: Sequence[_Topic]) -> None:
        racks = {node: broker.rack for node, broker in self._cluster.view.brokers.items()}
        if not any(can_grow(wish, racks) for topic in topics for wish in topic.partitions.values()):
            return
        unfinished = [(topic.known.name, number) for topic in topics for number in topic.open]
        moving = await list_reassignments(self._cluster.service, unfinished)
        # A move that waits for a broker that is down copies nothing, and may wait forever.
        copying = sum(not racks.keys().isdisjoint(move.adding) for move in moving.values())
        chosen = await self._choose(topics, moving.keys(), racks, self.partitions_at_once - copying)
        if not chosen:
            return
        # The brokers replace a reassignment that somebody has begun meanwhile, and know no condition.
        asked_s = asyncio.get_running_loop().time()
        begun = await list_reassignments(self._cluster.service, chosen)
        if asyncio.get_running_loop().time() - asked_s > _STALE_S:
            raise ReassignmentsRefused(f"ListPartitionReassignments took longer than {_STALE_S:g} s", rights=False)
        chosen = {partition: replicas for partition, replicas in chosen.items() if partition not in begun}
        if not chosen:
            return
        refused = await reassign(self._cluster.service, chosen)
        for partition, (error_code, message) in refused.items():
            if self._refused.get(partition) != error_code:
                log.warning(
                    "replicas_refused",
                    topic=partition[0],
                    partition=partition[1],
                    replicas=chosen[partition],
                    reason=message,
                    remedy="none; it is retried",
                )
        self._refused = {partition: error_code for partition, (error_code, _) in refused.items()}
        for name in dict.fromkeys(name for name, _ in chosen.keys() - refused.keys()):
            log.info("replicas_added", topic=name, partitions=sum(one == name for one, _ in chosen.keys() - refused))

    async def _choose(
        self, topics: Sequence[_Topic], moving: Collection[Partition], racks: Mapping[int, str | None], most: int
    ) -> dict[Partition, ReplicaList]:
        """Return the next replicas of some partitions, none of which is being moved."""
        chosen: dict[Partition, ReplicaList] = {}
        racks_seen = dict(self._cluster.racks_seen)
        for topic in topics:
            name = topic.known.name
            free = {number for number, wish in topic.partitions.items() if can_grow(wish, racks)}
            free -= {number for number in free if (name, number) in moving}
            if not free or len(chosen) >= most:
                continue
            # Thousands of partitions take their time.
            found = await asyncio.to_thread(targets, topic.known, topic.partitions, racks, down=racks_seen)
            possible: Iterable[tuple[Partition, ReplicaList]] = (
                ((name, number), replicas) for number, replicas in found.items() if number in free
            )
            chosen |= islice(possible, most - len(chosen))
        return chosen
