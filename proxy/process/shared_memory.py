"""Memory that several processes of one machine can use: a file without a name, which each of them maps."""

from __future__ import annotations

import mmap
import os

PIECE_BYTES = 4 << 20
"""Size of a piece of memory that is shared, unless more is needed in one piece."""
PIECE_DESCRIPTORS = 2
"""Descriptors of a piece in the process that made it: its own, and that of the mapping."""


class SharedMemory:
    """Memory of this process that others may map by its descriptor.

    The memory is free when all views and mappings of it are gone, in all processes.
    """

    __slots__ = ("descriptor", "size_bytes", "view")

    def __init__(self, size_bytes: int) -> None:
        """Raises OSError if there is no memory or no descriptor."""
        self.size_bytes = size_bytes
        self.descriptor = os.memfd_create("diskless-proxy", os.MFD_CLOEXEC)
        try:
            os.ftruncate(self.descriptor, size_bytes)
            self.view = memoryview(mmap.mmap(self.descriptor, size_bytes))
        except OSError:
            os.close(self.descriptor)
            raise

    def close(self) -> None:
        """Let go of it; views that others hold stay as they are."""
        os.close(self.descriptor)
        self.view = memoryview(b"")


def mapped(descriptor: int, size_bytes: int) -> memoryview:
    """Return memory of another process, which may be written, and close the descriptor. Raises OSError."""
    try:
        return memoryview(mmap.mmap(descriptor, size_bytes))
    finally:
        os.close(descriptor)
