"""DeleteTopics (API key 20): the shadow goes first, with the client's rights, then logs and registry entry.

Behaviour: a topic whose shadow is gone already (deleted past the proxies, or an earlier attempt that stopped half way)
is cleaned up and answered NONE if the brokers confirm the client's right to delete a topic of that name. By ID that is
done only after an earlier attempt; otherwise it is left to the housekeeper.

Version notes: v6 names topics by name or ID.
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import structlog
from kio.schema.errors import ErrorCode

from proxy.brokers.cluster import Cluster
from proxy.brokers.upstream import BrokerUnreachable
from proxy.client.client import Client
from proxy.client.request import Request
from proxy.client.rights import DELETE, confirmed
from proxy.client.slots import Slot
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.creation.reservations import Reservations
from proxy.housekeeping.shadows import Shadows
from proxy.protocol.errors import (
    NONE,
    REQUEST_TIMED_OUT,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from proxy.telemetry.throttled_log import ThrottledLog
from proxy.topics.topics import Topics
from proxy.wire.cold import encode, read_request, read_response
from proxy.wire.errors import ProtocolError

log = structlog.get_logger()


class DeleteTopics:
    """Handler of DeleteTopics."""

    def __init__(
        self,
        *,
        topics: Topics,
        reservations: Reservations,
        shadows: Shadows,
        cluster: Cluster,
        throttled_log: ThrottledLog,
    ) -> None:
        self._topics = topics
        self._reservations = reservations
        self._shadows = shadows
        self._cluster = cluster
        self._throttled_log = throttled_log

    def delete_topics(self, client: Client, request: Request) -> Coroutine[Any, Any, None] | None:
        """Forward what is all classic."""
        topics = self._topics
        if not topics.all():
            client.forward(request)
            return None
        parsed = read_request(request.api_key, request.api_version, request.body)
        found = _found(topics, parsed)
        if not found:
            client.forward(request)
            return None
        return self._delete(client, request, client.open_slot(request), parsed)

    async def _delete(self, client: Client, request: Request, slot: Slot, parsed: Any) -> None:
        topics = self._topics
        if any(entry.state == "reserved" for entry in _found(topics, parsed)):
            await topics.look_again()
        diskless = {entry.name: entry for entry in _found(topics, parsed) if entry.state != "reserved"}
        body = await client.ask(request, request.api_key, request.api_version, [request.body])
        try:
            response = read_response(request.api_key, request.api_version, body)
        except ProtocolError:
            slot.fill([body])
            return
        by_id = {entry.topic_id: entry for entry in diskless.values()}
        results = []
        decides: bool | None = None
        for result in response.responses:
            entry = diskless.get(str(result.name)) if result.name is not None else by_id.get(result.topic_id.bytes)
            if entry is not None and await self._is_gone(entry, result.error_code.value):
                if decides is None:
                    decides = await self._decides()
                if not decides:
                    error_code = REQUEST_TIMED_OUT
                elif not await _is_allowed(client, request, entry, result.error_code.value):
                    error_code = TOPIC_AUTHORIZATION_FAILED
                else:
                    error_code = await self._forget(entry)
                result = replace(result, error_code=ErrorCode(error_code))
                if error_code == NONE and hasattr(result, "error_message"):
                    result = replace(result, error_message=None)
            results.append(result)
        slot.fill([encode(replace(response, responses=tuple(results)))])

    async def _decides(self) -> bool:
        """Whether what these brokers say of their topics is said of the diskless ones."""
        try:
            return await self._shadows.decides(self._cluster.cluster_id)
        except CoordinatorUnavailable as error:
            self._throttled_log.warning("diskless_topics_not_deleted", reason=str(error), remedy="delete them again")
            return False

    async def _is_gone(self, entry: DisklessTopic, error_code: int) -> bool:
        """True if the shadow is gone: just deleted for this client, or known to no live broker.

        Brokers check no rights for an ID that they don't know, as rights go by names: then only a deletion that was
        allowed before is continued.
        """
        if error_code == UNKNOWN_TOPIC_ID and entry.state != "deleting":
            return False
        if error_code not in (UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID):
            return error_code == NONE
        try:
            # Of every broker: one may not have heard yet of a topic that was just made.
            shadow = await self._reservations.shadow_anywhere(entry.name)
        except (BrokerUnreachable, ProtocolError) as error:
            log.warning("shadow_not_looked_up", topic=entry.name, reason=str(error))
            return False
        return shadow is None or shadow.topic_id != entry.topic_id

    async def _forget(self, entry: DisklessTopic) -> int:
        """Logs and registry entry; NONE, or a retriable error where the coordinator can't be reached."""
        try:
            await self._reservations.forget(entry)
        except CoordinatorUnavailable as error:
            log.error("diskless_topic_half_deleted", topic=entry.name, reason=str(error), remedy="delete it again")
            return REQUEST_TIMED_OUT
        log.info("diskless_topic_deleted", topic=entry.name)
        return NONE


def _found(topics: Topics, parsed: Any) -> list[DisklessTopic]:
    """The entries of the topics that are named, by name or ID."""
    references = parsed.topics if hasattr(parsed, "topics") else parsed.topic_names
    found = []
    for reference in references:
        named = reference if isinstance(reference, str) else reference.name
        entry = topics.find(str(named) if named is not None else reference.topic_id.bytes)
        if entry is not None:
            found.append(entry)
    return found


async def _is_allowed(client: Client, request: Request, entry: DisklessTopic, error_code: int) -> bool:
    """True if the brokers have confirmed the client's right to delete the topic.

    They confirm it when they delete the shadow, and did so before when a deletion is under way. But to a client that
    may only describe a topic, the controller answers that an unknown name is unknown: then the right is asked for.
    Raises BrokerUnreachable.
    """
    if error_code == NONE or entry.state == "deleting":
        return True
    return await confirmed(client, request, entry.name, DELETE)
