"""ConsumerGroupHeartbeat, ShareGroupHeartbeat, StreamsGroupHeartbeat (API keys 68, 76, 88): a member says its rack.

Behaviour: the request goes on as it came, and the brokers' answer streams through. The rack is that of KIP-848 and
KIP-881 (`client.rack`); it comes with the member's first heartbeat, and null says that it has not changed.

A streams group's first heartbeat (KIP-1071) has its topology, from which the brokers create the internal topics by
themselves. These are classic; the log names those whose names would make them diskless.

A share group's subscription (KIP-932) with a diskless topic is rejected: share groups read what is on the brokers, and
the records of a diskless topic are not. It is the one place where clients report an error with its message:
INVALID_TOPIC_EXCEPTION of a heartbeat ends the member, and `poll` throws it. Of an error of a partition (ShareFetch)
Java's consumer makes IllegalStateException, or a log line. A member names its topics when it joins, and after that only
if they change. They are remembered with the connection, so that a topic which is created as a diskless one later is
noticed, too.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any

from kio.index import load_response_schema
from kio.schema.errors import ErrorCode

from proxy.client.client import Client
from proxy.client.request import Request
from proxy.client.rights import DESCRIBE, ClientRights
from proxy.client.session import SessionKey
from proxy.client.slots import Slot
from proxy.config import Settings
from proxy.protocol.api_keys import STREAMS_GROUP_HEARTBEAT
from proxy.protocol.errors import INVALID_TOPIC_EXCEPTION, NONE
from proxy.routing.racks import Racks
from proxy.telemetry.throttled_log import NAMES_SHOWN, ThrottledLog
from proxy.topics.topic_configs import diskless_by_name
from proxy.topics.topics import Topics
from proxy.wire.cold import encode, milliseconds, read_request
from proxy.wire.errors import ProtocolError
from proxy.wire.group_heartbeat import heartbeat_rack
from proxy.wire.primitives import MAX_WHOLE_ELEMENTS

_MOST_MEMBERS = 100
"""Members of one connection whose topics are remembered. A client has one, so more are proxies of other protocols."""
_ADVICE = "Read them with a consumer group, or let the share group subscribe to classic topics only."


class GroupHeartbeat:
    """Handlers of the heartbeats of consumer groups, share groups and streams groups."""

    def __init__(
        self, settings: Settings, *, racks: Racks, topics: Topics, rights: ClientRights, throttled_log: ThrottledLog
    ) -> None:
        self._settings = settings
        self._racks = racks
        self._topics = topics
        self._rights = rights
        self._throttled_log = throttled_log

    def heartbeat(self, client: Client, request: Request) -> None:
        """Learn and forward; what can't be read is the broker's to refuse."""
        try:
            rack = heartbeat_rack(request.api_key, request.body)
        except ProtocolError:
            rack = None
        self._racks.learn(client.session, request.client_id, rack)
        patterns = self._settings.default_diskless_topics
        if patterns and request.api_key == STREAMS_GROUP_HEARTBEAT:
            self._report_classic_topics(request, patterns)
        client.forward(request)

    def _report_classic_topics(self, request: Request, patterns: tuple[str, ...]) -> None:
        try:
            asked: Any = read_request(request.api_key, request.api_version, request.body, most=MAX_WHOLE_ELEMENTS)
        except ProtocolError:
            return
        names = [name for name in internal_topics(asked.topology) if diskless_by_name(name, patterns)]
        if names:
            self._throttled_log.warning(
                "streams_topics_are_classic",
                topics=names[:NAMES_SHOWN],
                group=asked.group_id,
                reason="the brokers make them by themselves, past the proxy",
                remedy="create them before the application, or let no pattern of default_diskless_topics match them",
            )

    def share_group_heartbeat(self, client: Client, request: Request) -> Coroutine[Any, Any, None] | None:
        """Forward it if no topic of the member is diskless. What can't be read is the broker's to reject."""
        try:
            asked = read_request(request.api_key, request.api_version, request.body, most=MAX_WHOLE_ELEMENTS)
        except ProtocolError:
            self.heartbeat(client, request)
            return None
        find = self._topics.find
        diskless = {name: entry.topic_id for name in _subscribed(client, asked) if (entry := find(name)) is not None}
        if not diskless:
            self.heartbeat(client, request)
            return None
        return self._answer(client, request, client.open_slot(request), asked, diskless)

    async def _answer(
        self, client: Client, request: Request, slot: Slot, asked: Any, diskless: Mapping[str, bytes]
    ) -> None:
        """Reject it, unless the client may not describe the topics. Raises BrokerUnreachable and ProtocolError."""
        rights = self._rights.of(client.session)
        unasked = rights.unasked(diskless)
        if unasked:
            await rights.ask(client, request, unasked)
        named = [name for name, topic_id in diskless.items() if rights.error(name, DESCRIBE, topic_id) == NONE]
        if not named:
            slot.fill([await client.ask(request, request.api_key, request.api_version, [request.body])])
            return
        self._throttled_log.warning(
            "share_group_refused",
            topics=named[:NAMES_SHOWN],
            group=str(asked.group_id),
            client=client.session.host,
            client_id=request.client_id,
            reason="share groups can't read diskless topics",
            remedy="read them with a consumer group, or let the share group subscribe to classic topics only",
        )
        response_type: Any = load_response_schema(request.api_key, request.api_version)
        listed = ", ".join(named[:NAMES_SHOWN]) + (", …" if len(named) > NAMES_SHOWN else "")
        response = response_type(
            throttle_time=milliseconds(0),
            error_code=ErrorCode(INVALID_TOPIC_EXCEPTION),
            error_message=f"Share groups can't read diskless topics: {listed}. {_ADVICE}",
            member_id=asked.member_id,
            member_epoch=asked.member_epoch,
            heartbeat_interval=milliseconds(0),
        )
        slot.fill([encode(response)])


def internal_topics(topology: Any) -> list[str]:
    """The topics of a topology that brokers make where they are missing: repartition topics.

    Changelogs are compacted, and so classic by default anyway.
    """
    if topology is None:
        return []
    found = (topic.name for one in topology.subtopologies for topic in one.repartition_source_topics)
    return sorted({str(name) for name in found})


class _Subscriptions(dict[str, tuple[str, ...]]):
    """Remembered with a connection: the topics of each member, by the member's ID."""


SUBSCRIPTIONS = SessionKey[_Subscriptions]("subscriptions of share groups")


def _subscribed(client: Client, asked: Any) -> tuple[str, ...]:
    """The topics of the member; none of one that leaves."""
    known = client.session.get(SUBSCRIPTIONS)
    if known is None:
        known = client.session[SUBSCRIPTIONS] = _Subscriptions()
    member = str(asked.member_id)
    if asked.member_epoch < 0:
        known.pop(member, None)
        return ()
    if asked.subscribed_topic_names is not None:
        known.pop(member, None)
        known[member] = tuple(map(str, asked.subscribed_topic_names))
        if len(known) > _MOST_MEMBERS:
            del known[next(iter(known))]
    return known.get(member, ())
