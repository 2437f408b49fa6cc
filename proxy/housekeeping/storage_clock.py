"""The time by the clock of object storage, taken from an object that is written for it.

The age of an object is the difference of two times of that clock. The clock of a proxy's machine may be hours ahead.
"""

from __future__ import annotations

import uuid

from proxy.storage.interface import ObjectStorage, StorageError

FOLDER = "housekeeping/"
_BEGINNING = FOLDER + "clock-"
_TEXT = b"only the time of this object counts; it may be deleted\n"
_LEFT_BEHIND_MS = 3_600_000
"""Age from which such an object was left behind. Another proxy may be reading the time of a younger one."""


async def storage_now_ms(storage: ObjectStorage) -> int:
    """Return the time in ms since 1970. Raises StorageError."""
    written = _BEGINNING + uuid.uuid4().hex
    await storage.upload(written, _TEXT, len(_TEXT))
    found = {stored.key: stored.modified_ms async for stored in storage.objects(FOLDER)}
    if written not in found:
        raise StorageError(f"{written} was written and is not listed")
    now_ms = found.pop(written)
    left_behind = [
        key
        for key, modified_ms in found.items()
        if key.startswith(_BEGINNING) and now_ms - modified_ms > _LEFT_BEHIND_MS
    ]
    await storage.delete([written, *left_behind])
    return now_ms
