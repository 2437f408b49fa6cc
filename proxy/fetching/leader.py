"""The leaders' part of a Fetch: asked of the client's own broker, as the client, without a session."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from proxy.errors import NONE
from proxy.fetching.answer import CLASSIC, Answer, Piece
from proxy.fetching.asked import Key
from proxy.rewrite_metadata import address_of
from proxy.wire.endpoints import rewrite_endpoint_section
from proxy.wire.fetch import FIRST_REPLICA_TAG, FIRST_SESSION, FetchRequest, TopicFetch, build_fetch_request
from proxy.wire.fetch_walk import response_tail, walk_fetch_response
from proxy.wire.primitives import INT32, NO_TAGS

if TYPE_CHECKING:
    from proxy.connection import ClientConnection
    from proxy.request import Request

FETCH = 1
NO_SESSION = -1
FIRST_NODE_ENDPOINTS_VERSION = 16
_SESSION = struct.Struct(">ii")
_SESSION_AT = 17
"""Of a request from v7 on: session ID and epoch, behind replica ID, waits and limits, and isolation level."""


class LeaderSource:
    """The broker that the client's connection is to."""

    def __init__(
        self,
        connection: ClientConnection,
        request: Request,
        parsed: FetchRequest,
        told: Callable[[str | bytes, int, int], None],
    ) -> None:
        """`parsed` names the rack that brokers may redirect to (KIP-392), or none; `told` hears of high watermarks."""
        self._told = told
        self._connection = connection
        self._request = request
        self._parsed = parsed
        self._serving = connection.context.cluster.rack_of(connection.node_id)

    async def ask(self, topics: list[TopicFetch], *, wait_ms: int, min_bytes: int, max_bytes: int) -> Answer:
        """Ask once. Raises BrokerUnreachable and ProtocolError."""
        version = self._parsed.version
        half = self._parsed._replace(
            max_wait_ms=wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            session_id=0,
            session_epoch=NO_SESSION,
            topics=topics,
            forgotten=[],
        )
        body = await self._connection.ask(self._request, FETCH, version, build_fetch_request(half))
        walk = walk_fetch_response(body, version)
        pieces: dict[Key, Piece] = {}
        size, failed = 0, walk.error_code != NONE or walk.throttle_ms > 0
        for topic, partitions in walk.topics:
            for partition in partitions:
                size += partition.record_bytes
                failed = failed or partition.error_code != NONE
                self._told(topic, partition.index, partition.high_watermark)
                pieces[topic, partition.index] = Piece(
                    partition.error_code, partition.record_bytes, [walk.body[partition.start : partition.end]]
                )
        tail = response_tail(walk)
        if version >= FIRST_NODE_ENDPOINTS_VERSION and tail != NO_TAGS:
            tail = rewrite_endpoint_section(tail, address_of(self._connection, self._request.client_id))
        return Answer(
            CLASSIC, self._serving, False, pieces, size, failed, walk.throttle_ms, walk.error_code, tail or NO_TAGS
        )


def without_session(request: Request, parsed: FetchRequest) -> Request:
    """The request of a client that is not to get a session of the broker's; the same where it wants none."""
    if parsed.version < FIRST_SESSION or (parsed.session_id == 0 and parsed.session_epoch == NO_SESSION):
        return request
    at = _SESSION_AT if parsed.version < FIRST_REPLICA_TAG else _SESSION_AT - INT32.size
    body = bytearray(request.body)
    body[at : at + _SESSION.size] = _SESSION.pack(0, NO_SESSION)
    return request.with_body(bytes(body))
