"""A near replica as a source: read on a connection of the proxy's own, in the same way as the leader (KIP-392).

Topics are requested by their IDs, so older versions are requested as v13 and the answer is lowered. A replica that has
not heard yet that a topic was deleted and recreated must not answer from the old one. Anything that the leader would
not say never gets to the client: an error, a redirect, a tagged field or a missing partition is *absorbed*, and the
leader is asked for that partition.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isinf
from typing import NamedTuple

import structlog

from proxy.brokers.cluster import Cluster
from proxy.brokers.states import ClassicTopic
from proxy.client.session import Session
from proxy.config import Settings
from proxy.fetching.answer import CLASSIC, Answer, Piece, piece_of
from proxy.fetching.asked import Key, keys_of
from proxy.fetching.watermarks import Ends, Watermarks
from proxy.protocol.errors import (
    FENCED_LEADER_EPOCH,
    INCONSISTENT_TOPIC_ID,
    INVALID_REQUEST,
    KAFKA_STORAGE_ERROR,
    LEADER_NOT_AVAILABLE,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_NOT_AVAILABLE,
    OFFSET_OUT_OF_RANGE,
    REPLICA_NOT_AVAILABLE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from proxy.quotas.quotas import Quotas
from proxy.replicas.answers import ReplicaAnswer, ReplicaUnavailable
from proxy.replicas.choice import LeaderReason
from proxy.replicas.knowledge import Replicas
from proxy.replicas.pool import ReplicaConnections
from proxy.replicas.shunned import Shunned
from proxy.wire.errors import ProtocolError
from proxy.wire.fetch import (
    CONSUMER_REPLICA_ID,
    NO_SESSION,
    FetchRequest,
    PartitionFetch,
    TopicFetch,
    build_fetch_request,
)
from proxy.wire.fetch_response import PartitionFetched
from proxy.wire.fetch_walk import LOWERED_FROM, FetchWalk, TopicAt, has_no_tail, lowered, piece, walk_fetch_response
from proxy.wire.primitives import NO_TAGS, Buffer

log = structlog.get_logger()

NOTHING: frozenset[Key] = frozenset()
_BLAMELESS = frozenset(
    {
        NONE,
        OFFSET_OUT_OF_RANGE,
        INVALID_REQUEST,
        UNKNOWN_SERVER_ERROR,
        FENCED_LEADER_EPOCH,
        UNKNOWN_LEADER_EPOCH,
        OFFSET_NOT_AVAILABLE,
    }
)
"""Errors that depend on this client's request (offset, epoch, limits) or are soon over: the replica is good for others.
NONE is an answer with a redirect or tagged fields, for example for the last fetched epoch that a client may name."""
_STALE = frozenset(
    {
        UNKNOWN_TOPIC_OR_PARTITION,
        LEADER_NOT_AVAILABLE,
        NOT_LEADER_OR_FOLLOWER,
        REPLICA_NOT_AVAILABLE,
        KAFKA_STORAGE_ERROR,
        FENCED_LEADER_EPOCH,
        UNKNOWN_LEADER_EPOCH,
        UNKNOWN_TOPIC_ID,
        INCONSISTENT_TOPIC_ID,
    }
)
"""Errors after which the cached knowledge of the topic may be old."""


class ReplicaReply(NamedTuple):
    """The answer of a replica in one round. Absorbed partitions are not counted."""

    serving: str
    absorbed: dict[Key, LeaderReason]
    record_bytes: int
    by_topic: list[tuple[str | bytes, int]]
    """Record bytes of each topic."""
    walk: FetchWalk | None = None
    """Parsed answer; None if there is none. Its topics are named as the client names them."""
    raised: dict[Key, Ends] | None = None
    """Offsets for the client instead of the replica's own."""
    throttle_ms: int = 0
    fenced: frozenset[Key] = NOTHING
    """Partitions that are answered with FENCED_LEADER_EPOCH."""

    def whole(self, version: int) -> list[Buffer] | None:
        """Return the response for a client of that version; None if it must be put together again."""
        walk = self.walk
        if walk is None or self.absorbed or self.raised or self.fenced:
            return None
        if version < walk.version:
            return lowered(walk, version)
        return [walk.body] if not walk.session_id and has_no_tail(walk) else None

    def answer(self, version: int) -> Answer:
        """The same partition by partition."""
        walk, pieces, raised = self.walk, dict[Key, Piece](), self.raised or {}
        if walk is not None:
            for topic, partitions in walk.topics:
                for at in partitions:
                    key = topic, at.index
                    if key in self.fenced:
                        pieces[key] = piece_of(PartitionFetched(at.index, FENCED_LEADER_EPOCH, -1, -1, -1, (), 0))
                    elif key not in self.absorbed:
                        encoded = piece(walk, at, version, raised.get(key, (at.high_watermark, at.last_stable_offset)))
                        pieces[key] = Piece(NONE, at.record_bytes, encoded)
        settled = self.throttle_ms > 0 or bool(self.fenced)
        return Answer(CLASSIC, self.serving, True, pieces, self.record_bytes, settled, self.throttle_ms)


