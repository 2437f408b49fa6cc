"""The registry of diskless topics, computed from records of the journal without the store. Sans-io.

What the scripts `lua/registry_*.lua` do to a view is repeated here. A test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from proxy.coordinator.interface_journal import JournalRecord
from proxy.coordinator.interface_registry import NO_MARK, RegistrySnapshot
from proxy.coordinator.packing_registry import DELETING, ENTRY, LIVE, unpack_entry
from proxy.coordinator.view_calls import OF_THE_REGISTRY, unpacked_call

_FIELD = Struct(">cI")
_LENGTH = Struct(">I")
_MARK_AT = 16
"""Position of the mark of a call's own change in its last argument, after the change that the caller knows."""
_STATE_BYTES, _ID_BYTES = 1, 16


class RegistryReplay:
    """The registry at one position of its partition of the journal."""

    def __init__(self, partition: int, position: int = 0, copy: bytes = b"") -> None:
        """`copy`: what a snapshot of that position has of the registry (`lua/registry_copy.lua`)."""
        self.position = position
        """Position of the next record to apply."""
        self._partition = partition
        self._version = 0
        self._mark = NO_MARK
        self._entries: dict[bytes, bytes] = {}
        self._scripts: dict[str, Callable[..., None]] = {
            "registry_reserve": self._reserve,
            "registry_activate": self._activate,
            "registry_configure": self._configure,
            "registry_begin_delete": self._begin_delete,
            "registry_remove": self._remove,
        }
        assert self._scripts.keys() == OF_THE_REGISTRY
        self._restore(copy)

    def _restore(self, copy: bytes) -> None:
        at = 0
        while at < len(copy):
            kind, length = _FIELD.unpack_from(copy, at)
            at += _FIELD.size + length
            field = copy[at - length : at]
            (length,) = _LENGTH.unpack_from(copy, at)
            at += _LENGTH.size + length
            value = copy[at - length : at]
            if kind == b"t":
                self._entries[field] = value
            elif kind == b"m" and field == b"version":
                self._version = int(value)
            elif kind == b"m" and field == b"mark":
                self._mark = value

    def apply(self, record: JournalRecord) -> None:
        """Apply the record at `position`. Raises CoordinatorUnavailable if a newer release wrote it."""
        call = unpacked_call(self._partition, self._partition, record)
        if (script := self._scripts.get(call.name)) is not None:
            *arguments, change = call.arguments
            script(change[_MARK_AT:], *arguments)
        self.position = record.position + 1

    def snapshot(self) -> RegistrySnapshot:
        """Return the registry at this position."""
        topics = (unpack_entry(name.decode(), entry) for name, entry in self._entries.items())
        return RegistrySnapshot(self._version, tuple(sorted(topics, key=lambda topic: topic.name)), self._mark)

    def _put(self, mark: bytes, name: bytes, entry: bytes | None) -> None:
        """Note a change. `entry`: None if the name is removed."""
        if entry is None:
            del self._entries[name]
        else:
            self._entries[name] = entry
        self._version += 1
        self._mark = mark

    def _reserve(self, mark: bytes, name: bytes, entry: bytes) -> None:
        if name not in self._entries:
            self._put(mark, name, entry)

    def _activate(self, mark: bytes, name: bytes, topic_id: bytes, count: bytes) -> None:
        entry = self._entries.get(name)
        if entry is None:
            return
        state, known_id, partitions, owner_bytes = ENTRY.unpack_from(entry)
        if state == DELETING or (state == LIVE and known_id != topic_id):
            return
        count_now = max(partitions, int(count)) if state == LIVE else int(count)
        changed = ENTRY.pack(LIVE, topic_id, count_now, owner_bytes) + entry[ENTRY.size :]
        if changed != entry:
            self._put(mark, name, changed)

    def _configure(self, mark: bytes, name: bytes, read_version: bytes, configs: bytes) -> None:
        entry = self._entries.get(name)
        if entry is None or entry[0] != LIVE or self._version != int(read_version):
            return
        owner_bytes = ENTRY.unpack_from(entry)[-1]
        changed = entry[: ENTRY.size + owner_bytes] + configs
        if changed != entry:
            self._put(mark, name, changed)

    def _begin_delete(self, mark: bytes, name: bytes, topic_id: bytes) -> None:
        entry = self._entries.get(name)
        if entry is not None and entry[0] != DELETING and topic_id in (b"", _id_of(entry)):
            self._put(mark, name, bytes([DELETING]) + entry[_STATE_BYTES:])

    def _remove(self, mark: bytes, name: bytes, topic_id: bytes, owner: bytes) -> None:
        entry = self._entries.get(name)
        if entry is None or topic_id not in (b"", _id_of(entry)):
            return
        owner_bytes = ENTRY.unpack_from(entry)[-1]
        if owner in (b"", entry[ENTRY.size : ENTRY.size + owner_bytes]):
            self._put(mark, name, None)


def _id_of(entry: bytes) -> bytes:
    return entry[_STATE_BYTES : _STATE_BYTES + _ID_BYTES]
