"""DescribeTransactions (API key 65), v0: ask for one transaction, and read its state.

kio can't read the answer if no transaction is ongoing: its start is -1 then, which is not a time for kio.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from proxy.wire.primitives import (
    INT16,
    NO_TAGS,
    Buffer,
    check_end,
    parsing,
    read_count,
    read_string,
    skip_tags,
    write_count,
    write_string,
)

VERSION = 0
ONGOING = "Ongoing"
"""The state of a transaction that can still be committed or aborted."""
_THROTTLE_BYTES = 4
_TIMES = struct.Struct(">iq")
"""Timeout and start time."""
_PRODUCER = struct.Struct(">qh")


class TransactionState(NamedTuple):
    """A transaction as its coordinator knows it."""

    error_code: int
    transactional_id: str
    state: str
    """Kafka's name of the state; empty with an error."""
    producer_id: int
    producer_epoch: int
    partitions: Mapping[str, frozenset[int]]
    """Partitions that were added to the transaction, by topic; only topics that the client may describe."""
    start_ms: int = -1
    """Time when it began; -1 if it did not."""


def build_describe_transaction(transactional_id: str) -> bytes:
    """Return the body of a request for one transaction."""
    return write_count(1, True) + write_string(transactional_id, True) + NO_TAGS


@parsing
def read_transaction_states(body: Buffer) -> list[TransactionState]:
    """Return the transactions of a response. Raises ProtocolError."""
    data = memoryview(body)
    count, at = read_count(data, _THROTTLE_BYTES, True)
    states = []
    for _ in range(count):
        (error_code,) = INT16.unpack_from(data, at)
        transactional_id, at = read_string(data, at + INT16.size, True)
        state, at = read_string(data, at, True)
        _, start_ms = _TIMES.unpack_from(data, at)
        producer_id, producer_epoch = _PRODUCER.unpack_from(data, at + _TIMES.size)
        partitions, at = _read_topics(data, at + _TIMES.size + _PRODUCER.size)
        at = skip_tags(data, at)
        states.append(
            TransactionState(error_code, transactional_id, state, producer_id, producer_epoch, partitions, start_ms)
        )
    check_end(data, skip_tags(data, at))
    return states


def _read_topics(data: memoryview, at: int) -> tuple[dict[str, frozenset[int]], int]:
    topics: dict[str, frozenset[int]] = {}
    count, at = read_count(data, at, True)
    for _ in range(count):
        name, at = read_string(data, at, True)
        partitions, at = read_count(data, at, True)
        indexes = struct.unpack_from(f">{max(partitions, 0)}i", data, at)
        topics[name] = topics.get(name, frozenset()) | frozenset(indexes)
        at = skip_tags(data, at + 4 * len(indexes))
    return topics, at
