"""The beginning and the end of reading, as the options give them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

EARLIEST, LATEST = -2, -1
"""Values instead of an offset, as in ListOffsets."""

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class AllAt:
    """EARLIEST or LATEST, for all partitions."""

    offset: int


@dataclass(frozen=True, slots=True)
class EachAt:
    """An offset for each partition; EARLIEST and LATEST among them."""

    of: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Since:
    """For all partitions the first record that has this timestamp (milliseconds since 1970) or a later one."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class EachSince:
    """The same, with a timestamp for each partition."""

    of: Mapping[TopicPartition, int]


Limit = AllAt | EachAt | Since | EachSince
