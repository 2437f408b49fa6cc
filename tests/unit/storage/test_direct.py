"""Files past the page cache: the same bytes as through it, whatever the system and the file system allow."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import threading

import pytest

from proxy.storage import direct
from proxy.storage.direct import ALIGNED_BYTES, DIRECT_FROM_BYTES, read_range, write_all

PIECE_BYTES = 4 * ALIGNED_BYTES
SIZES = (
    *(0, 1, DIRECT_FROM_BYTES - 1, DIRECT_FROM_BYTES, DIRECT_FROM_BYTES + 1),
    *(5 * PIECE_BYTES - 1, 5 * PIECE_BYTES, 5 * PIECE_BYTES + ALIGNED_BYTES + 7),
)


@pytest.fixture
def small_pieces(monkeypatch) -> None:
    """Let files have several pieces."""
    monkeypatch.setattr(direct, "STAGING_BYTES", PIECE_BYTES)
    monkeypatch.setattr(direct, "_of_thread", threading.local())


@pytest.fixture(params=["direct", "no such flag", "refused by the file system", "refused by each transfer"])
def way(request, monkeypatch, small_pieces) -> str:
    """Return what system and file system allow."""
    if request.param == "no such flag":
        monkeypatch.setattr(direct, "_DIRECT", 0)
    elif request.param == "refused by the file system":
        refuse_flag(monkeypatch)
    elif request.param == "refused by each transfer":
        refuse_transfers(monkeypatch)
    return request.param


def refuse_flag(monkeypatch) -> None:
    plain = fcntl.fcntl

    def refuse(descriptor: int, command: int, flags: int = 0) -> int:
        if command == fcntl.F_SETFL and flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return plain(descriptor, command, flags)

    monkeypatch.setattr(fcntl, "fcntl", refuse)


def refuse_transfers(monkeypatch) -> None:
    plain_write, plain_read = os.write, os.preadv

    def write(descriptor: int, data: memoryview) -> int:
        if goes_past_cache(descriptor):
            raise OSError(errno.EINVAL, "Invalid argument")
        return plain_write(descriptor, data)

    def read(descriptor: int, buffers: list[memoryview], at: int) -> int:
        if goes_past_cache(descriptor):
            raise OSError(errno.EINVAL, "Invalid argument")
        return plain_read(descriptor, buffers, at)

    monkeypatch.setattr(os, "write", write)
    monkeypatch.setattr(os, "preadv", read)


def goes_past_cache(descriptor: int) -> bool:
    return bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT)


def has_direct_access(path) -> bool:
    """Return whether the file system has O_DIRECT, asked in another way than the product asks."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_DIRECT))
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return False
    return True


def new_file(path) -> int:
    return os.open(path, os.O_CREAT | os.O_RDWR)


@pytest.mark.parametrize("size", SIZES)
def test_what_is_written_is_in_the_file_and_read_again(way: str, tmp_path, size: int):
    rng = random.Random(size)
    data = rng.randbytes(size)
    descriptor = new_file(tmp_path / "file")
    try:
        write_all(descriptor, bytearray(data))
        assert (tmp_path / "file").read_bytes() == data
        ends = [(0, size), (0, size + ALIGNED_BYTES), (size, size + DIRECT_FROM_BYTES)]
        ends += [tuple(sorted(rng.choices(range(size + 1), k=2))) for _ in range(30)]
        ends += [(start, start + DIRECT_FROM_BYTES) for start in rng.choices(range(size + 1), k=10)]
        for start, end in ends:
            assert read_range(descriptor, start, end) == data[start:end], (start, end)
    finally:
        os.close(descriptor)


@pytest.mark.usefixtures("small_pieces")
def test_writes_and_reads_that_end_early_go_on(tmp_path, monkeypatch):
    """A write that ends within a page, as at a full disk, can't go on past the page cache."""
    plain_write, plain_read = os.write, os.preadv
    lengths = iter([ALIGNED_BYTES, 1000, *[10**9] * 1000])
    monkeypatch.setattr(os, "write", lambda descriptor, data: plain_write(descriptor, data[: next(lengths)]))
    data = random.Random(1).randbytes(10 * PIECE_BYTES + 5)
    descriptor = new_file(tmp_path / "file")
    try:
        write_all(descriptor, data)
        lengths = iter([ALIGNED_BYTES + 700, 3 * ALIGNED_BYTES, *[10**9] * 1000])
        monkeypatch.setattr(
            os,
            "preadv",
            lambda descriptor, buffers, at: min(plain_read(descriptor, buffers, at), next(lengths)),
        )
        assert read_range(descriptor, 3, len(data) - 1) == data[3:-1]
    finally:
        os.close(descriptor)


def test_large_files_do_not_fill_the_page_cache(tmp_path, monkeypatch):
    descriptor = new_file(tmp_path / "file")
    try:
        if not has_direct_access(tmp_path / "file"):
            pytest.skip("the file system of temporary files has no O_DIRECT")
        past: list[tuple[int, bool]] = []
        plain_write, plain_read = os.write, os.preadv

        def write(descriptor: int, data: memoryview) -> int:
            past.append((len(data), goes_past_cache(descriptor)))
            return plain_write(descriptor, data)

        def read(descriptor: int, buffers: list[memoryview], at: int) -> int:
            past.append((len(buffers[0]), goes_past_cache(descriptor)))
            return plain_read(descriptor, buffers, at)

        monkeypatch.setattr(os, "write", write)
        monkeypatch.setattr(os, "preadv", read)
        write_all(descriptor, bytes(DIRECT_FROM_BYTES + 1))
        read_range(descriptor, 0, DIRECT_FROM_BYTES)
        assert past == [(DIRECT_FROM_BYTES, True), (1, False), (DIRECT_FROM_BYTES, True)]
    finally:
        os.close(descriptor)


def test_an_error_of_the_disk_is_raised(tmp_path, monkeypatch):
    def full(descriptor: int, data: memoryview) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    descriptor = new_file(tmp_path / "file")
    try:
        monkeypatch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space left"):
            write_all(descriptor, bytes(DIRECT_FROM_BYTES))
    finally:
        os.close(descriptor)
