"""The outcome of a load, for one kind of topic and in all: numbers, and the errors in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CLASSIC, DISKLESS = "classic", "diskless"
KINDS = (CLASSIC, DISKLESS)


@dataclass(frozen=True, slots=True)
class TopicTally:
    """The records of one topic, as counted so far. `produced` is always `consumed` and `lost` together."""

    topic: str
    produced: int
    """Records whose delivery report says that they are stored. Nothing counts as produced before that."""
    consumed: int
    """Acknowledged records that *every* rack has read."""
    lost: int
    """Acknowledged records that some rack has not read; while a load runs, most of them are merely under way."""
    duplicated: int
    """Different records that some rack has read more than once, acknowledged or not."""
    disordered: int
    """Acknowledged records that some rack has read after a later one of the same producer and partition."""
    mismatched: int
    """Records whose partition, offset or bytes differ between producer and a reader, or between two racks; and those
    that no producer of the load has sent."""
    failed: int
    """Records whose delivery report is an error. They may be read or not, but not twice."""
    failed_but_read: int
    """Failed records that some rack has read."""
    errors: Mapping[str, int]
    """The failed ones, by librdkafka's name of the error."""
    read: Mapping[str, int]
    """Different records that each rack has read."""
    produce_p50_ms: float | None
    """From the call of `produce` until the acknowledgement; None before the first."""
    produce_p99_ms: float | None
    e2e_p50_ms: float | None
    """From the call of `produce` until a consumer has the record, over the consumers of all racks."""
    e2e_p99_ms: float | None
    findings: tuple[str, ...]
    """The first few of what is wrong, record by record."""

    @property
    def right(self) -> bool:
        """Every acknowledged record was read in every rack, once, in order, the same everywhere."""
        return self.produced > 0 and not (self.lost or self.duplicated or self.disordered or self.mismatched)

    def as_json(self) -> dict[str, Any]:
        """Return the part of the demo's JSON for this topic."""
        return {
            "produced": self.produced,
            "consumed": self.consumed,
            "lost": self.lost,
            "duplicated": self.duplicated,
            "produce_p50_ms": _rounded(self.produce_p50_ms),
            "produce_p99_ms": _rounded(self.produce_p99_ms),
            "e2e_p50_ms": _rounded(self.e2e_p50_ms),
            "e2e_p99_ms": _rounded(self.e2e_p99_ms),
        }


@dataclass(frozen=True, slots=True)
class Tally:
    """All topics of a load."""

    topics: Mapping[str, TopicTally]
    """Tallies by kind, `classic` or `diskless`; only the kinds that the load was asked for."""
    complaints: tuple[str, ...] = ()
    """Why a consumer could not go on, where one could not."""

    @property
    def classic(self) -> TopicTally:
        """Raises KeyError if the load had no classic topic."""
        return self.topics[CLASSIC]

    @property
    def diskless(self) -> TopicTally:
        """Raises KeyError if the load had no diskless topic."""
        return self.topics[DISKLESS]

    @property
    def right(self) -> bool:
        """All topics are, and all consumers got to the end."""
        return all(topic.right for topic in self.topics.values()) and not self.complaints

    @property
    def findings(self) -> tuple[str, ...]:
        """Return the errors of all topics in words, for the message of an assertion."""
        return (*(finding for topic in self.topics.values() for finding in topic.findings), *self.complaints)


def _rounded(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else round(milliseconds, 3)
