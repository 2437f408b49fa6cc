"""The first bytes of a Produce request, which decide whether a Produce for classic topics can be streamed."""

from __future__ import annotations

import struct
from typing import NamedTuple

from proxy.wire.errors import ProtocolError
from proxy.wire.primitives import read_unsigned_varint

_INT16 = struct.Struct(">h")
_FIRST_WITH_TRANSACTIONAL_ID = 3
_FIRST_FLEXIBLE = 9
_ACKS_TIMEOUT_BYTES = 6


class ProducePrefix(NamedTuple):
    """The beginning of a Produce request."""

    acks: int
    topics_at: int
    """Position of the array of topics in the frame (without its size)."""


def read_produce_prefix(frame: memoryview, api_version: int) -> ProducePrefix | None:
    """Return the beginning of a Produce frame (without its size) that may not be whole; None if more bytes are
    needed."""
    try:
        (client_id_length,) = _INT16.unpack_from(frame, 8)
        at = 10 + max(client_id_length, 0)
        if api_version >= _FIRST_FLEXIBLE:
            tags, at = read_unsigned_varint(frame, at)
            for _ in range(tags):
                _, at = read_unsigned_varint(frame, at)
                size, at = read_unsigned_varint(frame, at)
                at += size
            length, at = read_unsigned_varint(frame, at)
            at += max(length - 1, 0)
        elif api_version >= _FIRST_WITH_TRANSACTIONAL_ID:
            (length,) = _INT16.unpack_from(frame, at)
            at += 2 + max(length, 0)
        return ProducePrefix(_INT16.unpack_from(frame, at)[0], at + _ACKS_TIMEOUT_BYTES)
    except (struct.error, IndexError, ProtocolError):
        return None


def client_id_of_prefix(frame: memoryview) -> str | None:
    """Return the client ID of a request frame (without its size) of which at least the header has come."""
    (length,) = _INT16.unpack_from(frame, 8)
    return str(frame[10 : 10 + length], "utf-8", "replace") if length >= 0 else None
