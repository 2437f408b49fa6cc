"""A large message in parts, by kio's schema: cut a request into small ones, and join their answers to one.

The elements of one array (topics, or resources) are spread over the parts. An element that is too large for one part (a
topic with very many partitions) is cut in its own first array, and its other fields are in several parts. Nothing but
lengths is decoded. What takes long for a large message is a generator that pauses (`wire.steps`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Generator, Sequence
from typing import Any, NamedTuple

from kio.index import load_request_schema, load_response_schema

from proxy.wire.cold_lengths import FIXED_BYTES, STRUCT, Field, Walk, layout
from proxy.wire.errors import ProtocolError, TooManyElements
from proxy.wire.primitives import (
    INT16,
    INT32,
    MAX_WHOLE_ELEMENTS,
    Buffer,
    check_elements,
    check_end,
    write_count,
)
from proxy.wire.steps import Pace, Pausing, Steps

SkipElement = Callable[[memoryview, int], int]
"""Returns the position after an element of an array, which begins at a position of the data."""
_LARGE_ELEMENT = 32
"""Number of ordinary elements that one counts as if it has a way of its own to be skipped."""
_SETS = 64


class _Cut(NamedTuple):
    """Elements of an array within an element, for one part."""

    count: int  # type: ignore[assignment]  # hides tuple.count
    start: int
    end: int


class _Element(NamedTuple):
    """One element of the array that is spread, with the cuts of its own first array."""

    end: int
    array_start: int
    """Position where its first array begins; the array ends with the last cut."""
    cuts: list[_Cut]
    name_end: int
    """Position after its name, or ID."""


class _Part(NamedTuple):
    count: int  # type: ignore[assignment]  # hides tuple.count
    buffers: list[Buffer]


def request_parts(
    api_key: int,
    api_version: int,
    body: Buffer,
    arrays: Collection[str],
    *,
    max_elements: int,
    cuts_elements: bool,
    once: bool = False,
) -> Generator[None, None, list[list[Buffer]]]:
    """Cut a request: the bodies of the parts, each with about `max_elements` elements of all its arrays at most.

    `arrays` are the names that the array to be spread has in one version or another. Without `cuts_elements` its
    elements stay whole, and one that holds more than MAX_WHOLE_ELEMENTS raises TooManyElements. Raises ProtocolError.

    `once`: brokers reject an element that is named twice. A request with such an element is not cut; there is no part.
    """
    cutter = _Cutter(load_request_schema(api_key, api_version), body, arrays, max_elements, cuts_elements, once)
    try:
        return (yield from cutter.cut())
    except (IndexError, struct.error) as error:
        raise ProtocolError("the message ends too early") from error


class _Cutter:
    """Cuts one request."""

    def __init__(
        self,
        entity_type: Any,
        body: Buffer,
        arrays: Collection[str],
        max_elements: int,
        cuts_elements: bool,
        once: bool,
    ) -> None:
        self._layout = layout(entity_type)
        self._array = next(field for field in self._layout.fields if field.name in arrays)
        self._data = memoryview(body)
        self._walk = Walk(self._data, True)
        self._max_elements = max_elements
        self._cuts_elements = cuts_elements
        self._once = once
        self._named: list[set[int]] = [set() for _ in range(_SETS)]
        """Hashes of the names so far, spread by their last bits: a set of 100,000 takes 15 ms to grow."""
        self._twice = False
        """Whether an element was named before."""

    def cut(self) -> Generator[None, None, list[list[Buffer]]]:
        at, head_end, flexible = 0, 0, self._layout.flexible
        parts: list[_Part] = []
        for field in self._layout.fields:
            if field is self._array:
                head_end = at
                at = yield from self._spread(at, parts)
                tail_start = at
            else:
                at = self._walk.skip_field(at, field, flexible)
            yield
        if flexible:
            at = self._walk.skip_tagged(at, self._layout)
        check_end(self._data, at)
        while self._named:
            # To free all of them at once takes 20 ms or more.
            self._named.pop()
            yield
        if self._twice:
            check_elements(self._walk.elements, MAX_WHOLE_ELEMENTS)
            return []
        head, tail = self._data[:head_end], self._data[tail_start:at]
        return [[head, write_count(count, flexible), *buffers, tail] for count, buffers in parts]

    def _spread(self, at: int, parts: list[_Part]) -> Generator[None, None, int]:
        """Add the parts; the position after the array."""
        data, walk, most = self._data, self._walk, self._max_elements
        count, at = walk.begin_array(at, self._layout.flexible)
        first, taken, size = at, 0, 0
        for _ in range(count):
            start, before = at, walk.elements
            element = yield from self._element(at)
            at = element.end
            if self._once:
                self._note(data[start : element.name_end])
            of_this = 1 + walk.elements - before
            if taken and size + of_this > most:
                parts.append(_Part(taken, [data[first:start]]))
                first, taken, size = start, 0, 0
            if of_this <= most or not (self._cuts_elements and element.cuts):
                if of_this > MAX_WHOLE_ELEMENTS:
                    raise TooManyElements(
                        f"one of the {self._array.name} has more than {MAX_WHOLE_ELEMENTS} elements of its own"
                    )
                taken, size = taken + 1, size + of_this
                continue
            before_array = data[start : element.array_start]
            behind_array = data[element.cuts[-1].end : at]
            for cut in element.cuts:
                counted = write_count(cut.count, self._layout.flexible)
                parts.append(_Part(1, [before_array, counted, data[cut.start : cut.end], behind_array]))
            first = at
        if taken:
            parts.append(_Part(taken, [data[first:at]]))
        return at

    def _note(self, name: memoryview) -> None:
        key = hash(bytes(name))
        named = self._named[key % _SETS]
        self._twice |= key in named
        named.add(key)

    def _element(self, at: int) -> Generator[None, None, _Element]:
        walk, field, flexible = self._walk, self._array, self._layout.flexible
        yield
        if field.kind != STRUCT:
            at = walk.skip_value(at, field, flexible)
            check_end(self._data, at)
            return _Element(at, at, [], at)
        found = layout(field.entity)
        array_start, cuts, name_end = at, list[_Cut](), at
        for inner in found.fields:
            if not inner.is_array:
                at = walk.skip_field(at, inner, flexible)
                name_end = at if inner.kind in ("string", "uuid") else name_end
                continue
            start = at
            of_inner = list[_Cut]()
            at = yield from self._inner_array(at, inner, of_inner)
            if not cuts:
                array_start, cuts = start, of_inner
        if flexible:
            at = walk.skip_tagged(at, found)
        check_end(self._data, at)
        return _Element(at, array_start, cuts, name_end)

    def _inner_array(self, at: int, field: Field, cuts: list[_Cut]) -> Generator[None, None, int]:
        """Add the cuts of an array within an element; the position after it."""
        walk, flexible, most = self._walk, self._layout.flexible, self._max_elements
        count, at = walk.begin_array(at, flexible)
        fixed = FIXED_BYTES.get(field.kind)
        for done in range(0, count, most):
            start, now = at, min(most, count - done)
            if fixed is not None:
                at += now * fixed
            else:
                for _ in range(now):
                    at = walk.skip_value(at, field, flexible)
                    yield
            check_end(self._data, at)
            cuts.append(_Cut(now, start, at))
        return at


class AnswerPart(NamedTuple):
    """The answer to one part, by positions."""

    body: memoryview
    array_start: int
    count: int  # type: ignore[assignment]  # hides tuple.count
    first: int
    array_end: int
    throttle_at: int
    """Position of the throttle time, -1 if the version has none."""
    failed: bool
    """True if the answer has an error of the whole request."""


def _answer_part(
    api_key: int, api_version: int, body: Buffer, array: str, skip: SkipElement | None = None
) -> Steps[AnswerPart]:
    """Find the array in the answer to one part. Raises ProtocolError.

    `skip` skips an element faster than a walk by the schema.
    """
    found = layout(load_response_schema(api_key, api_version))
    data = memoryview(body)
    walk, at, throttle_at, failed = Walk(data, False), 0, -1, False
    start = first = end = count = 0
    for field in found.fields:
        if field.name == array:
            start = at
            count, first = walk.begin_array(at, found.flexible)
            at = end = yield from _skip_elements(walk, data, first, count, field, found.flexible, skip)
            continue
        if field.name == "throttle_time":
            throttle_at = at
        elif field.name == "error_code":
            failed = INT16.unpack_from(data, at)[0] != 0
        at = walk.skip_field(at, field, found.flexible)
    check_end(data, at)
    return AnswerPart(data, start, max(count, 0), first, end, throttle_at, failed)


def _skip_elements(
    walk: Walk, data: memoryview, at: int, count: int, field: Field, flexible: bool, skip: SkipElement | None
) -> Steps[int]:
    """Return the position after the elements."""
    pace = Pace()
    for _ in range(count):
        if pace.pauses(1 if skip is None else _LARGE_ELEMENT):
            yield
        at = skip(data, at) if skip is not None else walk.skip_value(at, field, flexible)
        check_end(data, at)
    return at


answer_part = Pausing(_answer_part)
"""Find the array in the answer to one part, with pauses; see `_answer_part`."""


def join_answers(api_key: int, api_version: int, parts: Sequence[AnswerPart]) -> list[Buffer]:
    """Return the answer to the whole request: all elements, with the other fields of one part that failed, or of the
    first."""
    flexible = layout(load_response_schema(api_key, api_version)).flexible
    whole = next((part for part in parts if part.failed), parts[0])
    head = bytearray(whole.body[: whole.array_start])
    if whole.throttle_at >= 0:
        throttle_ms = max(INT32.unpack_from(part.body, part.throttle_at)[0] for part in parts)
        INT32.pack_into(head, whole.throttle_at, throttle_ms)
    elements = [part.body[part.first : part.array_end] for part in parts]
    count = write_count(sum(part.count for part in parts), flexible)
    return [bytes(head), count, *elements, whole.body[whole.array_end :]]
