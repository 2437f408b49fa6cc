"""Fetch: where each partition is read from, and the merged answer.

- Only classic partitions of this listener's broker: the request goes to that broker unchanged, with the broker's
  fetch session (KIP-227), and the answer streams through. Clients that name a rack follow KIP-392 as usual.
- Classic partitions on a foreign listener, whose broker is in another rack than this proxy: each is read from a near
  replica, or else from its leader (`fetching.route`). Clients need not know about it, nor about racks.
- Diskless partitions: read here, from the coordinator's coordinates and the rack-local cache.
- Several of these in one Fetch: its sources are asked in rounds until the whole answer is due (`fetching.rounds`).

Kafka's rules hold over all sources: partition order, byte limits, `min_bytes` and `max_wait`. The proxy keeps no fetch
sessions: its own answers have session 0, so that each Fetch names all its partitions. A broker's session that gains a
diskless partition, or comes up on a foreign listener, is ended with FETCH_SESSION_ID_NOT_FOUND: the client then begins
again with all of its partitions. A session up to v12 goes on with whatever topic has a name, without naming it again.
So such a session ends, too, if names became diskless since it began, or if this proxy can't know that (no lease).
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, NamedTuple

from proxy.client.client import Client
from proxy.client.request import Request
from proxy.client.session import SessionKey
from proxy.client.slots import Slot
from proxy.fetching.asked import DisklessAsked, FetchAsked, each_once, each_once_in_steps
from proxy.fetching.express import learn
from proxy.fetching.leader import without_session
from proxy.fetching.rounds import Fetching, Sources
from proxy.fetching.route import NOWHERE_NEAR, too_many
from proxy.protocol.errors import FETCH_SESSION_ID_NOT_FOUND, UNKNOWN_SERVER_ERROR
from proxy.replicas.choice import LeaderReason
from proxy.routing.racks import Racks
from proxy.topics.topics import Topics
from proxy.wire.fetch import (
    FIRST_TOPIC_ID,
    ISOLATION_LEVELS,
    FetchRequest,
    TopicFetch,
    fetch_request_steps,
    parse_fetch_request,
)
from proxy.wire.fetch_response import PartitionFetched, TopicFetched, build_fetch_response
from proxy.wire.primitives import Buffer
from proxy.wire.steps import AT_A_TIME, LARGE_BYTES, Steps

_FIRST_EPOCH = 0
_NAMES_TAKEN = SessionKey[int]("names_taken")
"""`Topics.names_taken` when the client's session with its broker began, or was first seen on this connection."""


class _Judged(NamedTuple):
    """Topics of a Fetch as far as they are known."""

    mine: set[str | bytes]
    """Topics that are diskless, or not surely classic."""
    fresh: bool
    """True if a session that begins with one of them might go on with a shadow when the topic is live."""


