"""How far a stream has come, as Spark keeps it in checkpoints; and how much of what is there one trigger takes. Pure.

`{"version": 1, "topics": {"t": {"id": "…", "offsets": {"0": 42}}}}`: with the topic's ID, so that a topic that was
deleted and made again under its name is not taken for the old one. Spark compares these as text: always in one order.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple

from pipeline.source.errors import SourceError
from pipeline.source.limits import TopicPartition

_VERSION = 1


class TopicOffsets(NamedTuple):
    """The next offset of each partition of a topic."""

    topic_id: bytes
    offsets: Mapping[int, int]


StreamOffsets = Mapping[str, TopicOffsets]
"""Offsets by name of the topic."""


def to_json(offsets: StreamOffsets) -> dict[str, Any]:
    """Return the value for Spark."""
    return {
        "version": _VERSION,
        "topics": {
            name: {
                "id": str(uuid.UUID(bytes=of.topic_id)),
                "offsets": {str(partition): of.offsets[partition] for partition in sorted(of.offsets)},
            }
            for name, of in sorted(offsets.items())
        },
    }


def from_json(data: Mapping[str, Any]) -> dict[str, TopicOffsets]:
    """Return the value that Spark hands back. Raises SourceError for a checkpoint of something else."""
    try:
        if data["version"] == _VERSION:
            return {
                name: TopicOffsets(
                    uuid.UUID(of["id"]).bytes,
                    {int(partition): int(offset) for partition, offset in of["offsets"].items()},
                )
                for name, of in data["topics"].items()
            }
    except (KeyError, TypeError, ValueError, AttributeError):
        pass
    raise SourceError(
        'the checkpoint holds no offsets of format("diskless") that this release can read; use a new checkpointLocation'
    )


def admitted(available: Mapping[TopicPartition, int], most: int) -> dict[TopicPartition, int]:
    """Return how many offsets of each partition a trigger takes, `most` in all: each by its share of what is available.

    This is as with `maxOffsetsPerTrigger` of Spark's Kafka source, but never more in all, and at least one if any is
    available.
    """
    total = sum(available.values())
    if total <= most:
        return dict(available)
    taken = {where: most * count // total for where, count in available.items()}
    left = most - sum(taken.values())
    # Largest remainder first: no partition waits forever.
    by_remainder = sorted(available, key=lambda where: (-(most * available[where] % total), where))
    for where in by_remainder[:left]:
        taken[where] += 1
    return taken
