"""A start without the store, in a deployment whose journal is only being created."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from proxy import config
from proxy.guard import view_watch
from proxy.guard.journal_identity import JOURNAL_KEY
from proxy.guard.view_watch import NOT_CHECKED, ViewWatch
from proxy.storage.file import FileStorage
from tests.support.memory_journal import MemoryJournal


class Opened(MemoryJournal):
    """A journal that counts how often it is opened."""

    opened = 0

    async def open(self, *, create_missing: bool) -> None:
        assert not create_missing
        self.opened += 1


class Shards:
    refused: str | None = None

    def refuse_all(self, reason: str | None) -> None:
        self.refused = reason


class Coordinator:
    def __init__(self) -> None:
        self.shards = Shards()


async def test_a_journal_that_is_being_created_is_waited_for(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(view_watch, "_NEW_DEPLOYMENT_POLL_S", 0.001)
    storage = FileStorage(config.Storage(url=tmp_path.as_uri()))
    await storage.open()
    journal, coordinator, unused = Opened(), Coordinator(), Any
    parts: Any = (coordinator, unused, journal, storage, unused)
    settings: Any = None
    opening = asyncio.create_task(ViewWatch(settings, settings, *parts).open_journal())
    await asyncio.sleep(0.05)
    assert not opening.done()
    assert not journal.opened
    await storage.upload(JOURNAL_KEY, journal.identity.hex().encode(), 32)
    await asyncio.wait_for(opening, 10)
    assert journal.opened == 1
    assert coordinator.shards.refused == NOT_CHECKED
    await storage.close()
