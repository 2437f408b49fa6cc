"""OffsetForLeaderEpoch (API key 23): a diskless log is never truncated, whatever epoch a client knows.

Behaviour: for any epoch, known or not, the answer is (that epoch, high watermark), requested from the coordinator. An
end offset of 0 for a log with records would make consumers start over forever, and an error would make them retry
forever. An end before the client's position would mean to the client that the log was truncated. A client may have
read further through a proxy of another store, or of another primary, so the store first gets all that the journal has.
No client is fenced: the epoch that the client takes for the current one is that of the placeholder topic's leader,
which says nothing about the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any

from kio.schema.errors import ErrorCode

from proxy.client.client import Client
from proxy.client.request import Request
from proxy.client.rights import DESCRIBE
from proxy.coordinator.interface import LATEST_TIMESTAMP, CoordinatorUnavailable, ListRequest, OffsetAnswer
from proxy.handlers.halves import Halves, Mine
from proxy.handlers.offsets import Offsets
from proxy.protocol.errors import NONE, UNKNOWN_TOPIC_OR_PARTITION
from proxy.wire.cold import nested

_CATCH_UP_S = 1.0
"""Longest wait for the end of the journal; its brokers may be away."""


class OffsetForLeaderEpoch:
    """Handler of OffsetForLeaderEpoch."""

    def __init__(
        self, halves: Halves, offsets: Offsets, *, catch_up: Callable[[Iterable[tuple[bytes, int]]], Awaitable[None]]
    ) -> None:
        """`catch_up`: requires that the next answers about logs have all that the journal has."""
        self._halves = halves
        self._offsets = offsets
        self._catch_up = catch_up

    def offset_for_leader_epoch(self, client: Client, request: Request) -> Coroutine[Any, Any, None] | None:
        """Split and answer."""
        return self._halves.answer(client, request, lambda asked: str(asked.topic), DESCRIBE, self._answer_mine)

    async def _answer_mine(self, response_type: Any, mine: Mine) -> list[Any]:
        wanted = {
            (entry.topic_id, asked.partition): ListRequest(entry.topic_id, asked.partition, LATEST_TIMESTAMP)
            for topic, entry, refused in mine
            for asked in topic.partitions
            if refused == NONE and 0 <= asked.partition < entry.partitions
        }
        # While the journal is away, the offsets that this proxy knows are better than no answer.
        with suppress(CoordinatorUnavailable, TimeoutError):
            async with asyncio.timeout(_CATCH_UP_S):
                await self._catch_up(wanted)
        answers = dict(zip(wanted, await self._offsets.listed(list(wanted.values())), strict=True))
        topic_type = nested(response_type, "topics")
        partition_type = nested(topic_type, "partitions")
        return [
            topic_type(
                topic=topic.topic,
                partitions=tuple(
                    _partition(
                        partition_type,
                        asked,
                        answers.get(
                            (entry.topic_id, asked.partition),
                            OffsetAnswer(refused or UNKNOWN_TOPIC_OR_PARTITION, -1, -1),
                        ),
                    )
                    for asked in topic.partitions
                ),
            )
            for topic, entry, refused in mine
        ]


def _partition(partition_type: Any, asked: Any, answer: OffsetAnswer) -> Any:
    failed = answer.error_code != NONE
    return partition_type(
        error_code=ErrorCode(answer.error_code),
        partition=asked.partition,
        leader_epoch=-1 if failed else asked.leader_epoch,
        end_offset=-1 if failed else answer.offset,
    )
