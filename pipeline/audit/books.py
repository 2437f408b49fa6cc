"""Objects, rows and use of one bucket of segments, held against each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pipeline.audit.defects import Defect, Log, Suspicion
from pipeline.audit.spill import PlacedRow, Spill
from proxy.coordinator.interface import SegmentUse
from proxy.coordinator.shards import partition_key, shard_of

NOTHING_USED = SegmentUse(0, 0)


@dataclass
class TopicFigures:
    """One topic's line in the report."""

    partitions: int = 0
    rows: int = 0
    bytes: int = 0
    objects: int = 0
    """Number of objects that hold some of its bytes; an object with bytes of several topics counts for each."""
    batches: int = 0
    """Read and found good."""
    findings: int = 0


@dataclass
class Totals:
    """Sums of all objects under the prefix, in objects and bytes."""

    objects: int = 0
    bytes_stored: int = 0
    bytes_named: int = 0
    """Bytes that rows name."""
    unnamed_objects: int = 0
    """Number of objects that no row names: garbage before its deletion, uploads before their commit, and orphans."""
    unnamed_bytes: int = 0
    topics: dict[str, TopicFigures] = field(default_factory=dict)


def check_bucket(
    spill: Spill, bucket: int, logs: Sequence[Log], shards: int, totals: Totals, *, orphans_before_ms: int
) -> Iterator[Suspicion]:
    """Yield what is wrong in one bucket; add the bucket to `totals`.

    Unnamed objects that were stored before `orphans_before_ms` (milliseconds since 1970) should have been collected.
    `shards` is the coordinator's number of shards; 0 skips the checks of use and orphans.
    """
    rows = sorted(spill.rows(bucket), key=lambda placed: (placed.row.segment, placed.row.position, placed.row.length))
    objects = {listed.segment: listed for listed in spill.objects(bucket)}
    sizes = {segment: listed.size_bytes for segment, listed in objects.items()}
    yield from _check_rows(rows, logs, sizes)
    _count(rows, logs, totals)
    totals.objects += len(objects)
    totals.bytes_stored += sum(sizes.values())
    named = {placed.row.segment for placed in rows}
    if not shards:
        return
    used = {(recorded.shard, recorded.segment): recorded.use for recorded in spill.use(bucket)}
    yield from _check_use(count_use(rows, logs, shards), used)
    in_use = named | {segment for _, segment in used}
    for segment in objects.keys() - in_use:
        listed = objects[segment]
        totals.unnamed_objects += 1
        totals.unnamed_bytes += listed.size_bytes
        if listed.modified_ms < orphans_before_ms:
            text = f"nothing names its {listed.size_bytes} bytes"
            yield Suspicion(Defect.ORPHAN_OBJECT, text, segment=segment)


def count_use(rows: Sequence[PlacedRow], logs: Sequence[Log], shards: int) -> dict[tuple[int, bytes], SegmentUse]:
    """Bytes and rows of each shard and segment."""
    size_bytes: Counter[tuple[int, bytes]] = Counter()
    count: Counter[tuple[int, bytes]] = Counter()
    for placed in rows:
        log = logs[placed.log]
        key = shard_of(partition_key(log.topic_id, log.partition), shards), placed.row.segment
        size_bytes[key] += placed.row.length
        count[key] += 1
    return {key: SegmentUse(size_bytes[key], count[key]) for key in count}


def _check_rows(rows: Sequence[PlacedRow], logs: Sequence[Log], sizes: dict[bytes, int]) -> Iterator[Suspicion]:
    before: PlacedRow | None = None
    for placed in rows:
        row, log = placed.row, logs[placed.log]
        if before is not None and before.row.segment == row.segment:
            overlap = before.row.position + before.row.length - row.position
            if overlap > 0:
                text = f"{overlap} bytes of {row.segment.hex()} at {row.position} are those of {logs[before.log]}, too"
                yield Suspicion(Defect.OVERLAPPING_BYTES, text, log, row.last_offset, row)
        before = placed
        size = sizes.get(row.segment)
        if not placed.lives:
            continue
        if size is None:
            yield Suspicion(Defect.MISSING_OBJECT, f"there is no object {row.segment.hex()}", log, row.last_offset, row)
        elif row.position + row.length > size:
            text = f"{row.segment.hex()} has {size} bytes, offset {row.last_offset} ends at {row.position + row.length}"
            yield Suspicion(Defect.SHORT_OBJECT, text, log, row.last_offset, row)


def _check_use(
    counted: dict[tuple[int, bytes], SegmentUse], recorded: dict[tuple[int, bytes], SegmentUse]
) -> Iterator[Suspicion]:
    for shard, segment in counted.keys() | recorded.keys():
        real = counted.get((shard, segment), NOTHING_USED)
        said = recorded.get((shard, segment), NOTHING_USED)
        if real != said:
            yield Suspicion(Defect.WRONG_USED_BYTES, use_text(said, real), segment=segment, shard=shard)


def use_text(recorded: SegmentUse, counted: SegmentUse) -> str:
    """For people."""
    return (
        f"{recorded.size_bytes} bytes in {recorded.rows} rows are said to be used; rows name "
        f"{counted.size_bytes} bytes in {counted.rows} rows"
    )


def _count(rows: Sequence[PlacedRow], logs: Sequence[Log], totals: Totals) -> None:
    named: set[tuple[str, bytes]] = set()
    for placed in rows:
        topic = logs[placed.log].topic
        figures = totals.topics.setdefault(topic, TopicFigures())
        figures.rows += 1
        figures.bytes += placed.row.length
        totals.bytes_named += placed.row.length
        if (topic, placed.row.segment) not in named:
            named.add((topic, placed.row.segment))
            figures.objects += 1
