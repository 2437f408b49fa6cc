"""Old objects that keep unused bytes: deleted records in them still exist (KIP-1163)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from proxy.coordinator.interface import Coordinator, Row
from proxy.diskless.wal.segment import SEGMENT_KEY, SEGMENT_OVERHEAD_BYTES, segment_key
from proxy.storage import ObjectStorage
from proxy.storage.interface import ObjectMissing, ObjectRefused

_SEGMENTS_PER_STEP = 1_000
_GETS = 16
"""At a time."""
_HEAD = Struct(">q15xi")
"""Fields of a batch: base offset, last offset delta."""


class FirstRow(NamedTuple):
    """The first row of a log, if the log begins in its middle."""

    row: Row
    log_start_offset: int


class Aged(NamedTuple):
    """Objects that have to be rewritten."""

    segments: frozenset[bytes]
    dead_bytes: int
    """Dead bytes in all of them, without those before a log start in a row's middle."""


async def aged_objects(
    coordinator: Coordinator, storage: ObjectStorage, *, older_than_ms: int, first_rows: Iterable[FirstRow] = ()
) -> Aged:
    """Return objects that were written before a time (milliseconds since 1970), hold dead bytes and are still in use.

    Bytes of `first_rows` are dead, too, as far as batches lie wholly before the log start: the header of each first
    batch is read. Looks at all objects; holds some 100 bytes of memory for each result. Raises StorageError and
    CoordinatorUnavailable.
    """
    found: set[bytes] = set()
    first_of: dict[bytes, list[FirstRow]] = {}
    for first in first_rows:
        first_of.setdefault(first.row.segment, []).append(first)
    old_first: list[FirstRow] = []
    dead_bytes = 0
    step: dict[bytes, int] = {}

    async def look() -> int:
        dead = 0
        uses = await coordinator.segment_use(list(step)) if step else []
        for (segment, size), use in zip(step.items(), uses, strict=True):
            unused = size - SEGMENT_OVERHEAD_BYTES - use.size_bytes
            if use.rows and unused > 0:
                found.add(segment)
                dead += unused
        step.clear()
        return dead

    async for stored in storage.objects():
        named = re.fullmatch(SEGMENT_KEY, stored.key)
        if named is None or stored.modified_ms > older_than_ms:
            continue
        segment = bytes.fromhex(named[1])
        step[segment] = stored.size_bytes
        old_first += first_of.get(segment, ())
        if len(step) == _SEGMENTS_PER_STEP:
            dead_bytes += await look()
    dead_bytes += await look()
    permits = asyncio.Semaphore(_GETS)
    are_dead = await asyncio.gather(*(_begins_dead(storage, first, permits) for first in old_first))
    found.update(first.row.segment for first, is_dead in zip(old_first, are_dead, strict=True) if is_dead)
    return Aged(frozenset(found), dead_bytes)


async def _begins_dead(storage: ObjectStorage, first: FirstRow, permits: asyncio.Semaphore) -> bool:
    """Return whether the row's first batch lies before the log start.

    One that can't be read is seen when it is merged.
    """
    row = first.row
    async with permits:
        try:
            head = await storage.fetch(segment_key(row.segment), row.position, row.position + _HEAD.size)
        except (ObjectMissing, ObjectRefused):
            return False
    if len(head) < _HEAD.size:
        return False
    base_offset, last_offset_delta = _HEAD.unpack(head)
    base_offset = base_offset if row.offsets_in_place else row.base_offset
    return bool(base_offset + last_offset_delta < first.log_start_offset)
