"""DeleteRecords (API key 21): the coordinator moves log starts of diskless partitions, the broker the classic ones'.

Behaviour: as a broker's. The offset is the first to keep, -1 the high watermark. One beyond that is
OFFSET_OUT_OF_RANGE, one before the log start changes nothing. The low watermark in the answer is the new log start, at
once and for every reader. A topic that is only compacted refuses it with POLICY_VIOLATION
(`Partition.deleteRecordsOnLeader`): what it would delete is the newest record of each key.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from kio.schema.errors import ErrorCode

from proxy.client.client import Client
from proxy.client.request import Request
from proxy.client.rights import DELETE
from proxy.coordinator.interface import Coordinator, CoordinatorUnavailable, DeleteRequest, LogStart
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.diskless.coordinates import Coordinates
from proxy.handlers.halves import Halves, Mine
from proxy.protocol.cleanup_policy import is_compacted, is_deleted_from
from proxy.protocol.errors import KAFKA_STORAGE_ERROR, NONE, POLICY_VIOLATION, UNKNOWN_TOPIC_OR_PARTITION
from proxy.telemetry.throttled_log import ThrottledLog
from proxy.wire.cold import nested


class DeleteRecords:
    """Handler of DeleteRecords."""

    def __init__(
        self, halves: Halves, *, coordinator: Coordinator, coordinates: Coordinates, throttled_log: ThrottledLog
    ) -> None:
        self._halves = halves
        self._coordinator = coordinator
        self._coordinates = coordinates
        self._throttled_log = throttled_log

    def delete_records(self, client: Client, request: Request) -> Coroutine[Any, Any, None] | None:
        """Split and answer."""
        return self._halves.answer(client, request, lambda asked: str(asked.name), DELETE, self._answer_mine)

    async def _answer_mine(self, response_type: Any, mine: Mine) -> list[Any]:
        # Of what is named more than once the last offset counts, as on brokers.
        places = {
            (entry.topic_id, asked.partition_index): asked.offset
            for topic, entry, refused in mine
            for asked in topic.partitions
            if refused == NONE and _error(entry, asked.partition_index) == NONE
        }
        wanted = [DeleteRequest(topic_id, index, offset) for (topic_id, index), offset in places.items()]
        try:
            found = await self._coordinator.delete_records(wanted) if wanted else []
        except CoordinatorUnavailable as error:
            self._throttled_log.warning("records_not_deleted", reason=str(error))
            found = [LogStart(KAFKA_STORAGE_ERROR, -1)] * len(wanted)
        for request, start in zip(wanted, found, strict=True):
            if start.error_code == NONE:
                self._coordinates.note(request.topic_id, request.partition, start.log_start_offset)
        answers = dict(zip(((one.topic_id, one.partition) for one in wanted), found, strict=True))
        topic_type = nested(response_type, "topics")
        partition_type = nested(topic_type, "partitions")

        def answer(entry: DisklessTopic, refused: int, index: int) -> Any:
            start = answers.get((entry.topic_id, index), LogStart(refused or _error(entry, index), -1))
            return partition_type(
                partition_index=index, low_watermark=start.log_start_offset, error_code=ErrorCode(start.error_code)
            )

        return [
            topic_type(
                name=topic.name,
                partitions=tuple(answer(entry, refused, asked.partition_index) for asked in topic.partitions),
            )
            for topic, entry, refused in mine
        ]


def _error(entry: DisklessTopic, index: int) -> int:
    if entry.state != "live" or not 0 <= index < entry.partitions:
        return UNKNOWN_TOPIC_OR_PARTITION
    return POLICY_VIOLATION if is_compacted(entry.configs) and not is_deleted_from(entry.configs) else NONE