def _untagged(topic_id: bytes, partitions: list[PartitionFetch]) -> TopicFetch:
    """Return the partitions without the client's tagged fields: consumers need none, and unreadable ones end
    connections."""
    if any(partition.tagged is not NO_TAGS for partition in partitions):
        partitions = [partition._replace(tagged=NO_TAGS) for partition in partitions]
    return TopicFetch(topic_id, partitions)


class ReplicaReads:
    """The parts that reading from near replicas needs."""

    def __init__(
        self,
        settings: Settings,
        *,
        cluster: Cluster,
        connections: ReplicaConnections,
        replicas: Replicas,
        shunned: Shunned,
        quotas: Quotas,
    ) -> None:
        self.settings = settings
        self.cluster = cluster
        self.connections = connections
        self.replicas = replicas
        self.shunned = shunned
        self.quotas = quotas


class ReplicaSource:
    """One broker of the proxy's rack, for one Fetch.

    `known` has the topics from which replicas were chosen, by the client's name of them. `hold` is called with each
    answer that takes memory.
    """

    def __init__(
        self,
        of: ReplicaReads,
        session: Session,
        client_id: str | None,
        parsed: FetchRequest,
        broker: int,
        known: dict[str | bytes, ClassicTopic],
        watermarks: Watermarks,
        hold: Callable[[ReplicaAnswer], None],
    ) -> None:
        self._of = of
        self._client_id = client_id
        self._user = session.user
        self._parsed = parsed
        self._version = max(parsed.version, LOWERED_FROM)
        self._broker = broker
        self._leader = session.node_id
        self._known = known
        self._watermarks = watermarks
        self._hold = hold
        self._rack = self._of.settings.rack
        self._grace_s = self._of.settings.fetch.replica_grace_ms / 1000

    async def ask(self, topics: list[TopicFetch], *, wait_ms: int, min_bytes: int, max_bytes: int) -> ReplicaReply:
        """Send one request; never raises because of anything that the replica does."""
        called: dict[str | bytes, str | bytes] = {self._known[asked.topic].topic_id: asked.topic for asked in topics}
        body = build_fetch_request(
            FetchRequest(
                self._version,
                CONSUMER_REPLICA_ID,
                wait_ms,
                min_bytes,
                max_bytes,
                self._parsed.isolation_level,
                0,
                NO_SESSION,
                [_untagged(self._known[asked.topic].topic_id, asked.partitions) for asked in topics],
                [],
                "",
            )
        )
        timeout_s = wait_ms / 1000 + self._grace_s
        try:
            answer = await self._of.connections.fetch(self._broker, self._version, body, self._client_id, timeout_s)
        except ReplicaUnavailable as error:
            return self._nothing(topics, error.reason, shun=error.slow, slow=error.slow)
        self._hold(answer)
        try:
            walk = walk_fetch_response(answer.body, self._version)
            if self._parsed.version < LOWERED_FROM:
                walk = walk._replace(topics=[TopicAt(called[topic], partitions) for topic, partitions in walk.topics])
        except (KeyError, ProtocolError):
            return self._nothing(topics, LeaderReason.REPLICA_ERROR, shun=True)
        if walk.throttle_ms:
            if isinf(self._of.quotas.fetch.available_bytes(self._user, self._client_id)):
                # Not a quota of the client's own, but of the proxy's principal, or on its requests.
                return self._nothing(topics, LeaderReason.THROTTLED)
            return ReplicaReply(self._rack, {}, 0, [], throttle_ms=walk.throttle_ms)
        if walk.error_code != NONE:
            return self._nothing(topics, LeaderReason.REPLICA_ERROR, shun=walk.error_code not in _BLAMELESS)
        return self._look_through(topics, walk)

    def _look_through(self, topics: list[TopicFetch], walk: FetchWalk) -> ReplicaReply:
        absorbed, raised, by_topic = dict[Key, LeaderReason](), dict[Key, Ends](), []
        record, record_bytes, count, fenced = self._watermarks.record, 0, 0, set[Key]()
        # Of a client that asks by name the epoch may be that of a topic made again, of which the replica has not heard.
        fence_stands = self._parsed.version >= LOWERED_FROM or self._leader not in self._of.cluster.view.brokers
        for topic, partitions in walk.topics:
            of_known = self._known.get(topic)
            topic_id, known = (of_known.topic_id, of_known.partitions) if of_known is not None else (b"", {})
            of_topic = 0
            for index, error_code, high_watermark, last_stable, plain, _, _, size, _ in partitions:
                state = known.get(index)
                if error_code == FENCED_LEADER_EPOCH and fence_stands:
                    # The leader's epoch is as high or higher, so it would say the same, and may hang.
                    fenced.add((topic, index))
                    self._of.replicas.stale([topic])
                    continue
                if error_code or not plain or state is None:
                    absorbed[topic, index] = self._absorb(topic, index, error_code)
                    continue
                best = record(topic_id, index, state.leader_epoch, high_watermark, last_stable)
                if best != (high_watermark, last_stable):
                    raised[topic, index] = best
                of_topic += size
            record_bytes += of_topic
            by_topic.append((topic, of_topic))
            count += len(partitions)
        if absorbed or count != sum(len(asked.partitions) for asked in topics):
            answered = {(topic, at.index) for topic, partitions in walk.topics for at in partitions}
            for key in keys_of(topics):
                if key not in answered:
                    self._shun(*key)
                    absorbed[key] = LeaderReason.REPLICA_ERROR
        return ReplicaReply(self._rack, absorbed, record_bytes, by_topic, walk, raised, fenced=frozenset(fenced))

    def _absorb(self, topic: str | bytes, partition: int, error_code: int) -> LeaderReason:
        """Why the leader is asked; others are not to run into the same, unless it is this client's own matter."""
        if error_code == TOPIC_AUTHORIZATION_FAILED:
            self._refuse(topic)
            return LeaderReason.NOT_ALLOWED
        if error_code not in _BLAMELESS:
            self._shun(topic, partition)
        if error_code in _STALE:
            self._of.replicas.stale([topic])
        return LeaderReason.OUT_OF_RANGE if error_code == OFFSET_OUT_OF_RANGE else LeaderReason.REPLICA_ERROR

    def _shun(self, topic: str | bytes, partition: int, *, slow: bool = False) -> None:
        known = self._known.get(topic)
        if known is not None:
            self._of.shunned.shun(self._broker, known.name, partition, slow=slow)

    def _refuse(self, topic: str | bytes) -> None:
        """Note that the proxy may not read a topic that its client may read or, if brokers see one principal, that
        neither may."""
        known, settings = self._known.get(topic), self._of.settings
        if known is None:
            return
        for_s = max(settings.authorization_cache_ms, settings.fetch.replica_shun_ms) / 1000
        if self._of.shunned.refuse(known.name, for_s) and settings.brokers.with_sasl:
            log.warning(
                "replica_read_refused",
                topic=known.name,
                effect="the topic is read from its leaders, in whatever rack they are",
                remedy="allow the proxy's principal Read on the topic",
            )

    def _nothing(
        self, topics: list[TopicFetch], reason: LeaderReason, *, shun: bool = False, slow: bool = False
    ) -> ReplicaReply:
        if shun:
            for topic, partition in keys_of(topics):
                self._shun(topic, partition, slow=slow)
        return ReplicaReply(self._rack, dict.fromkeys(keys_of(topics), reason), 0, [])
