"""Try what the proxy needs of a bucket: write, read a range, reject an overwrite, delete."""

from __future__ import annotations

import uuid

from proxy.storage.interface import ObjectStorage, StorageError


async def try_out(storage: ObjectStorage, name: str) -> None:
    """Write, read and delete one object. `name` is the bucket as errors name it.

    Raises StorageError with the remedy if the store can't do what object storage promises.
    """
    key = f"probe-{uuid.uuid4().hex}"
    await storage.upload(key, b"probe", 5)
    try:
        if await storage.fetch(key, 1, 3) != b"ro":
            raise StorageError(f"{name} does not return the bytes that were written to it")
        try:
            await storage.upload(key, b"other", 5)
        except StorageError:
            pass
        else:
            raise StorageError(
                f"{name} overwrites objects despite a conditional write; update the store, or use a store that "
                f"supports conditional writes"
            )
    finally:
        await storage.delete([key])
