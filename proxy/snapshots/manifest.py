"""The manifest of a snapshot: JSON that is written after all parts, so a snapshot without one is not complete.

A part is pages one after another, each as u32 length and bytes. A page is opaque here (`lua/copied.lua`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from proxy.coordinator.interface_snapshots import SnapshotDamaged
from proxy.coordinator.journal_records import RULES

FORMAT = 1
"""The layout of manifests, parts and pages."""
MAX_MANIFEST_BYTES = 4 << 20
_LENGTH = Struct(">I")


class Part(BaseModel):
    """An object with some of the pages."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: str
    size_bytes: int
    sha256: str


class Manifest(BaseModel):
    """All about a snapshot."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int = FORMAT
    rules: int = RULES
    """Number of the rules by which the records before the position were applied."""
    partition: int
    position: int
    """Position of the next record to apply."""
    state: str
    """Packed state of the shard, in hex digits; empty for the registry."""
    parts: tuple[Part, ...]


class SnapshotTooNew(SnapshotDamaged):
    """The snapshot was written by a newer release."""


def pack_manifest(manifest: Manifest) -> bytes:
    """Return the object's bytes."""
    return manifest.model_dump_json(indent=1).encode()


def unpack_manifest(stored: bytes, partition: int) -> Manifest:
    """Return the manifest. Raises SnapshotDamaged, and SnapshotTooNew if this release can't read it."""
    try:
        fields = json.loads(stored)
        known = (fields["format"], fields["rules"])
    except (ValueError, KeyError, TypeError) as error:
        raise SnapshotDamaged(f"its manifest can't be read: {error}") from error
    if known != (FORMAT, RULES):
        raise SnapshotTooNew(f"it has format {known[0]} and rules {known[1]}; this release knows {FORMAT} and {RULES}")
    try:
        manifest = Manifest.model_validate_json(stored)
        bytes.fromhex(manifest.state)
    except (ValidationError, ValueError) as error:
        raise SnapshotDamaged(f"its manifest can't be read: {error}") from error
    if manifest.partition != partition:
        raise SnapshotDamaged(f"it is a snapshot of partition {manifest.partition}")
    return manifest


def pack_page(page: bytes) -> bytes:
    """Return the page as it is in a part."""
    return _LENGTH.pack(len(page)) + page


def unpack_pages(part: Part, stored: bytes) -> Iterator[bytes]:
    """Yield the pages of a part, after its checksum was compared. Raises SnapshotDamaged."""
    if len(stored) != part.size_bytes or checksum(stored) != part.sha256:
        raise SnapshotDamaged(f"{part.key} has {len(stored)} bytes and another checksum than the manifest says")
    at = 0
    while at < len(stored):
        (length,) = _LENGTH.unpack_from(stored, at)
        at += _LENGTH.size + length
        yield stored[at - length : at]


def checksum(stored: bytes) -> str:
    """Return the checksum of a part."""
    return hashlib.sha256(stored).hexdigest()


class Kept(NamedTuple):
    """A complete snapshot in object storage."""

    key: str
    """Key of the manifest."""
    manifest: Manifest
    written_ms: int
    """Time when the manifest was written, by the storage's clock."""

    @property
    def size_bytes(self) -> int:
        """Return the size of all parts."""
        return sum(part.size_bytes for part in self.manifest.parts)


def oldest_position(kept: Sequence[Kept]) -> int:
    """Return the position from which on the journal is needed to load any of the snapshots."""
    return min(one.manifest.position for one in kept)
