"""The codecs of record batches (KIP-110, KIP-390): compress and decompress the records after a batch's header.

The framing is what Java's and librdkafka's clients read and write: gzip members; snappy in xerial's blocks (a reader
accepts it raw, too); LZ4 frames of independent blocks (KIP-57); zstd frames. Everything is bounded, because a few bytes
can claim to be gigabytes.
"""

from __future__ import annotations

import struct

import cramjam

Buffer = bytes | bytearray | memoryview

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
"""Names of the codecs as `kafka-dump-log` writes them, indexed by their number in a batch's attributes."""
DEFAULT_LEVELS = {GZIP: -1, LZ4: 9, ZSTD: 3}
"""Defaults of `compression.gzip.level`, `compression.lz4.level` and `compression.zstd.level`."""
LEVELS = {GZIP: (*range(1, 10), -1), LZ4: range(1, 18), ZSTD: range(-131_072, 23)}
"""Levels that the brokers allow."""

_FIRST_GUESS_BYTES = 65_536
_GROWTH = 8
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32_768
_BLOCK_LENGTH = struct.Struct(">i")
_FAST_LZ4_LEVEL, _LOWEST_HIGH_LZ4_LEVEL, _HIGHEST_LZ4_LEVEL = 1, 3, 12
_TOO_SMALL = "failed to write whole buffer"


class CodecError(Exception):
    """The bytes are not what the codec writes, or the codec number is unknown."""


class TooLarge(CodecError):
    """The bytes hold more than is allowed."""


def decompress(codec: int, data: Buffer, max_bytes: int) -> Buffer:
    """Return the decompressed `data`; `data` itself if `codec` is NONE.

    Raises TooLarge if the result has more than `max_bytes`, CodecError if `data` can't be read to its end.
    """
    if codec == NONE:
        if len(data) > max_bytes:
            raise TooLarge(f"{len(data)} bytes of records are above {max_bytes}")
        return data
    if not NONE < codec <= ZSTD:
        raise CodecError(f"compression codec {codec} is not known")
    try:
        return _snappy_decompressed(data, max_bytes) if codec == SNAPPY else _grown(codec, data, max_bytes)
    except (cramjam.DecompressionError, struct.error) as error:
        raise CodecError(f"{NAMES[codec]} can't be decompressed: {error}") from error


def compress(codec: int, data: Buffer, level: int | None = None) -> Buffer:
    """Return `data` compressed at `level`, which is as in the topic config of that codec; None for the default.

    Raises CodecError.
    """
    if codec == NONE:
        return data
    chosen = DEFAULT_LEVELS.get(codec, 0) if level is None else level
    try:
        return _compressed(codec, data, chosen)
    except cramjam.CompressionError as error:
        raise CodecError(f"{NAMES[codec]} can't be compressed: {error}") from error


def _compressed(codec: int, data: Buffer, chosen: int) -> Buffer:
    if codec == GZIP:
        return bytes(cramjam.gzip.compress(data, 6 if chosen == DEFAULT_LEVELS[GZIP] else chosen))
    if codec == SNAPPY:
        return _snappy_compressed(data)
    if codec == LZ4:
        return _lz4_compressed(data, chosen)
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data, chosen))
    raise CodecError(f"compression codec {codec} is not known")


def _grown(codec: int, data: Buffer, max_bytes: int) -> Buffer:
    """Into a buffer that grows until all of it fits: frames needn't say how much they hold."""
    into = {GZIP: cramjam.gzip, LZ4: cramjam.lz4, ZSTD: cramjam.zstd}[codec].decompress_into
    capacity = min(max(_FIRST_GUESS_BYTES, 4 * len(data)), max_bytes)
    while True:
        out = bytearray(capacity)
        try:
            size = into(data, out)
        except cramjam.DecompressionError as error:
            if _TOO_SMALL not in str(error):
                raise
            if capacity == max_bytes:
                raise TooLarge(f"{NAMES[codec]} of {len(data)} bytes holds more than {max_bytes}") from None
            capacity = min(_GROWTH * capacity, max_bytes)
        else:
            del out[size:]
            return out


def _snappy_decompressed(data: Buffer, max_bytes: int) -> Buffer:
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _snappy_block(view, max_bytes)
    blocks: list[Buffer] = []
    at, left = len(_XERIAL_HEADER), max_bytes
    while at < len(view):
        (length,) = _BLOCK_LENGTH.unpack_from(view, at)
        at += _BLOCK_LENGTH.size
        if not 0 < length <= len(view) - at:
            raise CodecError(f"snappy block of {length} bytes where {len(view) - at} are")
        blocks.append(_snappy_block(view[at : at + length], left))
        left -= len(blocks[-1])
        at += length
    return b"".join(blocks)


def _snappy_block(block: memoryview, max_bytes: int) -> Buffer:
    size = cramjam.snappy.decompress_raw_len(block)
    if size > max_bytes:
        raise TooLarge(f"snappy block of {len(block)} bytes says that it holds {size}, more than {max_bytes}")
    return bytes(cramjam.snappy.decompress_raw(block))


def _snappy_compressed(data: Buffer) -> Buffer:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for at in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[at : at + _XERIAL_BLOCK_BYTES]))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _lz4_compressed(data: Buffer, level: int) -> Buffer:
    """Compress as Java's client does: the fast compressor at the default level, the high one at any other."""
    if level == DEFAULT_LEVELS[LZ4]:
        level = _FAST_LZ4_LEVEL
    else:
        level = min(max(level, _LOWEST_HIGH_LZ4_LEVEL), _HIGHEST_LZ4_LEVEL)
    compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))  # it takes no other buffer
    return bytes(compressor.finish())
