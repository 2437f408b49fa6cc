"""Codecs of record batches, compared with another client's, and with bytes that are broken or claim too much."""

from __future__ import annotations

import gzip
import struct

import aiokafka.codec as other
import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from proxy.records.compression import (
    GZIP,
    LEVELS,
    LZ4,
    NAMES,
    NONE,
    SNAPPY,
    ZSTD,
    CodecError,
    TooLarge,
    compress,
    decompress,
)

CODECS = (GZIP, SNAPPY, LZ4, ZSTD)
LIMIT = 1 << 20
THEIRS = {
    GZIP: (other.gzip_encode, other.gzip_decode),
    SNAPPY: (other.snappy_encode, other.snappy_decode),
    LZ4: (other.lz4_encode, other.lz4_decode),
    ZSTD: (other.zstd_encode, other.zstd_decode),
}
contents = st.one_of(
    st.binary(min_size=1, max_size=5_000),
    st.builds(lambda part, times: part * times, st.binary(min_size=1), st.integers(1, 9_000)),
).map(lambda content: content[:200_000])


@pytest.mark.parametrize("codec", CODECS, ids=NAMES[1:])
@given(content=contents)
def test_the_two_clients_read_each_others_bytes(codec: int, content: bytes) -> None:
    write, read = THEIRS[codec]
    assert bytes(decompress(codec, write(content), LIMIT)) == content
    assert bytes(read(compress(codec, memoryview(content)))) == content
    assert bytes(decompress(codec, compress(codec, content), len(content))) == content


def test_bytes_of_other_libraries_are_read() -> None:
    content = b"several blocks, " * 20_000
    for blocks in (lz4.frame.BLOCKSIZE_MAX64KB, lz4.frame.BLOCKSIZE_MAX4MB):
        for linked in (True, False):
            frame = lz4.frame.compress(content, block_size=blocks, block_linked=linked, content_checksum=True)
            assert decompress(LZ4, frame, LIMIT) == content
    assert decompress(SNAPPY, snappy.compress(content), LIMIT) == content, "without xerial's blocks"
    streamed = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    assert decompress(ZSTD, streamed.compress(content) + streamed.flush(), LIMIT) == content
    assert decompress(GZIP, gzip.compress(content[:1000]) + gzip.compress(content[1000:]), LIMIT) == content


def test_lz4_blocks_are_independent() -> None:
    """Java's client refuses linked ones."""
    flags = compress(LZ4, b"content" * 50_000)[4]
    assert flags >> 6 == 1
    assert flags & 0x20


@pytest.mark.parametrize("codec", LEVELS, ids=lambda codec: NAMES[codec])
def test_every_level_is_readable(codec: int) -> None:
    content = bytes(range(256)) * 40
    for level in (min(LEVELS[codec]), 1, 5, 9, max(LEVELS[codec])):
        assert decompress(codec, compress(codec, content, level), LIMIT) == content


def test_without_a_codec_nothing_changes() -> None:
    content = b"as it is"
    assert compress(NONE, content) is content
    assert decompress(NONE, content, len(content)) is content
    with pytest.raises(TooLarge):
        decompress(NONE, content, len(content) - 1)


@pytest.mark.parametrize("codec", CODECS, ids=NAMES[1:])
def test_data_that_decompresses_to_too_much_is_rejected(codec: int) -> None:
    packed = compress(codec, bytes(3_000_000))
    assert len(decompress(codec, packed, 3_000_000)) == 3_000_000
    with pytest.raises(TooLarge):
        decompress(codec, packed, 2_999_999)


def test_a_snappy_block_that_only_claims_much_is_rejected() -> None:
    with pytest.raises(TooLarge):
        decompress(SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(20), LIMIT)


@pytest.mark.parametrize("codec", CODECS, ids=NAMES[1:])
@given(content=contents, cut=st.integers(1, 200_000), flip=st.integers(0, 200_000), rest=st.binary(max_size=50))
def test_broken_bytes_are_read_or_rejected(codec: int, content: bytes, cut: int, flip: int, rest: bytes) -> None:
    packed = bytearray(compress(codec, content))
    packed[flip % len(packed)] ^= 0x5A
    for broken in (packed, packed[:-cut], rest, bytes(compress(codec, content)[:20]) + rest):
        try:
            assert len(decompress(codec, broken, LIMIT)) <= LIMIT
        except CodecError:
            pass


@pytest.mark.parametrize("length", [-1, 0, 1 << 30])
def test_broken_xerial_blocks_are_rejected(length: int) -> None:
    packed = bytearray(compress(SNAPPY, b"content"))
    struct.pack_into(">i", packed, 16, length)
    with pytest.raises(CodecError):
        decompress(SNAPPY, packed, LIMIT)


def test_unknown_codecs_are_rejected() -> None:
    for codec in (5, 7, -1):
        with pytest.raises(CodecError):
            decompress(codec, b"content", LIMIT)
        with pytest.raises(CodecError):
            compress(codec, b"content")
