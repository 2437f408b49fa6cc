"""DescribeLogDirs (API key 35), v0 to v5: a request's partitions, topics left out of an answer, one more directory.

A broker lists all its partitions if the request names none, so the messages are walked with pauses and copied in parts.

Version notes: v0 is read as v1. v2 has tagged fields, v3 an error of the whole, v4 the size of the volume (KIP-827), v5
whether the directory is cordoned (KIP-1066).
"""

from __future__ import annotations

import struct
from collections.abc import Container, Mapping
from typing import NamedTuple

from proxy.wire.errors import ProtocolError
from proxy.wire.primitives import (
    INT16,
    INT32,
    MAX_DECODED_ELEMENTS,
    NO_TAGS,
    Buffer,
    check_elements,
    check_end,
    read_count,
    read_string,
    skip_string,
    skip_tags,
    write_count,
    write_string,
)
from proxy.wire.steps import AT_A_TIME, Pace, Pausing, Steps, in_slices

_HIGHEST = 5
_FIRST_FLEXIBLE, _FIRST_ERROR, _FIRST_VOLUME, _FIRST_CORDONED = 2, 3, 4, 5
_PARTITION = struct.Struct(">iqq?")
"""Index, size, lag, and whether it is a future replica."""
_VOLUME = struct.Struct(">qq")
_UNKNOWN_BYTES = -1
_TOPIC = 4
"""Number of partitions that a topic counts as."""


class LogDir(NamedTuple):
    """One more directory."""

    error_code: int
    path: str
    topics: Mapping[str, list[tuple[int, int]]]
    """Index and size in bytes of partitions, by topic."""


@Pausing
def read_partitions(body: Buffer, version: int) -> Steps[dict[str, list[int]] | None]:
    """Return the partitions that a request names, by topic; None for all. Raises ProtocolError."""
    data, flexible, pace = memoryview(body), _is_flexible(version), Pace()
    count, at = read_count(data, 0, flexible)
    elements, named = count, dict[str, list[int]]()
    for _ in range(count):
        topic, at = read_string(data, at, flexible)
        partitions, at = read_count(data, at, flexible)
        elements += max(partitions, 0)
        check_elements(elements, MAX_DECODED_ELEMENTS)
        of_topic = named.setdefault(topic, [])
        for start in range(0, partitions, AT_A_TIME):
            some = min(AT_A_TIME, partitions - start)
            of_topic += struct.unpack_from(f">{some}i", data, at)
            at += some * INT32.size
            if pace.pauses(some):
                yield
        if pace.pauses(_TOPIC):
            yield
        at = skip_tags(data, at) if flexible else at
    check_end(data, skip_tags(data, at) if flexible else at)
    return None if count < 0 else named


@Pausing
def has_directories(body: Buffer, version: int) -> Steps[bool]:
    """Return whether an answer lists directories. Without the right to describe the cluster there is an error, or none.

    Raises ProtocolError.
    """
    yield from ()
    data = memoryview(body)
    if version >= _FIRST_ERROR and INT16.unpack_from(data, INT32.size)[0]:
        return False
    return read_count(data, _results_at(version), _is_flexible(version))[0] > 0


@Pausing
def rewrite_log_dirs(body: Buffer, version: int, left_out: Container[str], more: LogDir | None) -> Steps[list[Buffer]]:
    """Return an answer without some topics, and with one more directory at its end. Raises ProtocolError."""
    if version > _HIGHEST:
        raise ProtocolError(f"DescribeLogDirs v{version} is not parsed here")
    data, flexible, pace = memoryview(body), _is_flexible(version), Pace()
    at = _results_at(version)
    parts: list[Buffer] = [data[:at]]
    directories, at = read_count(data, at, flexible)
    parts.append(write_count(directories + (more is not None), flexible))
    for _ in range(directories):
        start, at = at, skip_string(data, at + INT16.size, flexible)
        parts.append(data[start:at])
        topics, at = read_count(data, at, flexible)
        kept, count_at = max(topics, 0), len(parts)
        parts.append(b"")
        kept_from = at
        for _ in range(topics):
            start = at
            name, at = read_string(data, at, flexible)
            partitions, at = read_count(data, at, flexible)
            if not flexible:
                at += max(partitions, 0) * _PARTITION.size
            for _ in range(partitions if flexible else 0):
                at = skip_tags(data, at + _PARTITION.size)
                if pace.pauses(1):
                    yield
            at = skip_tags(data, at) if flexible else at
            check_end(data, at)
            if name in left_out:
                kept -= 1
                parts.append(data[kept_from:start])
                kept_from = at
            if pace.pauses(_TOPIC):
                yield
        parts[count_at] = write_count(kept, flexible)
        at += _VOLUME.size if version >= _FIRST_VOLUME else 0
        at += 1 if version >= _FIRST_CORDONED else 0
        at = skip_tags(data, at) if flexible else at
        check_end(data, at)
        parts.append(data[kept_from:at])
    check_end(data, skip_tags(data, at) if flexible else at)
    if more is not None:
        parts.append((yield from _written(version, more)))
    parts.append(data[at:])
    return parts


def _written(version: int, directory: LogDir) -> Steps[bytes]:
    flexible, pace = _is_flexible(version), Pace()
    tags = NO_TAGS if flexible else b""
    out = bytearray(INT16.pack(directory.error_code) + write_string(directory.path, flexible))
    out += write_count(len(directory.topics), flexible)
    for name, partitions in directory.topics.items():
        out += write_string(name, flexible) + write_count(len(partitions), flexible)
        for some in in_slices(partitions):
            for index, size in some:
                out += _PARTITION.pack(index, size, 0, False) + tags
            if pace.pauses(len(some)):
                yield
        out += tags
        if pace.pauses(_TOPIC):
            yield
    if version >= _FIRST_VOLUME:
        out += _VOLUME.pack(_UNKNOWN_BYTES, _UNKNOWN_BYTES)
    if version >= _FIRST_CORDONED:
        out += b"\0"
    return bytes(out + tags)


def _is_flexible(version: int) -> bool:
    return version >= _FIRST_FLEXIBLE


def _results_at(version: int) -> int:
    return INT32.size + (INT16.size if version >= _FIRST_ERROR else 0)
