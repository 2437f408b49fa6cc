"""Delete markers of transactions from the logs of placeholder topics, some time after they were applied.

A marker is needed until it is applied, and once more if the store has to be restored from a backup that is older than
it. So only markers that are older than `transactions.markers_kept_ms` are deleted (DeleteRecords), and none from the
offset on that the coordinator expects next. A log with stray records is left alone: an operator decides about these.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from proxy.brokers.broker_metadata import PARTITIONS_PER_STEP, Partition, ask_leaders, list_offsets
from proxy.brokers.cluster import Cluster
from proxy.brokers.service import ServiceConnection
from proxy.coordinator.interface_transactions import TransactionCoordinator
from proxy.housekeeping.stray import Looked
from proxy.protocol.api_keys import DELETE_RECORDS
from proxy.protocol.errors import NONE, TOPIC_AUTHORIZATION_FAILED
from proxy.wire.cold import encode, milliseconds, nested, read_response

log = structlog.get_logger()

LONGEST_INTERVAL_MS = 3_600_000
_PARTS_OF_TIME = 24
"""Markers are kept for one part longer at most."""
_TOPICS_PER_REQUEST = 50
_DELETE_VERSION = 2
_TIMEOUT_MS = 10_000


def interval_ms(kept_ms: int) -> int:
    """Return how often to look for old markers."""
    return max(1_000, min(LONGEST_INTERVAL_MS, kept_ms // _PARTS_OF_TIME))


class OldMarkers:
    """Deletes old markers, in the proxy that keeps house."""

    def __init__(
        self,
        cluster: Cluster,
        transactions: TransactionCoordinator,
        without_strays: Callable[[], Mapping[Partition, Looked]],
        *,
        kept_ms: int,
        now_ms: Callable[[], int],
    ) -> None:
        """`without_strays` returns the partitions of placeholder topics that hold markers only; `now_ms` is a wall
        clock."""
        self._cluster = cluster
        self._transactions = transactions
        self._without_strays = without_strays
        self.kept_ms = kept_ms
        self._now_ms = now_ms
        self._is_denied = False
        """True if the brokers have refused the last deletion."""

    async def delete(self) -> None:
        """Look once. Raises BrokerUnreachable, CoordinatorUnavailable and ProtocolError; the next look continues."""
        looked = dict(self._without_strays())
        topic_ids = sorted({one.topic_id for one in looked.values()})
        denied: set[str] = set()
        for start in range(0, len(topic_ids), _TOPICS_PER_REQUEST):
            leaders = await ask_leaders(self._cluster.service, topic_ids[start : start + _TOPICS_PER_REQUEST])
            for node_id, partitions in leaders.items():
                held = [one for one in partitions if one in looked and looked[one].topic_id == partitions[one]]
                if held:
                    denied |= await self._delete_at(node_id, {one: looked[one] for one in held})
        if denied and not self._is_denied:
            log.warning(
                "old_markers_not_deleted",
                topics=sorted(denied)[:10],
                reason="the proxy's principal lacks the right Delete on placeholder topics",
                effect="the placeholder topics of transactions grow by some 100 bytes for each transaction",
                remedy="allow the proxy's principal Delete on diskless topics: docs/security.md",
            )
        self._is_denied = bool(denied)

    async def _delete_at(self, node_id: int, looked: Mapping[Partition, Looked]) -> set[str]:
        """Delete at one leader; return the topics from which it may not delete."""
        connection = self._cluster.connection_to(node_id)
        denied: set[str] = set()
        try:
            partitions = list(looked)
            for start in range(0, len(partitions), PARTITIONS_PER_STEP):
                some = {one: looked[one] for one in partitions[start : start + PARTITIONS_PER_STEP]}
                before = await self._ends(connection, some)
                if before:
                    denied |= await _delete_records(connection, before)
        finally:
            connection.close()
        return denied

    async def _ends(self, connection: ServiceConnection, looked: Mapping[Partition, Looked]) -> dict[Partition, int]:
        """Return the offset before which markers are old, of logs that have such markers."""
        young = await list_offsets(connection, looked, self._now_ms() - self.kept_ms)
        logs = [(one.topic_id, index) for (_, index), one in looked.items()]
        before: dict[Partition, int] = {}
        for (partition, one), position in zip(looked.items(), await self._transactions.positions(logs), strict=True):
            if position is None or partition not in young:
                continue
            # No marker is young if there is no offset: those that came after the look are not among these.
            ends = [one.position, position.next_offset, young[partition]]
            end = min(end for end in ends if end >= 0)
            if end > one.log_start:
                before[partition] = end
        return before


async def _delete_records(connection: ServiceConnection, before: Mapping[Partition, int]) -> set[str]:
    """Delete the records before these offsets; return the topics from which the principal may not delete."""
    from kio.schema.delete_records.v2.request import DeleteRecordsRequest

    request: Any = DeleteRecordsRequest
    topic_type = nested(request, "topics")
    partition_type = nested(topic_type, "partitions")
    by_topic: defaultdict[str, list[Any]] = defaultdict(list)
    for (name, index), offset in before.items():
        by_topic[name].append(partition_type(partition_index=index, offset=offset))
    topics = tuple(topic_type(name=name, partitions=tuple(asked)) for name, asked in by_topic.items())
    body = await connection.ask(
        DELETE_RECORDS, _DELETE_VERSION, encode(request(topics=topics, timeout=milliseconds(_TIMEOUT_MS)))
    )
    response: Any = read_response(DELETE_RECORDS, _DELETE_VERSION, body)
    denied: set[str] = set()
    for topic in response.topics:
        errors = {int(one.error_code.value) for one in topic.partitions} - {NONE}
        if TOPIC_AUTHORIZATION_FAILED in errors:
            denied.add(str(topic.name))
        elif errors:
            # A leader that has moved, most likely.
            log.debug("old_markers_kept", topic=str(topic.name), errors=sorted(errors))
    return denied
