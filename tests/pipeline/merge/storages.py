"""A storage in which tests can stop or end an uploading process, on any machine."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from proxy.config import Settings, Storage
from proxy.storage.file import FileStorage
from proxy.storage.interface import Buffer

DIE, WAIT, WAITING = "die", "wait", "waiting"


class MarkedStorage(FileStorage):
    """Obeys marks, which are files in a folder that no listing shows."""

    def __init__(self, settings: Storage) -> None:
        super().__init__(settings)
        self._marks = marks_of(settings)

    async def upload(self, key: str, data: Buffer, length: int) -> None:
        if (self._marks / DIE).exists():
            (self._marks / DIE).unlink()
            os._exit(9)
        if (self._marks / WAIT).exists():
            (self._marks / WAITING).touch()
            await asyncio.to_thread(_wait_until_gone, self._marks / WAIT)
        await super().upload(key, data, length)


def _wait_until_gone(mark: Path) -> None:
    while mark.exists():
        time.sleep(0.05)


def marks_of(settings: Storage) -> Path:
    return Path(settings.url.removeprefix("file://")) / ".marks"


def marked(settings: Settings, *marks: str) -> Settings:
    """Return the same settings with this storage and these marks."""
    folder = marks_of(settings.storage)
    folder.mkdir(exist_ok=True)
    for mark in marks:
        (folder / mark).touch()
    name = f"{MarkedStorage.__module__}:{MarkedStorage.__name__}"
    return settings.model_copy(update={"diskless_storage_class_name": name})
