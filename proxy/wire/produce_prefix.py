"""The first bytes of a Produce request, which decide whether a Produce for classic topics can be streamed."""

from __future__ import annotations

import struct
from typing import NamedTuple

from proxy.wire.errors import ProtocolError
from proxy.wire.primitives import INT32, read_length, skip_tags
from proxy.wire.produce import FIRST_TOPIC_ID

_INT16 = struct.Struct(">h")
_FIRST_WITH_TRANSACTIONAL_ID = 3
_FIRST_FLEXIBLE = 9
_ACKS_TIMEOUT_BYTES = 6
_LONGEST_NAME_BYTES = 249
_TOPIC_ID_BYTES = 16


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
            length, at = read_length(frame, skip_tags(frame, at))
            at += max(length, 0)
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


def read_only_topic(frame: memoryview, topics_at: int, api_version: int) -> str | bytes | None:
    """Return the topic of a Produce frame (without its size) that has only one. None if it has more topics or none.

    The frame may not be whole: IndexError or struct.error is raised if the topic has not come yet. Names that no topic
    can have are None, too. Raises ProtocolError.
    """
    flexible = api_version >= _FIRST_FLEXIBLE
    if flexible:
        topics, at = read_length(frame, topics_at)
    else:
        topics, at = INT32.unpack_from(frame, topics_at)[0], topics_at + INT32.size
    if topics != 1:
        return None
    by_id = api_version >= FIRST_TOPIC_ID
    if by_id:
        size = _TOPIC_ID_BYTES
    elif flexible:
        size, at = read_length(frame, at)
    else:
        size, at = _INT16.unpack_from(frame, at)[0], at + _INT16.size
    if not 0 < size <= _LONGEST_NAME_BYTES:
        return None
    name = frame[at : at + size].tobytes()
    if len(name) < size:
        raise IndexError
    if by_id:
        return name
    try:
        return name.decode()
    except UnicodeDecodeError:
        return None
