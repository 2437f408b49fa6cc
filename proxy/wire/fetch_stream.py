"""Fetch responses that stream through: rewrite their node endpoints (KIP-951, v16+) without holding records.

The frame's size goes out before the tagged fields that hold the endpoints are seen, so what is written in their place
must have their length. Everything up to them is given on at once; only they are held (most often the one byte that says
there are none). Then, the simplest that is always right:

- The rewritten endpoints are put in, where they take the same room or leave enough of it for a filler.
- Else they are left out, and a filler takes their room. The client then asks for metadata, as clients do that are too
  old for KIP-951, and as every client does that finds no endpoint for the leader that is named.

The filler is a tagged field of zeros under a number that Kafka does not use; KIP-482 has clients skip what they don't
know. Sizes are never written as overlong varints, which some readers refuse.
"""

from __future__ import annotations

import struct

from proxy.wire.endpoints import rewrite_endpoint_fields
from proxy.wire.errors import ProtocolError
from proxy.wire.fetch import (
    FIRST_FLEXIBLE,
    FIRST_RACK,
    FIRST_SESSION,
    FIRST_TOPIC_ID,
    HIGHEST_VERSION,
    LOWEST_VERSION,
)
from proxy.wire.fetch_response import locate_records
from proxy.wire.metadata import AddressOf
from proxy.wire.primitives import INT32, Buffer, read_length, read_tags, skip_string, skip_tags, write_tags

FIRST_NODE_ENDPOINTS = 16
HELD_BYTES_MAX = 1 << 20
"""Of tagged fields; more is refused. A thousand endpoints take 60 KB."""
_NODE_ENDPOINTS_TAG = 0
_LAST_FILLER_TAG = 127
_SMALL_WINDOW_BYTES = 512


