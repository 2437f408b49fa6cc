"""Loads a snapshot into a shard that is empty, or older than the journal's start, before later records are applied.

While one proxy loads, the shard refuses all other calls (RESTORING). A proxy that ends meanwhile is noticed because the
number of loaded pages stays the same; then another one begins again. A proxy whose own load has failed begins again at
once.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from struct import Struct

import structlog

from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_snapshots import Snapshot, SnapshotDamaged, Snapshots
from proxy.coordinator.scripts import Refusal
from proxy.coordinator.view_calls import NO_NEW_CHANGE

log = structlog.get_logger()

MOST_AT_A_TIME = 4
"""Snapshots that a process loads at the same time."""
MOST_TRIES = 5
"""Loads in a row that the store loses before they end."""
POLL_S = 0.1
STOPPED_S = 10.0
"""Time without a loaded page after which a load is taken over."""
_BEGIN = Struct(">q16s16s8s")
_PAGE = Struct(">16sI")
_TIME = Struct(">Q")
_POSITION = Struct(">q")
WRITTEN_MS_AT = 44
"""Position of the time of the newest write in a packed state."""
NO_TOKEN = b"0" * 16

RunLoad = Callable[[str, int, tuple[bytes, ...]], Awaitable[bytes | Refusal]]


class _Overtaken(Exception):
    """The shard is not in this load any more."""

    def __init__(self, text: str) -> None:
        self.text = text


class Loader:
    """Loads snapshots by the scripts `load_*.lua`."""

    def __init__(self, run: RunLoad, snapshots: Snapshots | None) -> None:
        """`snapshots`: None if there are none; then all records are applied."""
        self._snapshots = snapshots
        self._run = run
        self._turns = asyncio.Semaphore(MOST_AT_A_TIME)
        self._tokens: dict[int, bytes] = {}  # by shard: of the newest load of this process

    async def load(self, shard: int, at: int, stopped: bytes = NO_TOKEN) -> int:
        """Load the newest readable snapshot that is ahead of `at`; return the position of the next record to apply.

        It is `at` if there is no such snapshot. `stopped`: token of a load that does not go on. A shard has one load or
        `wait` of this process at a time. Raises CoordinatorUnavailable.
        """
        for _ in range(MOST_TRIES):
            try:
                async with self._turns:
                    return await self._load(shard, at, stopped)
            except _Overtaken as overtaken:
                reached = await self._after(shard, overtaken)
            if reached > at:
                return reached
            at, stopped = reached, NO_TOKEN  # the store was emptied meanwhile
        raise CoordinatorUnavailable("the store was emptied again and again while a snapshot was loaded")

    async def _load(self, shard: int, at: int, stopped: bytes) -> int:
        for snapshot in await self._newest_first(shard):
            if snapshot.position <= at:
                break
            token = self._tokens[shard] = os.urandom(8).hex().encode()
            await self._call("load_begin", shard, _BEGIN.pack(at, token, stopped, os.urandom(8)))
            stopped = token
            try:
                await self._load_pages(shard, snapshot, token)
            except SnapshotDamaged as error:
                report_damage(shard, snapshot, error)
            else:
                log.info("snapshot_loaded", partition=shard, position=snapshot.position)
                return snapshot.position
        if stopped == NO_TOKEN:
            return at
        await self._call("load_begin", shard, _BEGIN.pack(at, NO_TOKEN, stopped, os.urandom(8)))
        return 0

    async def _load_pages(self, shard: int, snapshot: Snapshot, token: bytes) -> None:
        time = snapshot.state[WRITTEN_MS_AT : WRITTEN_MS_AT + _TIME.size]
        number = 0
        async for page in snapshot.pages():
            number += 1
            await self._call("load_page", shard, _PAGE.pack(token, number), b"", time + page)
        await self._call("load_page", shard, _PAGE.pack(token, number + 1), snapshot.state, time)

    async def load_registry(self, partition: int, at: int) -> int:
        """Do the same for the registry, whose snapshot is one page."""
        for snapshot in await self._newest_first(partition):
            if snapshot.position <= at:
                break
            try:
                pages = [page async for page in snapshot.pages()]
                argument = _POSITION.pack(at) + b"".join(pages)
                await self._call("registry_restore", partition, argument, NO_NEW_CHANGE)
            except SnapshotDamaged as error:
                report_damage(partition, snapshot, error)
            except _Overtaken as overtaken:
                return await self._after(partition, overtaken)
            else:
                return snapshot.position
        return at

    async def wait(self, shard: int, text: str) -> int:
        """Wait until a load by somebody else has ended; take it over if it does not go on.

        `text`: token and number of pages, as the shard has reported them. Return the position of the next record to
        apply. Raises CoordinatorUnavailable.
        """
        loop = asyncio.get_running_loop()
        changed_s = loop.time()
        while True:
            reply = await self._run("load_page", shard, (_PAGE.pack(NO_TOKEN, 0), b"", bytes(8)))
            word, _, rest = reply.text.partition(" ") if isinstance(reply, Refusal) else ("", "", "")
            if word == "BEHIND":
                return int(rest)
            if word != "RESTORING":
                raise CoordinatorUnavailable(f"partition {shard} of the store answers {word}")
            token = rest.partition(" ")[0].encode()
            if token == self._tokens.get(shard):
                log.warning("load_begun_again", partition=shard, reason="a load of this proxy has failed")
                return await self.load(shard, 0, token)
            if rest != text:
                text, changed_s = rest, loop.time()
            elif loop.time() > changed_s + STOPPED_S:
                if self._snapshots is None:
                    raise CoordinatorUnavailable("a snapshot is loaded by a proxy that has ended; start a proxy")
                log.warning("load_taken_over", partition=shard, reason="no page was loaded for a while")
                return await self.load(shard, 0, token)
            await asyncio.sleep(POLL_S)

    async def _after(self, shard: int, overtaken: _Overtaken) -> int:
        """Return the position of the next record to apply after another proxy was faster."""
        word, _, rest = overtaken.text.partition(" ")
        if word == "BEHIND":
            return int(rest)
        if word == "RESTORING":
            return await self.wait(shard, rest)
        raise CoordinatorUnavailable(f"partition {shard} of the store answers {overtaken.text}")

    async def _call(self, name: str, partition: int, *arguments: bytes) -> None:
        reply = await self._run(name, partition, arguments)
        if isinstance(reply, Refusal):
            raise _Overtaken(reply.text)

    async def _newest_first(self, partition: int) -> list[Snapshot]:
        return [] if self._snapshots is None else list(await self._snapshots.newest_first(partition))


def report_damage(partition: int, snapshot: Snapshot, error: SnapshotDamaged) -> None:
    """Log that a snapshot can't be loaded."""
    log.error(
        "snapshot_damaged",
        partition=partition,
        position=snapshot.position,
        reason=str(error),
        effect="an older snapshot is loaded, or all records are applied",
    )
