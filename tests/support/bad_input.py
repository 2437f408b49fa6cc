"""Requests that no client library sends: broken frames, broken messages, and well-formed requests with absurd
values."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from aiokafka.record.legacy_records import LegacyRecordBatchBuilder

from proxy.wire.fetch import FetchRequest, PartitionFetch, TopicFetch, build_fetch_request
from proxy.wire.metadata import build_metadata_request
from proxy.wire.produce import PartitionProduce, ProduceRequest, TopicProduce, build_produce_request
from tests.batches import GZIP, make_batch
from tests.support.raw import framed, request

PRODUCE, FETCH, LIST_OFFSETS, METADATA, HEARTBEAT, LEADER_AND_ISR = 0, 1, 2, 3, 12, 4
API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS, OFFSET_FOR_LEADER_EPOCH = 18, 19, 20, 23
CLOSED = "closed"
MANY = 24_000
"""Names of a large request: with a partition each they are just below the limit of elements, 50,000."""
MANY_PRODUCED = 15_000
"""Partitions of a large Produce, just below its limit of topics and partitions."""


class Bad(NamedTuple):
    """One kind of bad request. `data` builds its bytes for a topic; `answers` are read before the connection is
    checked."""

    name: str
    data: Callable[[str], bytes]
    answers: int = 0
    """Number of answers that must come; 0 if the connection is closed instead."""
    read: Callable[[bytes], object] = len
    """Extracts the part of an answer that is the same from a broker and from a proxy."""

    @property
    def is_large(self) -> bool:
        """True if the request takes long to handle, mostly in the broker."""
        return self.name.startswith((f"{MANY:,}", f"{MANY_PRODUCED:,}"))


def produce(topic: str, *records: bytes | bytearray, version: int = 9, partition: int = 0, acks: int = -1) -> bytes:
    """Build a Produce request of one topic with these records, all for one partition."""
    partitions = [PartitionProduce(partition, memoryview(one)) for one in records]
    asked = ProduceRequest(version, None, acks, 30_000, [TopicProduce(topic, partitions)])
    return request(PRODUCE, version, b"".join(map(bytes, build_produce_request(asked))))


def fetch(topics: list[str], partitions: list[int], version: int = 12) -> bytes:
    """Build a Fetch request from offset 0, without a session and without a wait."""
    wanted = [PartitionFetch(partition, -1, 0, -1, -1, 1 << 20) for partition in partitions]
    asked = FetchRequest(version, -1, 0, 0, 1 << 24, 0, 0, -1, [TopicFetch(one, wanted) for one in topics], [], "")
    return request(FETCH, version, build_fetch_request(asked))


def list_offsets(topic: str, partition: int) -> bytes:
    """Build a ListOffsets v1 request for the latest offset."""
    body = struct.pack(">iih", -1, 1, len(topic)) + topic.encode() + struct.pack(">iiq", 1, partition, -1)
    return request(LIST_OFFSETS, 1, body)


def list_offsets_error(answer: bytes) -> int:
    """Return the error code of the answer's only partition."""
    return int(struct.unpack_from(">h", answer, len(answer) - 18)[0])


def offset_for_leader_epoch(topic: str, partition: int) -> bytes:
    """Build an OffsetForLeaderEpoch v4 request for epoch 0."""
    head = struct.pack(">iBB", -1, 2, len(topic) + 1) + topic.encode()
    return request(OFFSET_FOR_LEADER_EPOCH, 4, head + struct.pack(">BiiiBBB", 2, partition, -1, 0, 0, 0, 0))


def offset_for_leader_epoch_error(answer: bytes) -> int:
    """Return the error code of the answer's only partition."""
    return int(struct.unpack_from(">h", answer, len(answer) - 21)[0])


def many_topics() -> list[str]:
    """Return names of topics that do not exist."""
    return [f"unknown-{number}" for number in range(MANY)]


def produce_error(answer: bytes) -> tuple[int, ...]:
    """Return the error codes of a Produce v9 answer of one topic with a short name."""
    at = 5 + 1
    at += 1 + answer[at] - 1
    count, at = answer[at] - 1, at + 1
    codes = []
    for _ in range(count):
        codes.append(struct.unpack_from(">h", answer, at + 4)[0])
        at += 4 + 2 + 24
        assert answer[at] == 1, "record errors are not read here"
        at += 1
        at += max(1, answer[at]) + 1
    return tuple(codes)


def damaged(batch: bytearray, at: int) -> bytes:
    """Return the data with one byte changed."""
    batch[at] ^= 0x55
    return bytes(batch)


