"""What proxies knew of the store's state, in object storage: it survives them and the store.

Two objects by turns, since objects are never replaced (`ObjectStorage` has no more than KIP-1163's operations): the
older one is deleted and written anew, so that one is always whole. Whoever reads takes the highest of both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from proxy import __version__
from proxy.coordinator.connect import StoreUnfit
from proxy.coordinator.interface import NO_CHANGE, RegistryChange
from proxy.coordinator.packing import NOTHING_KNOWN, ShardState
from proxy.storage.interface import ObjectMissing, ObjectStorage

FORMAT = 2
KEYS = ("coordinator/state-0", "coordinator/state-1")


@dataclass(frozen=True, slots=True)
class Remembered:
    """The newest that was known."""

    identity: str = ""
    """Of the store; empty where nothing is remembered."""
    shards: Mapping[int, ShardState] = field(default_factory=dict)
    registry_change: RegistryChange = NO_CHANGE
    """Newest change of the registry of diskless topics."""
    number: int = 0
    """Of the object that was written last."""

    def merged(self, other: Remembered) -> Remembered:
        """The highest of both, of one identity.

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


async def read_remembered(storage: ObjectStorage, identity: str) -> Remembered:
    """What is remembered of the store of that identity. Raises StorageError, and StoreUnfit for an unknown format.

    An object that can't be read (its writer died in it) is left out: then the other one is whole.
    """
    found = Remembered(identity)
    for key in KEYS:
        try:
            read = unpack(bytes(await storage.fetch(key)), key)
        except ObjectMissing:
            continue
        if read is not None and read.identity == identity:
            found = found.merged(read)
    return found


async def remember(storage: ObjectStorage, known: Remembered, before: Remembered | None = None) -> Remembered:
    """Keep what is known, beside what is remembered already; what is remembered then. Raises as `read_remembered`.

    `before`: what was read just now; it is read where None. Two proxies that do it at once may undo each other's newest
    word, never what both have read.
    """
    before = before or await read_remembered(storage, known.identity)
    after = before.merged(known)
    if (after.shards, after.registry_change) == (before.shards, before.registry_change):
        return before
    after = Remembered(after.identity, after.shards, after.registry_change, before.number + 1)
    key, packed = KEYS[after.number % len(KEYS)], pack(after)
    await storage.delete([key])
    await storage.upload(key, packed, len(packed))
    return after


def pack(known: Remembered) -> bytes:
    """As JSON, for people too."""
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


def unpack(packed: bytes, key: str = KEYS[0]) -> Remembered | None:
    """None where it is not whole. Raises StoreUnfit where it is of a format that this release does not know.

    To pass over it would be to forget what a newer release knows of losses.
    """
    try:
        data = json.loads(packed)
        if data["format"] != FORMAT:
            raise StoreUnfit(
                f"storage.url: {key} has format {data['format']}, and this release ({__version__}) knows {FORMAT} "
                "only; run the release that wrote it"
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
