"""The names in a large request, by kio's schema: read with pauses, and nothing else of it decoded."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from kio.index import load_request_schema

from proxy.wire.cold_lengths import STRUCT, Field, Layout, Walk, layout
from proxy.wire.primitives import Buffer, check_end, read_string
from proxy.wire.steps import Pace, Pausing, Steps

_ID_BYTES = 16


class Named(NamedTuple):
    """The topics that a request names."""

    topics: list[str | bytes]
    """Names, or IDs of 16 bytes; a topic that is named twice is in the list twice."""
    elements: int
    """Elements of all arrays of the request."""


@Pausing
def names_in(api_key: int, api_version: int, body: Buffer, fields: Collection[str]) -> Steps[Named]:
    """Return the values of these fields of a request, at any depth. Raises ProtocolError."""
    walk = _Names(memoryview(body), fields)
    found = layout(load_request_schema(api_key, api_version))
    check_end(body, (yield from walk.entity(0, found)))
    return Named(walk.topics, walk.elements)


class _Names(Walk):
    """Walks over one request, and collects names."""

    def __init__(self, data: memoryview, fields: Collection[str]) -> None:
        super().__init__(data, True)
        self._fields = fields
        self._pace = Pace()
        self.topics: list[str | bytes] = []

    def entity(self, at: int, found: Layout) -> Steps[int]:
        """Return the position after an entity."""
        for field in found.fields:
            if field.is_array and field.kind == STRUCT:
                at = yield from self._array(at, field, found.flexible)
            elif field.name in self._fields:
                at = self._read(at, field, found.flexible)
            else:
                at = self.skip_field(at, field, found.flexible)
        return self.skip_tagged(at, found) if found.flexible else at

    def _array(self, at: int, field: Field, flexible: bool) -> Steps[int]:
        count, at = self.begin_array(at, flexible)
        for _ in range(count):
            if self._pace.pauses(1):
                yield
            at = yield from self.entity(at, layout(field.entity))
            check_end(self._data, at)
        return at

    def _read(self, at: int, field: Field, flexible: bool) -> int:
        name: str | bytes
        if field.kind == "string":
            name, at = read_string(self._data, at, flexible)
        else:
            name, at = bytes(self._data[at : at + _ID_BYTES]), at + _ID_BYTES
        self.topics.append(name)
        return at
