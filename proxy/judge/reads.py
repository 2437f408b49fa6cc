"""Check the records of consumers: in order, of this run, with the bytes that were sent, and none too early."""

from __future__ import annotations

from proxy.judge.columns import packed, unpacked
from proxy.judge.findings import Anomaly
from proxy.judge.operations import DAMAGED_CLIENT, FOREIGN_CLIENT, Assign, ClientKind, Isolation, Log, Poll, Reached
from proxy.judge.places import place, place_foreign
from proxy.judge.state import WHERE_ACKNOWLEDGED, Gap, PartitionState, Reader, State

MAX_SKIPPED = 5
"""Skipped records that a finding names."""


class Reads:
    """Takes the operations of all consumers."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.foreign = 0
        """Records of others."""
        self.early: dict[int, tuple[PartitionState, int, int]] = {}
        """Partition, offset and client by packed value: read before the producer began to commit."""

    def assign(self, operation: Assign) -> None:
        """Start over in these partitions: the consumer may get earlier records again."""
        reader = self._state.readers[operation.client]
        for number in operation.partitions:
            reader.positions.pop(self._state.places[operation.topic, number].index, None)

    def poll(self, operation: Poll, line: int) -> None:
        """Check records in the order in which the consumer got them."""
        state, reader = self._state, self._state.readers[operation.client]
        partition = state.places[operation.topic, operation.partition]
        for offset, client, number in operation.records:
            self._check_order(reader, partition, offset)
            if client == FOREIGN_CLIENT:
                self.foreign += 1
                place_foreign(state, partition, offset)
            elif self._is_intact(reader, partition, offset, client, number):
                place(state, partition, offset, client, number)
                self._note_view(reader, partition, offset, client, number)
        if not operation.records:
            return
        reader.view.read += len(operation.records)
        last = operation.records[-1][0]
        if reader.view.kind is ClientKind.FINAL:
            partition.covered[reader.view.isolation] = last + 1
        else:
            partition.lags[reader.view.name].read(last, operation.at_us, line)

    def log(self, operation: Log) -> None:
        """Note start and end of a log. The last one of several counts."""
        partition = self._state.places[operation.topic, operation.partition]
        partition.low = max(partition.low, operation.low)
        partition.highs[operation.isolation] = operation.high

    def reached(self, operation: Reached) -> None:
        """Note that a final reader has read a whole partition."""
        partition = self._state.places[operation.topic, operation.partition]
        partition.reached.add(self._state.readers[operation.client].view.isolation)

    def _check_order(self, reader: Reader, partition: PartitionState, offset: int) -> None:
        expected = reader.positions.get(partition.index, offset)
        if offset < expected:
            self._state.find(
                Anomaly.NONMONOTONIC_POLL,
                f"consumer {reader.number} ({reader.view.name}) got offset {offset} after offset {expected - 1}",
                partition,
                offsets=(offset, expected - 1),
                clients=(reader.number,),
            )
        elif offset > expected:
            self._state.gaps.append(Gap(partition, reader, expected, offset))
        reader.positions[partition.index] = offset + 1

    def _is_intact(self, reader: Reader, partition: PartitionState, offset: int, client: int, number: int) -> bool:
        records = self._state.producers.get(client)
        if client == DAMAGED_CLIENT:
            wrong = "has other bytes than any record that was sent"
        elif records is None or number >= len(records):
            wrong = f"has record {client}:{number}, which was not sent"
        elif records.partitions[number] != partition.index:
            sent_to = self._state.partitions[records.partitions[number]]
            wrong = f"has record {client}:{number}, which was sent to {sent_to}"
        else:
            return True
        self._state.find(
            Anomaly.CORRUPT,
            f"offset {offset} {wrong} (consumer {reader.number}, {reader.view.name})",
            partition,
            offsets=(offset,),
            clients=(reader.number,),
        )
        return False

    def _note_view(self, reader: Reader, partition: PartitionState, offset: int, client: int, number: int) -> None:
        records = self._state.producers[client]
        records.views[number] |= reader.view.bit
        if reader.view.kind is ClientKind.FINAL and offset == records.acked_at[number]:
            records.views[number] |= WHERE_ACKNOWLEDGED
        if reader.view.isolation is not Isolation.COMMITTED:
            return
        transaction = self._state.transaction(records, client, number)
        if transaction is not None:
            transaction.seen = True
            if not transaction.committing:
                self.early.setdefault(packed(client, number), (partition, offset, reader.number))

    def judge(self) -> None:
        """Find, at the end, records that came too early or never."""
        for value, (partition, offset, consumer) in self.early.items():
            client, number = unpacked(value)
            transaction = self._state.transaction(self._state.producers[client], client, number)
            if transaction is not None and not transaction.aborted:
                self._state.find(
                    Anomaly.PRECOMMITTED_READ,
                    f"consumer {consumer} got record {unpacked(value)} before its producer began to commit",
                    partition,
                    offsets=(offset,),
                    values=(value,),
                    clients=(consumer,),
                )
        for gap in self._state.gaps:
            self._judge_gap(gap)

    def _judge_gap(self, gap: Gap) -> None:
        state, view = self._state, gap.reader.view
        skipped = [
            (offset, value)
            for offset, value in gap.partition.owners.between(max(gap.first, gap.partition.low), gap.end)
            if value >= 0 and state.visible(view.isolation, value) and self._was_read(value)
        ]
        if skipped:
            offsets, values = zip(*skipped, strict=True)
            state.find(
                Anomaly.POLL_SKIP,
                f"consumer {gap.reader.number} ({view.name}) went from offset {gap.first - 1} to {gap.end} past "
                f"{len(skipped)} records that were there",
                gap.partition,
                offsets=(gap.first - 1, *offsets[:MAX_SKIPPED], gap.end),
                values=values[:MAX_SKIPPED],
                clients=(gap.reader.number,),
            )

    def _was_read(self, value: int) -> bool:
        client, number = unpacked(value)
        return bool(self._state.producers[client].views[number])
