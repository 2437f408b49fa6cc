"""A Kafka client of a few system calls per request, to measure latency without a client's own threads and timers."""

from __future__ import annotations

import socket
import struct

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from proxy.wire.fetch import FetchRequest, PartitionFetch, TopicFetch, build_fetch_request
from proxy.wire.fetch_response import parse_fetch_response
from proxy.wire.header import request_header, response_header_length
from proxy.wire.metadata import build_metadata_request, metadata_brokers
from proxy.wire.produce import PartitionProduce, ProduceRequest, TopicProduce, build_produce_request

_SIZE = struct.Struct(">i")
_METADATA, _METADATA_VERSION = 3, 9
_PRODUCE, _PRODUCE_VERSION = 0, 9
_FETCH, _FETCH_VERSION = 1, 12


def one_record(value: bytes) -> bytes:
    """A record batch v2 with one record."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 30)
    builder.append(0, timestamp=None, key=None, value=value, headers=[])
    return bytes(builder.build())


class RawClient:
    """One connection, one request at a time."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb", buffering=65536)

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def brokers(self) -> dict[int, str]:
        """Addresses by node ID, as this address tells them."""
        answer = self._ask(_METADATA, _METADATA_VERSION, build_metadata_request(9, []))
        return {broker.node_id: f"{broker.host}:{broker.port}" for broker in metadata_brokers(answer, 9)}

    def produce(self, topic: str, partition: int, batch: bytes, acks: int = -1) -> None:
        """One batch; returns when it is acknowledged."""
        records = [TopicProduce(topic, [PartitionProduce(partition, memoryview(batch))])]
        request = ProduceRequest(_PRODUCE_VERSION, None, acks, 30_000, records)
        answer = self._ask(_PRODUCE, _PRODUCE_VERSION, b"".join(map(bytes, build_produce_request(request))))
        # A compact array of one topic (name, one partition: index, error code, …).
        (error_code,) = struct.unpack_from(">h", answer, 1 + 1 + len(topic) + 1 + 4)
        assert error_code == 0, f"produce answered error {error_code}"

    def fetch(self, topic: str, partition: int, offset: int) -> tuple[int, bytes]:
        """Records from `offset` on, waited for up to 500 ms; the high watermark and the bytes."""
        wanted = [TopicFetch(topic, [PartitionFetch(partition, -1, offset, -1, -1, 1 << 20)])]
        request = FetchRequest(_FETCH_VERSION, -1, 500, 1, 1 << 24, 0, 0, -1, wanted, [], "")
        answer = self._ask(_FETCH, _FETCH_VERSION, build_fetch_request(request))
        fetched = parse_fetch_response(answer, _FETCH_VERSION).topics[0].partitions[0]
        assert fetched.error_code == 0, f"fetch answered error {fetched.error_code}"
        return fetched.high_watermark, b"".join(map(bytes, fetched.records))

    def _ask(self, api_key: int, version: int, body: bytes) -> memoryview:
        frame = request_header(api_key, version, 1, "bench") + body
        self._socket.sendall(_SIZE.pack(len(frame)) + frame)
        (size,) = _SIZE.unpack(self._file.read(4))
        answer = memoryview(self._file.read(size))
        return answer[response_header_length(api_key, version, answer) :]
