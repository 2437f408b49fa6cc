"""Fetch responses that stream through: rewrite their node endpoints (KIP-951, v16+) without holding records.

All versions are scanned to count the bytes of records of each topic.

The frame's size goes out before the tagged fields that hold the endpoints are seen, so their replacement must have the
same length. Everything before them is passed on at once; only they are held (usually the single byte that says that
there are none). Then the proxy does the simplest thing that is always right:

- The rewritten endpoints are put in, if they have the same length or leave enough room for a filler.
- Otherwise they are left out, and a filler takes their room. The client then asks for metadata, as clients do that are
  too old for KIP-951, and as every client does that finds no endpoint for the new leader.

The filler is a tagged field of zeros under a number that Kafka does not use; by KIP-482, clients skip fields that they
don't know. Sizes are never written as overlong varints, because some readers reject those.
"""

from __future__ import annotations

import struct

from proxy.wire.endpoints import rewrite_endpoint_fields
from proxy.wire.errors import ProtocolError
from proxy.wire.fetch import (
    FIRST_FLEXIBLE,
    FIRST_RACK,
    FIRST_SESSION,
    HIGHEST_VERSION,
    LOWEST_VERSION,
)
from proxy.wire.fetch_response import locate_records
from proxy.wire.metadata import AddressOf
from proxy.wire.primitives import Buffer, read_tags, skip_tags, write_tags
from proxy.wire.topic_walk import CountTopic, Locate, TopicWalk, count_single, count_whole

FIRST_NODE_ENDPOINTS = 16
HELD_BYTES_MAX = 1 << 20
"""Longest array of aborted transactions or section of tagged fields; more is rejected. A thousand endpoints take 60
KB."""
_NODE_ENDPOINTS_TAG = 0
_LAST_FILLER_TAG = 127


def _locate_plain(version: int) -> Locate:
    """Return what `locate_records` is for versions before v12."""
    log_start_offset = "8x" if version >= 5 else ""
    preferred_read_replica = "4x" if version >= FIRST_RACK else ""
    aborted_length = struct.Struct(f">22x{log_start_offset}i{preferred_read_replica}i")
    unpack, size = aborted_length.unpack_from, aborted_length.size

    def locate(data: memoryview, at: int) -> tuple[int, int]:
        aborted, length = unpack(data, at)
        return (0, 0) if aborted > 0 else (at + size, length)

    return locate


_LOCATE = {
    version: locate_records if version >= FIRST_FLEXIBLE else _locate_plain(version)
    for version in range(LOWEST_VERSION, HIGHEST_VERSION + 1)
}


class FetchEndpointStream(TopicWalk):
    """Takes the *body* of one Fetch response in chunks of any size, and returns the same number of bytes.

    `count` is called with each topic and its record bytes. In total, `feed` returns as many bytes as it got, except for
    tagged fields that are not whole yet. `feed` raises ProtocolError if the body is not a Fetch response; earlier
    output stands. Versions before 16 have no endpoints: they pass unchanged, even if they can't be read, and are then
    not counted.
    """

    held_bytes_max = HELD_BYTES_MAX

    __slots__ = ("_address_of", "_held", "_version", "ended")

    def __init__(self, version: int, address_of: AddressOf, count: CountTopic = lambda topic, size: None) -> None:
        if not LOWEST_VERSION <= version <= HIGHEST_VERSION:
            raise ProtocolError(f"Fetch v{version} is not parsed here")
        super().__init__(version, _LOCATE[version], count, flexible=version >= FIRST_FLEXIBLE)
        self.ended = False
        """The response is whole, and all of it given out; before v16 nothing more needs to be looked at."""
        self._version = version
        self._address_of = address_of
        self._state = self._head
        self._held = b""

    def feed(self, chunk: Buffer) -> list[Buffer]:
        """Take the next bytes of the body; what can be given on, records by reference."""
        view = memoryview(chunk)
        if self.ended or self.is_within_records(view):
            return [view]
        if self._version < FIRST_NODE_ENDPOINTS:
            self._look(view)
            return [view]
        if self.walked:
            return self._end(self._held + view)
        at = self.walk(view)
        return [view] if at < 0 else [view[:at], *self._end(view[at:].tobytes())]

    def finish(self) -> None:
        """Raise ProtocolError if the frame ended and the response did not, and it had to be read."""
        if not self.ended and self._version >= FIRST_NODE_ENDPOINTS:
            raise ProtocolError("the Fetch response ends too early")

    def _look(self, view: memoryview) -> None:
        try:
            self.ended = self.walk(view) >= 0
        except ProtocolError:
            self.ended = True

    def _head(self, data: memoryview, at: int) -> int:
        return self._array_of_topics(data, at + (10 if self._version >= FIRST_SESSION else 4))

    def _begin_records(self, data: memoryview, at: int) -> int:
        aborted, at = self._length(data, at + (30 if self._version >= 5 else 22))
        if self._flexible:
            for _ in range(aborted):
                at = skip_tags(data, at + 16)
        else:
            at += 16 * aborted
        records, at = self._length(data, at + (4 if self._version >= FIRST_RACK else 0))
        self._records_begin(records)
        return at

    def _end(self, held: bytes) -> list[Buffer]:
        """Handle the bytes after the topics: `held` is all of them that has come."""
        try:
            fields, at = read_tags(held, 0)
        except IndexError:
            at = len(held) + 1
        if at > len(held):
            if len(held) > HELD_BYTES_MAX:
                raise ProtocolError(f"the tagged fields of the Fetch response exceed {HELD_BYTES_MAX} bytes")
            self._held = held
            return []
        self.ended, self._held = True, b""
        if all(tag != _NODE_ENDPOINTS_TAG for tag, _, _ in fields):
            return [held]
        return [_rewrite_in_place(held[:at], fields, self._address_of), held[at:]]


def count_plain(head: memoryview, size: int, version: int, count: CountTopic) -> bool:
    """Count a response's body of `size` bytes of which `head` has come, if it is plain; return whether it is.

    A plain body has no endpoints and may pass unchanged: it has records of one partition, or is whole, and has no
    tagged fields.
    """
    topics_at = 10 if version >= FIRST_SESSION else 4
    flexible, locate = version >= FIRST_FLEXIBLE, _LOCATE[version]
    if count_single(head, size, topics_at, version, locate, count, flexible=flexible):
        return True
    return len(head) == size and count_whole(head, topics_at, version, locate, count, flexible=flexible)


def _rewrite_in_place(section: bytes, fields: list[tuple[int, int, int]], address_of: AddressOf) -> bytes:
    """Return the section of tagged fields with other endpoints, or none, in the same number of bytes."""
    numbers = {tag for tag, _, _ in fields}
    filler = next((tag for tag in range(_LAST_FILLER_TAG, 0, -1) if tag not in numbers), None)
    rewritten = rewrite_endpoint_fields(memoryview(section), fields, address_of)
    without = [field for field in rewritten if field[0] != _NODE_ENDPOINTS_TAG]
    for candidate in (rewritten, without):
        left = len(section) - len(write_tags(candidate))
        if left == 0:
            return write_tags(candidate)
        # Number and length of the filler take two bytes or more, and one more field may lengthen their count.
        for size in range(max(left - 6, 0), left - 1):
            if filler is not None:
                filled = write_tags([*candidate, (filler, bytes(size))])
                if len(filled) == len(section):
                    return filled
    raise ProtocolError("the tagged fields of the Fetch response can't be rewritten in place")
