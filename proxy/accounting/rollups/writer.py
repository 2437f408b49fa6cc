"""The background work of each proxy process that writes its rollups.

Data is lost in two cases only, both bounded and logged: a process that is killed loses the last `rollups.interval_ms`,
and object storage that fails for longer than `rollups.max_waiting` rollups costs the oldest ones. Nothing else waits
for this work.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

import structlog

from proxy.accounting.rollups.counted import Amount, Counted, What, hour_of
from proxy.accounting.rollups.files import encode_rows, rollup_key
from proxy.accounting.rollups.table import HOUR_MS, RollupRow
from proxy.config.rollups import Rollups as RollupSettings
from proxy.storage.interface import ObjectMissing, ObjectStorage, StorageError
from proxy.telemetry.outage import Outage

log = structlog.get_logger()

_AFTER_THE_HOUR_MS = 1
_LAST_WRITE_S = 5.0
"""Longest time that a drain spends on it."""


class _Waiting(NamedTuple):
    key: str
    rows: tuple[RollupRow, ...]
    """Until they are encoded: who is cancelled meanwhile has lost nothing."""
    data: bytes = b""


class RollupWriter:
    """Counts and writes what one process moves."""

    def __init__(
        self,
        settings: RollupSettings,
        storage: ObjectStorage,
        proxy: str,
        rack: str,
        *,
        totals: Callable[[], Iterable[tuple[What, Amount]]],
        now_ms: Callable[[], int],
        settle_all: Callable[[], None] = lambda: None,
    ) -> None:
        """Take all counters (`totals`) and milliseconds since 1970 (`now_ms`).

        `settle_all` makes `totals` return everything that it has kept back, before the last rollup.
        """
        self._settings, self._storage = settings, storage
        self._proxy, self._rack = proxy, rack
        self._totals, self._settle_all, self._now_ms = totals, settle_all, now_ms
        self._counted = Counted()
        self._hour_ms = hour_of(now_ms())
        self._process = secrets.token_hex(8)
        self._number = 0
        self._waiting: deque[_Waiting] = deque()
        self._outage = Outage()
        self._writing = asyncio.Lock()
        self.written = 0
        """Rollups in object storage by this process."""
        self.dropped = 0
        """Rollups that were given up, as too many waited."""

    @property
    def waiting(self) -> int:
        """Rollups in memory that object storage has not taken yet."""
        return len(self._waiting)

    async def keep_writing(self) -> None:
        """Write at the end of each interval, and of each hour, forever."""
        if not self._settings.enable:
            await asyncio.Event().wait()
        broken: type[Exception] | None = None
        while True:
            until_hour_ms = self._hour_ms + HOUR_MS - self._now_ms() + _AFTER_THE_HOUR_MS
            await asyncio.sleep(min(self._settings.interval_ms, max(until_hour_ms, _AFTER_THE_HOUR_MS)) / 1000)
            try:
                await self.write()
            except Exception as error:  # an account that fails is no reason to send clients elsewhere
                if broken is not type(error):
                    log.exception("rollups_broken", remedy="report it with this trace; it is retried")
                broken = type(error)

    async def finish(self) -> None:
        """Write all that is left, for the last time, for a few seconds at most."""
        if not self._settings.enable:
            return
        whole, reason = False, "object storage did not take them at the end"
        try:
            self._settle_all()
            async with asyncio.timeout(_LAST_WRITE_S):
                await self.write()
                whole = not self._waiting
        except TimeoutError:
            pass
        except Exception as error:  # the process ends as it would without an account
            reason = repr(error)
        if not whole:
            log.warning("rollups_lost", waiting=self.waiting, reason=reason)

    async def write(self) -> None:
        """Write what came since the last time, and what object storage did not take before."""
        async with self._writing:
            self._take()
            await self._encode()
            while self._waiting:
                try:
                    await self._upload(self._waiting[0])
                except StorageError as error:
                    if self._outage.begins():
                        log.warning(
                            "rollups_waiting",
                            reason=str(error),
                            kept=self._settings.max_waiting,
                            remedy="none; they are retried at each interval",
                        )
                    return
                self._waiting.popleft()
                self.written += 1
                if self._outage.ends():
                    log.info("rollups_written_again", dropped=self.dropped)

    def _take(self) -> None:
        """Counters to a rollup that waits. They belong to the hour in which they were last looked at."""
        self._counted.add(self._totals(), self._hour_ms)
        self._hour_ms = hour_of(self._now_ms())
        rows = self._counted.take(self._proxy, self._rack, max_rows=self._settings.max_rows)
        if not rows:
            return
        while len(self._waiting) >= self._settings.max_waiting:
            self._waiting.popleft()
            self.dropped += 1
            if self.dropped == 1:
                log.error(
                    "rollups_dropped",
                    remedy="fix object storage; the metric rollups_dropped counts the dropped rollups",
                )
        self._number += 1
        key = rollup_key(rows[-1].hour_ms, self._proxy, self._process, self._number)
        self._waiting.append(_Waiting(key, tuple(rows)))

    async def _encode(self) -> None:
        for place, rollup in enumerate(list(self._waiting)):
            if rollup.rows:
                data = await asyncio.to_thread(encode_rows, rollup.rows)
                self._waiting[place] = _Waiting(rollup.key, (), data)

    async def _upload(self, rollup: _Waiting) -> None:
        """Once, though an upload that failed may have worked. Raises StorageError where it did not."""
        try:
            await self._storage.upload(rollup.key, rollup.data, len(rollup.data))
        except StorageError:
            try:
                found = await self._storage.fetch(rollup.key)
            except ObjectMissing:
                found = b""
            if found == rollup.data:
                return
            if found:  # half of it: names are not used again
                self._number += 1
                key = f"{rollup.key.rpartition('-')[0]}-{self._number:06d}.parquet"
                self._waiting[0] = rollup._replace(key=key)
            raise
