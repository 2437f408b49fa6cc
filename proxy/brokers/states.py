"""Who has which partition: of one topic, as a broker's Metadata said it last."""

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
    """By index; the first of the replicas is the preferred leader. Not to be changed."""
