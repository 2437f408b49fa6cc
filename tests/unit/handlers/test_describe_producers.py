"""DescribeProducers: each partition's producers are requested and answered once, however often it is named."""

from __future__ import annotations

from typing import Any

from kio.index import load_response_schema
from kio.schema.describe_producers.v0.request import TopicRequest
from kio.schema.types import TopicName
from kio.static.primitive import i32

from proxy.coordinator.interface import ProducerDescription
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.handlers.describe_producers import DescribeProducers
from proxy.handlers.halves import MyTopic
from proxy.protocol.errors import KAFKA_STORAGE_ERROR, NONE

ENTRY = DisklessTopic("orders", b"o" * 16, 3, "live")


class Coordinator:
    def __init__(self) -> None:
        self.asked: list[tuple[bytes, int]] = []

    async def producers(self, topic_id: bytes, index: int) -> list[Any]:
        self.asked.append((topic_id, index))
        return [ProducerDescription(7, 3, 5, 1_000, 2, 40), ProducerDescription(8, 0, 0, 2_000)]


def named(refused: int, *indexes: int) -> MyTopic:
    return MyTopic(TopicRequest(name=TopicName("orders"), partition_indexes=tuple(map(i32, indexes))), ENTRY, refused)


async def topics_of(coordinator: Any, *mine: MyTopic) -> list[Any]:
    unused: Any = None
    handler = DescribeProducers(unused, coordinator=coordinator, throttled_log=unused)
    return await handler._answer_mine(load_response_schema(61, 0), mine)


async def answered(*mine: MyTopic) -> tuple[Coordinator, list[list[tuple[int, int]]]]:
    coordinator = Coordinator()
    topics = await topics_of(coordinator, *mine)
    return coordinator, [[(one.partition_index, int(one.error_code)) for one in topic.partitions] for topic in topics]


async def test_a_repeated_partition_is_answered_once() -> None:
    coordinator, answers = await answered(named(NONE, *[0] * 1_000, 2), named(NONE, 2, 1))
    assert coordinator.asked == [(ENTRY.topic_id, 0), (ENTRY.topic_id, 2), (ENTRY.topic_id, 1)]
    assert answers == [[(0, NONE), (2, NONE)], [(1, NONE)]]


async def test_open_transactions_and_their_coordinators_are_named() -> None:
    (topic,) = await topics_of(Coordinator(), named(NONE, 0))
    producers = topic.partitions[0].active_producers
    assert [(one.producer_id, one.producer_epoch, one.last_sequence, one.last_timestamp) for one in producers] == [
        (7, 3, 5, 1_000),
        (8, 0, 0, 2_000),
    ]
    assert [(one.coordinator_epoch, one.current_txn_start_offset) for one in producers] == [(2, 40), (-1, -1)]


async def test_no_request_is_sent_for_a_rejected_partition() -> None:
    coordinator, answers = await answered(named(KAFKA_STORAGE_ERROR, 0, 0, 1))
    assert coordinator.asked == []
    assert answers == [[(0, KAFKA_STORAGE_ERROR), (1, KAFKA_STORAGE_ERROR)]]
