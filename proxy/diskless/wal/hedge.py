"""Uploads of segments that take too long are begun again under a second name, and the first one that ends counts.

Whichever name wins is the segment's name in the commit, which comes after it. So no row ever names the other object. It
may exist all the same: then it is an object that nobody commits, and the sweep of orphans deletes it.
"""

from __future__ import annotations

import asyncio
import uuid

from proxy.diskless.wal.pace import PutBudget
from proxy.diskless.wal.segment import BuiltSegment, segment_key
from proxy.storage.interface import ObjectStorage
from proxy.telemetry.stats import Stats

MOST_AT_A_TIME = 2
"""Second uploads of a process at the same time: a store that is slow for all must not get twice as many."""


class Hedge:
    """Uploads segments, again under a second name after `after_s`; 0 for never."""

    def __init__(self, storage: ObjectStorage, stats: Stats, budget: PutBudget, *, after_s: float) -> None:
        """`budget` pays for second uploads, too."""
        self.after_s = after_s
        self._storage = storage
        self._stats = stats
        self._budget = budget
        self._second = 0

    async def upload(self, built: BuiltSegment) -> BuiltSegment:
        """Upload a segment; return it with the name under which it is stored. Raises StorageError."""
        if not self.after_s:
            await self._put(built)
            return built
        first = asyncio.create_task(self._put(built))
        uploads = {first: built}
        try:
            await asyncio.wait(uploads, timeout=self.after_s)
            if not first.done() and self._second < MOST_AT_A_TIME:
                return await self._first_of(uploads, built)
            await first
            return built
        finally:
            for upload in uploads:
                upload.cancel()
            await asyncio.gather(*uploads, return_exceptions=True)

    async def _first_of(self, uploads: dict[asyncio.Task[None], BuiltSegment], built: BuiltSegment) -> BuiltSegment:
        """Begin a second upload; return the segment of the first one that succeeds. Raises the last error."""
        self._second += 1
        self._stats.uploads_hedged += 1
        self._budget.take(asyncio.get_running_loop().time())
        try:
            again = built._replace(segment=uuid.uuid4().bytes)
            uploads[asyncio.create_task(self._put(again))] = again
            left = set(uploads)
            while True:
                done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                for upload in done:
                    if upload.exception() is None:
                        return uploads[upload]
                if not left:
                    await done.pop()
        finally:
            self._second -= 1

    async def _put(self, built: BuiltSegment) -> None:
        await self._storage.upload(segment_key(built.segment), built.data, len(built.data))
