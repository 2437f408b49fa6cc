"""The books of a load: what every producer sent, what every rack read, and where the two disagree.

Fed in any order: a record is often read before the word of its acknowledgement has come. About 20 bytes per record.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from proxy.demo.latency import Latencies
from proxy.demo.tally import TopicTally

Record = tuple[int, int]
"""Producer's number, sequence."""
AcknowledgedRow = tuple[int, int, int, int, int, int]
"""Producer's number, sequence, partition, offset (or UNKNOWN_OFFSET), checksum, microseconds (or NOT_MEASURED)."""
FailedRow = tuple[int, int, str]
"""Producer's number, sequence, name of the error."""
ReadRow = tuple[int, int, int, int, int, int]
"""Same as for acknowledged rows, with microseconds end to end; FOREIGN_PRODUCER for a record that is not of the
load."""

FOREIGN_PRODUCER = -1
UNKNOWN_OFFSET = -1
NOT_MEASURED = -1
"""Value instead of microseconds, for a record whose latency does not count."""
MAX_FINDINGS = 5
MAX_READS_COUNTED = 255
_UNKNOWN = -1
_BLOCK = 1024
_SENT, _ACKNOWLEDGED, _FAILED = range(3)


class _Sent:
    """All that is known of one producer's records, in columns by sequence."""

    __slots__ = ("checksums", "offsets", "partitions", "racks_read", "reads", "states")

    def __init__(self, racks: Sequence[str]) -> None:
        self.states = bytearray()
        self.racks_read = bytearray()
        self.reads = {rack: bytearray() for rack in racks}
        self.partitions = array("h")
        self.offsets = array("q")
        self.checksums = array("Q")

    def reach(self, sequence: int) -> None:
        """Make room for a record."""
        missing = sequence + 1 - len(self.states)
        if missing > 0:
            more = (missing // _BLOCK + 1) * _BLOCK
            for column in (self.states, self.racks_read, *self.reads.values()):
                column.extend(bytes(more))
            self.partitions.extend([_UNKNOWN] * more)
            self.offsets.extend([_UNKNOWN] * more)
            self.checksums.extend([0] * more)

    def agrees(self, sequence: int, partition: int, offset: int, checksum: int) -> bool:
        """Return whether this equals the first report about the record, which is kept."""
        if self.partitions[sequence] == _UNKNOWN:
            self.partitions[sequence], self.offsets[sequence], self.checksums[sequence] = partition, offset, checksum
            return True
        known = self.offsets[sequence]
        if known == _UNKNOWN:
            self.offsets[sequence] = known = offset
        same_offset = offset in (known, _UNKNOWN)
        return same_offset and partition == self.partitions[sequence] and checksum == self.checksums[sequence]


class Ledger:
    """The books of one topic. Not for several threads at once."""

    def __init__(self, topic: str, racks: Sequence[str]) -> None:
        self.topic = topic
        self._racks = tuple(racks)
        self._producers: dict[int, _Sent] = {}
        self._produce, self._e2e = Latencies(), Latencies()
        self._produced = self._consumed = self._failed = self._failed_but_read = self._foreign = 0
        self._errors: Counter[str] = Counter()
        self._read = dict.fromkeys(self._racks, 0)
        self._duplicated: set[Record] = set()
        self._mismatched: set[Record] = set()
        self._late: set[Record] = set()
        """Read after a later one; not yet known whether they are acknowledged."""
        self._last_sequence: defaultdict[tuple[str, int, int], int] = defaultdict(lambda: _UNKNOWN)
        """Last sequence by rack, partition, producer."""
        self._last_offset: defaultdict[tuple[str, int], int] = defaultdict(lambda: _UNKNOWN)
        """Last offset by rack, partition."""
        self._findings: list[str] = []

    def acknowledged(self, rows: Iterable[AcknowledgedRow]) -> None:
        """Delivery reports without error."""
        for producer, sequence, partition, offset, checksum, microseconds in rows:
            sent = self._sent(producer, sequence)
            sent.states[sequence] = _ACKNOWLEDGED
            self._produced += 1
            self._consumed += sent.racks_read[sequence] == len(self._racks)
            if microseconds != NOT_MEASURED:
                self._produce.add(microseconds)
            if not sent.agrees(sequence, partition, offset, checksum):
                self._mismatch(producer, sequence, f"was acknowledged at {_place(partition, offset)}")

    def failed(self, rows: Iterable[FailedRow]) -> None:
        """Delivery reports with an error."""
        for producer, sequence, error in rows:
            sent = self._sent(producer, sequence)
            sent.states[sequence] = _FAILED
            self._failed += 1
            self._failed_but_read += sent.racks_read[sequence] > 0
            self._errors[error] += 1

    def read(self, rack: str, rows: Iterable[ReadRow]) -> None:
        """Records as a rack's consumer got them, in its order."""
        for producer, sequence, partition, offset, checksum, microseconds in rows:
            ascending = offset > self._last_offset[rack, partition]
            self._last_offset[rack, partition] = offset
            if producer == FOREIGN_PRODUCER:
                self._foreign += 1
                self._find(f"{rack} read a record at {_place(partition, offset)} that nobody sent, or that is damaged")
                continue
            sent = self._sent(producer, sequence)
            reads = sent.reads[rack]
            if reads[sequence]:
                reads[sequence] = min(reads[sequence] + 1, MAX_READS_COUNTED)
                self._duplicate(rack, producer, sequence, partition, offset)
                continue
            reads[sequence] = 1
            self._first_read(rack, sent, producer, sequence)
            if microseconds != NOT_MEASURED:
                self._e2e.add(microseconds)
            if not sent.agrees(sequence, partition, offset, checksum):
                self._mismatch(producer, sequence, f"was read in {rack} at {_place(partition, offset)}")
            last = self._last_sequence[rack, partition, producer]
            if sequence < last or not ascending:
                self._late.add((producer, sequence))
            self._last_sequence[rack, partition, producer] = max(sequence, last)

    def _first_read(self, rack: str, sent: _Sent, producer: int, sequence: int) -> None:
        self._read[rack] += 1
        sent.racks_read[sequence] += 1
        if sent.states[sequence] == _ACKNOWLEDGED:
            self._consumed += sent.racks_read[sequence] == len(self._racks)
        elif sent.states[sequence] == _FAILED:
            self._failed_but_read += sent.racks_read[sequence] == 1

    def _sent(self, producer: int, sequence: int) -> _Sent:
        sent = self._producers.get(producer)
        if sent is None:
            sent = self._producers[producer] = _Sent(self._racks)
        sent.reach(sequence)
        return sent

    def _duplicate(self, rack: str, producer: int, sequence: int, partition: int, offset: int) -> None:
        if (producer, sequence) not in self._duplicated:
            self._duplicated.add((producer, sequence))
            sent = self._producers[producer]
            first = _place(sent.partitions[sequence], sent.offsets[sequence])
            self._find(
                f"{_name(producer, sequence)} was read again in {rack} at {_place(partition, offset)}, after {first}"
            )

    def _mismatch(self, producer: int, sequence: int, what: str) -> None:
        if (producer, sequence) not in self._mismatched:
            self._mismatched.add((producer, sequence))
            sent = self._producers[producer]
            elsewhere = _place(sent.partitions[sequence], sent.offsets[sequence])
            self._find(
                f"{_name(producer, sequence)} {what}, before that with other bytes or at another place: {elsewhere}"
            )

    def _find(self, text: str) -> None:
        if len(self._findings) < MAX_FINDINGS:
            self._findings.append(f"{self.topic}: {text}")

    def settled(self) -> bool:
        """Return whether every rack has read all that is acknowledged."""
        return self._consumed == self._produced

    def tally(self, *, final: bool = False) -> TopicTally:
        """Return the present tally. With `final`, list what has not been read, which takes a pass over all records."""
        disordered = [
            record for record in sorted(self._late) if self._producers[record[0]].states[record[1]] == _ACKNOWLEDGED
        ]
        late = [f"{self.topic}: {_name(*record)} was read after a later one" for record in disordered[:MAX_FINDINGS]]
        return TopicTally(
            topic=self.topic,
            produced=self._produced,
            consumed=self._consumed,
            lost=self._produced - self._consumed,
            duplicated=len(self._duplicated),
            disordered=len(disordered),
            mismatched=len(self._mismatched) + self._foreign,
            failed=self._failed,
            failed_but_read=self._failed_but_read,
            errors=dict(self._errors),
            read=dict(self._read),
            produce_p50_ms=self._produce.percentile_ms(50),
            produce_p99_ms=self._produce.percentile_ms(99),
            e2e_p50_ms=self._e2e.percentile_ms(50),
            e2e_p99_ms=self._e2e.percentile_ms(99),
            findings=(*self._findings, *late, *(self._missing() if final else ())),
        )

    def _missing(self) -> list[str]:
        found: list[str] = []
        for producer, sent in sorted(self._producers.items()):
            for sequence, state in enumerate(sent.states):
                if state == _ACKNOWLEDGED and sent.racks_read[sequence] < len(self._racks):
                    racks = ", ".join(rack for rack, reads in sent.reads.items() if not reads[sequence])
                    place = _place(sent.partitions[sequence], sent.offsets[sequence])
                    found.append(f"{self.topic}: {_name(producer, sequence)}, {place}, was not read in {racks}")
                    if len(found) == MAX_FINDINGS:
                        return found
        return found


def _name(producer: int, sequence: int) -> str:
    return f"record {sequence} of producer {producer}"


def _place(partition: int, offset: int) -> str:
    return f"partition {partition} offset {offset}" if offset >= 0 else f"partition {partition}"
