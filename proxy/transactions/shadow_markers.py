"""Writes an operator's markers into shadows, at their leaders: they are applied as the brokers' own markers are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from proxy.brokers.broker_metadata import Partition, ask_leaders
from proxy.brokers.cluster import Cluster
from proxy.brokers.upstream import BrokerUnreachable
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.protocol.api_keys import WRITE_TXN_MARKERS
from proxy.protocol.errors import NONE, NOT_LEADER_OR_FOLLOWER
from proxy.telemetry.throttled_log import ThrottledLog
from proxy.wire.cold import encode, nested, read_response
from proxy.wire.errors import ProtocolError

Errors = dict[tuple[int, str, int], int]
"""Errors by producer ID, topic and partition."""
_VERSION = 1


class ShadowMarkers:
    """Writes markers as the proxy's principal, who needs `Alter` on the cluster."""

    def __init__(
        self,
        cluster: Cluster,
        catch_up: Callable[[Iterable[tuple[bytes, int]]], Awaitable[None]],
        throttled_log: ThrottledLog,
    ) -> None:
        """Take `catch_up`, which applies the markers of shadows now."""
        self._cluster = cluster
        self._catch_up = catch_up
        self._throttled_log = throttled_log

    async def write(self, markers: Collection[Any], topic_ids: Mapping[str, bytes]) -> Errors:
        """Write markers (those of a WriteTxnMarkers request) for diskless topics, and apply them.

        The result is NOT_LEADER_OR_FOLLOWER, which clients retry, if a leader is not known or does not answer.
        """
        errors: Errors = {
            (int(one.producer_id), str(topic.name), int(index)): NOT_LEADER_OR_FOLLOWER
            for one in markers
            for topic in one.topics
            for index in topic.partition_indexes
        }
        try:
            leaders = await ask_leaders(self._cluster.service, sorted(topic_ids.values()))
            for node_id, partitions in leaders.items():
                theirs = _only(markers, {key for key in partitions if partitions[key] == topic_ids.get(key[0])})
                if theirs:
                    errors |= await self._write_to(node_id, theirs)
            written = {(topic_ids[name], index) for (_, name, index), error in errors.items() if error == NONE}
            await self._catch_up(written)
        except (BrokerUnreachable, CoordinatorUnavailable, ProtocolError) as error:
            self._throttled_log.warning(
                "markers_not_written",
                topics=sorted(topic_ids),
                reason=str(error),
                effect="the operator's client retries; a marker that is written is applied later",
            )
        return errors

    async def _write_to(self, node_id: int, markers: tuple[Any, ...]) -> Errors:
        """Write markers at one broker. Raises BrokerUnreachable and ProtocolError."""
        from kio.schema.write_txn_markers.v1.request import WriteTxnMarkersRequest

        request: Any = WriteTxnMarkersRequest
        marker_type = nested(request, "markers")
        topic_type = nested(marker_type, "topics")
        body = encode(
            request(
                markers=tuple(
                    marker_type(
                        producer_id=one.producer_id,
                        producer_epoch=one.producer_epoch,
                        transaction_result=one.transaction_result,
                        coordinator_epoch=one.coordinator_epoch,
                        topics=tuple(
                            topic_type(name=topic.name, partition_indexes=topic.partition_indexes)
                            for topic in one.topics
                        ),
                    )
                    for one in markers
                )
            )
        )
        connection = self._cluster.connection_to(node_id)
        try:
            answer: Any = read_response(
                WRITE_TXN_MARKERS, _VERSION, await connection.ask(WRITE_TXN_MARKERS, _VERSION, body)
            )
        finally:
            connection.close()
        return {
            (int(one.producer_id), str(topic.name), int(partition.partition_index)): int(partition.error_code.value)
            for one in answer.markers
            for topic in one.topics
            for partition in topic.partitions
        }


def _only(markers: Iterable[Any], partitions: Collection[Partition]) -> tuple[Any, ...]:
    """Return the markers for some partitions."""
    kept = []
    for one in markers:
        topics = [
            replace(
                topic,
                partition_indexes=tuple(
                    index for index in topic.partition_indexes if (str(topic.name), int(index)) in partitions
                ),
            )
            for topic in one.topics
        ]
        topics = [topic for topic in topics if topic.partition_indexes]
        if topics:
            kept.append(replace(one, topics=tuple(topics)))
    return tuple(kept)
