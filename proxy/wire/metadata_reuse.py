"""Rewritten topics of Metadata responses, returned again for a response with the same bytes.

Many clients ask a large cluster for the same topics, and the brokers' answers then differ in nothing but the racks of
the clients. To walk over 12,000 partitions takes milliseconds; to compare as many bytes takes microseconds.

What a rewrite of the topics depends on is the key, and nothing else may be:

- the bytes after the list of brokers, which are compared byte by byte: a checksum only finds the candidate;
- the version, which is how these bytes are read, and whether KIP-1163's fields are added;
- the leaders that this client gets, as values: rack, live brokers and `leader_choice` are in them already;
- which topics are diskless (`Topics.state`). If this changes, all results are dropped, and so is the result of a
  rewrite that has begun before the change.

The list of brokers (addresses, stand-ins, listeners, lifelines) is short, and is rewritten for every client.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from crc32c import crc32c

from proxy.wire.partition_leaders import Leaders
from proxy.wire.primitives import Buffer
from proxy.wire.steps import Steps

_SHORTEST_BYTES = 4096
"""Shorter topics are rewritten about as fast as they are looked up."""


class RewriteKey(NamedTuple):
    """The inputs that decide how one response's topics are rewritten; checksum and length stand for the bytes."""

    state: object
    version: int
    leaders: Leaders | None
    length: int
    checksum: int


class _Rewritten(NamedTuple):
    """One result. The tail of the answer is a view of `came`."""

    came: bytearray
    """Bytes as they came from the broker: a bytearray, which compares with a memoryview as memory, not item by item."""
    buffers: list[Buffer]
    size: int


class RewrittenTopics:
    """The latest results, at most `max_bytes()` of memory; the result that was unused for longest is evicted.

    `state` returns an object that is replaced whenever another topic is diskless.
    """

    def __init__(self, max_bytes: Callable[[], int], state: Callable[[], object]) -> None:
        self.used_bytes = 0
        self._max_bytes = max_bytes
        self._state = state
        self._state_of_all: object = None
        """State of the diskless topics that all results were made with."""
        self._results: OrderedDict[RewriteKey, _Rewritten] = OrderedDict()

    def __len__(self) -> int:
        return len(self._results)

    def rewritten(
        self, came: memoryview, version: int, leaders: Leaders | None, walk: Steps[list[Buffer]]
    ) -> Steps[list[Buffer]]:
        """Return the result of the same rewrite if it was done before; else do it by `walk`, and keep the result."""
        key = self.key(came, version, leaders)
        if key is None:
            return (yield from walk)
        found = self.find(key, came)
        if found is None:
            found = yield from walk
            self.keep(key, came, found)
        return found

    def key(self, came: memoryview, version: int, leaders: Leaders | None) -> RewriteKey | None:
        """Return the key of topics as they came; None if they are not worth it."""
        if not self._max_bytes():
            self.clear()
            return None
        if len(came) < _SHORTEST_BYTES:
            return None
        return RewriteKey(self._state(), version, leaders, len(came), crc32c(came))

    def find(self, key: RewriteKey, came: memoryview) -> list[Buffer] | None:
        """Return the result of the same rewrite, if it was done before."""
        found = self._results.get(key)
        if found is None or found.came != came:
            return None
        self._results.move_to_end(key)
        return found.buffers

    def keep(self, key: RewriteKey, came: memoryview, rewritten: list[Buffer]) -> None:
        """Keep a result. Its last buffer is a view of the end of `came`, which is replaced by one of the copy."""
        if key.state is not self._state():
            return
        if key.state is not self._state_of_all:
            self.clear()
            self._state_of_all = key.state
        copy, own = bytearray(came), [bytes(part) for part in rewritten[:-1]]
        size = len(copy) + sum(map(len, own))
        self._drop(key)
        if size <= self._max_bytes():
            tail = memoryview(copy)[len(copy) - len(rewritten[-1]) :].toreadonly()
            self._results[key] = _Rewritten(copy, [*own, tail], size)
            self.used_bytes += size
        while self.used_bytes > self._max_bytes():
            self._drop(next(iter(self._results)))

    def clear(self) -> None:
        """Drop all results."""
        self._results.clear()
        self.used_bytes = 0

    def _drop(self, key: RewriteKey) -> None:
        dropped = self._results.pop(key, None)
        if dropped is not None:
            self.used_bytes -= dropped.size
