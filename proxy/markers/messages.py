"""Requests for shadows' logs and their answers: bytes in, bytes out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from proxy.markers.leaders import Log
from proxy.wire.errors import ProtocolError
from proxy.wire.fetch import (
    CONSUMER_REPLICA_ID,
    NO_EPOCH,
    NO_SESSION,
    READ_UNCOMMITTED,
    FetchRequest,
    PartitionFetch,
    TopicFetch,
    build_fetch_request,
)
from proxy.wire.fetch_response import PartitionFetched, parse_fetch_response
from proxy.wire.primitives import Buffer

FETCH_VERSION = 13
"""The first version that names topics by ID."""
MAX_BYTES = 1_048_576
"""Maximum size of an answer; a marker has 78 bytes."""
PARTITION_MAX_BYTES = 32_768
"""About 400 markers of one shadow: the store applies them in one call, and serves nobody else meanwhile."""
_LOG_START_OF_NO_REPLICA = -1


class Place(NamedTuple):
    """An offset to read a shadow from."""

    log: Log
    offset: int
    leader_epoch: int
    """Present epoch of the leader, as Metadata has it."""


class Fetched(NamedTuple):
    """The answer to a Fetch."""

    error_code: int
    session_id: int
    throttle_ms: int
    partitions: dict[Log, PartitionFetched]


class Session(NamedTuple):
    """The fetch session of a request (KIP-227)."""

    session_id: int
    epoch: int
    forgotten: tuple[Log, ...] = ()


WITHOUT_SESSION = Session(0, NO_SESSION)


def fetch_request(places: Iterable[Place], *, wait_ms: int, session: Session = WITHOUT_SESSION) -> bytes:
    """Return the body of a Fetch of uncommitted records, as a consumer sends it."""
    partitions: defaultdict[bytes, list[PartitionFetch]] = defaultdict(list)
    for (topic_id, partition), offset, leader_epoch in places:
        partitions[topic_id].append(
            PartitionFetch(partition, leader_epoch, offset, NO_EPOCH, _LOG_START_OF_NO_REPLICA, PARTITION_MAX_BYTES)
        )
    forgotten: defaultdict[str | bytes, list[int]] = defaultdict(list)
    for topic_id, partition in session.forgotten:
        forgotten[topic_id].append(partition)
    return build_fetch_request(
        FetchRequest(
            version=FETCH_VERSION,
            replica_id=CONSUMER_REPLICA_ID,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=MAX_BYTES,
            isolation_level=READ_UNCOMMITTED,
            session_id=session.session_id,
            session_epoch=session.epoch,
            topics=[TopicFetch(topic_id, asked) for topic_id, asked in partitions.items()],
            forgotten=list(forgotten.items()),
            rack_id="",
        )
    )


def fetch_answer(body: Buffer) -> Fetched:
    """Return the answers by partition. Raises ProtocolError."""
    response = parse_fetch_response(body, FETCH_VERSION)
    partitions: dict[Log, PartitionFetched] = {}
    for topic in response.topics:
        if not isinstance(topic.topic, bytes):
            raise ProtocolError("the answer to Fetch names a topic without its ID")
        partitions.update(((topic.topic, answer.index), answer) for answer in topic.partitions)
    return Fetched(response.error_code, response.session_id, response.throttle_ms, partitions)
