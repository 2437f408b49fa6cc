"""The identity of a deployment's journal, kept in object storage.

The journal is a topic; its ID is its identity. Each shard of a view holds that identity too, but a store that was
emptied does not. The note is written once, before the first record.
"""

from __future__ import annotations

from contextlib import suppress

from proxy.coordinator.cluster import Store
from proxy.coordinator.connect import StoreUnfit, store_call
from proxy.coordinator.interface_journal import Journal
from proxy.coordinator.shards import REGISTRY_PREFIX
from proxy.storage.interface import ObjectMissing, ObjectStorage, StorageError

JOURNAL_KEY = "coordinator/journal"
"""Object that names the journal, as 32 hex digits."""
_ID_BYTES = 32


async def stored_journal(storage: ObjectStorage) -> str | None:
    """Return the identity of the deployment's journal; None if it has none. Raises StorageError."""
    try:
        return bytes(await storage.fetch(JOURNAL_KEY, 0, _ID_BYTES)).decode(errors="replace")
    except ObjectMissing:
        return None


async def settle_journal(client: Store, storage: ObjectStorage, journal: Journal, partitions: int) -> None:
    """Note an open journal as the deployment's, or check that it is.

    Raises StoreUnfit if the deployment has another journal, or if the journal is another deployment's; StorageError,
    CoordinatorUnavailable and JournalUnavailable.
    """
    identity = journal.identity.hex()
    noted = await stored_journal(storage)
    if noted is None and (problem := await _not_empty(client, journal, partitions)):
        noted = await stored_journal(storage)  # perhaps another proxy has just noted it, and written the first record
        if noted is None:
            raise StoreUnfit(problem)
    if noted is None:
        with suppress(StorageError):
            await storage.upload(JOURNAL_KEY, identity.encode(), _ID_BYTES)
        noted = await stored_journal(storage)
        if noted is None:
            raise StorageError(f"{JOURNAL_KEY} can't be written; see whether storage.url is writable")
    if noted != identity:
        raise StoreUnfit(of_another(identity, noted))


async def note_journal(storage: ObjectStorage, identity: str) -> None:
    """Note another journal as the deployment's. Raises StorageError."""
    await forget_journal(storage)  # objects are never replaced
    await storage.upload(JOURNAL_KEY, identity.encode(), _ID_BYTES)


async def forget_journal(storage: ObjectStorage) -> None:
    """Drop the note: the deployment has no journal any more. Raises StorageError."""
    await storage.delete([JOURNAL_KEY])


def of_another(identity: str, noted: str) -> str:
    """Return the error for a journal that is not the one that was noted."""
    return (
        f"the journal on the brokers is {identity}, and this deployment's is {noted}: the topic was recreated, or "
        "brokers.bootstrap, journal.topic or storage.url leads elsewhere; fix the one that is wrong"
    )


async def _not_empty(client: Store, journal: Journal, partitions: int) -> str | None:
    """Return why a journal that is not noted can't be this deployment's; None if neither it nor the store has data."""
    return await has_records(journal, partitions) or await written_without(client)


async def has_records(journal: Journal, partitions: int) -> str | None:
    """Return why a journal that is not noted can't be this deployment's; None if it is empty."""
    for partition in range(partitions):
        if await journal.end(partition) > 0:
            return (
                "the journal on the brokers has records, and no object under storage.url names it: it is another "
                "deployment's; fix storage.url, or set journal.topic to a name of its own"
            )
    return None


async def written_without(client: Store) -> str | None:
    """Return why a store can't get a new journal; None if it has no topics. Raises CoordinatorUnavailable."""
    async with store_call(client, "looking for a registry that was written without a journal"):
        version, journal = await client.hmget(f"{REGISTRY_PREFIX}meta", ["version", "journal"])
    if version is None or journal is not None:
        return None
    return (
        "the store was begun without a journal, so a journal lacks its topics; set journal.mode: off to go on "
        "without one, or run `diskless-proxy journal begin`"
    )


async def check_no_journal(storage: ObjectStorage) -> None:
    """Raise StoreUnfit if the deployment has a journal, which this process is not to use. Raises StorageError."""
    if await stored_journal(storage) is not None:
        raise StoreUnfit(
            "the deployment that storage.url belongs to has a journal; set journal.mode: required, or "
            "run `diskless-proxy journal end`"
        )
