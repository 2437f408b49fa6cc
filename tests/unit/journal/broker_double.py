"""A cluster of scripted brokers on loopback ports: they keep the logs of one topic, and answer as a test says."""

from __future__ import annotations

import asyncio
import struct
import uuid
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiokafka.record.memory_records import MemoryRecords
from crc32c import crc32c
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode

from proxy.brokers.cluster import Cluster
from proxy.config import Journal, Settings
from proxy.journal.journal import KafkaJournal
from proxy.journal.messages import Topic
from proxy.journal.topic import wanted_configs
from proxy.protocol import errors
from proxy.telemetry.stats import Stats
from proxy.wire.cold import encode, milliseconds, nested, read_request
from proxy.wire.fetch import parse_fetch_request
from proxy.wire.fetch_response import PartitionFetched, TopicFetched, build_fetch_response
from proxy.wire.header import parse_request_header, response_header
from proxy.wire.produce import PartitionProduced, TopicProduced, build_produce_response, parse_produce_request

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, DELETE_RECORDS, DESCRIBE_CONFIGS = 0, 1, 2, 3, 18, 21, 32
TOPIC = Topic("__diskless_journal", bytes(range(16)))
TIME_MS = 1_790_000_000_000
LOG_APPEND_TIME = 0x08


@dataclass
class Act:
    """The treatment of one Produce request."""

    error_code: int = errors.NONE
    base_offset: int | None = None
    """Base offset in the answer; by default the true one, and -1 for an error."""
    appends: bool = True
    """Whether the records are appended; not for an error, unless `base_offset` is set."""
    closes: bool = False
    """Whether the connection is closed instead of an answer."""
    time_ms: int = TIME_MS
    until: asyncio.Event | None = None
    """Answer when this is set; the records are appended before that."""


@dataclass
class Produced:
    """A Produce request as it came."""

    node: int
    connection: int
    values: dict[int, list[bytes]]


