"""The topics of a Produce: classic, diskless, or rejected."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from proxy.client.rights import WRITE, Rights
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.protocol.errors import KAFKA_STORAGE_ERROR, NONE, UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION
from proxy.topics.topics import Topics
from proxy.wire.produce import PartitionProduce, ProduceRequest, TopicProduce
from proxy.wire.steps import Steps, in_slices

Named = tuple["str | bytes", int]
"""A topic as the client names it, and a partition."""


class DisklessPart(NamedTuple):
    """One topic of the request that the broker does not get."""

    topic: str | bytes
    """Topic as the client named it."""
    entry: DisklessTopic | None
    """Entry in the registry; None if the topic is rejected with `error_code`."""
    error_code: int
    partitions: list[PartitionProduce]


def error_of(part: DisklessPart, rights: Rights) -> int:
    """Return the error of all partitions of a topic; NONE if the client may write to them."""
    if part.entry is None:
        return part.error_code
    error_code = rights.error(part.entry.name, WRITE, part.entry.topic_id)
    unknown = error_code == UNKNOWN_TOPIC_OR_PARTITION and isinstance(part.topic, bytes)
    return UNKNOWN_TOPIC_ID if unknown else error_code


def unsure_ids(topics: Topics, parts: Iterable[DisklessPart]) -> list[bytes]:
    """Return the topic IDs that are rejected because they may be placeholder topics' of diskless topics."""
    rejected = (part.topic for part in parts if part.error_code == KAFKA_STORAGE_ERROR)
    return [topic for topic in rejected if isinstance(topic, bytes) and topics.may_be_a_shadow(topic)]


def split(topics: Topics, parsed: ProduceRequest) -> tuple[ProduceRequest, list[DisklessPart]]:
    """Return the request with its classic topics only, and the other topics.

    A topic that is being created is rejected, and so is one that is not surely classic while the proxy's lease is out.
    """
    classic: list[TopicProduce] = []
    diskless: list[DisklessPart] = []
    _sort(topics, parsed.topics, classic, diskless)
    return parsed._replace(topics=classic), diskless


def split_in_steps(topics: Topics, parsed: ProduceRequest) -> Steps[tuple[ProduceRequest, list[DisklessPart]]]:
    """Do `split` with pauses. A topic may become diskless, or the lease end, between two of them."""
    classic: list[TopicProduce] = []
    diskless: list[DisklessPart] = []
    for some in in_slices(parsed.topics):
        _sort(topics, some, classic, diskless)
        yield
    return parsed._replace(topics=classic), diskless


def _sort(
    topics: Topics, asked: Iterable[TopicProduce], classic: list[TopicProduce], diskless: list[DisklessPart]
) -> None:
    for produced in asked:
        entry = topics.find(produced.topic)
        if entry is None:
            if topics.surely_classic(produced.topic):
                classic.append(produced)
            else:
                diskless.append(DisklessPart(produced.topic, None, KAFKA_STORAGE_ERROR, produced.partitions))
        elif entry.state != "live":
            unknown = UNKNOWN_TOPIC_OR_PARTITION if isinstance(produced.topic, str) else UNKNOWN_TOPIC_ID
            diskless.append(DisklessPart(produced.topic, None, unknown, produced.partitions))
        else:
            diskless.append(DisklessPart(produced.topic, entry, NONE, produced.partitions))
