"""The last time that an operator accepted a loss of the coordinator's store: an object in storage, for all proxies.

A store that went back names objects that a merge or a compaction has replaced since, and that may be gone. It does not
know the new objects: they look like orphans, and may be all that is left of their records. The operator needs time to
deal with that, whichever proxy keeps house.
"""

from __future__ import annotations

import uuid
from contextlib import suppress

from proxy.storage.interface import ObjectStorage, StorageError, StoredObject

FOLDER = "coordinator/"
_BEGINNING = FOLDER + "loss-accepted-"
_TEXT = b"`diskless-proxy coordinator unfence` was run when this object was written; only its time counts\n"


async def note_accepted_loss(storage: ObjectStorage) -> None:
    """Called before the first shard goes on. Raises StorageError."""
    earlier = await _notes(storage)
    # The new one first: there is no moment without any.
    await storage.upload(_BEGINNING + uuid.uuid4().hex, _TEXT, len(_TEXT))
    with suppress(StorageError):  # an older one does no harm
        await storage.delete([note.key for note in earlier])


async def loss_accepted_ms(storage: ObjectStorage) -> int | None:
    """The last time, in ms since 1970 by the storage's clock; None where there was none. Raises StorageError."""
    return max((note.modified_ms for note in await _notes(storage)), default=None)


async def _notes(storage: ObjectStorage) -> list[StoredObject]:
    return [stored async for stored in storage.objects(FOLDER) if stored.key.startswith(_BEGINNING)]
