"""Note the place of each record: an offset has one record, and a record of most producers has one offset."""

from __future__ import annotations

from proxy.judge.columns import FOREIGN, packed, unpacked
from proxy.judge.findings import Anomaly
from proxy.judge.operations import UNKNOWN_OFFSET
from proxy.judge.state import PartitionState, State


def place(state: State, partition: PartitionState, offset: int, client: int, number: int) -> None:
    """Note that a record was acknowledged or read at an offset."""
    value = packed(client, number)
    _own(state, partition, offset, value)
    records = state.producers[client]
    known = records.places[number]
    if known == UNKNOWN_OFFSET:
        records.places[number] = offset
    elif known != offset and (value, offset) not in state.repeated:
        state.repeated.add((value, offset))


def judge_repeated(state: State) -> None:
    """Find records that are at two offsets, although their producers promise that they are not."""
    for value, offset in sorted(state.repeated):
        if offset < 0:
            continue
        client, number = unpacked(value)
        records = state.producers[client]
        if records.once(number):
            known = records.places[number]
            state.find(
                Anomaly.DUPLICATE,
                f"{records.kind} record {unpacked(value)} is at offset {known} and at offset {offset}",
                state.partitions[records.partitions[number]],
                offsets=(known, offset),
                values=(value,),
            )


def place_foreign(state: State, partition: PartitionState, offset: int) -> None:
    """Note that an offset has a record that is not of this run."""
    _own(state, partition, offset, FOREIGN)


def _own(state: State, partition: PartitionState, offset: int, value: int) -> None:
    owner = partition.owners.own(offset, value)
    if owner != value and (value, ~offset) not in state.repeated:
        state.repeated.add((value, ~offset))  # once per offset and value, and not taken for a second place
        one, other = (str(unpacked(each)) if each >= 0 else "a record of others" for each in (owner, value))
        state.find(
            Anomaly.INCONSISTENT_OFFSETS,
            f"offset {offset} has {one} and {other}",
            partition,
            offsets=(offset,),
            values=(owner, value),
        )
