"""Leaders and replicas of one topic's partitions, as a broker's Metadata last had them."""

from __future__ import annotations

from typing import NamedTuple

from proxy.wire.partition_states import PartitionState


class ClassicTopic(NamedTuple):
    """A topic on the brokers, also a diskless one's shadow. What `Replicas` knows of one is another object as soon as
    anything of it has changed.
    """

    name: str
    topic_id: bytes
    partitions: dict[int, PartitionState]
    """Partitions by index; the first replica is the preferred leader. Do not change it."""
