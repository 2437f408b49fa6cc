"""A Kafka client with a few system calls per request, to measure latency without a library's threads and timers."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping, Sequence

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from proxy.wire.fetch import FetchRequest, PartitionFetch, TopicFetch, build_fetch_request
from proxy.wire.fetch_response import parse_fetch_response
from proxy.wire.header import request_header, response_header_length
from proxy.wire.metadata import build_metadata_request, metadata_brokers
from proxy.wire.primitives import Buffer
from proxy.wire.produce import PartitionProduce, ProduceRequest, TopicProduce, build_produce_request

_SIZE = struct.Struct(">i")
_BATCH = struct.Struct(">qi11xi")
"""Base offset, length, and last offset delta."""
_METADATA, _METADATA_VERSION = 3, 9
_PRODUCE, _PRODUCE_VERSION = 0, 9
_FETCH, _FETCH_VERSION = 1, 12


def one_record(value: bytes) -> bytes:
    """Build a record batch v2 with one record."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 30)
    builder.append(0, timestamp=None, key=None, value=value, headers=[])
    return bytes(builder.build())


def _read(records: Sequence[Buffer], offset: int) -> tuple[int, int]:
    """Return the offset after the last complete batch, and the number of bytes up to there."""
    size = 0
    for buffer in records:
        at = 0
        while len(buffer) - at >= _BATCH.size:
            base_offset, length, last_offset_delta = _BATCH.unpack_from(buffer, at)
            if at + 12 + length > len(buffer):
                break
            at += 12 + length
            offset = base_offset + last_offset_delta + 1
        size += at
    return offset, size


class RawClient:
    """One connection that sends one request at a time."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb", buffering=65536)

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def brokers(self) -> dict[int, str]:
        """Return addresses by node ID, from this address's Metadata."""
        answer = self._ask(_METADATA, _METADATA_VERSION, build_metadata_request(9, []))
        return {broker.node_id: f"{broker.host}:{broker.port}" for broker in metadata_brokers(answer, 9)}

    def produce(self, topic: str, partition: int, batch: bytes, acks: int = -1) -> int:
        """Produce one batch; return its first offset when it is acknowledged."""
        records = [TopicProduce(topic, [PartitionProduce(partition, memoryview(batch))])]
        request = ProduceRequest(_PRODUCE_VERSION, None, acks, 30_000, records)
        answer = self._ask(_PRODUCE, _PRODUCE_VERSION, b"".join(map(bytes, build_produce_request(request))))
        # A compact array of one topic (name, one partition: index, error code, …).
        error_code, base_offset = struct.unpack_from(">hq", answer, 1 + 1 + len(topic) + 1 + 4)
        assert error_code == 0, f"produce answered error {error_code}"
        return int(base_offset)

    def fetch(self, topic: str, partition: int, offset: int) -> tuple[int, int]:
        """Fetch records from `offset` on, with a wait of up to 500 ms; return the next offset and the number of
        bytes."""
        (read,) = self.fetch_all({(topic, partition): offset}, _FETCH_VERSION).values()
        return read

    def fetch_all(
        self, offsets: Mapping[tuple[str, int], int], version: int, max_bytes: int = 1 << 24
    ) -> dict[tuple[str, int], tuple[int, int]]:
        """Fetch several partitions at once, up to 1 MiB of each; return the same by (topic, partition), in their
        order."""
        wanted: dict[str, list[PartitionFetch]] = {}
        for (topic, partition), offset in offsets.items():
            wanted.setdefault(topic, []).append(PartitionFetch(partition, -1, offset, -1, -1, 1 << 20))
        topics = [TopicFetch(topic, partitions) for topic, partitions in wanted.items()]
        request = FetchRequest(version, -1, 500, 1, max_bytes, 0, 0, -1, topics, [], "")
        answer = self._ask(_FETCH, version, build_fetch_request(request))
        found = {}
        for answered in parse_fetch_response(answer, version).topics:
            assert isinstance(answered.topic, str)
            for fetched in answered.partitions:
                assert fetched.error_code == 0, f"fetch answered error {fetched.error_code}"
                key = answered.topic, fetched.index
                found[key] = _read(fetched.records, offsets[key])
        return found

    def _ask(self, api_key: int, version: int, body: bytes) -> memoryview:
        frame = request_header(api_key, version, 1, "bench") + body
        self._socket.sendall(_SIZE.pack(len(frame)) + frame)
        (size,) = _SIZE.unpack(self._file.read(4))
        answer = memoryview(self._file.read(size))
        return answer[response_header_length(api_key, version, answer) :]
