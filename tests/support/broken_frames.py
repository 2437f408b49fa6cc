"""Generate valid requests of every API and version, and damage them: cut, flip and stuff them."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from typing import Any

from kio.index import load_request_schema

from proxy.protocol.apis import API_TABLE
from proxy.wire.header import request_header
from tests.support.raw import framed
from tests.unit.wire.trees import encode, schema_of

NAMES = ("", "broken-frames-a", "broken-frames-b", "rack-a", "é", "h" * 200)
"""All strings in requests. They are few, so that requests that stay valid by chance create few topics and groups."""
OBEYED = frozenset({20, 21, 27, 33, 34, 37, 43, 44, 45, 49, 51, 57, 64, 80, 81})
"""APIs that change the cluster itself (DeleteTopics, AlterConfigs, quotas, UpdateFeatures, UnregisterBroker, voters). A
valid request would harm other tests, so these are only sent cut short."""
_PRODUCE, _FETCH = 0, 1
_NUMBERS = {
    "int8": (-1, 0, 1, 127, -128),
    "int16": (-1, 0, 1, 2, 3, 32_767, -32_768),
    "error_code": (0, 3, -1),
    "uint16": (0, 9092, 65_535),
    "int32": (-2, -1, 0, 0, 1, 2, 3, 9, 2**31 - 1, -(2**31)),
    "timedelta_i32": (0, 1, 10, 100),
    "int64": (-2, -1, 0, 1, 7, 2**63 - 1, -(2**63)),
    "timedelta_i64": (0, 1, 1000),
    "datetime_i64": (0, 1, 1_700_000_000_000),
    "float64": (0.0, 1.5, float("inf")),
}


class Frames:
    """Generate frames from a seed; the same seed gives the same frames."""

    def __init__(self, seed: int, batch: bytes) -> None:
        """Use `batch` in Produce requests, both whole and damaged."""
        self._random = random.Random(seed)
        self._batch = batch
        versions = [
            (key, version)
            for key, api in sorted(API_TABLE.items())
            for version in range(api.lowest_version, api.highest_version + 1)
        ]
        self._known = [one for one in versions if _has_schema(*one)]
        self._hot = [one for one in self._known if one[0] in (_PRODUCE, _FETCH)]

    def valid(self) -> bytes:
        """Return a well-formed request, with its size, of an API that changes nothing in the cluster."""
        while True:
            key, version = self._pick()
            if key not in OBEYED:
                return framed(self._request(key, version))

    def broken(self) -> bytes:
        """Return a damaged request, with its size."""
        key, version = self._pick()
        frame = self._request(key, version)
        if key in OBEYED:
            return framed(frame[: self._random.randrange(len(frame))])
        way = self._random.choice(
            (self._cut, self._cut_short, self._flip, self._flip, self._stuff, self._fill, self._noise)
        )
        return way(frame)

    def broken_ones(self, count: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield `count` damaged requests, each with the bytes to send before it: usually none, sometimes a valid
        request."""
        for _ in range(count):
            yield (self.valid() if self._random.random() < 0.3 else b""), self.broken()

    def _pick(self) -> tuple[int, int]:
        return self._random.choice(self._hot if self._random.random() < 0.3 else self._known)

    def _request(self, key: int, version: int) -> bytes:
        body = encode(load_request_schema(key, version), self._tree(load_request_schema(key, version)))
        return request_header(key, version, self._random.randrange(100), self._random.choice(NAMES)) + body

    def _tree(self, entity: Any) -> dict[str, Any]:
        fields, _ = schema_of(entity)
        return {field.name: self._value(field) for field in fields if field.tag is None or self._random.random() < 0.3}

    def _value(self, field: Any) -> Any:
        if field.nullable and self._random.random() < 0.2:
            return None
        if field.is_array:
            return [self._element(field) for _ in range(self._random.randrange(4))]
        return self._element(field)

    def _element(self, field: Any) -> Any:
        if field.kind == "struct":
            return self._tree(field.entity)
        if field.kind == "bool":
            return self._random.random() < 0.5
        if field.kind == "string":
            return self._random.choice(NAMES)
        if field.kind == "uuid":
            return self._random.choice((bytes(16), self._random.randbytes(16)))
        if field.kind in ("bytes", "records"):
            return self._random.choice((b"", self._batch, self._damaged_batch(), self._random.randbytes(70)))
        return self._random.choice(_NUMBERS[field.kind])

    def _damaged_batch(self) -> bytes:
        batch = bytearray(self._batch)
        batch[self._random.randrange(len(batch))] ^= 1 << self._random.randrange(8)
        return bytes(batch)

    def _cut(self, frame: bytes) -> bytes:
        return framed(frame[: self._random.randrange(len(frame))])

    def _cut_short(self, frame: bytes) -> bytes:
        """Claim more bytes than are sent."""
        whole = framed(frame)
        return whole[: self._random.randrange(1, len(whole))]

    def _flip(self, frame: bytes) -> bytes:
        data = bytearray(frame)
        for _ in range(self._random.randrange(1, 9)):
            data[self._random.randrange(2, len(data))] ^= 1 << self._random.randrange(8)
        return framed(bytes(data))

    def _stuff(self, frame: bytes) -> bytes:
        at = self._random.randrange(8, len(frame) + 1)
        return framed(frame[:at] + self._random.randbytes(self._random.randrange(1, 40)) + frame[at:])

    def _fill(self, frame: bytes) -> bytes:
        data, at = bytearray(frame), self._random.randrange(8, len(frame))
        filler = self._random.choice((b"\xff", b"\x7f", b"\x00", b"\x80"))
        data[at : at + self._random.randrange(1, 9)] = self._random.randrange(1, 9) * filler
        return framed(bytes(data))

    def _noise(self, frame: bytes) -> bytes:
        size = self._random.choice((len(frame), -1, 2**31 - 1, 0, 7, 4096))
        return struct.pack(">i", size) + self._random.randbytes(self._random.randrange(100))


def _has_schema(key: int, version: int) -> bool:
    try:
        load_request_schema(key, version)
    except Exception:
        return False
    return True
