"""The signed varints of records (zigzag, as in Protocol Buffers). Sans-io."""

from __future__ import annotations

from proxy.protocol.errors import CORRUPT_MESSAGE
from proxy.records.batches import RecordsError
from proxy.records.compression import Buffer

_LONGEST_VARINT_BITS = 70


def read_varint(data: Buffer, at: int) -> tuple[int, int]:
    """Return a signed varint and the position after it.

    Raises IndexError at the end of the data, RecordsError after 64 bits.
    """
    byte = data[at]
    value = byte & 0x7F
    shift = 7
    while byte & 0x80:
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift > _LONGEST_VARINT_BITS:
            raise RecordsError(CORRUPT_MESSAGE, f"a number at {at} does not end")
    return (value >> 1) ^ -(value & 1), at + 1


def varint(value: int) -> bytes:
    """Return a number of at most 64 bits as a signed varint."""
    value = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
