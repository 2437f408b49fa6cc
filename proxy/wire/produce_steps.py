"""Large Produce requests and their answers, parsed and built with pauses: see `produce`."""

from __future__ import annotations

from collections.abc import Iterable

from proxy.wire.primitives import (
    INT32,
    MAX_PRODUCED_ELEMENTS,
    NO_TAGS,
    Buffer,
    check_elements,
    read_count,
    read_string,
    skip_tags,
    write_count,
)
from proxy.wire.produce import (
    FIRST_FLEXIBLE,
    FIRST_TOPIC_ID,
    PartitionProduce,
    ProduceRequest,
    TopicProduce,
    TopicProduced,
    read_flexible_partitions,
    read_partitions,
    read_produce_end,
    read_produce_head,
    write_partitions,
    write_produce_head,
    write_produced,
    write_topic,
)
from proxy.wire.steps import AT_A_TIME, Pace, Pausing, Steps, in_slices


@Pausing
def parse_large_produce(body: Buffer, version: int) -> Steps[ProduceRequest]:
    """Do `parse_produce_request` with pauses."""
    data, flexible, pace = memoryview(body), version >= FIRST_FLEXIBLE, Pace()
    transactional_id, acks, timeout_ms, count, at = read_produce_head(data, version)
    elements, topics = count, list[TopicProduce]()
    read = read_flexible_partitions if flexible else read_partitions
    for _ in range(count):
        topic: str | bytes
        if version >= FIRST_TOPIC_ID:
            topic = bytes(data[at : at + 16])
            at += 16
        else:
            topic, at = read_string(data, at, flexible)
        left, at = read_count(data, at, flexible)
        elements += max(left, 0)
        check_elements(elements, MAX_PRODUCED_ELEMENTS)
        partitions: list[PartitionProduce] = []
        while left > AT_A_TIME:
            at = read(data, at, AT_A_TIME, partitions)
            left -= AT_A_TIME
            yield
        start = at = read(data, at, left, partitions)
        if flexible:
            at = skip_tags(data, at)
        topics.append(TopicProduce(topic, partitions, data[start:at] if at - start > 1 else NO_TAGS))
        if pace.pauses(left + 1):
            yield
    tagged = read_produce_end(data, at, flexible)
    return ProduceRequest(version, transactional_id, acks, timeout_ms, topics, tagged)


def build_large_produce(request: ProduceRequest) -> Steps[list[Buffer]]:
    """Do `build_produce_request` with pauses."""
    flexible, small, buffers, pace = (
        request.version >= FIRST_FLEXIBLE,
        write_produce_head(request),
        list[Buffer](),
        Pace(),
    )
    for topic, partitions, tagged in request.topics:
        small += write_topic(topic, request.version)
        small += write_count(len(partitions), flexible)
        for some in in_slices(partitions):
            write_partitions(some, flexible, small, buffers)
            if pace.pauses(len(some) + 1):
                yield
        if flexible:
            small += tagged
    if flexible:
        small += request.tagged
    buffers.append(bytes(small))
    return buffers


def build_large_produce_response(version: int, topics: list[TopicProduced], throttle_ms: int = 0) -> Steps[bytes]:
    """Do `build_produce_response` with pauses."""
    flexible = version >= FIRST_FLEXIBLE
    out = bytearray(write_count(len(topics), flexible))
    yield from _write_topics(topics, version, out)
    out += INT32.pack(throttle_ms) + (NO_TAGS if flexible else b"")
    return bytes(out)


def _write_topics(topics: Iterable[TopicProduced], version: int, out: bytearray) -> Steps[None]:
    flexible, pace = version >= FIRST_FLEXIBLE, Pace()
    for topic, partitions in topics:
        out += write_topic(topic, version)
        out += write_count(len(partitions), flexible)
        for some in in_slices(partitions):
            write_produced(some, version, out)
            if pace.pauses(len(some) + 1):
                yield
        if flexible:
            out += NO_TAGS
