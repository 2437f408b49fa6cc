"""Calls of the scripts of a view: the records of the journal, and calls that no record is about."""

from __future__ import annotations

from proxy.coordinator import packing_state, scripts
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_journal import JournalRecord
from proxy.coordinator.journal_records import JournalledCall, RecordTooNew, unpack_record
from proxy.coordinator.shards import REGISTRY_PREFIX, shard_prefix

JOURNALLED = frozenset(
    {
        "commit",
        "create_logs",
        "delete_logs",
        "trim",
        "replace",
        "mark_compacted",
        "tombstone",
        "release",
        "correct_use",
        "forget_producers",
        "enlist",
        "apply_markers",
    }
)
"""Scripts of shards whose calls are records of the journal: all that change an answer of any script."""
OF_THE_REGISTRY = frozenset(
    {"registry_reserve", "registry_activate", "registry_configure", "registry_begin_delete", "registry_remove"}
)
"""Scripts of the registry with such calls; it has the partition after the last shard's."""
NO_NEW_CHANGE = packing_state.pack_registry_change(-1, bytes(8), bytes(8))
"""The last argument of a script of the registry that changes nothing, by a caller that knows nothing."""
NOTHING_IN_THE_REGISTRY = JournalledCall("registry_skip", (NO_NEW_CHANGE,))


def packed_call(
    identity: bytes,
    shards: int,
    partition: int,
    arguments: tuple[bytes, ...],
    mode: int,
    position: int,
    time_ms: int,
    not_after_ms: int,
) -> scripts.Call:
    """Return the call of a script on a shard, or on the registry, which has the partition after the last shard's."""
    if partition == shards:
        header = packing_state.pack_registry_header(mode, position, identity)
        return scripts.Call(REGISTRY_PREFIX, (*arguments[:-1], arguments[-1] + header))
    header = packing_state.pack_view_header(
        shards, mode, identity, position=position, time_ms=time_ms, not_after_ms=not_after_ms
    )
    return scripts.Call(shard_prefix(partition), (header, *arguments))


def unpacked_call(shards: int, partition: int, record: JournalRecord) -> JournalledCall:
    """Return the call in a record of a partition. Raises CoordinatorUnavailable if a newer release wrote it."""
    try:
        if partition == shards:
            return unpack_record(record.value, OF_THE_REGISTRY, NOTHING_IN_THE_REGISTRY)
        return unpack_record(record.value, JOURNALLED)
    except RecordTooNew as error:
        raise CoordinatorUnavailable(
            f"the journal of {part_name(shards, partition)} has, at position {record.position}, {error}"
        ) from error


def part_name(shards: int, partition: int) -> str:
    """Return the name of the part of the store that a partition of the journal is about."""
    return "the registry" if partition == shards else f"shard {partition}"


def why_refused(word: str, part: str) -> str:
    """Return why a part of the store refuses a call for good; `word` is its refusal."""
    if word.startswith("APPLIED"):
        return f"a record of {part} was applied some minutes ago, and its reply is gone"
    if word.startswith("GUARDED"):
        return (
            f"{part} of the store was begun without a journal; set journal.mode: off, or run "
            "`diskless-proxy journal begin`"
        )
    if word.startswith("FOREIGN"):
        return f"{part} of the store is a view of another journal; fix redis.url, or brokers.bootstrap"
    return f"{part} of the store answers {word}"