class FetchRouter:
    """Handler of Fetch."""

    def __init__(self, *, topics: Topics, racks: Racks, sources: Sources) -> None:
        self._topics = topics
        self._racks = racks
        self._sources = sources
        self._routes = sources.routes
        self._forwarding = sources.forwarding
        self._turns = sources.turns

    def fetch(self, client: Client, request: Request) -> Coroutine[Any, Any, None] | None:
        """Fetch (API key 1)."""
        if len(request.body) > LARGE_BYTES:
            return self._large(client, request, client.open_slot(request))
        parsed = parse_fetch_request(request.body, request.api_version)
        judged = _judge_some(self._topics, parsed.topics)
        if self._is_forwarded(client, request, parsed, judged, None):
            return None
        known, mine, topics = self._topics, judged.mine, each_once(parsed.topics)
        diskless = [DisklessAsked(asked, known.find(asked.topic)) for asked in topics if asked.topic in mine]
        classic = [asked for asked in topics if asked.topic not in mine] if mine else topics
        return self._answer(client, FetchAsked(request, parsed, topics, diskless, classic), None)

    async def _large(self, client: Client, request: Request, slot: Slot) -> None:
        """Do `fetch` in turns with other work. Raises BrokerUnreachable and ProtocolError."""
        turns, topics = self._turns, self._topics
        parsed = await turns.run(fetch_request_steps(request.body, request.api_version))
        version = None
        while version != topics.version:
            # A topic may become diskless between two turns.
            version = topics.version
            judged = await turns.run(_judge(topics, parsed.topics))
        if self._is_forwarded(client, request, parsed, judged, slot):
            return
        asked = await turns.run(self._split(request, parsed, judged))
        if self._routes.is_routed(client.session, parsed):
            partitions = sum(len(one.partitions) for one in asked.classic)
            if partitions > self._sources.settings.fetch.near_partitions_max:
                await self._read_from_leaders(client, asked, partitions, slot)
                return
        await turns.next()
        answer = self._answer(client, asked, slot)
        if answer is not None:
            await answer

    async def _read_from_leaders(self, client: Client, asked: FetchAsked, partitions: int, slot: Slot) -> None:
        """Answer a Fetch with more classic partitions than may be read near. Raises as `_large`."""
        if not asked.diskless:
            self._sources.stats.leader_reads[LeaderReason.TOO_MANY] += partitions
            request = without_session(asked.request, asked.parsed)
            self._forwarding.forward(client, request, {}, LeaderReason.TOO_MANY, slot)
            return
        route = NOWHERE_NEAR._replace(leader=asked.classic, reasons=await self._turns.run(too_many(asked.classic)))
        asked = asked._replace(parsed=asked.parsed._replace(rack_id=""))
        await Fetching(self._sources, client, asked, route).answer(slot)

    def _is_forwarded(
        self, client: Client, request: Request, parsed: FetchRequest, judged: _Judged, slot: Slot | None
    ) -> bool:
        """Forward what is all the broker's, and end sessions that can't go on. True if that answers the Fetch."""
        if parsed.rack_id:
            self._racks.learn(client.session, request.client_id, parsed.rack_id)
        routed = self._routes.is_routed(client.session, parsed)
        outdated = parsed.version < FIRST_TOPIC_ID and self._is_outdated(client, parsed.session_epoch)
        if not judged.mine and not routed and not judged.fresh and not outdated:
            self._forwarding.forward(client, request, {}, self._routes.never_near(client.session), slot)
            if slot is None:
                self._learn(client, request, parsed)
            return True
        if parsed.session_epoch > _FIRST_EPOCH:
            body = build_fetch_response(parsed.version, 0, [], error_code=FETCH_SESSION_ID_NOT_FOUND)
            (slot or client.open_slot(request)).fill(body)
            return True
        if judged.mine and parsed.isolation_level not in ISOLATION_LEVELS:
            (slot or client.open_slot(request)).fill(_failed(parsed, UNKNOWN_SERVER_ERROR))
            return True
        if not judged.mine and not routed:
            self._forwarding.forward(
                client, without_session(request, parsed), {}, self._routes.never_near(client.session), slot
            )
            return True
        return False

    def _is_outdated(self, client: Client, session_epoch: int) -> bool:
        """Return whether a broker's session may have got a diskless topic's placeholder topic under a name."""
        topics, kept = self._topics, client.session
        if session_epoch == _FIRST_EPOCH or kept.get(_NAMES_TAKEN) is None:
            kept[_NAMES_TAKEN] = topics.names_taken
        return session_epoch > _FIRST_EPOCH and (not topics.is_current or kept.get(_NAMES_TAKEN) != topics.names_taken)

    def _learn(self, client: Client, request: Request, parsed: FetchRequest) -> None:
        """Let the next Fetch like this one take the express lane, if it may."""
        learn(
            client,
            request,
            parsed,
            topics=self._topics,
            racks=self._racks,
            routes=self._routes,
            forwarding=self._forwarding,
            is_outdated=self._is_outdated,
        )

    def _split(self, request: Request, parsed: FetchRequest, judged: _Judged) -> Steps[FetchAsked]:
        """The diskless half and the classic one."""
        known, mine = self._topics, judged.mine
        topics = yield from each_once_in_steps(parsed.topics)
        diskless: list[DisklessAsked] = []
        classic: list[TopicFetch] = [] if mine else topics
        for start in range(0, len(topics) if mine else 0, AT_A_TIME):
            some = topics[start : start + AT_A_TIME]
            diskless += [DisklessAsked(asked, known.find(asked.topic)) for asked in some if asked.topic in mine]
            classic += [asked for asked in some if asked.topic not in mine]
            yield
        return FetchAsked(request, parsed, topics, diskless, classic)

    def _answer(self, client: Client, asked: FetchAsked, slot: Slot | None) -> Coroutine[Any, Any, None] | None:
        if not self._routes.is_routed(client.session, asked.parsed):
            route = NOWHERE_NEAR._replace(leader=asked.classic)
            return Fetching(self._sources, client, asked, route).answer(slot or client.open_slot(asked.request))
        # Brokers are not to redirect what is routed here.
        asked = asked._replace(parsed=asked.parsed._replace(rack_id=""))
        if self._routes.of(client.session).knows(asked.classic):
            return self._routed(client, asked, slot)
        return self._learn_first(client, asked, slot)

    async def _learn_first(self, client: Client, asked: FetchAsked, slot: Slot | None) -> None:
        """Ask what is unknown of the topics, then do `_routed`. Raises BrokerUnreachable and ProtocolError."""
        await self._routes.of(client.session).learn(client, asked.request, asked.classic)
        answer = self._routed(client, asked, slot)
        if answer is not None:
            await answer

    def _routed(self, client: Client, asked: FetchAsked, slot: Slot | None) -> Coroutine[Any, Any, None] | None:
        """Read from near replicas what can be; where that is nothing, the leader's answer streams through."""
        route = self._routes.of(client.session).route(asked.classic, asked.request.client_id)
        if route.near or asked.diskless:
            return Fetching(self._sources, client, asked, route).answer(slot or client.open_slot(asked.request))
        self._forwarding.forward(client, without_session(asked.request, asked.parsed), route.reasons, slot=slot)
        return None


def _failed(parsed: FetchRequest, error_code: int) -> list[Buffer]:
    """The whole request failed: as `FetchRequest.getErrorResponse`, whose partitions are left out from v13 on."""
    topics = [
        TopicFetched(
            asked.topic, [PartitionFetched(one.index, error_code, -1, -1, -1, (), 0, ()) for one in asked.partitions]
        )
        for asked in parsed.topics
        if isinstance(asked.topic, str)
    ]
    return build_fetch_response(parsed.version, 0, topics, error_code=error_code)


def _judge(known: Topics, topics: list[TopicFetch]) -> Steps[_Judged]:
    mine: set[str | bytes] = set()
    fresh = False
    for start in range(0, len(topics), AT_A_TIME):
        some = _judge_some(known, topics[start : start + AT_A_TIME])
        mine |= some.mine
        fresh = fresh or some.fresh
        yield
    return _Judged(mine, fresh)


def _judge_some(known: Topics, topics: list[TopicFetch]) -> _Judged:
    mine = {
        asked.topic
        for asked in topics
        if known.find(asked.topic) is not None or not known.is_read_as_classic(asked.topic)
    }
    unsure = [asked.topic for asked in topics if known.may_be_a_shadow(asked.topic)]
    return _Judged(mine, bool(unsure) or (not known.is_current and any(isinstance(one.topic, str) for one in topics)))
