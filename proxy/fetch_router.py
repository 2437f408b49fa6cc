"""Fetch: where each partition is read from, and the merged answer.

- Only classic partitions that are the broker's of this listener: the request goes there as it came, with the broker's
  fetch session (KIP-227), and the answer streams through. Clients that name a rack follow KIP-392 as they are.
- Classic partitions on a foreign listener, whose broker is in another rack than this proxy: each is read from a near
  replica, else from its leader (`fetching.route`). Clients need not know of it, nor of racks.
- Diskless partitions: read here, from the coordinator's coordinates and the rack-local cache.
- Several of these in one Fetch: its sources are asked in rounds until the whole answer is due (`fetching.rounds`).

Kafka's rules hold over all sources: partition order, byte limits, `min_bytes` and `max_wait`. The proxy keeps no fetch
sessions: what it answers itself has session 0, so that each Fetch names all its partitions. A broker's session that
gains a diskless partition, or comes up on a foreign listener, is ended with FETCH_SESSION_ID_NOT_FOUND: the client
begins anew with all of its partitions.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from proxy.errors import FETCH_SESSION_ID_NOT_FOUND, UNKNOWN_SERVER_ERROR
from proxy.fetching.asked import DisklessAsked, FetchAsked, each_once
from proxy.fetching.forward import forward
from proxy.fetching.leader import without_session
from proxy.fetching.rounds import Fetching
from proxy.fetching.route import NOWHERE_NEAR, is_routed, never_near, router_of
from proxy.wire.fetch import ISOLATION_LEVELS, FetchRequest, parse_fetch_request
from proxy.wire.fetch_response import PartitionFetched, TopicFetched, build_fetch_response

if TYPE_CHECKING:
    from proxy.connection import ClientConnection
    from proxy.request import Request
    from proxy.wire.primitives import Buffer

_FIRST_EPOCH = 0


def fetch(connection: ClientConnection, request: Request) -> Coroutine[Any, Any, None] | None:
    """Fetch (API key 1)."""
    parsed = parse_fetch_request(request.body, request.api_version)
    if parsed.rack_id:
        connection.context.racks.learn(connection, request.client_id, parsed.rack_id)
    known = connection.context.topics
    mine = {
        asked.topic
        for asked in parsed.topics
        if known.find(asked.topic) is not None or not known.is_read_as_classic(asked.topic)
    }
    routed = is_routed(connection, parsed)
    # A session that begins with a shadow would go on with it when the topic is live.
    fresh = any(known.may_be_a_shadow(asked.topic) for asked in parsed.topics)
    if not mine and not routed and not fresh:
        forward(connection, request, {}, never_near(connection))
        return None
    if parsed.session_epoch > _FIRST_EPOCH:
        body = build_fetch_response(parsed.version, 0, [], error_code=FETCH_SESSION_ID_NOT_FOUND)
        connection.open_slot(request).fill(body)
        return None
    if mine and parsed.isolation_level not in ISOLATION_LEVELS:
        connection.open_slot(request).fill(_failed(parsed, UNKNOWN_SERVER_ERROR))
        return None
    if not mine and not routed:
        forward(connection, without_session(request, parsed), {}, never_near(connection))
        return None
    topics = each_once(parsed.topics)
    diskless = [DisklessAsked(asked, known.find(asked.topic)) for asked in topics if asked.topic in mine]
    classic = [asked for asked in topics if asked.topic not in mine] if mine else topics
    if not routed:
        asked = FetchAsked(request, parsed, topics, diskless, classic)
        return Fetching(connection, asked, NOWHERE_NEAR._replace(leader=classic)).answer(connection.open_slot(request))
    # Brokers are not to redirect what is routed here.
    asked = FetchAsked(request, parsed._replace(rack_id=""), topics, diskless, classic)
    if router_of(connection).knows(classic):
        return _routed(connection, asked)
    return _learn_first(connection, asked)


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


async def _learn_first(connection: ClientConnection, asked: FetchAsked) -> None:
    """As `_routed`, of topics of which something is to be asked first. Raises BrokerUnreachable and ProtocolError."""
    await router_of(connection).learn(asked.request, asked.classic)
    answer = _routed(connection, asked)
    if answer is not None:
        await answer


def _routed(connection: ClientConnection, asked: FetchAsked) -> Coroutine[Any, Any, None] | None:
    """Read from near replicas what can be; where that is nothing, the leader's answer streams through."""
    route = router_of(connection).route(asked.classic, asked.request.client_id)
    if route.near or asked.diskless:
        return Fetching(connection, asked, route).answer(connection.open_slot(asked.request))
    forward(connection, without_session(asked.request, asked.parsed), route.reasons)
    return None