class FetchEndpointStream:
    """Takes the *body* of one Fetch response in chunks of any size and gives out the same number of bytes.

    What `feed` has given out in all is as long as what it got, but for tagged fields that are not whole yet. Versions
    before 16 pass unchanged, and are only looked through. `feed` raises ProtocolError for what is no Fetch response;
    what was given out before stands.
    """

    __slots__ = (
        "_address_of",
        "_carry",
        "_flexible",
        "_held",
        "_partitions",
        "_skip",
        "_state",
        "_topics",
        "_version",
        "ended",
        "record_bytes",
    )

    def __init__(self, version: int, address_of: AddressOf) -> None:
        if not LOWEST_VERSION <= version <= HIGHEST_VERSION:
            raise ProtocolError(f"Fetch v{version} is not parsed here")
        self.record_bytes = 0
        """Bytes of records that have begun to come; of the whole response after its end."""
        self.ended = False
        """The response is whole, and all of it given out."""
        self._version = version
        self._address_of = address_of
        self._flexible = version >= FIRST_FLEXIBLE
        self._state = self._head
        self._carry = b""
        self._skip = 0
        self._topics = 0
        self._partitions = 0
        self._held = b""

    def feed(self, chunk: Buffer) -> list[Buffer]:
        """Take the next bytes of the body; what can be given on, records by reference."""
        view = memoryview(chunk)
        if self.ended:
            return [view]
        if self._state == self._tail:
            return self._end(self._held + view)
        start = self._walk_carry(view)
        if start < 0:
            return [view]
        at = start + self._walk(view[start:])
        if self._state == self._tail:
            return [view[:at], *self._end(view[at:].tobytes())]
        self._carry = view[at:].tobytes()
        return [view]

    def finish(self) -> None:
        """Raise ProtocolError where the frame ended and the response did not."""
        if not self.ended:
            raise ProtocolError("the Fetch response ends too early")

    def _walk_carry(self, view: memoryview) -> int:
        """Walk over the piece that an earlier chunk began; where it ends in `view`, -1 where that is further on."""
        carry = self._carry
        if not carry:
            return 0
        window = _SMALL_WINDOW_BYTES
        while True:
            taken = self._walk(memoryview(carry + view[:window]))
            if taken:
                self._carry = b""
                return taken - len(carry)
            if window >= len(view):
                self._carry = carry + view
                if len(self._carry) > HELD_BYTES_MAX:
                    raise ProtocolError(
                        f"a partition of the Fetch response has {len(self._carry)} bytes before records"
                    )
                return -1
            window *= 8

    def _walk(self, data: memoryview) -> int:
        """Walk over whole pieces, and over records as far as they go; how many bytes that was."""
        at, end = 0, len(data)
        while True:
            if self._skip:
                step = min(self._skip, end - at)
                self._skip -= step
                at += step
                if self._skip:
                    return at
            if self._state == self._tail:
                return at
            try:
                at = self._state(data, at)
            except (IndexError, struct.error):
                return at

    # Pieces: each is decoded whole or raises IndexError or struct.error, before it changes anything.

    def _head(self, data: memoryview, at: int) -> int:
        self._topics, at = self._count(data, at + (10 if self._version >= FIRST_SESSION else 4))
        self._next_topic()
        return at

    def _topic(self, data: memoryview, at: int) -> int:
        at = at + 16 if self._version >= FIRST_TOPIC_ID else skip_string(data, at, self._flexible)
        self._partitions, at = self._count(data, at)
        self._next_partition()
        return at

    def _partition(self, data: memoryview, at: int) -> int:
        if self._flexible:
            behind = self._whole_partitions(data, at)
            if behind > at:
                return behind
        aborted, at = self._count(data, at + (30 if self._version >= 5 else 22))
        if self._flexible:
            for _ in range(aborted):
                at = skip_tags(data, at + 16)
        else:
            at += 16 * aborted
        records, at = self._count(data, at + (4 if self._version >= FIRST_RACK else 0))
        self._skip = records
        self.record_bytes += records
        if self._flexible:
            self._state = self._partition_tags
        else:
            self._partition_ends()
        return at

    def _whole_partitions(self, data: memoryview, at: int) -> int:
        """The hot loop: over partitions that are whole and plain, as nearly all are."""
        left, last, record_bytes = self._partitions, len(data) - 1, 0
        while left and at + 40 <= last:
            start, length = locate_records(data, at)
            if length < 0:
                length = 0
            if not start or start + length > last or data[start + length]:
                break
            at = start + length + 1
            left -= 1
            record_bytes += length
        self._partitions = left
        self.record_bytes += record_bytes
        if not left:
            self._next_partition()
        return at

    def _partition_tags(self, data: memoryview, at: int) -> int:
        at = _whole_tags(data, at)
        self._partition_ends()
        return at

    def _topic_tags(self, data: memoryview, at: int) -> int:
        at = _whole_tags(data, at)
        self._topic_ends()
        return at

    def _tail(self, data: memoryview, at: int) -> int:
        raise AssertionError("the tail is not walked over")

    def _count(self, data: memoryview, at: int) -> tuple[int, int]:
        """An array's or the records' length; 0 where null."""
        if self._flexible:
            count, at = read_length(data, at)
        else:
            (count,) = INT32.unpack_from(data, at)
            at += 4
        if count < -1:
            raise ProtocolError(f"a length is {count} in the Fetch response")
        return max(count, 0), at

    def _next_topic(self) -> None:
        self._state = self._topic if self._topics else self._tail

    def _next_partition(self) -> None:
        if self._partitions:
            self._state = self._partition
        elif self._flexible:
            self._state = self._topic_tags
        else:
            self._topic_ends()

    def _partition_ends(self) -> None:
        self._partitions -= 1
        self._next_partition()

    def _topic_ends(self) -> None:
        self._topics -= 1
        self._next_topic()

    def _end(self, held: bytes) -> list[Buffer]:
        """Behind the topics: `held` is all that has come of it."""
        if not self._flexible:
            self.ended = True
            return [held] if held else []
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
        if self._version < FIRST_NODE_ENDPOINTS or all(tag != _NODE_ENDPOINTS_TAG for tag, _, _ in fields):
            return [held]
        return [_rewrite_in_place(held[:at], fields, self._address_of), held[at:]]


def _whole_tags(data: memoryview, at: int) -> int:
    """As `skip_tags`; IndexError where they are not whole."""
    at = skip_tags(data, at)
    if at > len(data):
        raise IndexError
    return at


def _rewrite_in_place(section: bytes, fields: list[tuple[int, int, int]], address_of: AddressOf) -> bytes:
    """The section of tagged fields with other endpoints, or none, in the same number of bytes."""
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
