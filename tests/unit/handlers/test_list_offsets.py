"""The proxy's half of ListOffsets: every topic with its own partitions."""

from __future__ import annotations

import struct
from typing import Any, cast

import pytest
from kio.schema.list_offsets.v9 import request, response

from proxy.client.request import Request
from proxy.coordinator.interface import LATEST_STABLE_TIMESTAMP, LATEST_TIMESTAMP, OffsetAnswer
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.diskless.coordinates import Coordinates
from proxy.handlers.halves import MyTopic
from proxy.handlers.list_offsets import ListOffsets
from proxy.handlers.offsets import Offsets
from proxy.protocol.errors import INVALID_REQUEST, NONE, UNKNOWN_SERVER_ERROR
from tests.coordinator_model import ModelCoordinator
from tests.unit.parts import settings_of


def asked(name: str, *partitions: int) -> MyTopic:
    wanted = tuple(
        request.ListOffsetsPartition(partition_index=index, timestamp=LATEST_TIMESTAMP) for index in partitions
    )
    entry = DisklessTopic(name, name.encode().rjust(16), 4, "live")
    return MyTopic(request.ListOffsetsTopic(name=name, partitions=wanted), entry, NONE)


class Lookup:
    """Offsets of all partitions: ten times the topic's ID, and the partition."""

    async def list_offsets(self, wanted: Any, timeout_s: float, *, committed: bool) -> list[OffsetAnswer]:
        assert {one.timestamp_ms for one in wanted} == {LATEST_STABLE_TIMESTAMP if committed else LATEST_TIMESTAMP}
        return [OffsetAnswer(NONE, int(one.topic_id) * 10 + one.partition, -1) for one in wanted]


async def answer(mine: list[MyTopic], isolation_level: int = 0) -> list[Any]:
    settings, unused = settings_of(), cast(Any, None)
    lookup: Any = Lookup()
    offsets = Offsets(
        settings.fetch,
        settings.redis,
        time_lookup=lookup,
        coordinates=Coordinates(ModelCoordinator()),
        throttled_log=unused,
        now=lambda: 0.0,
    )
    body = memoryview(struct.pack(">ib", -1, isolation_level))  # the first bytes of a request
    asking = Request(2, 9, 1, "client", body, body)
    return await ListOffsets(unused, offsets)._answer_mine(asking, response.ListOffsetsResponse, mine)


async def test_every_topic_has_its_own_partitions_though_it_is_named_twice():
    topics = await answer([asked("1", 0, 1), asked("2", 3), asked("1", 2, 0)])
    assert [
        (topic.name, [(one.partition_index, one.error_code, one.offset) for one in topic.partitions])
        for topic in topics
    ] == [("1", [(0, INVALID_REQUEST, -1), (1, NONE, 11), (2, NONE, 12)]), ("2", [(3, NONE, 23)])]


@pytest.mark.parametrize("isolation_level", [0, 1])
async def test_the_latest_offset_is_of_the_isolation_level(isolation_level: int):
    """The last stable offset with `read_committed`, else the high watermark; `Lookup` checks it."""
    (topic,) = await answer([asked("1", 3)], isolation_level)
    assert [(one.error_code, one.offset) for one in topic.partitions] == [(NONE, 13)]


async def test_an_isolation_level_that_there_is_not_fails_all_of_it():
    (topic,) = await answer([asked("1", 0, 1)], isolation_level=2)
    assert [one.error_code for one in topic.partitions] == [UNKNOWN_SERVER_ERROR] * 2
