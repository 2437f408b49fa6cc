"""The bodies of uploads and of answers: a segment is sent from its place in memory, and read into one place.

The S3 client takes a body as a file. An `io.BytesIO` copies a segment three times: when it is made, when it is read,
and when the HTTP client joins the pieces. Here, what is read is a view.

The HTTP client returns a body in the pieces in which it came. To read it whole joins them, and the cache, which writes
offsets into a segment, copies it again. Here, each piece is copied once.
"""

from __future__ import annotations

import io
import os
from typing import Protocol, cast

from proxy.storage.interface import Buffer


class Body(io.BytesIO):
    """A file that can be read only. It is an `io.BytesIO` because the HTTP client reads other files in a thread.

    The data must not change before the upload has ended.
    """

    def __init__(self, data: Buffer) -> None:
        super().__init__()
        self._view = memoryview(data).toreadonly()
        self._at = 0

    def getbuffer(self) -> memoryview:
        """Return all of it, wherever the position is."""
        return self._view[:]

    def read(self, size: int | None = -1, /) -> bytes:
        """Return a view of the next `size` bytes, or of all that are left; it is empty at the end."""
        end = len(self._view) if size is None or size < 0 else min(len(self._view), self._at + size)
        part = self._view[self._at : end]
        self._at = max(self._at, end)
        return cast(bytes, part)

    def tell(self) -> int:
        """Return the position of the next read."""
        return self._at

    def seek(self, offset: int, origin: int = os.SEEK_SET, /) -> int:
        """Move the position, as files do. Raises ValueError for one before the beginning."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: len(self._view)}[origin]
        if start + offset < 0:
            raise ValueError(f"position {start + offset} is before the beginning")
        self._at = start + offset
        return self._at


_PIECE_BYTES = 1_048_576
"""More than comes at a time."""


class Answer(Protocol):
    """The body of an answer."""

    async def read(self, amount: int) -> bytes:
        """Return what has come, and `amount` at most; nothing at the end."""


async def read_whole(answer: Answer, expected_bytes: int) -> bytearray:
    """Read a body to its end, into memory for `expected_bytes`; it may have more or fewer."""
    data, at = bytearray(expected_bytes), 0
    while part := await answer.read(_PIECE_BYTES):
        data[at : at + len(part)] = part
        at += len(part)
    del data[at:]
    return data
