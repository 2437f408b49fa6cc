"""Each acknowledged record is in the log at the end, and every view got it."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.judge.columns import ACKNOWLEDGED, FAILED, Records, packed
from proxy.judge.findings import Anomaly
from proxy.judge.operations import UNKNOWN_OFFSET, ClientKind, Isolation
from proxy.judge.state import WHERE_ACKNOWLEDGED, PartitionState, State, View


@dataclass(slots=True)
class Presence:
    """One pass over all records, at the end of a history."""

    state: State
    complete: bool
    """Whether the run ended in order: else readers may only have been cut off."""
    acknowledged: int = 0
    failed: int = 0
    failed_but_read: int = 0
    deleted: int = 0

    def judge(self) -> None:
        """Find lost, unseen and aborted records, and those out of order."""
        for client, records in self.state.producers.items():
            last: dict[int, tuple[int, int]] = {}
            for number in range(len(records)):
                views = records.views[number]
                if views:
                    self._aborted(client, records, number)
                if records.states[number] == ACKNOWLEDGED:
                    self.acknowledged += 1
                    self._order(client, records, number, last)
                    if self.complete:
                        self._presence(client, records, number)
                elif records.states[number] == FAILED:
                    self.failed += 1
                    self.failed_but_read += views > 0

    def _aborted(self, client: int, records: Records, number: int) -> None:
        transaction = self.state.transaction(records, client, number)
        if transaction is None or not transaction.aborted:
            return
        views = [
            view.name
            for view in self.state.views.values()
            if view.isolation is Isolation.COMMITTED and records.views[number] & view.bit
        ]
        if views:
            self.state.find(
                Anomaly.ABORTED_READ,
                f"record {client}:{number} of an aborted transaction was read by {', '.join(views)}",
                self.state.partitions[records.partitions[number]],
                offsets=(records.places[number],),
                values=(packed(client, number),),
            )

    def _order(self, client: int, records: Records, number: int, last: dict[int, tuple[int, int]]) -> None:
        offset, index = records.acked_at[number], records.partitions[number]
        if offset == UNKNOWN_OFFSET or not records.ordered:
            return
        before, before_offset = last.get(index, (number, UNKNOWN_OFFSET))
        last[index] = number, offset
        if offset < before_offset:
            self.state.find(
                Anomaly.NONMONOTONIC_SEND,
                f"{records.kind} producer {client} sent record {before} before record {number}, and they are at "
                f"offsets {before_offset} and {offset}",
                self.state.partitions[index],
                offsets=(before_offset, offset),
                values=(packed(client, before), packed(client, number)),
                clients=(client,),
            )

    def _presence(self, client: int, records: Records, number: int) -> None:
        transaction = self.state.transaction(records, client, number)
        if transaction is not None and not transaction.committed:
            return
        partition = self.state.partitions[records.partitions[number]]
        offset, seen_by = records.places[number], records.views[number]
        missing = [view for view in self.state.views.values() if view.judged and not seen_by & view.bit]
        missing = [view for view in missing if _covers(view, partition, offset)]
        if missing and _deleted(partition, offset):
            self.deleted += 1
            return
        if any(_is_whole_log(view) for view in missing):
            self._lost(client, records, number, partition)
        elif missing:
            names = ", ".join(view.name for view in missing)
            self.state.find(
                Anomaly.UNSEEN,
                f"record {client}:{number} is acknowledged{_at(offset)}, and never came to {names}",
                partition,
                offsets=(offset,) if offset >= 0 else (),
                values=(packed(client, number),),
            )
        elif self._is_elsewhere(records, number, partition):
            acked_at = records.acked_at[number]
            self.state.find(
                Anomaly.INCONSISTENT_OFFSETS,
                f"record {client}:{number} was acknowledged at offset {acked_at}, and the log has it only elsewhere",
                partition,
                offsets=(acked_at, offset),
                values=(packed(client, number),),
            )

    def _lost(self, client: int, records: Records, number: int, partition: PartitionState) -> None:
        offset, views = records.acked_at[number], self.state.views.values()
        got = [view.name for view in views if records.views[number] & view.bit]
        high = partition.highs.get(Isolation.UNCOMMITTED)
        self.state.find(
            Anomaly.LOST_WRITE,
            f"{records.kind} record {client}:{number} is acknowledged{_at(offset)}, and is not in the log from "
            f"{partition.low} to {high}; read before the end by {', '.join(got) or 'nobody'}",
            partition,
            offsets=(offset,) if offset >= 0 else (),
            values=(packed(client, number),),
        )

    def _is_elsewhere(self, records: Records, number: int, partition: PartitionState) -> bool:
        """True for a record that a final reader got, but not where it was acknowledged.

        If it may be in the log only once, that is a duplicate.
        """
        read_finally = Isolation.UNCOMMITTED in partition.reached
        acked = records.acked_at[number] != UNKNOWN_OFFSET and records.acked_at[number] >= partition.low
        return read_finally and acked and not records.once(number) and not records.views[number] & WHERE_ACKNOWLEDGED


def _is_whole_log(view: View) -> bool:
    return view.kind is ClientKind.FINAL and view.isolation is Isolation.UNCOMMITTED


def _covers(view: View, partition: PartitionState, offset: int) -> bool:
    """True unless this is a final reader that did not get as far; that one is stuck."""
    if view.kind is not ClientKind.FINAL or view.isolation in partition.reached:
        return True
    return UNKNOWN_OFFSET < offset < partition.covered.get(view.isolation, 0)


def _deleted(partition: PartitionState, offset: int) -> bool:
    """True if the log begins after the record, or may do so if nobody knows the record's offset."""
    if offset >= 0:
        return offset < partition.low
    first = next(partition.owners.between(0, 1 << 62), None)
    return first is not None and first[0] < partition.low


def _at(offset: int) -> str:
    return f" at offset {offset}" if offset >= 0 else " without an offset"
