"""DescribeProducers (API key 61): the producers of a diskless partition are those that the coordinator remembers.

Behaviour: as a broker's (KIP-664), with the right to read the topic; any proxy answers, as any serves the partition.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from kio.schema.errors import ErrorCode

from proxy.client.client import Client
from proxy.client.request import Request
from proxy.client.rights import READ
from proxy.coordinator.interface import Coordinator, CoordinatorUnavailable
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.handlers.halves import Halves, Mine
from proxy.protocol.errors import KAFKA_STORAGE_ERROR, NONE, UNKNOWN_TOPIC_OR_PARTITION
from proxy.telemetry.throttled_log import ThrottledLog
from proxy.wire.cold import nested


class DescribeProducers:
    """Handler of DescribeProducers."""

    def __init__(self, halves: Halves, *, coordinator: Coordinator, throttled_log: ThrottledLog) -> None:
        self._halves = halves
        self._coordinator = coordinator
        self._throttled_log = throttled_log

    def describe_producers(self, client: Client, request: Request) -> Coroutine[Any, Any, None] | None:
        """Split and answer."""
        return self._halves.answer(client, request, lambda asked: str(asked.name), READ, self._answer_mine)

    async def _answer_mine(self, response_type: Any, mine: Mine) -> list[Any]:
        topic_type = nested(response_type, "topics")
        partition_type = nested(topic_type, "partitions")
        answers = []
        asked: set[tuple[bytes, int]] = set()
        for topic, entry, refused in mine:
            partitions = []
            # One that is named again is answered once: each answer may hold all of a partition's producers.
            for index in dict.fromkeys(topic.partition_indexes):
                if refused != NONE:
                    partitions.append(_failed(partition_type, index, refused, None))
                elif (entry.topic_id, index) not in asked:
                    asked.add((entry.topic_id, index))
                    partitions.append(await self._partition(partition_type, entry, index))
            answers.append(topic_type(name=topic.name, partitions=tuple(partitions)))
        return answers

    async def _partition(self, partition_type: Any, entry: DisklessTopic, index: int) -> Any:
        if entry.state != "live" or not 0 <= index < entry.partitions:
            return _failed(partition_type, index, UNKNOWN_TOPIC_OR_PARTITION, None)
        try:
            found = await self._coordinator.producers(entry.topic_id, index)
        except CoordinatorUnavailable as error:
            self._throttled_log.warning("producers_unavailable", topic=entry.name, partition=index, reason=str(error))
            return _failed(partition_type, index, KAFKA_STORAGE_ERROR, "the diskless coordinator can't be reached")
        if found is None:
            return _failed(partition_type, index, UNKNOWN_TOPIC_OR_PARTITION, None)
        producer_type = nested(partition_type, "active_producers")
        producers = tuple(
            producer_type(
                producer_id=one.producer_id,
                producer_epoch=one.producer_epoch,
                last_sequence=one.last_sequence,
                last_timestamp=one.last_timestamp_ms,
                coordinator_epoch=one.coordinator_epoch,
                current_txn_start_offset=one.transaction_start_offset,
            )
            for one in found
        )
        return partition_type(
            partition_index=index, error_code=ErrorCode(NONE), error_message=None, active_producers=producers
        )


def _failed(partition_type: Any, index: int, error_code: int, message: str | None) -> Any:
    return partition_type(
        partition_index=index, error_code=ErrorCode(error_code), error_message=message, active_producers=()
    )
