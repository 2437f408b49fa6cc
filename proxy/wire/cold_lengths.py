"""Walk over a message by kio's schema before kio reads it, to check that everything its lengths claim is present.

kio's reader is native, and allocates as many elements as an array claims before it has seen one. A request of a few
bytes that claims two billion elements would end the process. A message that was walked to its end makes no false
claims. Requests with more than `MAX_ELEMENTS` elements are not walked.
"""

from __future__ import annotations

import types
import typing
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from proxy.wire.errors import ProtocolError
from proxy.wire.primitives import (
    INT32,
    Buffer,
    check_elements,
    check_end,
    parsing,
    read_count,
    read_length,
    read_tags,
    skip_string,
)

FIXED_BYTES = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "error_code": 2,
    "int32": 4,
    "timedelta_i32": 4,
    "int64": 8,
    "timedelta_i64": 8,
    "datetime_i64": 8,
    "float64": 8,
    "uuid": 16,
}
STRUCT = "struct"


class Field(NamedTuple):
    """One field of a message."""

    name: str
    kind: str
    """A `kafka_type` of kio, or `struct`."""
    entity: Any
    """The type of a struct."""
    is_array: bool
    nullable: bool


class Layout(NamedTuple):
    """The fields of a message, or of an element of one of its arrays."""

    flexible: bool
    fields: tuple[Field, ...]
    tagged: dict[int, Field]


@parsing
def check_lengths(entity_type: Any, body: Buffer, *, of_client: bool, most: int | None = None) -> None:
    """Raise ProtocolError if the message ends before what it claims to hold, or a client's holds too much."""
    check_end(body, Walk(body, of_client, most).skip_entity(0, entity_type))


class Walk:
    """Over one message; positions in, positions out."""

    def __init__(self, data: Buffer, of_client: bool, most: int | None = None) -> None:
        """`most` is the maximum number of elements of a client's message, by default MAX_ELEMENTS."""
        self._data, self._of_client, self._most = data, of_client, most
        self.elements = 0
        """Number of elements of all arrays seen so far, for a client's message."""

    def skip_entity(self, at: int, entity_type: Any) -> int:
        """Return the position after an entity."""
        found = layout(entity_type)
        for field in found.fields:
            at = self.skip_field(at, field, found.flexible)
        if not found.flexible:
            return at
        return at + 1 if self._data[at] == 0 else self.skip_tagged(at, found)

    def skip_tagged(self, at: int, found: Layout) -> int:
        """Return the position after a section of tagged fields."""
        tags, at = read_tags(self._data, at)
        for tag, start, end in tags:
            check_end(self._data, end)
            if tag in found.tagged:
                self.skip_field(start, found.tagged[tag], True)
        return at

    def skip_field(self, at: int, field: Field, flexible: bool) -> int:
        """Return the position after a field."""
        if not field.is_array:
            return self.skip_value(at, field, flexible)
        count, at = self.begin_array(at, flexible)
        if field.kind in FIXED_BYTES:
            return at + max(count, 0) * FIXED_BYTES[field.kind]
        for _ in range(count):
            at = self.skip_value(at, field, flexible)
            check_end(self._data, at)
        return at

    def begin_array(self, at: int, flexible: bool) -> tuple[int, int]:
        """Return the number of elements of an array, and the position of the first."""
        count, at = read_count(self._data, at, flexible)
        if self._of_client:
            self.elements += max(count, 0)
            check_elements(self.elements, self._most)
        return count, at

    def skip_value(self, at: int, field: Field, flexible: bool) -> int:
        """Return the position after a value, or after an element of an array."""
        data = self._data
        if field.kind == STRUCT:
            if field.nullable and not field.is_array:
                at += 1
                if data[at - 1] == 0xFF:
                    return at
            return self.skip_entity(at, field.entity)
        if field.kind == "string":
            return skip_string(data, at, flexible)
        if field.kind in FIXED_BYTES:
            return at + FIXED_BYTES[field.kind]
        if flexible:
            length, at = read_length(data, at)
        else:
            (length,) = INT32.unpack_from(data, at)
            at += 4
        if length < -1:
            raise ProtocolError(f"bytes claim the length {length}")
        return at + max(length, 0)


@lru_cache(maxsize=2048)
def layout(entity_type: Any) -> Layout:
    """Return the fields of an entity type of kio."""
    plain, tagged = [], {}
    for one in fields(entity_type):
        hint, nullable = _without_none(one.type)
        is_array = typing.get_origin(hint) is tuple
        if is_array:
            hint, _ = _without_none(typing.get_args(hint)[0])
        is_struct = is_dataclass(hint)
        field = Field(
            one.name,
            STRUCT if is_struct else one.metadata["kafka_type"],
            hint if is_struct else None,
            is_array,
            nullable,
        )
        if "tag" in one.metadata:
            tagged[one.metadata["tag"]] = field
        else:
            plain.append(field)
    return Layout(entity_type.__flexible__, tuple(plain), tagged)


def _without_none(hint: Any) -> tuple[Any, bool]:
    if isinstance(hint, types.UnionType):
        return next(part for part in typing.get_args(hint) if part is not types.NoneType), True
    return hint, False
