"""Decide which suspicions are defects: check each again, in an order in which no regular change can look like one.

- The store returns a page of an index atomically, so nothing within it may disagree: what a page shows is a defect.
- Objects are never changed, and are deleted only when no row names them. So bytes that are bad *before* the index still
  has the row are a defect.
- A segment's use must be what was counted if it is the same before and after all rows of the shard were counted: the
  rows of one segment only ever become fewer, or are added by a commit or a swap, and both change the use. It has to be
  so twice in a row, because one row freed and another of its length added would look alike once.
- A segment goes from use to garbage to tombstones, and its tombstone goes after its object. A segment that is in none
  of them, checked in this order, and whose object still exists then, is an orphan.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

from pipeline.audit.books import NOTHING_USED, use_text
from pipeline.audit.defects import Defect, Log, Suspicion
from pipeline.audit.reads import read_rows
from pipeline.audit.spill import PlacedRow
from pipeline.audit.transactions import expected_aborts
from pipeline.audit.walk import LogWalk, check_page, page_at, pages
from pipeline.logs import patiently
from proxy.coordinator.interface import Coordinator, Row, SegmentUse
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.coordinator.shards import partition_key, shard_of
from proxy.diskless.wal.segment import segment_key
from proxy.inspection.stores import SEGMENTS_PER_STEP, Stores, open_registry
from proxy.storage import ObjectMissing, ObjectStorage

LOOKS = 5
"""At what never stands still for as long as a look takes."""
MAX_WAITING = 100_000
"""Maximum number of segments of a shard that wait for their deletion; above it, no segment counts as an orphan."""
OF_THE_INDEX = (
    Defect.OVERLAPPING_ROWS,
    Defect.GAP,
    Defect.ROW_BEYOND_HIGH_WATERMARK,
    Defect.ROW_BELOW_LOG_START,
    Defect.WRONG_LAST_STABLE_OFFSET,
    Defect.WRONG_OPEN_TRANSACTION,
)
OF_BYTES = (
    Defect.MISSING_OBJECT,
    Defect.SHORT_OBJECT,
    Defect.CORRUPT_BATCH,
    Defect.UNKNOWN_FORMAT,
    Defect.OVERLAPPING_BYTES,
)
OF_BOTH = (Defect.WRONG_OFFSETS, Defect.WRONG_MAX_TIMESTAMP, Defect.WRONG_ABORTED_TRANSACTION)
"""Defects of the index or of bytes: either look may show them again."""


class WrongUse(NamedTuple):
    """A shard's record of a segment's use, and the use by its rows, while both were stable."""

    shard: int
    segment: bytes
    recorded: SegmentUse
    counted: SegmentUse

    def suspicion(self) -> Suspicion:
        """Return it as a suspicion for the report."""
        return Suspicion(
            Defect.WRONG_USED_BYTES, use_text(self.recorded, self.counted), segment=self.segment, shard=self.shard
        )


async def of_index(coordinator: Coordinator, suspicions: Iterable[Suspicion]) -> AsyncIterator[Suspicion]:
    """Yield the suspicions of one page that the page still shows."""
    reported: set[tuple[Defect, str]] = set()
    for suspicion in suspicions:
        log = suspicion.log
        assert log is not None
        page = await page_at(coordinator, log, suspicion.offset)
        for again in check_page(log, page, None, at_beginning=suspicion.offset == 0):
            same = again.defect == suspicion.defect
            if again.defect == Defect.ROW_BELOW_LOG_START:
                same = same and again.row == suspicion.row
            if same and (again.defect, f"{log}{again.text}") not in reported:
                reported.add((again.defect, f"{log}{again.text}"))
                yield again


async def of_bytes(stores: Stores, suspicions: Iterable[Suspicion]) -> AsyncIterator[Suspicion]:
    """Yield the suspicions whose row is still in the index after its bytes were found bad once more."""
    for suspicion in suspicions:
        log, row = suspicion.log, suspicion.row
        assert log is not None
        assert row is not None
        if suspicion.defect == Defect.WRONG_ABORTED_TRANSACTION:
            if (text := await _wrong_aborts(stores, log, row)) is not None:
                yield suspicion._replace(text=text)
            continue
        if suspicion.defect != Defect.OVERLAPPING_BYTES:
            answer = await read_rows(stores.storage, [PlacedRow(0, True, row)])
            if not answer.bad:
                continue
            suspicion = suspicion._replace(defect=answer.bad[0].defect, text=answer.bad[0].text)
        page = await page_at(stores.coordinator, log, row.last_offset)
        if page.log is not None and any(indexed.row == row for indexed in page.rows):
            yield suspicion


async def _wrong_aborts(stores: Stores, log: Log, row: Row) -> str | None:
    """Return what is wrong with the markers of a merged row; None if nothing is, or the row is gone.

    A page has the row and the list of aborted transactions of one moment, and the row's bytes never change.
    """
    page = await page_at(stores.coordinator, log, row.base_offset)
    if page.log is None or all(indexed.row != row for indexed in page.rows):
        return None
    placed = PlacedRow(0, True, row, expected_aborts(page.log, row, page.aborted))
    answer = await read_rows(stores.storage, [placed])
    return next((bad.text for bad in answer.bad if bad.defect == Defect.WRONG_ABORTED_TRANSACTION), None)


async def of_log_size(coordinator: Coordinator, logs: Iterable[Log]) -> AsyncIterator[Suspicion | None]:
    """Logs whose sums are wrong though nothing but appends came meanwhile; None for one that never stood still."""
    for log in logs:
        for _ in range(LOOKS):
            walk = LogWalk(log)
            async for page in pages(coordinator, log):
                for _unused in walk.take(page):
                    pass
            found = list(walk.end())
            if not found:
                break
            if walk.saw_appends_only:
                yield found[0]
                break
        else:
            yield None


async def wrong_use(stores: Stores, shard: int, segments: set[bytes]) -> tuple[list[WrongUse], set[bytes]]:
    """Return which of the segments have a wrong use in the shard, and which were never stable."""
    found: list[WrongUse] = []
    left = set(segments)
    seen: set[WrongUse] = set()
    """At the look before."""
    for _ in range(LOOKS):
        before = await _told(stores.coordinator, shard, left)
        # Only now: a topic whose rows were counted by then is in the registry, or its rows are freed.
        topics = await patiently(partial(open_registry, stores.settings))
        logs = logs_of_shard(logs_of(topics), shard, stores.settings.redis.shards)
        counted = await _count(stores.coordinator, left, logs)
        after = await _told(stores.coordinator, shard, left)
        stood_still = {
            WrongUse(shard, segment, before.get(segment, NOTHING_USED), counted.get(segment, NOTHING_USED))
            for segment in left
            if before.get(segment, NOTHING_USED) == after.get(segment, NOTHING_USED)
        }
        right = {one for one in stood_still if one.recorded == one.counted}
        found += stood_still & seen
        left -= {one.segment for one in right | (stood_still & seen)}
        seen = stood_still
        if not left:
            break
    return found, left


class TooManyWaiting(Exception):
    """Too many segments wait for their deletion to recognise orphans."""


async def orphans(stores: Stores, segments: Sequence[bytes]) -> AsyncIterator[bytes]:
    """Yield segments that nothing names, that do not wait for their deletion, and that exist. Raises TooManyWaiting."""
    coordinator = stores.coordinator
    left = iter(segments)
    while some := list(islice(left, SEGMENTS_PER_STEP)):
        use = await patiently(partial(coordinator.segment_use, some))
        unused = [segment for segment, used in zip(some, use, strict=True) if not used.rows]
        if not unused:
            continue
        garbage = await patiently(partial(coordinator.garbage, 0, MAX_WAITING))
        tombstoned = await tombstones(coordinator, stores.settings.redis.shards)
        if len(garbage) >= MAX_WAITING or len(tombstoned) >= MAX_WAITING:
            raise TooManyWaiting(
                f"more than {MAX_WAITING:,} objects wait for their deletion, so orphans could not be recognised "
                "among them; run the audit again when garbage.grace_ms is over, with no jobs meanwhile"
            )
        for segment in set(unused) - set(garbage) - tombstoned.keys():
            if await _exists(stores.storage, segment):
                yield segment


async def tombstones(coordinator: Coordinator, shards: int) -> dict[bytes, set[int]]:
    """Return the shards in which each segment is tombstoned."""
    found: dict[bytes, set[int]] = {}
    for shard in range(shards):
        for segment in await _tombstones_of(coordinator, shard):
            found.setdefault(segment, set()).add(shard)
    return found


async def _tombstones_of(coordinator: Coordinator, shard: int) -> Sequence[bytes]:
    return await patiently(partial(coordinator.rows.tombstones_of, shard, MAX_WAITING))


async def tombstoned_in_use(stores: Stores) -> AsyncIterator[Suspicion]:
    """Segments that one shard uses and would not let be committed: no honest order of calls leads there."""
    coordinator, shards = stores.coordinator, stores.settings.redis.shards
    for shard in range(shards):
        before = set(await _tombstones_of(coordinator, shard))
        used = await _told(coordinator, shard, before) if before else {}
        if not used:
            continue
        for segment in used.keys() & set(await _tombstones_of(coordinator, shard)):
            text = f"shard {shard} uses {used[segment].size_bytes} bytes of it, and it is about to be deleted"
            yield Suspicion(Defect.TOMBSTONED_IN_USE, text, segment=segment, shard=shard)


def logs_of(topics: Iterable[DisklessTopic], compacted: frozenset[str] = frozenset()) -> list[Log]:
    """Return all partitions of topics; those in `compacted`, and topics with compaction, may have gaps."""
    return [
        Log(
            topic.name,
            topic.topic_id,
            partition,
            topic.name in compacted or "compact" in topic.configs.get("cleanup.policy", ""),
        )
        for topic in topics
        if any(topic.topic_id)
        for partition in range(topic.partitions)
    ]


def logs_of_shard(logs: Iterable[Log], shard: int, shards: int) -> list[Log]:
    """Return the logs whose rows are on the shard."""
    return [log for log in logs if shard_of(partition_key(log.topic_id, log.partition), shards) == shard]


async def _told(coordinator: Coordinator, shard: int, segments: set[bytes]) -> dict[bytes, SegmentUse]:
    return {segment: use async for segment, use in use_of_shard(coordinator, shard) if segment in segments}


async def use_of_shard(coordinator: Coordinator, shard: int) -> AsyncIterator[tuple[bytes, SegmentUse]]:
    """A shard's whole table of use; an entry may come twice."""
    place = b"0"
    while True:
        some, place = await patiently(partial(coordinator.rows.used_segments, shard, place))
        for segment, use in some:
            yield segment, use
        if place == b"0":
            return


async def _count(coordinator: Coordinator, segments: set[bytes], logs: Sequence[Log]) -> dict[bytes, SegmentUse]:
    counted: dict[bytes, SegmentUse] = {}
    for log in logs:
        async for page in pages(coordinator, log):
            for row, _ in page.rows:
                if not row.is_marker and row.segment in segments:
                    size_bytes, rows = counted.get(row.segment, NOTHING_USED)
                    counted[row.segment] = SegmentUse(size_bytes + row.length, rows + 1)
    return counted


async def _exists(storage: ObjectStorage, segment: bytes) -> bool:
    try:
        await storage.fetch(segment_key(segment), 0, 1)
    except ObjectMissing:
        return False
    return True
