"""Brokers in memory that lead shadows: they answer the requests of the tail as leaders do, with fetch sessions."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

from proxy.brokers.upstream import BrokerUnreachable
from proxy.coordinator.interface import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from proxy.coordinator.interface_transactions import Marker
from proxy.protocol.api_keys import DELETE_RECORDS, FETCH, LIST_OFFSETS, METADATA, OFFSET_FOR_LEADER_EPOCH
from proxy.protocol.errors import (
    FENCED_LEADER_EPOCH,
    FETCH_SESSION_ID_NOT_FOUND,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_OUT_OF_RANGE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_LEADER_EPOCH,
)
from proxy.records.batches import control_batch
from proxy.wire.cold import read_request
from proxy.wire.fetch import PartitionFetch, parse_fetch_request
from proxy.wire.fetch_response import PartitionFetched, TopicFetched, build_fetch_response
from proxy.wire.metadata import parse_metadata_request
from tests.support.questions import filled
from tests.unit.wire.trees import encode, response_type

Log = tuple[bytes, int]


class Shadow:
    """The log of one partition; each batch is a marker."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.epoch = 0
        self.start = 0
        self.batches: list[bytes] = []
        """Batches from offset 0 on, also deleted ones."""
        self.epochs: list[int] = []
        """Leader epoch of each."""
        self.times: list[int] = []
        """Timestamp of each."""

    @property
    def end(self) -> int:
        return len(self.batches)

    def append(self, producer_id: int, epoch: int, *, committed: bool = True, timestamp_ms: int = 1_000) -> Marker:
        marker = Marker(self.end, producer_id, epoch, 0, committed, timestamp_ms)
        fields = marker._asdict()
        self.batches.append(control_batch(fields.pop("offset"), self.epoch, **fields))
        self.epochs.append(self.epoch)
        self.times.append(timestamp_ms)
        return marker

    def move(self, node_id: int, *, end: int | None = None) -> None:
        """Elect another leader, whose log ends earlier if the election is unclean."""
        self.node_id, self.epoch = node_id, self.epoch + 1
        del self.batches[self.end if end is None else end :], self.epochs[self.end :], self.times[self.end :]

    def offset_of(self, timestamp: int) -> int:
        """Return what ListOffsets does."""
        if timestamp in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP):
            return self.start if timestamp == EARLIEST_TIMESTAMP else self.end
        return next((at for at in range(self.start, self.end) if self.times[at] >= timestamp), -1)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the largest epoch up to `epoch`, and its end offset (`LeaderEpochFileCache.endOffsetFor`)."""
        known = [one for one in self.epochs if one <= epoch]
        return (known[-1], len(known)) if known else (-1, -1)

    def epoch_error(self, node_id: int, epoch: int) -> int:
        if node_id != self.node_id:
            return NOT_LEADER_OR_FOLLOWER
        return FENCED_LEADER_EPOCH if epoch < self.epoch else UNKNOWN_LEADER_EPOCH if epoch > self.epoch else NONE


class Brokers:
    """All brokers, and what they were asked."""

    def __init__(self) -> None:
        self.shadows: dict[Log, Shadow] = {}
        self.down: set[int] = set()
        self.may_delete = True
        self.deletions: list[tuple[int, set[Log]]] = []
        """Node and partitions of each DeleteRecords."""
        self.fetches: list[tuple[int, int, int, set[Log]]] = []
        """Node, session epoch, time to wait and named partitions of each Fetch."""
        self.metadata_requests = 0
        self.sessions: dict[int, dict[Log, PartitionFetch]] = {}
        self.session_epochs: defaultdict[int, int] = defaultdict(int)

    def connect(self, node_id: int) -> Connection:
        return Connection(self, node_id)

    async def any(self, api_key: int, version: int, body: Any) -> memoryview:
        """Answer as any broker: ask for leaders."""
        assert api_key == METADATA
        self.metadata_requests += 1
        asked = [topic.topic_id for topic in parse_metadata_request(body, version).topics or ()]
        topics = [self._described(topic_id) for topic_id in asked]
        return _answer(METADATA, version, topics=topics, brokers=[], cluster_id="c", controller_id=0)

    def _described(self, topic_id: bytes) -> dict[str, Any]:
        partitions = [
            {
                "partition_index": index,
                "leader_id": -1 if shadow.node_id in self.down else shadow.node_id,
                "leader_epoch": shadow.epoch,
                "replica_nodes": [0, 1],
                "isr_nodes": [0, 1],
                "offline_replicas": [],
            }
            for (one, index), shadow in self.shadows.items()
            if one == topic_id
        ]
        return {"error_code": 0, "name": topic_id.hex(), "topic_id": topic_id, "partitions": partitions}


class Connection:
    """A connection to one broker."""

    def __init__(self, brokers: Brokers, node_id: int) -> None:
        self._brokers = brokers
        self._node_id = node_id
        self.closed = False

    def close(self) -> None:
        self.closed = True

    async def ask(self, api_key: int, version: int, body: Any) -> memoryview:
        await asyncio.sleep(0)
        if self._node_id in self._brokers.down or self.closed:
            raise BrokerUnreachable(f"broker {self._node_id} is down")
        if api_key == FETCH:
            return await self._fetch(version, body)
        asked = read_request(api_key, version, body)
        if api_key == LIST_OFFSETS:
            return self._list_offsets(version, asked)
        if api_key == DELETE_RECORDS:
            return self._delete_records(version, asked)
        assert api_key == OFFSET_FOR_LEADER_EPOCH
        return self._epochs(version, asked)

    async def _fetch(self, version: int, body: Any) -> memoryview:
        request = parse_fetch_request(body, version)
        named = {(topic.topic, one.index): one for topic in request.topics for one in topic.partitions}
        brokers, epoch = self._brokers, request.session_epoch
        brokers.fetches.append((self._node_id, epoch, request.max_wait_ms, set(named)))
        session_id, wanted = 0, named
        if epoch >= 0:
            session_id = request.session_id or len(brokers.sessions) + 1
            if epoch == 0:
                brokers.sessions[session_id] = {}
            elif session_id not in brokers.sessions or epoch != brokers.session_epochs[session_id]:
                return _joined(build_fetch_response(version, 0, [], error_code=FETCH_SESSION_ID_NOT_FOUND))
            brokers.session_epochs[session_id] = epoch + 1
            wanted = brokers.sessions[session_id]
            wanted.update(named)
            for topic, indexes in request.forgotten:
                for index in indexes:
                    del wanted[topic, index]
        loop = asyncio.get_running_loop()
        until_s = loop.time() + request.max_wait_ms / 1000
        while True:
            answers = {log: self._partition(log, one) for log, one in wanted.items()}
            news = {log: one for log, one in answers.items() if one.records_length or one.error_code}
            if news or loop.time() >= until_s:
                break
            await asyncio.sleep(0.002)
        if epoch > 0:
            answers = news
        topics = [TopicFetched(log[0], [answer]) for log, answer in answers.items()]
        return _joined(build_fetch_response(version, session_id, topics))

    def _partition(self, log: Log, asked: PartitionFetch) -> PartitionFetched:
        shadow = self._brokers.shadows[log]
        error_code = shadow.epoch_error(self._node_id, asked.current_leader_epoch)
        if error_code == NONE and not shadow.start <= asked.fetch_offset <= shadow.end:
            error_code = OFFSET_OUT_OF_RANGE
        if error_code != NONE:
            return PartitionFetched(log[1], error_code, -1, -1, -1, (), 0)
        records = b"".join(shadow.batches[asked.fetch_offset :])
        return PartitionFetched(log[1], NONE, shadow.end, shadow.end, shadow.start, (records,), len(records))

    def _list_offsets(self, version: int, asked: Any) -> memoryview:
        topics = [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": one.partition_index,
                        "offset": self._shadow(topic.name, one.partition_index).offset_of(one.timestamp),
                        "timestamp": -1,
                        "leader_epoch": 0,
                    }
                    for one in topic.partitions
                ],
            }
            for topic in asked.topics
        ]
        return _answer(LIST_OFFSETS, version, topics=topics)

    def _shadow(self, name: str, index: int) -> Shadow:
        return self._brokers.shadows[bytes.fromhex(name), index]

    def _delete_records(self, version: int, asked: Any) -> memoryview:
        def answer(name: str, one: Any) -> dict[str, int]:
            shadow = self._shadow(name, one.partition_index)
            error_code = NONE if self._brokers.may_delete else TOPIC_AUTHORIZATION_FAILED
            if error_code == NONE:
                shadow.start = max(shadow.start, one.offset)
            return {"partition_index": one.partition_index, "low_watermark": shadow.start, "error_code": error_code}

        named = {(bytes.fromhex(topic.name), one.partition_index) for topic in asked.topics for one in topic.partitions}
        self._brokers.deletions.append((self._node_id, named))
        topics = [
            {"name": topic.name, "partitions": [answer(topic.name, one) for one in topic.partitions]}
            for topic in asked.topics
        ]
        return _answer(DELETE_RECORDS, version, topics=topics)

    def _epochs(self, version: int, asked: Any) -> memoryview:
        def answer(topic: Any, one: Any) -> dict[str, int]:
            shadow = self._brokers.shadows[bytes.fromhex(topic.topic), one.partition]
            error_code = shadow.epoch_error(self._node_id, one.current_leader_epoch)
            epoch, end = shadow.end_of_epoch(one.leader_epoch)
            return {"error_code": error_code, "partition": one.partition, "leader_epoch": epoch, "end_offset": end}

        topics = [
            {"topic": topic.topic, "partitions": [answer(topic, one) for one in topic.partitions]}
            for topic in asked.topics
        ]
        return _answer(OFFSET_FOR_LEADER_EPOCH, version, topics=topics)


def _answer(api_key: int, version: int, **values: Any) -> memoryview:
    entity = response_type(api_key, version)
    return memoryview(encode(entity, filled(entity, values)))


def _joined(parts: list[Any]) -> memoryview:
    return memoryview(b"".join(parts))
