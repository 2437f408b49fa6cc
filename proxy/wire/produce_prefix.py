"""The acks of a Produce request from its first bytes, so that a Produce for classic topics can be streamed."""

from __future__ import annotations

import struct

from proxy.wire.errors import ProtocolError
from proxy.wire.primitives import read_unsigned_varint

_INT16 = struct.Struct(">h")
_FIRST_WITH_TRANSACTIONAL_ID = 3
_FIRST_FLEXIBLE = 9


def acks_of_prefix(frame: memoryview, api_version: int) -> int | None:
    """`acks` of a Produce frame (without its size) that may not be whole; None where more bytes are needed."""
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
        return int(_INT16.unpack_from(frame, at)[0])
    except (struct.error, IndexError, ProtocolError):
        return None


def client_id_of_prefix(frame: memoryview) -> str | None:
    """The client ID of a request frame (without its size) of which at least the header has come."""
    (length,) = _INT16.unpack_from(frame, 8)
    return str(frame[10 : 10 + length], "utf-8", "replace") if length >= 0 else None
