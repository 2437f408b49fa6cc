"""Fetches on the express lane: the client's last one again, as of a consumer that has read everything (decision 0120).

Such a Fetch waits at the broker and mostly returns empty. Only the correlation ID and the epoch of its session differ.
Whether its topics are classic, and whether they are read near, is looked up every time, as on the ordinary path.
"""

from __future__ import annotations

from collections.abc import Callable

from proxy.client.client import Client
from proxy.client.express import CLIENT_ID_AT, SIZE_BYTES
from proxy.client.request import Request
from proxy.client.slots import BrokerSlot, StreamedFetchSlot
from proxy.fetching.forward import Forwarding, Passage
from proxy.fetching.route import Routes
from proxy.protocol.api_keys import FETCH
from proxy.replicas.choice import LeaderReason
from proxy.routing.racks import Racks
from proxy.topics.topics import Topics
from proxy.wire.fetch import FIRST_TOPIC_ID, NO_EPOCH, FetchRequest, session_epoch_at
from proxy.wire.primitives import INT32, NO_TAGS

_HEADER_BYTES = CLIENT_ID_AT - SIZE_BYTES
IsOutdated = Callable[[Client, int], bool]
"""Returns whether a broker's session of this epoch may have got a diskless topic's placeholder topic under a name."""


class ExpressFetch:
    """Recognizes Fetches like one that was read (`client.express.Express`)."""

    __slots__ = (
        "_begins",
        "_by_name",
        "_client",
        "_client_id",
        "_forwarding",
        "_has_session",
        "_is_outdated",
        "_made_for",
        "_names",
        "_parsed",
        "_passage",
        "_racks",
        "_rest",
        "_rest_at",
        "_routes",
        "_size",
        "_topics",
        "api_version",
        "held",
    )

    def __init__(
        self,
        client: Client,
        request: Request,
        parsed: FetchRequest,
        *,
        topics: Topics,
        racks: Racks,
        routes: Routes,
        forwarding: Forwarding,
        is_outdated: IsOutdated,
    ) -> None:
        frame = bytes(request.frame)
        epoch_at = session_epoch_at(request.api_version)
        # Without a session, nothing but the correlation ID may differ.
        varies_at = len(frame) if epoch_at is None else len(frame) - len(request.body) + epoch_at
        rest_at = min(varies_at + INT32.size, len(frame))
        self.api_version = request.api_version
        self.held = True
        self._size = SIZE_BYTES + len(frame)
        self._begins = frame[_HEADER_BYTES:varies_at]
        self._rest = frame[rest_at:]
        self._rest_at = SIZE_BYTES + rest_at
        self._client = client
        self._client_id = request.client_id
        self._names = [asked.topic for asked in parsed.topics]
        self._parsed = parsed._replace(topics=[], forgotten=[], tagged=NO_TAGS)
        self._topics = topics
        self._racks = racks
        self._routes = routes
        self._forwarding = forwarding
        self._is_outdated = is_outdated
        self._has_session = epoch_at is not None
        self._by_name = request.api_version < FIRST_TOPIC_ID
        self._passage: Passage | None = None
        self._made_for: tuple[object, LeaderReason | None] = (None, None)
        """The state of the racks, and the reason not to read near, that the passage was made for."""

    def is_like(self, frame: memoryview) -> bool:
        """Return whether a request frame (without its size) differs in nothing that matters."""
        begins, rest = self._begins, self._rest
        return (
            len(frame) == self._size - SIZE_BYTES
            and frame[_HEADER_BYTES : _HEADER_BYTES + len(begins)] == begins
            and frame[self._rest_at - SIZE_BYTES :] == rest
        )

    def take(self, data: bytes, correlation_id: int) -> BrokerSlot | None:
        """Take a request that is the broker's alone at this moment; see `Express`."""
        if len(data) != self._size or not data.startswith(self._begins, CLIENT_ID_AT):
            return None
        if not data.startswith(self._rest, self._rest_at):
            return None
        if self._by_name:
            epoch = INT32.unpack_from(data, self._rest_at - INT32.size)[0] if self._has_session else NO_EPOCH
            if self._is_outdated(self._client, epoch):
                return None
        topics, session = self._topics, self._client.session
        if self._parsed.rack_id:
            self._racks.learn(session, self._client_id, self._parsed.rack_id)
        for topic in self._names:
            if topics.find(topic) is not None or not topics.is_read_as_classic(topic) or topics.may_be_a_shadow(topic):
                return None
        if self._routes.is_routed(session, self._parsed):
            return None
        session.client_id = self._client_id
        made_for = self._racks.state(), self._routes.never_near(session)
        if made_for != self._made_for or self._passage is None:
            self._made_for = made_for
            self._passage = self._forwarding.passage(session, self._client_id, {}, made_for[1])
        return StreamedFetchSlot(self._client.answers, self.api_version, correlation_id, *self._passage)


def learn(
    client: Client,
    request: Request,
    parsed: FetchRequest,
    *,
    topics: Topics,
    racks: Racks,
    routes: Routes,
    forwarding: Forwarding,
    is_outdated: IsOutdated,
) -> None:
    """Keep what the next Fetch like this one is recognized by; this one went to the broker unchanged."""
    known = client.session.express.get(FETCH)
    if isinstance(known, ExpressFetch) and known.api_version == request.api_version and known.is_like(request.frame):
        return
    client.session.express[FETCH] = ExpressFetch(
        client,
        request,
        parsed,
        topics=topics,
        racks=racks,
        routes=routes,
        forwarding=forwarding,
        is_outdated=is_outdated,
    )
