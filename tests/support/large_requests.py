"""The largest requests that the APIs allow, by hand: bytes, as encoding a tree of objects would take longer than the
test."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from proxy.wire.primitives import (
    MAX_DECODED_ELEMENTS,
    MAX_ELEMENTS,
    MAX_PRODUCED_ELEMENTS,
    MAX_REJECTED_ELEMENTS,
    MAX_WHOLE_ELEMENTS,
    write_count,
)
from proxy.wire.produce import PartitionProduce, ProduceRequest, TopicProduce, build_produce_request
from tests.batches import make_batch

_SPARE = 100
"""Elements by which a request stays below a bound: a request has other arrays, too."""
CUT = MAX_ELEMENTS - _SPARE
"""Elements of a request that is cut into parts."""
DECODED = MAX_DECODED_ELEMENTS - _SPARE
"""Elements of a request that is decoded as a whole."""
WHOLE = MAX_WHOLE_ELEMENTS - _SPARE
"""Elements of a request that is read in one step."""
PRODUCED = MAX_PRODUCED_ELEMENTS - _SPARE
"""Elements of a Produce."""
DESCRIBED = 20_000
"""Topics whose configs an answer has room for, within limits.max_response_bytes_per_connection."""
REJECTED = MAX_REJECTED_ELEMENTS - _SPARE
"""Elements of a request that is rejected because it names a diskless topic."""


class Large(NamedTuple):
    """Requests of one API."""

    api_key: int
    version: int
    body: Callable[[int], bytes]
    """Return the body with about this many elements."""
    most: int = CUT
    """Elements of the largest request."""


def _count(number: int) -> bytes:
    return write_count(number, True)


def _indexes(number: int, size: int, rest: bytes = b"\0") -> bytes:
    """Return partitions by ascending index, each with this many bytes after the index."""
    return _count(number) + b"".join(one.to_bytes(4, "big") + bytes(size) + rest for one in range(number))


def _names(number: int, rest: bytes, prefix: bytes = b"") -> bytes:
    """Return topics of which one is diskless."""
    return _count(number) + prefix + b"\x02d" + rest + _classic_names(number - 1, rest, prefix)


def _classic_names(number: int, rest: bytes, prefix: bytes = b"") -> bytes:
    return b"".join(prefix + b"\x07" + b"%06d" % one + rest for one in range(number))


def _topics(number: int, rest: bytes) -> bytes:
    """Return classic topics with something each, half as many as elements."""
    return _count(number // 2) + _classic_names(number // 2, rest)


def _one_topic(partitions: bytes) -> bytes:
    return _count(1) + b"\x02d" + partitions + b"\0"


def _ids(number: int, rest: bytes) -> bytes:
    """Return classic topics by ID, half as many as elements."""
    return _count(number // 2) + b"".join(one.to_bytes(16, "big") + rest for one in range(number // 2))


def _mixed(number: int, rest: bytes) -> bytes:
    """Return topics with a partition each, of which one is diskless."""
    return _count(number // 2) + b"\x02d" + rest + _classic_names(number // 2 - 1, rest)


def _produce(*partitions: tuple[str, int]) -> bytes:
    """Return Produce v9 to this many partitions of each topic, with the same batch for all."""
    batch = memoryview(make_batch())
    topics = [
        TopicProduce(name, [PartitionProduce(index, batch) for index in range(number)]) for name, number in partitions
    ]
    return b"".join(build_produce_request(ProduceRequest(9, None, -1, 60_000, topics)))


FETCH_HEAD = b"\xff\xff\xff\xff" + bytes(4) + b"\0\0\0\1" + b"\x7f\0\0\0" + b"\0" + bytes(4) + b"\xff\xff\xff\xff"
"""Fetch v12: a consumer that does not wait, and without a session."""
FETCH_END = b"\x01\x01\0"
"""No forgotten topics, no rack."""
_CREATED = b"\0\0\0\1\0\1" + b"\1\1\0"
"""One partition, one replica, no assignment, no configs."""
_PARTITION = b"\2" + bytes(4) + b"\0"
_SHARED = _count(1) + bytes(4) + _count(0) + b"\0\0"
_MEMBER = b"\2g\2m" + bytes(4)
"""Group, member, and epoch of a heartbeat."""
_TOPOLOGY = b"\1" + bytes(4)
"""A topology that is not null, and its epoch."""

LARGE: dict[str, Large] = {
    "Produce to diskless partitions": Large(0, 9, lambda n: _produce(("d", n)), PRODUCED),
    "Produce to classic topics": Large(
        0, 9, lambda n: _produce(*((f"{one:06}", 1) for one in range(n // 2))), PRODUCED
    ),
    "Produce to both": Large(0, 9, lambda n: _produce(("c", n // 2), ("d", n // 2)), PRODUCED),
    "ListOffsets of partitions": Large(2, 7, lambda n: bytes(5) + _one_topic(_indexes(n, 4 + 8)) + b"\0"),
    "ListOffsets of topics": Large(2, 7, lambda n: bytes(5) + _mixed(n, _count(1) + bytes(16) + b"\0\0") + b"\0"),
    "CreateTopics": Large(19, 7, lambda n: _count(n) + _classic_names(n, _CREATED) + b"\0\0\x27\x10\1\0"),
    "DeleteTopics": Large(20, 5, lambda n: _names(n, b"") + b"\0\0\x27\x10\0"),
    "DeleteRecords": Large(21, 2, lambda n: _one_topic(_indexes(n, 8)) + b"\0\0\x27\x10\0"),
    "OffsetForLeaderEpoch": Large(23, 4, lambda n: bytes(4) + _one_topic(_indexes(n, 8)) + b"\0"),
    "DescribeConfigs": Large(32, 4, lambda n: _names(n, b"\0\0", b"\2") + b"\0\0\0", DESCRIBED),
    "IncrementalAlterConfigs": Large(44, 1, lambda n: _names(n, _count(0) + b"\0", b"\2") + b"\1\0"),
    "CreatePartitions": Large(37, 3, lambda n: _names(n, b"\0\0\0\2\0\0") + b"\0\0\x27\x10\1\0"),
    "AlterPartitionReassignments": Large(
        45, 0, lambda n: b"\0\0\x27\x10" + _one_topic(_indexes(n, 0, b"\0\0")) + b"\0"
    ),
    "DescribeProducers": Large(61, 0, lambda n: _one_topic(_indexes(n, 0, b"")) + b"\0"),
    "Metadata": Large(3, 12, lambda n: _names(n, b"\0", bytes(16)) + b"\1\0\0", DECODED),
    "FindCoordinator": Large(10, 4, lambda n: b"\0" + _names(n, b"") + b"\0"),
    "DescribeTopicPartitions": Large(75, 0, lambda n: _names(n, b"\0") + b"\0\0\x07\xd0\xff\0"),
    "DescribeQuorum": Large(55, 2, lambda n: _topics(n, _count(1) + bytes(4) + b"\0\0") + b"\0"),
    "AlterConfigs": Large(33, 2, lambda n: _names(n, _count(0) + b"\0", b"\2") + b"\1\0"),
    "Fetch of partitions": Large(1, 12, lambda n: FETCH_HEAD + _one_topic(_indexes(n, 28)) + FETCH_END, DECODED),
    "Fetch of classic topics": Large(
        1, 12, lambda n: FETCH_HEAD + _topics(n, b"\x02" + bytes(32) + b"\0\0") + FETCH_END, DECODED
    ),
    "Fetch that forgets topics": Large(
        1, 12, lambda n: FETCH_HEAD + b"\x01" + _topics(n, b"\x02" + bytes(4) + b"\0") + b"\x01\0", DECODED
    ),
    "AddPartitionsToTxn": Large(24, 3, lambda n: b"\2t" + bytes(10) + _topics(n, _PARTITION) + b"\0", DECODED),
    "AddPartitionsToTxn with a diskless topic": Large(
        24, 3, lambda n: b"\2t" + bytes(10) + _mixed(n, _PARTITION) + b"\0", REJECTED
    ),
    "WriteTxnMarkers": Large(
        27, 1, lambda n: _count(1) + bytes(11) + _mixed(n, _PARTITION) + bytes(4) + b"\0\0", REJECTED
    ),
    "ConsumerGroupHeartbeat": Large(68, 1, lambda n: _MEMBER + b"\0\0" + bytes(4) + _names(n, b"") + b"\0\0\0\0"),
    "ShareGroupHeartbeat": Large(76, 1, lambda n: _MEMBER + b"\0" + _names(n, b"") + b"\0", REJECTED),
    "ShareGroupHeartbeat that names too much": Large(76, 1, lambda n: _MEMBER + b"\0" + _names(n, b"") + b"\0"),
    "StreamsGroupHeartbeat": Large(
        88,
        0,
        lambda n: (
            _MEMBER
            + bytes(4)
            + b"\0\0"
            + bytes(4)
            + (_TOPOLOGY + _count(1) + b"\2s" + _names(n, b"") + b"\1\1\1\1\1\0\0")
            + b"\0\0\0\0\xff\0\0\0\0\0"
        ),
        WHOLE,
    ),
    "ShareFetch": Large(78, 1, lambda n: b"\2g\2m" + bytes(24) + _ids(n, _SHARED) + _count(0) + b"\0"),
    "ShareAcknowledge": Large(79, 1, lambda n: b"\2g\2m" + bytes(4) + _ids(n, _SHARED) + b"\0"),
    "DescribeShareGroupOffsets": Large(
        90, 1, lambda n: _count(1) + b"\2g" + _mixed(n, _count(1) + bytes(4) + b"\0") + b"\0\0"
    ),
    "AlterShareGroupOffsets": Large(91, 0, lambda n: b"\2g" + _one_topic(_indexes(n, 8)) + b"\0"),
    "DescribeLogDirs of partitions": Large(35, 4, lambda n: _one_topic(_indexes(n, 0, b"")) + b"\0", DECODED),
    "DescribeLogDirs of topics": Large(35, 4, lambda n: _mixed(n, _count(1) + bytes(4) + b"\0") + b"\0", DECODED),
    "DescribeLogDirs of all, of which a broker has very many": Large(35, 4, lambda n: b"\0\0", 1),
    "OffsetFetch, which is passed on": Large(9, 5, lambda n: _old_offset_fetch(n)),
}
"""Requests by name."""

SMALL: dict[int, str] = {
    17: "SaslHandshake names a mechanism, within limits.max_unauthenticated_request_bytes",
    18: "ApiVersions names the client's software",
    36: "SaslAuthenticate has a token, within limits.max_unauthenticated_request_bytes",
    60: "DescribeCluster names nothing, and its answer names brokers",
}
"""APIs that are rewritten or intercepted and have no large request here, by API key, with the reason."""


def _old_offset_fetch(number: int) -> bytes:
    """Return OffsetFetch v5 of one topic, which has no tagged fields."""
    partitions = b"".join(one.to_bytes(4, "big") for one in range(number))
    return b"\0\1g" + (1).to_bytes(4, "big") + b"\0\1d" + number.to_bytes(4, "big") + partitions
