"""The primitive types of the Kafka protocol: read at a position, or encode.

Readers take the data and a position, and return the value and the position after it. They raise ProtocolError for
encodings that no sender may write (a varint that doesn't end, a negative length). If they run off the end, they raise
IndexError or struct.error, which `parsing` turns into ProtocolError once per message: a check per field would cost more
than it.

Slices of a memoryview are cut short silently at its end, so a caller that slices by a claimed length has to compare
first. Functions that skip may return a position beyond the end: the next read fails, and after the last one comes
`check_end`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from functools import wraps
from typing import ParamSpec, TypeVar

from proxy.wire.errors import ProtocolError, TooManyElements

Buffer = bytes | memoryview
"""Input and output type of this module. A memoryview is of bytes (format B), one-dimensional and contiguous."""

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")
INT64 = struct.Struct(">q")

MAX_ELEMENTS = 100_000
"""Maximum number of elements of all arrays of one request together. An element of three bytes costs microseconds of the
one loop that serves all clients, and memory that no client has been charged for."""
MAX_DECODED_ELEMENTS = 50_000
"""The same for a Fetch, Metadata or DescribeLogDirs request, which is decoded whole: a Fetch takes 54 MB then."""
MAX_PRODUCED_ELEMENTS = 16_000
"""Topics and partitions of a Produce request: the keys of a segment are sorted in one step."""
MAX_WHOLE_ELEMENTS = 2_000
"""Elements of what is read in one step, as the assignment of a topic that is to be created."""
MAX_REJECTED_ELEMENTS = 1_000
"""Elements of a request that a diskless topic is not served for, and that names one."""
_MAX_TAGS = 127
"""Maximum number of fields in one section: no message of Kafka has more than a handful."""

NO_TAGS = b"\0"
"""An empty section of tagged fields (KIP-482)."""
ZERO_UUID = bytes(16)


def parsing(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Let the function raise ProtocolError if it ran off the end of its data or met text that is not UTF-8."""

    @wraps(function)
    def parse(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except (IndexError, struct.error) as error:
            raise ProtocolError("the message ends too early") from error
        except UnicodeDecodeError as error:
            raise ProtocolError("a string of the message is not UTF-8") from error

    return parse


def check_end(data: Buffer, at: int) -> None:
    """Raise ProtocolError if a length led beyond the data."""
    if at > len(data):
        raise ProtocolError("the message ends too early")


def read_unsigned_varint(data: Buffer, at: int) -> tuple[int, int]:
    """Return an unsigned varint of at most five bytes; the value fits 32 bits."""
    value = data[at]
    if value < 0x80:
        return value, at + 1
    byte = data[at + 1]
    value += (byte - 1) << 7
    if byte < 0x80:
        return value, at + 2
    byte = data[at + 2]
    value += (byte - 1) << 14
    if byte < 0x80:
        return value, at + 3
    byte = data[at + 3]
    value += (byte - 1) << 21
    if byte < 0x80:
        return value, at + 4
    byte = data[at + 4]
    if byte > 0x0F:
        raise ProtocolError("a varint is longer than 32 bits")
    return value + ((byte - 1) << 28), at + 5


def read_length(data: Buffer, at: int) -> tuple[int, int]:
    """Return a compact length (the varint less one): -1 is null."""
    length = data[at]
    if length < 0x80:
        return length - 1, at + 1
    length, at = read_unsigned_varint(data, at)
    return length - 1, at


def read_count(data: Buffer, at: int, flexible: bool) -> tuple[int, int]:
    """Return the number of elements of an array; -1 is null. Raises ProtocolError if the data can't hold that many."""
    if flexible:
        count, at = read_length(data, at)
    else:
        (count,) = INT32.unpack_from(data, at)
        at += 4
    if count < -1 or count > len(data) - at:
        raise ProtocolError(f"an array claims {count} elements, more than the message can hold")
    return count, at


def check_elements(count: int, most: int | None = None) -> None:
    """Raise TooManyElements if a request has more elements than `most`, by default MAX_ELEMENTS."""
    if count > (MAX_ELEMENTS if most is None else most):
        raise TooManyElements(
            f"a request names more than {most or MAX_ELEMENTS} topics, partitions or the like; the client must ask in "
            "parts"
        )


def read_nullable_string(data: Buffer, at: int, flexible: bool) -> tuple[str | None, int]:
    """Return a string, compact or with an int16 length; None is null."""
    if flexible:
        length, at = read_length(data, at)
    else:
        (length,) = INT16.unpack_from(data, at)
        at += 2
    if length < 0:
        if length < -1:
            raise ProtocolError(f"a string claims {length} bytes")
        return None, at
    end = at + length
    if end > len(data):
        raise ProtocolError("a string leads beyond the end of the message")
    return str(data[at:end], "utf-8"), end


def read_string(data: Buffer, at: int, flexible: bool) -> tuple[str, int]:
    """Return a string that must not be null."""
    text, at = read_nullable_string(data, at, flexible)
    if text is None:
        raise ProtocolError("a string is null that must not be")
    return text, at


def skip_string(data: Buffer, at: int, flexible: bool) -> int:
    """Return the position after a string, null or not."""
    if flexible:
        length, at = read_length(data, at)
    else:
        (length,) = INT16.unpack_from(data, at)
        at += 2
    if length < -1:
        raise ProtocolError(f"a string claims {length} bytes")
    return at + length if length > 0 else at


def read_bytes(data: memoryview, at: int, flexible: bool) -> tuple[memoryview | None, int]:
    """Bytes or records, zero copy; None is null."""
    if flexible:
        length, at = read_length(data, at)
    else:
        (length,) = INT32.unpack_from(data, at)
        at += 4
    if length < 0:
        if length < -1:
            raise ProtocolError(f"bytes claim the length {length}")
        return None, at
    end = at + length
    if end > len(data):
        raise ProtocolError("bytes lead beyond the end of the message")
    return data[at:end], end


def skip_int32_array(data: Buffer, at: int, flexible: bool) -> int:
    """Return the position after an array of int32, null or not."""
    count, at = read_count(data, at, flexible)
    return at + 4 * count if count > 0 else at


def skip_tags(data: Buffer, at: int) -> int:
    """Return the position after a section of tagged fields."""
    if data[at] == 0:
        return at + 1
    count, at = _read_tag_count(data, at)
    for _ in range(count):
        _, at = read_unsigned_varint(data, at)
        size, at = read_unsigned_varint(data, at)
        at += size
    return at


def read_tags(data: Buffer, at: int) -> tuple[list[tuple[int, int, int]], int]:
    """Return the tagged fields as (tag, start, end of the value), and the position after the section."""
    count, at = _read_tag_count(data, at)
    fields = []
    for _ in range(count):
        tag, at = read_unsigned_varint(data, at)
        size, at = read_unsigned_varint(data, at)
        fields.append((tag, at, at + size))
        at += size
    return fields, at


def _read_tag_count(data: Buffer, at: int) -> tuple[int, int]:
    count, at = read_unsigned_varint(data, at)
    if count > _MAX_TAGS:
        raise ProtocolError(f"a section claims {count} tagged fields, more than {_MAX_TAGS}")
    return count, at


def write_tags(fields: Iterable[tuple[int, Buffer]]) -> bytes:
    """Return a section of tagged fields."""
    parts = [unsigned_varint(tag) + unsigned_varint(len(value)) + value for tag, value in fields]
    return unsigned_varint(len(parts)) + b"".join(parts)


def unsigned_varint(value: int) -> bytes:
    """`value` in as few bytes as it takes."""
    if value < 0x80:
        return _ONE_BYTE[value]
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


_ONE_BYTE = [bytes([value]) for value in range(0x80)]


def write_count(count: int, flexible: bool) -> bytes:
    """Return the number of elements before an array; -1 is null."""
    return unsigned_varint(count + 1) if flexible else INT32.pack(count)


def write_string(text: str | None, flexible: bool) -> bytes:
    """Return a string or null. Raises ValueError for one that an int16 length can't hold."""
    if text is None:
        return b"\0" if flexible else b"\xff\xff"
    encoded = text.encode()
    if flexible:
        return unsigned_varint(len(encoded) + 1) + encoded
    if len(encoded) > 0x7FFF:
        raise ValueError(f"a string of {len(encoded)} bytes does not fit the protocol")
    return INT16.pack(len(encoded)) + encoded
