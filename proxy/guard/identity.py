"""The identity of a deployment: a random name, stored once in the coordinator's store and once next to the segments.

A store with another bucket's identity does not know the objects there, and would take all of them for orphans. A bucket
with another store's identity has none of the records that the store knows.

Both are written once: first the store (unconfirmed), then storage (where the first writer wins), then the confirmation.
If a proxy dies in between, the next proxy continues from there.
"""

from __future__ import annotations

import re
import uuid
from contextlib import suppress

from proxy import __version__
from proxy.coordinator.cluster import Store
from proxy.coordinator.connect import StoreUnfit, store_call
from proxy.coordinator.shards import STORE_KEY
from proxy.storage.interface import ObjectMissing, ObjectStorage, StorageError

IDENTITY_KEY = "coordinator/identity"
_LONGEST_BYTES = 100
_FORM = "[0-9a-f]{32}"
"""Form of an identity. A later release that needs more than a name writes a text that does not have this form."""


async def settle_identity(client: Store, storage: ObjectStorage) -> str:
    """Return the identity that both have; if neither has one, give both the same new one.

    Raises StoreUnfit if they don't belong together, StorageError and CoordinatorUnavailable.
    """
    # Storage is read first: what is there was in the store before.
    in_storage = await stored_identity(storage)
    in_store, confirmed = await store_identity(client)
    if in_store is None:
        if problem := strangers(in_store, in_storage, confirmed=confirmed):
            raise StoreUnfit(problem)
        await _put(client, "identity", uuid.uuid4().hex, only_new=True)
        in_store, confirmed = await store_identity(client)
    if in_storage is None and confirmed:
        in_storage = await stored_identity(storage)  # another proxy may have just written it
    if problem := strangers(in_store, in_storage, confirmed=confirmed):
        raise StoreUnfit(problem)
    if in_storage is None and in_store is not None:
        with suppress(StorageError):
            await storage.upload(IDENTITY_KEY, in_store.encode(), len(in_store))
        in_storage = await stored_identity(storage)
        if in_storage is None:
            raise StorageError(f"{IDENTITY_KEY} can't be written; make storage.url writable for the proxy")
        if problem := strangers(in_store, in_storage, confirmed=confirmed):  # another one was first
            raise StoreUnfit(problem)
    if in_store is None:
        raise StoreUnfit(
            "redis.url leads to a store that lost what was just written to it; check whether another program empties it"
        )
    if not confirmed:
        await _put(client, "identity_confirmed", "1")
    return in_store


def strangers(in_store: str | None, in_storage: str | None, *, confirmed: bool) -> str | None:
    """Why a proxy can't start with a store and objects of these identities; None if it can.

    `confirmed`: the store has seen its identity in storage. Each that has none yet is given one at the start.
    """
    if in_store is None:
        if in_storage is None:
            return None
        return (
            f"redis.url leads to a store without data about the objects under storage.url (identity "
            f"{in_storage}); fix redis.url, or restore the store's data. If the data are lost for good, "
            f"accept the loss with "
            "`diskless-proxy coordinator unfence --all`"
        )
    if in_storage is None:
        if not confirmed:
            return None
        return (
            f"storage.url has no objects of this store (identity {in_store}); fix storage.url, or restore the "
            f"objects. If you can give up all records, empty the store too"
        )
    if in_storage == in_store:
        return None
    return (
        f"redis.url and storage.url don't belong together: the store has identity {in_store}, the objects have "
        f"identity {in_storage}; fix the wrong setting"
    )


async def check_identity(client: Store, storage: ObjectStorage) -> None:
    """Raise StoreUnfit for a store and storage that don't belong together; nothing is written.

    Raises StorageError and CoordinatorUnavailable too.
    """
    in_storage = await stored_identity(storage)  # first, as it was in the store before
    in_store, _ = await store_identity(client)
    if strangers := not_together(in_store, in_storage):
        raise StoreUnfit(strangers)


def not_together(identity: str | None, storage_identity: str | None) -> str | None:
    """Why a store and storage of these identities don't belong together; None if they do, or are both new."""
    if identity == storage_identity:
        return None
    if identity is None:
        return (
            f"the store has no identity, but the objects under storage.url have identity {storage_identity}: "
            "redis.url is wrong, or the store has lost all its data"
        )
    if storage_identity is None:
        return (
            f"the store has identity {identity}, but there are no objects with an identity under storage.url: "
            "storage.url is wrong"
        )
    return f"the store has identity {identity}, the objects under storage.url have {storage_identity}: one URL is wrong"


async def adopt_identity(client: Store, identity: str) -> None:
    """Give an emptied store the identity that storage has. Raises CoordinatorUnavailable."""
    await _put(client, "identity", identity, only_new=True)
    await _put(client, "identity_confirmed", "1")


async def store_identity(client: Store) -> tuple[str | None, bool]:
    """Return the store's identity (None if it has none), and whether it is confirmed. Raises CoordinatorUnavailable."""
    async with store_call(client, "reading the store's identity"):
        identity, confirmed = await client.hmget(STORE_KEY, ["identity", "identity_confirmed"])
    return (identity.decode() if isinstance(identity, bytes) else identity), confirmed is not None


async def stored_identity(storage: ObjectStorage) -> str | None:
    """Return the identity of the objects, None if they have none.

    Raises StorageError, and StoreUnfit for another form.
    """
    try:
        found = bytes(await storage.fetch(IDENTITY_KEY, 0, _LONGEST_BYTES)).decode(errors="replace")
    except ObjectMissing:
        return None
    if not re.fullmatch(_FORM, found):
        raise StoreUnfit(
            f"storage.url: {IDENTITY_KEY} has {found[:40]!r}, but this release ({__version__}) reads only names "
            f"of 32 hex digits; run the release that wrote it, or fix storage.url"
        )
    return found


async def _put(client: Store, field: str, value: str, *, only_new: bool = False) -> None:
    async with store_call(client, "writing the store's identity"):
        await (client.hsetnx(STORE_KEY, field, value) if only_new else client.hset(STORE_KEY, field, value))
