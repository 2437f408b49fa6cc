"""The end of an epoch is never before a client's position: the store first has all that the journal has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import pytest
from kio.schema.offset_for_leader_epoch.v4 import request, response

from proxy.coordinator.interface import CoordinatorUnavailable, OffsetAnswer
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.handlers.offset_for_leader_epoch import OffsetForLeaderEpoch
from proxy.protocol.errors import NONE

TOPIC = DisklessTopic("orders", bytes(16), 4, "live")


class Store:
    """A store that is behind the journal until it catches up."""

    def __init__(self, failure: Exception | None) -> None:
        self.end = 10
        self._failure = failure

    async def catch_up(self, logs: Iterable[tuple[bytes, int]]) -> None:
        assert list(logs) == [(TOPIC.topic_id, 1)]
        if self._failure is not None:
            raise self._failure
        self.end = 25

    async def listed(self, wanted: Any) -> list[OffsetAnswer]:
        return [OffsetAnswer(NONE, self.end, -1) for _ in wanted]


@pytest.mark.parametrize(
    ("failure", "end"), [(None, 25), (CoordinatorUnavailable("the journal is away"), 10), (TimeoutError(), 10)]
)
async def test_the_end_is_that_of_the_journal_if_it_answers(failure: Exception | None, end: int) -> None:
    store: Any = Store(failure)
    asked = request.OffsetForLeaderPartition(
        partition=cast(Any, 1), current_leader_epoch=cast(Any, 0), leader_epoch=cast(Any, 3)
    )
    topic = request.OffsetForLeaderTopic(topic=cast(Any, "orders"), partitions=(asked,))
    handler = OffsetForLeaderEpoch(cast(Any, None), store, catch_up=store.catch_up)
    (answered,) = await handler._answer_mine(response.OffsetForLeaderEpochResponse, cast(Any, [(topic, TOPIC, NONE)]))
    (one,) = answered.partitions
    assert (one.partition, one.error_code.value, one.leader_epoch, one.end_offset) == (1, NONE, 3, end)
