"""Wishes for topics that were not created after all: they are forgotten as soon as the store answers, in the
background.

An intent that stayed would be taken for one of the next topic of its name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import structlog

from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.creation.replication.interface import Pending, PendingTopics

log = structlog.get_logger()

_AGAIN_S = 1.0
_MAX_REMEMBERED = 10_000
"""Wishes, and names; beyond that the oldest are left to what settles intents."""


class Unmade:
    """The wishes to forget."""

    def __init__(self, store: PendingTopics) -> None:
        self._store = store
        self._wishes: dict[str, None] = {}
        """Wishes by `pending_id`."""
        self._made: dict[str, int] = {}
        """When topics were made, by name, in milliseconds since 1970."""
        self._work = asyncio.Event()

    def forget(self, wishes: Iterable[Pending]) -> None:
        """They were refused, or may have been written though the store did not say so."""
        self._wishes |= dict.fromkeys(wish.pending_id for wish in wishes)
        self._note()

    def made_by_others(self, names: Iterable[str], since_ms: int) -> None:
        """Topics were made just now, so older intents of their names have come to nothing."""
        self._made |= dict.fromkeys(names, since_ms)
        self._note()

    async def keep_forgetting(self) -> None:
        """Forget wishes as they come, forever."""
        while True:
            await self._work.wait()
            self._work.clear()
            try:
                await self._forget()
            except CoordinatorUnavailable as error:
                log.warning("under_replicated_topics_left", reason=str(error), remedy="none; it is retried")
                self._work.set()
                await asyncio.sleep(_AGAIN_S)

    async def _forget(self) -> None:
        wishes, made = dict(self._wishes), dict(self._made)
        # Asked first: what was on its way when the store stopped answering is written by now, or never.
        known = await self._store.all()
        await self._store.forget(
            [
                wish
                for wish in known
                if wish.pending_id in wishes or (wish.is_intent and wish.since_ms < made.get(wish.name, 0))
            ]
        )
        for pending_id in wishes:
            self._wishes.pop(pending_id, None)
        for name, since_ms in made.items():
            if self._made.get(name) == since_ms:
                del self._made[name]

    def _note(self) -> None:
        for remembered in (self._wishes, self._made):
            while len(remembered) > _MAX_REMEMBERED:
                del remembered[next(iter(remembered))]
        if self._wishes or self._made:
            self._work.set()
