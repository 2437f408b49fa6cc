"""The state of the store as the proxies knew it, kept in object storage, so that it survives them and the store.

Each *side* has its own objects. A side is the proxies that use one server, from its start or promotion on. If two
primaries exist at once, their lease-holders do not overwrite each other's objects, and each side reads what the other
one knows.

A side writes two objects in turn, because objects are never replaced (`ObjectStorage` has only KIP-1163's operations).
The older object is deleted and written again, so that one object is always whole. Readers take the highest state of
both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from proxy import __version__
from proxy.coordinator.connect import StoreUnfit
from proxy.coordinator.interface_registry import NO_CHANGE, RegistryChange
from proxy.coordinator.packing_state import NOTHING_KNOWN, ShardState
from proxy.storage.interface import ObjectMissing, ObjectStorage

FORMAT = 2
_FOLDER = "coordinator/"
_KEY = re.compile(r"coordinator/state-([0-9a-z]+)-[01]")
UNKNOWN_SIDE = "unknown"
"""The side of a server that does not report its replication ID."""


def keys_of(side: str) -> tuple[str, str]:
    """Return the keys of a side, which is half of the server's replication ID in hex digits."""
    return f"{_FOLDER}state-{side}-0", f"{_FOLDER}state-{side}-1"


@dataclass(frozen=True, slots=True)
class Remembered:
    """The newest that was known."""

    identity: str = ""
    """Identity of the store; empty if nothing is kept."""
    shards: Mapping[int, ShardState] = field(default_factory=dict)
    registry_change: RegistryChange = NO_CHANGE
    """Newest change of the registry of diskless topics."""
    number: int = 0
    """Number of the object that was written last."""

    def merged(self, other: Remembered) -> Remembered:
        """Return the highest of both, of one identity.

        Of two lives of a server that is the later one: a state is kept only when the store was asked for those before.
        """
        shards = dict(self.shards)
        for shard, state in other.shards.items():
            if state.sequence > shards.get(shard, NOTHING_KNOWN).sequence:
                shards[shard] = state
        return Remembered(
            self.identity or other.identity,
            shards,
            max(self.registry_change, other.registry_change, key=lambda change: change.version),
            max(self.number, other.number),
        )


async def read_sides(storage: ObjectStorage, identity: str) -> dict[str, Remembered]:
    """Return what each side remembers of the store of that identity.

    Raises StorageError, and StoreUnfit for an unknown format.

    An object that can't be read (its writer died in it) is left out: then the other one is whole.
    """
    sides: dict[str, Remembered] = {}
    async for stored in storage.objects(_FOLDER):
        if not (named := _KEY.fullmatch(stored.key)):
            continue
        try:
            read = unpack(bytes(await storage.fetch(stored.key)), stored.key)
        except ObjectMissing:
            continue
        if read is not None and read.identity == identity:
            sides[named[1]] = sides.get(named[1], Remembered(identity)).merged(read)
    return sides


async def read_remembered(storage: ObjectStorage, identity: str) -> Remembered:
    """Return the highest that any side remembers. Raises as `read_sides`."""
    found = Remembered(identity)
    for one in (await read_sides(storage, identity)).values():
        found = found.merged(one)
    return found


async def forget_sides(storage: ObjectStorage) -> None:
    """Drop what all sides remember: the shards begin new lives that lead to none of it. Raises StorageError."""
    await storage.delete([stored.key async for stored in storage.objects(_FOLDER) if _KEY.fullmatch(stored.key)])


async def remember(
    storage: ObjectStorage, side: str, known: Remembered, before: Remembered | None = None
) -> Remembered:
    """Keep the known state, merged with what the side keeps already, and return the result. Raises as `read_sides`.

    `before` is the state that was just read; if None, it is read. Two proxies of one side that write at once may undo
    each other's latest state, but never the state that both have read.
    """
    before = before or (await read_sides(storage, known.identity)).get(side, Remembered(known.identity))
    after = before.merged(known)
    if (after.shards, after.registry_change) == (before.shards, before.registry_change):
        return before
    after = Remembered(after.identity, after.shards, after.registry_change, before.number + 1)
    key, packed = keys_of(side)[after.number % 2], pack(after)
    await storage.delete([key])
    await storage.upload(key, packed, len(packed))
    return after


def pack(known: Remembered) -> bytes:
    """Return the state as JSON, which people can read too."""
    return json.dumps(
        {
            "format": FORMAT,
            "identity": known.identity,
            "number": known.number,
            "registry_version": known.registry_change.version,
            "registry_mark": known.registry_change.mark.hex(),
            "shards": {
                str(shard): [
                    state.incarnation.hex(),
                    state.sequence,
                    state.life.hex(),
                    state.offsets,
                    state.began_sequence,
                    state.began_offsets,
                    state.began_written_ms,
                    state.must_last_ms,
                    state.lives.hex(),
                ]
                for shard, state in sorted(known.shards.items())
            },
        }
    ).encode()


def unpack(packed: bytes, key: str = _FOLDER) -> Remembered | None:
    """Return the state, None if it is not whole. Raises StoreUnfit for a format that this release does not know.

    To skip an unknown format would mean to forget what a newer release knows about losses.
    """
    try:
        data = json.loads(packed)
        if data["format"] != FORMAT:
            raise StoreUnfit(
                f"storage.url: {key} has format {data['format']}, but this release ({__version__}) reads only "
                f"format {FORMAT}; run the release that wrote it"
            )
        shards = {
            int(shard): ShardState(
                bytes.fromhex(incarnation),
                int(sequence),
                bytes.fromhex(life),
                int(offsets),
                int(began_sequence),
                int(began_offsets),
                int(began_written_ms),
                int(must_last_ms),
                bytes.fromhex(lives),
            )
            for shard, (
                incarnation,
                sequence,
                life,
                offsets,
                began_sequence,
                began_offsets,
                began_written_ms,
                must_last_ms,
                lives,
            ) in data["shards"].items()
        }
        change = RegistryChange(int(data["registry_version"]), bytes.fromhex(data["registry_mark"]))
        return Remembered(str(data["identity"]), shards, change, int(data["number"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
