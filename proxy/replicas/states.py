"""Who has which partition: of one topic, as a broker's Metadata said it last."""

from __future__ import annotations

from typing import NamedTuple


class PartitionState(NamedTuple):
    """A partition: node IDs of its leader (-1 for none), its replicas, and its ISR."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    """Without offline replicas."""


class ClassicTopic(NamedTuple):
    """A topic; another object as soon as anything of it has changed."""

    name: str
    topic_id: bytes
    partitions: dict[int, PartitionState]
    """By index. Not to be changed."""
