"""The shared memory in which a worker's batches lie until their outcome is known."""

from __future__ import annotations

from collections.abc import Callable

from proxy.process.shared_memory import PIECE_BYTES, SharedMemory

_SPARE_SLABS = 4
"""Empty slabs that are kept: new memory costs more than used one."""


class _Slab:
    __slots__ = ("batches", "end", "memory", "number")

    def __init__(self, number: int, size_bytes: int) -> None:
        self.number = number
        self.memory = SharedMemory(size_bytes)
        self.end = 0
        """Place of the next batch."""
        self.batches = 0
        """Batches in it that are not settled."""


class Slabs:
    """Places batches one behind the other. A slab is used again when all batches in it are settled.

    `added` is called with a slab's number and memory before the first batch lies in it; `gone` when it will never be
    used again.
    """

    def __init__(self, added: Callable[[int, SharedMemory], None], gone: Callable[[int], None]) -> None:
        self._added = added
        self._gone = gone
        self._numbers = 0
        self._slabs: dict[int, _Slab] = {}
        self._open: _Slab | None = None
        self._spare: list[_Slab] = []

    @property
    def size_bytes(self) -> int:
        """Return the memory of all slabs."""
        return sum(slab.memory.size_bytes for slab in self._slabs.values())

    def place(self, batch: memoryview) -> tuple[int, int]:
        """Copy a batch; return its slab and offset. Raises OSError if there is no memory."""
        slab = self._open
        if slab is None or slab.end + len(batch) > slab.memory.size_bytes:
            self._let_go()
            slab = self._open = self._next(len(batch))
        offset = slab.end
        slab.end = offset + len(batch)
        slab.memory.view[offset : slab.end] = batch
        slab.batches += 1
        return slab.number, offset

    def settled(self, number: int) -> None:
        """One batch of a slab is settled."""
        slab = self._slabs[number]
        slab.batches -= 1
        if not slab.batches:
            if slab is self._open:
                slab.end = 0
            else:
                self._put_aside(slab)

    def close(self) -> None:
        """Let go of all memory. The other side may still read what it knows."""
        for slab in self._slabs.values():
            slab.memory.close()
        self._slabs.clear()
        self._spare.clear()
        self._open = None

    def _let_go(self) -> None:
        slab, self._open = self._open, None
        if slab is not None and not slab.batches:
            self._put_aside(slab)

    def _put_aside(self, slab: _Slab) -> None:
        slab.end = 0
        if slab.memory.size_bytes == PIECE_BYTES and len(self._spare) < _SPARE_SLABS:
            self._spare.append(slab)
            return
        del self._slabs[slab.number]
        slab.memory.close()
        self._gone(slab.number)

    def _next(self, least_bytes: int) -> _Slab:
        if self._spare and least_bytes <= PIECE_BYTES:
            return self._spare.pop()
        self._numbers += 1
        slab = _Slab(self._numbers, max(PIECE_BYTES, least_bytes))
        self._slabs[slab.number] = slab
        self._added(slab.number, slab.memory)
        return slab
