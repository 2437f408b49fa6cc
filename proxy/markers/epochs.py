"""Whether a new leader's log is the one that was read before (KIP-320): after an unclean election it may not be."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from proxy.brokers.service import ServiceConnection
from proxy.coordinator.interface_transactions import ShadowPosition
from proxy.markers.leaders import Log, ShadowLeaders
from proxy.protocol.api_keys import OFFSET_FOR_LEADER_EPOCH
from proxy.protocol.errors import NONE
from proxy.wire.cold import encode, nested, read_response
from proxy.wire.fetch import CONSUMER_REPLICA_ID

_VERSION = 4
_UNDEFINED = -1


class Compared(NamedTuple):
    """The answers of a leader about the positions in its logs."""

    same: dict[Log, ShadowPosition]
    """Positions up to which the logs are the ones that were read, in the present leader's epoch."""
    truncated: dict[Log, ShadowPosition]
    """Ends of the common parts of logs that are not."""
    failed: dict[Log, int]
    """Errors of the others."""


def to_compare(positions: Mapping[Log, ShadowPosition], leaders: ShadowLeaders) -> dict[Log, ShadowPosition]:
    """Return the positions that were read from the leader of an earlier epoch."""
    return {
        log: position
        for log, position in positions.items()
        if position.leader_epoch >= 0
        and (leader := leaders.of(log)) is not None
        and leader.epoch > position.leader_epoch
    }


async def compare(
    connection: ServiceConnection, positions: Mapping[Log, ShadowPosition], leaders: ShadowLeaders
) -> Compared:
    """Ask the leader of these shadows for the ends of the epochs of their positions.

    The log of an epoch that ends before the position is another one from there on. Raises BrokerUnreachable and
    ProtocolError.
    """
    from kio.schema.offset_for_leader_epoch.v4.request import OffsetForLeaderEpochRequest

    request: Any = OffsetForLeaderEpochRequest
    topic_type = nested(request, "topics")
    partition_type = nested(topic_type, "partitions")
    logs: dict[tuple[str, int], Log] = {}
    epochs: dict[Log, int] = {}
    by_topic: defaultdict[str, list[Any]] = defaultdict(list)
    for log, position in positions.items():
        leader = leaders.of(log)
        if leader is None:
            continue
        logs[leader.topic, log[1]], epochs[log] = log, leader.epoch
        by_topic[leader.topic].append(
            partition_type(partition=log[1], current_leader_epoch=leader.epoch, leader_epoch=position.leader_epoch)
        )
    topics = tuple(topic_type(topic=name, partitions=tuple(asked)) for name, asked in by_topic.items())
    body = await connection.ask(
        OFFSET_FOR_LEADER_EPOCH, _VERSION, encode(request(replica_id=CONSUMER_REPLICA_ID, topics=topics))
    )
    response: Any = read_response(OFFSET_FOR_LEADER_EPOCH, _VERSION, body)
    compared = Compared({}, {}, {})
    for topic in response.topics:
        for answer in topic.partitions:
            one = logs.get((str(topic.topic), int(answer.partition)))
            if one is not None:
                _sort(one, positions[one], epochs[one], answer, compared)
    return compared


def _sort(log: Log, position: ShadowPosition, epoch: int, answer: Any, into: Compared) -> None:
    error_code, end = int(answer.error_code.value), int(answer.end_offset)
    if error_code != NONE:
        into.failed[log] = error_code
    elif end == _UNDEFINED or end >= position.next_offset:
        # A leader that knows no epoch up to that one has nothing to compare with.
        into.same[log] = ShadowPosition(epoch, position.next_offset)
    else:
        into.truncated[log] = ShadowPosition(int(answer.leader_epoch), end)
