"""ListOffsets (API key 2): offsets of diskless partitions are the coordinator's, of classic ones the broker's.

Behaviour: latest is the high watermark, for `read_committed` the last stable offset. By time and for the maximum
timestamp the answer is exact to the record (`time_lookup.py`); `read_committed` does not find a record that is not
stable. A partition that is asked for twice gets
INVALID_REQUEST, once; a special timestamp that is newer than the request's version UNSUPPORTED_VERSION. A consumer's
isolation level that is none fails the whole request.

Version notes: v7 maximum timestamp (KIP-734), v8 earliest local and v9 latest tiered (KIP-405), v10 a timeout
(KIP-1075), v11 earliest pending upload (KIP-1023). v4 leader epochs: a diskless topic's batches all have the same.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Coroutine
from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from proxy.client.client import Client
from proxy.client.request import Request
from proxy.client.rights import DESCRIBE
from proxy.coordinator.interface import (
    EARLIEST_TIMESTAMP,
    LATEST_STABLE_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    ListRequest,
    OffsetAnswer,
)
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.handlers.halves import Halves, Mine
from proxy.handlers.offsets import Offsets
from proxy.protocol.errors import (
    INVALID_REQUEST,
    NONE,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_VERSION,
)
from proxy.wire.cold import nested, read_request
from proxy.wire.fetch import CONSUMER_REPLICA_ID, ISOLATION_LEVELS, READ_COMMITTED, READ_UNCOMMITTED

EARLIEST_LOCAL_TIMESTAMP, LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP = -4, -5, -6
_FIRST_VERSIONS = {
    LATEST_TIMESTAMP: 1,
    EARLIEST_TIMESTAMP: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}
_FIRST_TIMEOUT_VERSION = 10
_FIRST_ISOLATION_VERSION = 2
_REPLICA_AND_ISOLATION = struct.Struct(">ib")
"""A request begins with these."""
_LEADER_EPOCH = 0
_ENDS = (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, LATEST_STABLE_TIMESTAMP)
_NOWHERE = OffsetAnswer(NONE, -1, -1)


class ListOffsets:
    """Handler of ListOffsets."""

    def __init__(self, halves: Halves, offsets: Offsets) -> None:
        self._halves = halves
        self._offsets = offsets

    def list_offsets(self, client: Client, request: Request) -> Coroutine[Any, Any, None] | None:
        """Split and answer."""
        return self._halves.answer(
            client, request, lambda asked: str(asked.name), DESCRIBE, partial(self._answer_mine, request)
        )

    async def _answer_mine(self, request: Request, response_type: Any, mine: Mine) -> list[Any]:
        asked_for = Counter(
            (entry.name, asked.partition_index) for topic, entry, _ in mine for asked in topic.partitions
        )
        replica_id, isolation_level = _isolation(request)
        is_consumer = replica_id == CONSUMER_REPLICA_ID
        failed = UNKNOWN_SERVER_ERROR if is_consumer and isolation_level not in ISOLATION_LEVELS else NONE
        committed = is_consumer and isolation_level == READ_COMMITTED
        answers: dict[tuple[str, int], OffsetAnswer] = {}
        wanted: dict[tuple[str, int], ListRequest] = {}
        for topic, entry, refused in mine:
            for asked in topic.partitions:
                key = entry.name, asked.partition_index
                error_code = failed or refused or _error(request.api_version, entry, asked, asked_for[key])
                if error_code != NONE:
                    answers[key] = OffsetAnswer(error_code, -1, -1)
                elif asked.timestamp in (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP):
                    answers[key] = _NOWHERE  # as of a topic without tiered storage
                else:
                    timestamp_ms = _timestamp(asked.timestamp, committed=committed)
                    wanted[key] = ListRequest(entry.topic_id, asked.partition_index, timestamp_ms)
        by_time = any(one.timestamp_ms not in _ENDS for one in wanted.values())
        timeout_s = _timeout_s(request) if by_time else None
        found = await self._offsets.listed(list(wanted.values()), timeout_s, committed=committed)
        answers.update(zip(wanted, found, strict=True))

        topic_type = nested(response_type, "topics")
        partition_type = nested(topic_type, "partitions")
        partitions: dict[str, list[Any]] = {entry.name: [] for _, entry, _ in mine}
        for (name, index), answer in answers.items():
            partitions[name].append(_partition(partition_type, index, answer))
        return [topic_type(name=name, partitions=tuple(answered)) for name, answered in partitions.items()]


def _isolation(request: Request) -> tuple[int, int]:
    """Return replica ID and isolation level; brokers look at the level of consumers only."""
    if request.api_version < _FIRST_ISOLATION_VERSION:
        return CONSUMER_REPLICA_ID, READ_UNCOMMITTED
    replica_id, isolation_level = _REPLICA_AND_ISOLATION.unpack_from(request.body)
    return replica_id, isolation_level


def _error(api_version: int, entry: DisklessTopic, asked: Any, times: int) -> int:
    """The checks of `ReplicaManager.fetchOffset`, in its order."""
    if times > 1:
        return INVALID_REQUEST
    if asked.timestamp < 0 and api_version < _FIRST_VERSIONS.get(asked.timestamp, api_version + 1):
        return UNSUPPORTED_VERSION
    return NONE if 0 <= asked.partition_index < entry.partitions else UNKNOWN_TOPIC_OR_PARTITION


def _timestamp(asked: int, *, committed: bool) -> int:
    if asked == LATEST_TIMESTAMP and committed:
        return LATEST_STABLE_TIMESTAMP
    return EARLIEST_TIMESTAMP if asked == EARLIEST_LOCAL_TIMESTAMP else asked


def _timeout_s(request: Request) -> float | None:
    """Return the client's timeout; None if its version has none, or if it is 0, which some clients use for none.

    For a broker it bounds only what is read from remote storage, so such clients are answered.
    """
    if request.api_version < _FIRST_TIMEOUT_VERSION:
        return None
    # Rarely needed, and not known to what answers the half: so it is read once more.
    parsed = read_request(request.api_key, request.api_version, request.body)
    timeout_s: float = parsed.timeout.total_seconds()
    return timeout_s if timeout_s > 0 else None


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
