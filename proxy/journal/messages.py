"""Requests of the journal and their answers: bytes in, bytes out.

Topics are named by ID wherever brokers of all supported versions allow it, so a topic that was created again under the
same name is never taken for the journal.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from proxy.protocol.api_keys import API_VERSIONS, DELETE_RECORDS, LIST_OFFSETS, PRODUCE
from proxy.wire.cold import encode, milliseconds, nested, read_response
from proxy.wire.errors import ProtocolError
from proxy.wire.fetch import CONSUMER_REPLICA_ID, NO_EPOCH, NO_SESSION, FetchRequest, PartitionFetch, TopicFetch
from proxy.wire.fetch import build_fetch_request as build_fetch
from proxy.wire.fetch_response import PartitionFetched, parse_fetch_response
from proxy.wire.metadata import MetadataRequest, MetadataRequestTopic, encode_metadata_request
from proxy.wire.primitives import Buffer
from proxy.wire.produce import (
    FIRST_TOPIC_ID,
    HIGHEST_VERSION,
    PartitionProduce,
    PartitionProduced,
    ProduceRequest,
    TopicProduce,
    build_produce_request,
    parse_produce_response,
)

METADATA_VERSION = 12
FETCH_VERSION = 13
LIST_OFFSETS_VERSION = 5
"""Since v5 a new leader answers OFFSET_NOT_AVAILABLE until its high watermark is true (KIP-207)."""
DELETE_RECORDS_VERSION = 2
LATEST, EARLIEST = -1, -2
_ALL_REPLICAS = -1
_READ_UNCOMMITTED = 0


class Topic(NamedTuple):
    """The journal's topic."""

    name: str
    topic_id: bytes


class Position(NamedTuple):
    """The answer to ListOffsets or DeleteRecords for a partition."""

    error_code: int
    offset: int


def metadata_request(topic: str | bytes) -> bytes:
    """Return the body of a Metadata request for a topic, by name or by ID."""
    asked = MetadataRequestTopic(topic) if isinstance(topic, str) else MetadataRequestTopic(None, topic)
    return encode_metadata_request(MetadataRequest(METADATA_VERSION, [asked], allow_auto_topic_creation=False))


def produce_version(api_versions: Buffer) -> int:
    """Return the highest version of Produce that a broker and this proxy know. Raises ProtocolError."""
    response: Any = read_response(API_VERSIONS, 0, api_versions)
    for api in response.api_keys:
        if api.api_key == PRODUCE:
            return min(int(api.max_version), HIGHEST_VERSION)
    raise ProtocolError("the broker does not name Produce among its APIs")


def produce_request(version: int, topic: Topic, batches: Mapping[int, bytes], timeout_ms: int) -> list[Buffer]:
    """Return the body of a Produce with acks=all: a batch for each partition."""
    named = topic.topic_id if version >= FIRST_TOPIC_ID else topic.name
    partitions = [PartitionProduce(partition, memoryview(batch)) for partition, batch in batches.items()]
    return build_produce_request(
        ProduceRequest(version, None, _ALL_REPLICAS, timeout_ms, [TopicProduce(named, partitions)])
    )


def produce_answers(body: Buffer, version: int) -> dict[int, PartitionProduced]:
    """Return the answers by partition. Raises ProtocolError."""
    return {answer.index: answer for topic in parse_produce_response(body, version) for answer in topic.partitions}


def fetch_request(topic: Topic, partition: int, leader_epoch: int, offset: int, max_bytes: int) -> bytes:
    """Return the body of a Fetch that does not wait for records."""
    asked = PartitionFetch(partition, leader_epoch, offset, NO_EPOCH, -1, max_bytes)
    return build_fetch(
        FetchRequest(
            version=FETCH_VERSION,
            replica_id=CONSUMER_REPLICA_ID,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=max_bytes,
            isolation_level=_READ_UNCOMMITTED,
            session_id=0,
            session_epoch=NO_SESSION,
            topics=[TopicFetch(topic.topic_id, [asked])],
            forgotten=[],
            rack_id="",
        )
    )


def fetch_answer(body: Buffer) -> PartitionFetched:
    """Return the answer for the only partition. Raises ProtocolError."""
    response = parse_fetch_response(body, FETCH_VERSION)
    for topic in response.topics:
        for answer in topic.partitions:
            return answer
    raise ProtocolError(f"the answer to Fetch names no partition, and has the error {response.error_code}")


@lru_cache(maxsize=1024)
def list_offsets_request(topic: Topic, partition: int, leader_epoch: int, timestamp: int) -> bytes:
    """Return the body of a ListOffsets for a partition."""
    from kio.schema.list_offsets.v5.request import ListOffsetsRequest

    topic_type = nested(ListOffsetsRequest, "topics")
    asked = nested(topic_type, "partitions")(
        partition_index=partition, current_leader_epoch=leader_epoch, timestamp=timestamp
    )
    topics = (topic_type(name=topic.name, partitions=(asked,)),)
    return encode(
        ListOffsetsRequest(
            replica_id=CONSUMER_REPLICA_ID,  # type: ignore[arg-type]
            isolation_level=_READ_UNCOMMITTED,  # type: ignore[arg-type]
            topics=topics,
        )
    )


def list_offsets_answer(body: Buffer) -> Position:
    """Return the answer for the only partition. Raises ProtocolError."""
    return _position(read_response(LIST_OFFSETS, LIST_OFFSETS_VERSION, body), "offset")


def delete_records_request(topic: Topic, partition: int, before: int, timeout_ms: int) -> bytes:
    """Return the body of a DeleteRecords for a partition."""
    from kio.schema.delete_records.v2.request import DeleteRecordsRequest

    topic_type = nested(DeleteRecordsRequest, "topics")
    asked = nested(topic_type, "partitions")(partition_index=partition, offset=before)
    topics = (topic_type(name=topic.name, partitions=(asked,)),)
    return encode(DeleteRecordsRequest(topics=topics, timeout=milliseconds(timeout_ms)))


def delete_records_answer(body: Buffer) -> Position:
    """Return the answer for the only partition: the new start. Raises ProtocolError."""
    return _position(read_response(DELETE_RECORDS, DELETE_RECORDS_VERSION, body), "low_watermark")


def _position(response: Any, field: str) -> Position:
    for topic in response.topics:
        for answer in topic.partitions:
            return Position(int(answer.error_code.value), int(getattr(answer, field)))
    raise ProtocolError("the answer names no partition")
