"""The topics of a Produce: classic, diskless, or rejected."""

from __future__ import annotations

from typing import NamedTuple

from proxy.coordinator.interface_registry import DisklessTopic
from proxy.protocol.errors import KAFKA_STORAGE_ERROR, NONE, UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION
from proxy.topics.topics import Topics
from proxy.wire.produce import PartitionProduce, ProduceRequest


class DisklessPart(NamedTuple):
    """One topic of the request that the broker does not get."""

    topic: str | bytes
    """Topic as the client named it."""
    entry: DisklessTopic | None
    """Entry in the registry; None if the topic is rejected with `error_code`."""
    error_code: int
    partitions: list[PartitionProduce]


def split(topics: Topics, parsed: ProduceRequest) -> tuple[ProduceRequest, list[DisklessPart]]:
    """Return the request with its classic topics only, and the other topics.

    A topic that is being created is rejected, and so is one that is not surely classic while the proxy's lease is out.
    """
    classic, diskless = [], []
    for produced in parsed.topics:
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
    return parsed._replace(topics=classic), diskless
