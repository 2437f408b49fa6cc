"""The books of a run: the offsets of each acknowledged commit, and the commits that the store still has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Commit:
    """One batch of one segment."""

    partition: int
    records: int
    base_offset: int = -1
    """-1 if the outcome is not known."""


@dataclass
class Books:
    """Use `shard_of`, the shard of each partition."""

    shard_of: Mapping[int, int]
    open: dict[bytes, Commit] = field(default_factory=dict)
    """Commits since the last judged failover, by segment; older commits are either kept or given up."""
    owners: dict[tuple[int, int], tuple[bytes, int]] = field(default_factory=dict)
    """Segment and number of unfences of each acknowledged offset, by partition and offset."""
    unfences: int = 0
    acknowledged: int = 0
    """Number of acknowledged offsets."""
    lost: int = 0
    """Acknowledged offsets that failovers have lost; each was reported."""
    unacknowledged_lost: int = 0
    """Offsets that were reported as lost, and whose producers never got an answer."""
    twice_meanwhile: int = 0
    """Offsets that two primaries assigned at the same time."""
    problems: list[str] = field(default_factory=list)

    def tried(self, segment: bytes, partition: int, records: int) -> None:
        """Note a commit before it is sent."""
        self.open[segment] = Commit(partition, records)

    def answered(self, segment: bytes, base_offset: int, *, two_primaries: bool) -> None:
        """Note an acknowledged commit. An offset may have two owners only while there are two primaries."""
        tried = self.open[segment]
        self.open[segment] = Commit(tried.partition, tried.records, base_offset)
        self.acknowledged += tried.records
        for offset in range(base_offset, base_offset + tried.records):
            before = self.owners.get((tried.partition, offset))
            if before is not None and before[1] == self.unfences and two_primaries:
                self.twice_meanwhile += 1
            elif before is not None:
                self.problems.append(f"offset {offset} of partition {tried.partition} was given to two batches")
            self.owners[tried.partition, offset] = segment, self.unfences

    def judge(self, rows: Mapping[int, Mapping[bytes, int]], reported: Mapping[int, int], fenced: set[int]) -> None:
        """Compare the reported counts with the commits that the store has after a failover.

        `rows`: base offset of each segment that the index has, by partition. `reported`: offsets lost, by shard.
        """
        lost, unknown = Counter[int](), Counter[int]()
        for segment, commit in self.open.items():
            shard, found = self.shard_of[commit.partition], rows[commit.partition].get(segment)
            if found is None and commit.base_offset >= 0:
                lost[shard] += commit.records
            elif found is None:
                unknown[shard] += commit.records
            elif commit.base_offset not in (-1, found):
                self.problems.append(f"a batch was acknowledged at {commit.base_offset} and is at {found}")
        for shard in set(self.shard_of.values()):
            count = reported.get(shard, 0) if shard in fenced else 0
            if not lost[shard] <= count <= lost[shard] + unknown[shard]:
                self.problems.append(
                    f"shard {shard} reports {count} lost offsets: {lost[shard]} acknowledged ones are lost, and "
                    f"{unknown[shard]} without an answer are not there"
                )
            self.unacknowledged_lost += max(0, count - lost[shard])
        self.lost += lost.total()
        self.open = {}
