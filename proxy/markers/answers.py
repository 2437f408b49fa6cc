"""Sort a leader's answer to a Fetch: new markers, ends of logs, errors. Sans-io."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from proxy.coordinator.interface_transactions import MarkersRead, ShadowPosition
from proxy.markers.batches import read_markers
from proxy.markers.leaders import Log
from proxy.protocol.errors import (
    FENCED_LEADER_EPOCH,
    INCONSISTENT_TOPIC_ID,
    KAFKA_STORAGE_ERROR,
    LEADER_NOT_AVAILABLE,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_OUT_OF_RANGE,
    REPLICA_NOT_AVAILABLE,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from proxy.records.batches import RecordsError
from proxy.wire.fetch_response import PartitionFetched

ELSEWHERE = frozenset(
    {
        UNKNOWN_TOPIC_OR_PARTITION,
        LEADER_NOT_AVAILABLE,
        NOT_LEADER_OR_FOLLOWER,
        REPLICA_NOT_AVAILABLE,
        KAFKA_STORAGE_ERROR,
        FENCED_LEADER_EPOCH,
        UNKNOWN_LEADER_EPOCH,
        UNKNOWN_TOPIC_ID,
        INCONSISTENT_TOPIC_ID,
    }
)
"""Errors after which the leader is requested again."""


class Read(NamedTuple):
    """The parts of an answer."""

    parts: list[MarkersRead]
    """New parts of shadows' logs."""
    at_end: set[Log]
    """Shadows that have been read up to the leader's high watermark once `parts` are applied."""
    elsewhere: set[Log]
    """Shadows that may have another leader."""
    out_of_range: set[Log]
    """Shadows whose log begins after the position, or ends before it."""
    failed: dict[Log, str]
    """Why others could not be read."""


def read_answers(answers: Mapping[Log, PartitionFetched], positions: Mapping[Log, ShadowPosition]) -> Read:
    """Sort the answers for shadows that were read from these positions; answers for others are ignored."""
    read = Read([], set(), set(), set(), {})
    for log, answer in answers.items():
        position = positions.get(log)
        if position is None:
            continue
        if answer.error_code in ELSEWHERE:
            read.elsewhere.add(log)
        elif answer.error_code == OFFSET_OUT_OF_RANGE:
            read.out_of_range.add(log)
        elif answer.error_code != NONE:
            read.failed[log] = f"the leader answers error {answer.error_code}"
        else:
            _read_records(log, answer, position, read)
    return read


def _read_records(log: Log, answer: PartitionFetched, position: ShadowPosition, into: Read) -> None:
    try:
        found = read_markers(b"".join(answer.records), position.next_offset)
    except RecordsError as error:
        into.failed[log] = str(error)
        return
    if found.next_offset > position.next_offset:
        into.parts.append(MarkersRead(*log, position.next_offset, found.next_offset, found.leader_epoch, found.markers))
    if found.next_offset >= answer.high_watermark >= 0:
        into.at_end.add(log)
