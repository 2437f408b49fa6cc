"""ListOffsets (API key 2): offsets of diskless partitions are the coordinator's, of classic ones the broker's.

Behaviour: latest is the high watermark, which without open transactions is the last stable offset too. By time, the
answer is exact to the coordinator's row that holds the first record of that time or later.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode

from proxy.coordinator.interface import EARLIEST_TIMESTAMP, ListRequest, OffsetAnswer
from proxy.errors import NONE, UNKNOWN_TOPIC_OR_PARTITION
from proxy.handlers.halves import Mine, answer_in_halves
from proxy.handlers.offsets import listed_offsets
from proxy.security.rights import DESCRIBE, rights_of
from proxy.wire.cold import nested

if TYPE_CHECKING:
    from proxy.connection import ClientConnection
    from proxy.request import Request

_LEADER_EPOCH = 0
_NEVER_MS = 2**53 - 1
_TIERED_TIMESTAMPS = {-4: EARLIEST_TIMESTAMP, -5: _NEVER_MS, -6: _NEVER_MS}
"""Earliest local, latest tiered (KIP-405), earliest pending upload (KIP-1023): as of a topic without tiered storage,
which has no offset for the latter two."""


def list_offsets(connection: ClientConnection, request: Request) -> Coroutine[Any, Any, None] | None:
    """Split and answer."""
    return answer_in_halves(connection, request, lambda asked: str(asked.name), _answer_mine)


async def _answer_mine(connection: ClientConnection, response_type: Any, mine: Mine) -> list[Any]:
    rights = rights_of(connection)
    refused = {entry.name: rights.error(entry.name, DESCRIBE) for _, entry in mine}
    wanted = [
        ListRequest(entry.topic_id, asked.partition_index, _TIERED_TIMESTAMPS.get(asked.timestamp, asked.timestamp))
        for topic, entry in mine
        for asked in topic.partitions
        if refused[entry.name] == NONE and 0 <= asked.partition_index < entry.partitions
    ]
    answers = await listed_offsets(connection, wanted)
    topic_type = nested(response_type, "topics")
    partition_type = nested(topic_type, "partitions")
    unknown = OffsetAnswer(UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    return [
        topic_type(
            name=topic.name,
            partitions=tuple(
                _partition(
                    partition_type,
                    asked.partition_index,
                    OffsetAnswer(refused[entry.name], -1, -1)
                    if refused[entry.name] != NONE
                    else answers.get((entry.topic_id, asked.partition_index), unknown),
                )
                for asked in topic.partitions
            ),
        )
        for topic, entry in mine
    ]


def _partition(partition_type: Any, index: int, answer: OffsetAnswer) -> Any:
    values: dict[str, Any] = {
        "partition_index": index,
        "error_code": ErrorCode(answer.error_code),
        "timestamp": answer.timestamp_ms,
        "offset": answer.offset,
    }
    if "leader_epoch" in partition_type.__slots__:
        values["leader_epoch"] = _LEADER_EPOCH if answer.offset >= 0 else -1
    return partition_type(**values)