def old_batch(magic: int) -> bytes:
    """Return a batch of message format 0 or 1."""
    builder = LegacyRecordBatchBuilder(magic, 0, 1 << 20)
    builder.append(0, timestamp=1_700_000_000_000 if magic else None, key=None, value=b"old")
    return bytes(builder.build())


BOMB_BYTES = 60_000_000


def bomb() -> bytes:
    """Return a small batch that would be large if it were decompressed."""
    return bytes(make_batch([bytes(BOMB_BYTES)], codec=GZIP))


def _plain(data: bytes) -> Callable[[str], bytes]:
    return lambda topic: data


def _metadata(body: bytes, version: int = 9) -> Callable[[str], bytes]:
    return _plain(request(METADATA, version, body))


_METADATA = build_metadata_request(9, ["unknown-topic"])
_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(200))
_ENDLESS_VARINT = b"\xff" * 12

KINDS = (
    Bad("a negative length", _plain(struct.pack(">i", -1) + bytes(20))),
    Bad("the largest length", _plain(struct.pack(">i", 2**31 - 1) + bytes(20))),
    Bad("a length over socket.request.max.bytes", _plain(struct.pack(">i", 104_857_601) + bytes(20))),
    Bad("an empty frame", _plain(framed(b"") + bytes(20))),
    Bad("a frame of three bytes", _plain(framed(b"\0\3\0"))),
    Bad("HTTP", _plain(b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n")),
    Bad("HTTP of another method", _plain(b"DELETE /topics HTTP/1.1\r\nHost: broker\r\n\r\n")),
    Bad("a TLS handshake", _plain(_HELLO)),
    Bad("noise", _plain(bytes((number * 151 + 200) % 256 for number in range(300)))),
    Bad("an API key that is not known", _plain(request(9999, 0, b""))),
    Bad("a negative API key", _plain(request(-1, 0, b""))),
    Bad("an API of brokers among themselves", _plain(request(LEADER_AND_ISR, 0, bytes(20)))),
    Bad("a version that is not known", _plain(request(METADATA, 99, bytes(20)))),
    Bad("a negative version", _plain(request(METADATA, -1, bytes(20)))),
    Bad("ApiVersions of a version that is not known", _plain(request(API_VERSIONS, 99, bytes(9))), 1, bytes),
    Bad("a header that ends in the client ID", _plain(framed(struct.pack(">hhih", METADATA, 1, 7, 400) + b"abc"))),
    Bad("the same of an API that passes", _plain(framed(struct.pack(">hhih", HEARTBEAT, 1, 7, 400) + b"abc"))),
    Bad("a client ID of negative length", _plain(framed(struct.pack(">hhih", METADATA, 1, 7, -5) + b"abc"))),
    Bad("the longest client ID", _plain(request(METADATA, 9, _METADATA, client_id="x" * 32_767)), 1, lambda _: True),
    Bad(
        "a client ID that is no UTF-8",
        _plain(framed(struct.pack(">hhih", METADATA, 1, 7, 2) + b"\xe9\xff" + struct.pack(">i", 0))),
        1,
        lambda _: True,
    ),
    Bad("a varint without an end", _metadata(_ENDLESS_VARINT)),
    Bad("an array longer than the frame", _metadata(struct.pack(">i", 2_000_000_000), 1)),
    Bad("a string longer than the frame", _metadata(struct.pack(">ih", 1, 3000) + b"abc", 1)),
    Bad("a negative array", _metadata(struct.pack(">i", -7), 1), 1, lambda _: True),
    Bad("tagged fields that lead beyond the frame", _metadata(_METADATA[:-1] + b"\x01\x00\xff\xff\xff\xff\x07")),
    Bad("tagged fields that nobody knows", _metadata(_METADATA[:-1] + b"\x01\x63\x03abc"), 1, lambda _: True),
    Bad("bytes behind the message", _metadata(_METADATA + b"more than that"), 1, lambda _: True),
    Bad("one correlation ID twice", _plain(2 * request(METADATA, 9, _METADATA)), 2, lambda answer: answer[:4]),
    Bad("a Produce without a body", _plain(request(PRODUCE, 9, b""))),
    Bad("a Produce cut off", lambda topic: request(PRODUCE, 9, produce(topic, make_batch())[17:-20])),
    Bad("a Fetch without a body", _plain(request(FETCH, 12, b""))),
    Bad("a Fetch cut off", lambda topic: request(FETCH, 12, fetch([topic], [0])[17:-20])),
    Bad("a ListOffsets of noise", _plain(request(LIST_OFFSETS, 7, bytes(range(3, 90))))),
    Bad("a CreateTopics of noise", _plain(request(CREATE_TOPICS, 7, bytes(range(3, 90))))),
    Bad("a DeleteTopics of noise", _plain(request(DELETE_TOPICS, 6, bytes(range(3, 90))))),
    Bad("an OffsetForLeaderEpoch of noise", _plain(request(OFFSET_FOR_LEADER_EPOCH, 4, bytes(range(3, 90))))),
    Bad("a batch with a wrong CRC", lambda topic: produce(topic, damaged(make_batch(), 17)), 1, produce_error),
    Bad("a batch with a wrong length", lambda topic: produce(topic, damaged(make_batch(), 11)), 1, produce_error),
    Bad("a batch with a wrong count", lambda topic: produce(topic, damaged(make_batch(), 60)), 1, produce_error),
    Bad("a batch cut off", lambda topic: produce(topic, bytes(make_batch())[:-9]), 1, produce_error),
    Bad("a batch of a few bytes", lambda topic: produce(topic, b"few"), 1, produce_error),
    Bad("no records", lambda topic: produce(topic, b""), 1, produce_error),
    Bad("two batches at once", lambda topic: produce(topic, bytes(2 * make_batch())), 1, produce_error),
    Bad("a batch of magic 0", lambda topic: produce(topic, old_batch(0)), 1, produce_error),
    Bad("a batch of magic 1", lambda topic: produce(topic, old_batch(1)), 1, produce_error),
    Bad("a batch of magic 9", lambda topic: produce(topic, damaged(make_batch(), 16)), 1, produce_error),
    Bad("a compressed bomb", lambda topic: produce(topic, bomb()), 1, produce_error),
    Bad("a partition that is not there", lambda topic: produce(topic, make_batch(), partition=9), 1, produce_error),
    Bad("a negative partition", lambda topic: produce(topic, make_batch(), partition=-3), 1, produce_error),
    Bad("a negative partition in ListOffsets", lambda topic: list_offsets(topic, -2), 1, list_offsets_error),
    Bad("a partition too high in ListOffsets", lambda topic: list_offsets(topic, 2**31 - 1), 1, list_offsets_error),
    Bad(
        "a negative partition in OffsetForLeaderEpoch",
        lambda topic: offset_for_leader_epoch(topic, -2),
        1,
        offset_for_leader_epoch_error,
    ),
    Bad(
        "a partition too high in OffsetForLeaderEpoch",
        lambda topic: offset_for_leader_epoch(topic, 2**31 - 1),
        1,
        offset_for_leader_epoch_error,
    ),
    Bad("acks that don't exist", lambda topic: produce(topic, make_batch(), acks=5), 1, produce_error),
    Bad("a partition twice in Produce", lambda topic: produce(topic, make_batch(), make_batch()), 1, produce_error),
    Bad("a partition twice in Fetch", lambda topic: fetch([topic], [0, 0]), 1, lambda _: True),
    Bad("24,000 topics in Metadata", _metadata(build_metadata_request(9, many_topics())), 1, len),
    # This is a tenth of the count elsewhere: a broker with 256 MiB of heap dies of more, directly and through a proxy.
    Bad("10,000 topics in Fetch", lambda topic: fetch([topic, *many_topics()[::10]], [0]), 1, lambda _: True),
    Bad("24,000 partitions in Fetch", lambda topic: fetch([topic], list(range(MANY))), 1, lambda _: True),
    Bad("15,000 partitions in Produce", lambda topic: _produce_many_partitions(topic), 1, lambda _: True),
    Bad("15,000 topics and partitions in Produce", lambda topic: _produce_many_topics(topic), 1, lambda _: True),
)


def _produce_many_topics(topic: str) -> bytes:
    batch = memoryview(bytes(make_batch()))
    topics = [TopicProduce(one, [PartitionProduce(0, batch)]) for one in [topic, *many_topics()][: MANY_PRODUCED // 2]]
    return request(PRODUCE, 9, b"".join(map(bytes, build_produce_request(ProduceRequest(9, None, -1, 30_000, topics)))))


def _produce_many_partitions(topic: str) -> bytes:
    batch = memoryview(bytes(make_batch()))
    topics = [TopicProduce(topic, [PartitionProduce(number, batch) for number in range(MANY_PRODUCED)])]
    return request(PRODUCE, 9, b"".join(map(bytes, build_produce_request(ProduceRequest(9, None, -1, 30_000, topics)))))