@dataclass
class ClusterDouble:
    """Brokers with node IDs from 1, and the partitions of the journal."""

    partitions: int
    ports: dict[int, int] = field(default_factory=dict)
    leaders: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Node ID, -1 for none, and leader epoch, by partition."""
    logs: dict[int, list[bytes]] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)
    produced: list[Produced] = field(default_factory=list)
    acts: deque[Act] = field(default_factory=deque)
    """Treatment of the next Produce requests; later ones are answered without an error."""
    positions: deque[tuple[int, int]] = field(default_factory=deque)
    """Error code and offset of the next answers to ListOffsets; later ones are true."""
    fetches: deque[bytes | None] = field(default_factory=deque)
    """Records in the next answers to Fetch; None, and later ones, are true."""
    asked: list[int] = field(default_factory=list)
    """API keys of all requests."""
    produce_version: int = 13
    connections: int = 0
    topic_error: int = errors.NONE
    configs: dict[str, str] = field(default_factory=dict)

    def address_of(self, node: int) -> str:
        return f"127.0.0.1:{self.ports[node]}"

    async def serve(self, node: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        connection = self.connections
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(size)
                header = parse_request_header(memoryview(frame))
                self.asked.append(header.api_key)
                body = frame[header.body_offset :]
                if header.api_key == PRODUCE:
                    answer = await self._produce(node, connection, header.api_version, body)
                else:
                    answer = self._answer(header.api_key, header.api_version, body)
                if answer is None:
                    return
                whole = response_header(header.api_key, header.api_version, header.correlation_id) + answer
                writer.write(struct.pack(">i", len(whole)) + whole)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _produce(self, node: int, connection: int, version: int, body: bytes) -> bytes | None:
        request = parse_produce_request(body, version)
        (topic,) = request.topics
        assert topic.topic == (TOPIC.topic_id if version >= 13 else TOPIC.name)
        values = {one.index: _values(bytes(one.records or b"")) for one in topic.partitions}
        self.produced.append(Produced(node, connection, values))
        act = self.acts.popleft() if self.acts else Act()
        answers = []
        for partition, of_partition in values.items():
            if self.leaders[partition][0] != node:
                answers.append(PartitionProduced(partition, errors.NOT_LEADER_OR_FOLLOWER))
                continue
            base_offset = len(self.logs[partition])
            if act.appends and (not act.error_code or act.base_offset is not None):
                self.logs[partition] += of_partition
            true = -1 if act.error_code else base_offset
            claimed = true if act.base_offset is None else act.base_offset
            answers.append(PartitionProduced(partition, act.error_code, claimed, act.time_ms))
        if act.until is not None:
            await act.until.wait()
        return None if act.closes else build_produce_response(version, [TopicProduced(topic.topic, answers)])

    def _answer(self, api_key: int, version: int, body: bytes) -> bytes:
        if api_key == FETCH:
            return self._fetch(version, body)
        asked: Any = read_request(api_key, version, body)
        answer: Any = load_response_schema(api_key, version)
        if api_key == API_VERSIONS:
            of = nested(answer, "api_keys")
            return encode(
                answer(
                    error_code=ErrorCode(0), api_keys=(of(api_key=0, min_version=0, max_version=self.produce_version),)
                )
            )
        if api_key == METADATA:
            return encode(self._metadata(answer))
        if api_key == DESCRIBE_CONFIGS:
            return encode(self._described(answer))
        topics = nested(answer, "topics")
        partitions = nested(topics, "partitions")
        index = asked.topics[0].partitions[0].partition_index
        if api_key == LIST_OFFSETS:
            latest = asked.topics[0].partitions[0].timestamp == -1
            true = errors.NONE, len(self.logs[index]) if latest else self.starts[index]
            error_code, offset = self.positions.popleft() if self.positions else true
            found = partitions(
                partition_index=index, error_code=ErrorCode(error_code), timestamp=-1, offset=offset, leader_epoch=0
            )
        else:
            assert api_key == DELETE_RECORDS
            self.starts[index] = asked.topics[0].partitions[0].offset
            found = partitions(partition_index=index, low_watermark=self.starts[index], error_code=ErrorCode(0))
        topic = topics(name=TOPIC.name, partitions=(found,))
        return encode(answer(throttle_time=milliseconds(0), topics=(topic,)))

    def _described(self, answer: Any) -> Any:
        result_type = nested(answer, "results")
        config_type = nested(result_type, "configs")
        configs = tuple(
            config_type(
                name=name,
                value=value,
                read_only=False,
                is_sensitive=False,
                synonyms=(),
                config_type=0,
                documentation=None,
            )
            for name, value in self.configs.items()
        )
        result = result_type(
            error_code=ErrorCode(0), error_message=None, resource_type=2, resource_name=TOPIC.name, configs=configs
        )
        return answer(throttle_time=milliseconds(0), results=(result,))

    def _metadata(self, answer: Any) -> Any:
        topic_type = nested(answer, "topics")
        partition_type = nested(topic_type, "partitions")
        partitions = tuple(
            partition_type(
                error_code=ErrorCode(0),
                partition_index=partition,
                leader_id=leader,
                leader_epoch=epoch,
                replica_nodes=tuple(self.ports),
                isr_nodes=tuple(self.ports),
                offline_replicas=(),
            )
            for partition, (leader, epoch) in self.leaders.items()
        )
        topic = topic_type(
            error_code=ErrorCode(self.topic_error),
            name=TOPIC.name,
            topic_id=uuid.UUID(bytes=TOPIC.topic_id),
            is_internal=False,
            partitions=partitions,
            topic_authorized_operations=-0x80000000,
        )
        brokers = tuple(
            nested(answer, "brokers")(node_id=node, host="127.0.0.1", port=port, rack=None)
            for node, port in self.ports.items()
        )
        return answer(
            throttle_time=milliseconds(0), brokers=brokers, cluster_id="double", controller_id=1, topics=(topic,)
        )

    def _fetch(self, version: int, body: bytes) -> bytes:
        (topic,) = parse_fetch_request(body, version).topics
        (asked,) = topic.partitions
        log, start = self.logs[asked.index], self.starts[asked.index]
        scripted = self.fetches.popleft() if self.fetches else None
        if not start <= asked.fetch_offset <= len(log):
            found = PartitionFetched(asked.index, errors.OFFSET_OUT_OF_RANGE, -1, -1, -1, (), 0)
        else:
            records = stored(asked.fetch_offset, log[asked.fetch_offset :]) if scripted is None else scripted
            found = PartitionFetched(asked.index, errors.NONE, len(log), len(log), start, (records,), len(records))
        return b"".join(build_fetch_response(version, 0, [TopicFetched(topic.topic, [found])]))


def stored(base_offset: int, values: list[bytes], *, attributes: int = LOG_APPEND_TIME) -> bytes:
    """Return the batch of some values as a broker has it, written independently of the code under test."""
    from aiokafka.record.default_records import DefaultRecordBatchBuilder

    if not values:
        return b""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 64 << 20)
    for place, value in enumerate(values):
        assert builder.append(place, 0, None, value, []) is not None
    batch = bytearray(builder.build())
    struct.pack_into(">q", batch, 0, base_offset)
    struct.pack_into(">h", batch, 21, attributes)
    struct.pack_into(">q", batch, 35, TIME_MS)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return bytes(batch)


def _values(batch: bytes) -> list[bytes]:
    """Return the values of a produced batch, read independently of the code under test."""
    records = MemoryRecords(batch)
    found = records.next_batch()
    assert found is not None
    assert found.validate_crc()
    values = [record.value or b"" for record in found]
    assert records.next_batch() is None
    return values


@asynccontextmanager
async def cluster_double(partitions: int = 2, nodes: int = 2) -> AsyncIterator[ClusterDouble]:
    """Yield running brokers; the first one leads all partitions."""
    double = ClusterDouble(partitions)
    servers = []
    for node in range(1, nodes + 1):

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, node: int = node) -> None:
            await double.serve(node, reader, writer)

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        double.ports[node] = server.sockets[0].getsockname()[1]
        servers.append(server)
    for partition in range(partitions):
        double.leaders[partition] = 1, 0
        double.logs[partition] = []
        double.starts[partition] = 0
    try:
        yield double
    finally:
        for server in servers:
            server.close()


@asynccontextmanager
async def journal_at(
    double: ClusterDouble, configs: Mapping[str, str] | None = None, **settings: Any
) -> AsyncIterator[KafkaJournal]:
    """Yield a journal that is open; `configs` are put over those that its topic should have."""
    base: Mapping[str, Any] = {
        "brokers": {"bootstrap": [double.address_of(1)]},
        "redis": {"url": "redis://unused"},
        "storage": {"url": "file:///unused"},
    }
    cluster = Cluster(Settings(rack="rack-a", **base))
    replicas = {"replication_factor": len(double.ports), "min_insync_replicas": 1}
    quick = {"timeout_ms": 5_000, "retry_backoff_ms": 1, "retry_backoff_max_ms": 10}
    chosen = Journal(**{**replicas, **quick, **settings})
    double.configs = wanted_configs(chosen) | dict(configs or {})
    journal = KafkaJournal(chosen, cluster, partitions=double.partitions, stats=Stats())
    try:
        await journal.open()
        yield journal
    finally:
        await journal.close()
        cluster.service.close()
