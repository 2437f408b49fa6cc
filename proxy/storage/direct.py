"""Reading and writing files past the page cache of the system (`O_DIRECT`), where system and file system allow it.

The page cache would hold objects a second time: the proxy that wrote or read one has it in its own cache, and readers
in other racks are on other machines. Filling it costs several times the CPU of the transfer itself (decision 0210).

A transfer past the page cache begins and ends at multiples of `ALIGNED_BYTES`, in the file and in memory. So it goes
through memory of the thread that does it, at most `STAGING_BYTES`, and one copy.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from proxy.storage.interface import Buffer

ALIGNED_BYTES = 4096
DIRECT_FROM_BYTES = 65_536
"""Smaller transfers use the page cache: there, a write of a few bytes need not wait for the disk before its fsync."""
STAGING_BYTES = 8_388_608
"""Also the usual size of a block in the rack's cache, which is read at once. What was never used is not resident."""

_DIRECT = getattr(os, "O_DIRECT", 0)
"""0 on systems without it."""
_of_thread = threading.local()


def write_all(descriptor: int, data: Buffer) -> None:
    """Write all of `data` at the position of an open file. It may still have to be made durable. Raises OSError."""
    left = memoryview(data).cast("B")
    if len(left) >= DIRECT_FROM_BYTES:
        with _past_cache(descriptor) as is_past:
            while is_past and len(left) >= ALIGNED_BYTES:
                staging, size = _staging(), _rounded_down(min(len(left), STAGING_BYTES))
                staging[:size] = left[:size]
                left = left[os.write(descriptor, staging[:size]) :]
    while left:
        left = left[os.write(descriptor, left) :]


def read_range(descriptor: int, start: int, end: int) -> bytearray:
    """Return the bytes from `start` to `end` of an open file; fewer if it ends before that. Raises OSError."""
    if end - start >= DIRECT_FROM_BYTES:
        with _past_cache(descriptor) as is_past:
            if is_past:
                return _read_direct(descriptor, start, end)
    data = bytearray(end - start)
    view = memoryview(data)
    done = 0
    while done < len(data) and (count := os.preadv(descriptor, [view[done:]], start + done)):
        done += count
    return data if done == len(data) else data[:done]


def _read_direct(descriptor: int, start: int, end: int) -> bytearray:
    staging, data = _staging(), bytearray()
    while (done := start + len(data)) < end:
        at = _rounded_down(done)
        asked = min(STAGING_BYTES, _rounded_down(end - at + ALIGNED_BYTES - 1))
        count = os.preadv(descriptor, [staging[:asked]], at)
        if at + count <= done:
            break
        data += staging[done - at : min(count, end - at)]
    return data


def _staging() -> memoryview:
    """Return the memory of this thread, which begins at a page."""
    try:
        staging: memoryview = _of_thread.staging
    except AttributeError:
        staging = _of_thread.staging = memoryview(mmap.mmap(-1, STAGING_BYTES))
    return staging


@contextmanager
def _past_cache(descriptor: int) -> Iterator[bool]:
    """Let an open file's transfers go past the page cache in the block; False if they can't.

    A transfer that the file system rejects has done nothing, and ends the block: it wants more than ALIGNED_BYTES, or
    a write before this one was cut short.
    """
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    is_past = False
    with _unless_rejected():
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | _DIRECT)
        is_past = bool(_DIRECT)
    try:
        with _unless_rejected():
            yield is_past
    finally:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)


@contextmanager
def _unless_rejected() -> Iterator[None]:
    """Ignore that the system does not do something in this way."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise


def _rounded_down(size: int) -> int:
    """Return the largest multiple of ALIGNED_BYTES that is not above `size`."""
    return size - size % ALIGNED_BYTES
