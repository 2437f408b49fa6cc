"""Compact storage for records: about 50 bytes each, in addition to 8 for each offset."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from proxy.judge.findings import Value
from proxy.judge.operations import NO_TRANSACTION, UNKNOWN_OFFSET, ClientKind

_CHUNK_BITS = 10
_CHUNK = 1 << _CHUNK_BITS
_NUMBER_BITS = 40
FOREIGN = -2
"""Packed value of a record that no producer of the run has sent."""
NOBODY = -1
"""Packed value of an offset without a known record."""

SENT, ACKNOWLEDGED, FAILED = range(3)


def packed(client: int, number: int) -> int:
    """Return a value as one integer."""
    return client << _NUMBER_BITS | number


def unpacked(value: int) -> Value:
    """Return the value of an integer that `packed` made."""
    return Value(value >> _NUMBER_BITS, value & ((1 << _NUMBER_BITS) - 1))


class Owners:
    """The packed value at each offset of a partition, in chunks: logs may have large gaps."""

    def __init__(self) -> None:
        self._chunks: dict[int, array[int]] = {}

    def own(self, offset: int, value: int) -> int:
        """Enter a value unless the offset has one; return the value that the offset has then."""
        chunk = self._chunks.get(offset >> _CHUNK_BITS)
        if chunk is None:
            chunk = self._chunks[offset >> _CHUNK_BITS] = array("q", [NOBODY]) * _CHUNK
        at = offset & (_CHUNK - 1)
        if chunk[at] == NOBODY:
            chunk[at] = value
        return chunk[at]

    def between(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield offset and packed value of the known records from `first` on, below `end`."""
        for number in sorted(self._chunks):
            start = number << _CHUNK_BITS
            if start + _CHUNK <= first or start >= end:
                continue
            chunk = self._chunks[number]
            for offset in range(max(first, start), min(end, start + _CHUNK)):
                if (value := chunk[offset - start]) != NOBODY:
                    yield offset, value


class Records:
    """The records of one producer, in columns by number."""

    __slots__ = ("_open", "acked_at", "kind", "partitions", "places", "sent_again", "states", "transactions", "views")

    def __init__(self, kind: ClientKind) -> None:
        self.kind = kind
        self.partitions = array("i")
        """Index of the partition that each record was sent to."""
        self.states = bytearray()
        self.acked_at = array("q")
        """Offset of the acknowledgement."""
        self.places = array("q")
        """First offset where the record was acknowledged or read."""
        self.transactions = array("q")
        self.views = array("Q")
        """Views that got the record, a bit each."""
        self.sent_again = bytearray()
        """1 if the producer may have sent the record again as a new one."""
        self._open = 0
        """Number of the first record without an answer."""

    def __len__(self) -> int:
        return len(self.states)

    @property
    def ordered(self) -> bool:
        """Return whether the producer promises that its records keep their order."""
        return self.kind is not ClientKind.PLAIN

    def once(self, number: int) -> bool:
        """Return whether the producer promises that the record is in the log at most once."""
        return self.ordered and not self.sent_again[number]

    def send_again(self) -> None:
        """Note that the producer sends all records without an answer again, with a new epoch."""
        while self._open < len(self) and self.states[self._open] != SENT:
            self._open += 1
        for number in range(self._open, len(self)):
            self.sent_again[number] |= self.states[number] == SENT

    def send(self, partition: int, count: int, transaction: int = NO_TRANSACTION) -> None:
        """Add records."""
        self.partitions.extend([partition] * count)
        self.states.extend(bytes(count))
        self.acked_at.extend([UNKNOWN_OFFSET] * count)
        self.places.extend([UNKNOWN_OFFSET] * count)
        self.transactions.extend([transaction] * count)
        self.views.extend([0] * count)
        self.sent_again.extend(bytes(count))
