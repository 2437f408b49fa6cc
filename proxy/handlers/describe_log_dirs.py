"""DescribeLogDirs (API key 35): diskless partitions are in one more log directory, which is the object storage.

Behaviour: the broker answers, with the client's rights. Its log directories come without the shadow topics, whose
empty logs would pass for the topics' own. The broker that leads diskless partitions for this client, as Metadata says
(it is their only replica), has a log directory more, named as `storage.url`, with those partitions and the bytes that
their live records take there. So over all brokers each diskless byte is counted once, as object storage keeps it once.
On the bootstrap port, where no broker was chosen, all of them are reported.

Version notes: v1 is v0; v3 has an error of the whole; v4 (KIP-827) the size of the volume, which is -1, unknown, here.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from dataclasses import fields, replace
from typing import Any

from kio.index import load_response_schema
from kio.schema.errors import ErrorCode

from proxy.client.client import Client
from proxy.client.request import Request
from proxy.client.slots import Slot
from proxy.config import Storage
from proxy.coordinator.interface import Coordinator, CoordinatorUnavailable
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.protocol.errors import KAFKA_STORAGE_ERROR, NONE
from proxy.routing.addresses import Addresses
from proxy.telemetry.throttled_log import ThrottledLog
from proxy.topics.topics import Topics
from proxy.wire.cold import encode, nested, read_request, read_response
from proxy.wire.partition_leaders import Leaders, ReplicaLeaders, SoleLeader

_LOWEST_SCHEMA = 1
_UNKNOWN_BYTES = -1

Wanted = Mapping[str, tuple[DisklessTopic, tuple[int, ...]]]
"""Diskless topics by name, and which of their partitions."""


class DescribeLogDirs:
    """Handler of DescribeLogDirs."""

    def __init__(
        self,
        storage: Storage,
        *,
        topics: Topics,
        addresses: Addresses,
        coordinator: Coordinator,
        throttled_log: ThrottledLog,
    ) -> None:
        self._storage = storage
        self._topics = topics
        self._addresses = addresses
        self._coordinator = coordinator
        self._throttled_log = throttled_log

    def describe_log_dirs(self, client: Client, request: Request) -> Coroutine[Any, Any, None] | None:
        """Forward what is about no diskless topic."""
        topics = self._topics
        if not topics.all():
            client.forward(request)
            return None
        asked = read_request(request.api_key, max(request.api_version, _LOWEST_SCHEMA), request.body)
        wanted = _wanted(asked, topics)
        if not wanted:
            client.forward(request)
            return None
        return self._describe(client, request, client.open_slot(request), wanted)

    async def _describe(self, client: Client, request: Request, slot: Slot, wanted: Wanted) -> None:
        """The broker's directories, then the object storage. Raises BrokerUnreachable and ProtocolError."""
        version = max(request.api_version, _LOWEST_SCHEMA)
        body = await client.ask(request, request.api_key, request.api_version, [request.body])
        response = read_response(request.api_key, version, body)
        # An administrator without the right to describe the cluster gets no directory (before v3), or the error.
        if not response.results or getattr(response, "error_code", ErrorCode(NONE)).value != NONE:
            slot.fill([body])
            return
        results = [
            replace(result, topics=tuple(topic for topic in result.topics if str(topic.name) not in wanted))
            for result in response.results
        ]
        result_type = nested(load_response_schema(request.api_key, version), "results")
        results += await self._object_storage(result_type, self._led_here(client, request, wanted))
        slot.fill([encode(replace(response, results=tuple(results)))])

    def _led_here(self, client: Client, request: Request, wanted: Wanted) -> Wanted:
        """Return the partitions that the broker of this port leads for this client; all on the bootstrap port."""
        live = {name: one for name, one in wanted.items() if one[0].state == "live" and one[1]}
        if client.session.node_id is None:
            return live
        leaders = self._addresses.diskless_leaders(client.session, request.client_id, metadata=False)
        if leaders is None:
            return {}
        led = {
            name: (
                entry,
                tuple(index for index in indexes if _leader_of(leaders, name, index) == client.session.node_id),
            )
            for name, (entry, indexes) in live.items()
        }
        return {name: one for name, one in led.items() if one[1]}

    async def _object_storage(self, result_type: Any, led: Wanted) -> list[Any]:
        """Return the log directory for object storage; none if it would be empty."""
        if not led:
            return []
        error_code, topics = NONE, []
        topic_type = nested(result_type, "topics")
        partition_type = nested(topic_type, "partitions")
        try:
            for name, (entry, indexes) in led.items():
                described = await self._coordinator.describe(entry.topic_id, indexes)
                partitions = tuple(
                    partition_type(
                        partition_index=index, partition_size=one.size_bytes, offset_lag=0, is_future_key=False
                    )
                    for index, one in zip(indexes, described, strict=True)
                    if one is not None
                )
                topics.append(topic_type(name=name, partitions=partitions))
        except CoordinatorUnavailable as error:
            self._throttled_log.warning("sizes_unavailable", reason=str(error))
            error_code, topics = KAFKA_STORAGE_ERROR, []
        values = {
            "error_code": ErrorCode(error_code),
            "log_dir": self._storage.url,
            "topics": tuple(topics),
            "total_bytes": _UNKNOWN_BYTES,
            "usable_bytes": _UNKNOWN_BYTES,
            "is_cordoned": False,
        }
        return [result_type(**{one.name: values[one.name] for one in fields(result_type)})]


def _wanted(asked: Any, topics: Topics) -> Wanted:
    """All of them where the request names no topics."""
    if asked.topics is None:
        return {entry.name: (entry, tuple(range(entry.partitions))) for entry in topics.all()}
    found = ((topics.find(str(topic.topic)), topic.partitions) for topic in asked.topics)
    return {
        entry.name: (entry, tuple(index for index in dict.fromkeys(partitions) if 0 <= index < entry.partitions))
        for entry, partitions in found
        if entry is not None
    }


def _leader_of(leaders: Leaders, topic: str, partition: int) -> int:
    if isinstance(leaders, SoleLeader):
        return leaders.leader
    # Which replicas a partition has is not known here: any one broker will do, as long as it is one.
    return leaders.preferred if isinstance(leaders, ReplicaLeaders) else leaders.leader_of(topic, partition)
