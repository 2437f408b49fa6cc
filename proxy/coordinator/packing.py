"""The bytes that scripts get and give: as one string each, which costs a fifth of separate arguments or replies.

The layouts are those on top of each script in `lua/`. Numbers are big-endian.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from proxy.coordinator.interface import (
    Announcement,
    BatchAnswer,
    DeleteRequest,
    FindRequest,
    ListRequest,
    LogAnswer,
    LogDescription,
    LogStart,
    OffsetAnswer,
    PartitionRun,
    RetainRequest,
    Row,
    RunAnswer,
)
from proxy.coordinator.shards import PARTITION_BYTES, partition_key, split_partition_key

MAX_EXACT = 2**53 - 1
"""The largest number that the store's scripts can tell from its neighbours."""

LAST_SEQUENCE = 2**31 - 1
"""Of a producer; 0 comes after it."""

_SHARD_HEADER = Struct(">8sI")
_REPLY_HEADER = Struct(">8sQ")
_COMMIT_SETTINGS = Struct(">IQ16s")
_FIND_LIMITS = Struct(">II")
_DELETE_LIMITS = Struct(">IB")
_RUN = Struct(">20sII")
_BATCH = Struct(">IIqqhiI")
_RUN_ANSWER = Struct(">hqq")
_BATCH_ANSWER = Struct(">hqqB")
_FIND = Struct(">20sqq")
_LOG_ANSWER = Struct(">hqqI")
_ROW = Struct(">xqq16sIIqq8x")
_LIST = Struct(">20sq")
_OFFSET_ANSWER = Struct(">hqq")
_TRIM = Struct(">20sqqqB")
_TRIM_LIMITS = Struct(">I")
_LOG_START = Struct(">hqB")
_AGE = Struct(">QI")
_DESCRIPTION = Struct(">Bqqqqq")
_ANNOUNCEMENT = Struct(">20sqqI")

_NO_OFFSET = -2
_NO_RETENTION = -1

REPLY_HEADER_BYTES = _REPLY_HEADER.size
NO_INCARNATION = bytes(8)


class ShardState(NamedTuple):
    """What every reply of a shard begins with."""

    incarnation: bytes
    """8 random bytes, made with the shard; zeros where nothing was ever written to it."""
    sequence: int
    """Writes so far."""


def pack_shard_header(new_incarnation: bytes, shards: int) -> bytes:
    """The first argument of every script of a shard."""
    return _SHARD_HEADER.pack(new_incarnation, shards)


def unpack_shard_state(reply: bytes) -> ShardState:
    """The beginning of a shard's reply."""
    return ShardState(*_REPLY_HEADER.unpack_from(reply))


def pack_commit_settings(batches_remembered: int, producer_id_expiration_ms: int, segment: bytes) -> bytes:
    """The third argument of `commit.lua`."""
    return _COMMIT_SETTINGS.pack(batches_remembered, min(producer_id_expiration_ms, MAX_EXACT), segment)


def pack_find_limits(max_rows: int, max_rows_in_all: int) -> bytes:
    """The third argument of `find.lua`."""
    return _FIND_LIMITS.pack(max_rows, max_rows_in_all)


def pack_delete_limits(max_rows: int, *, goes_on: bool) -> bytes:
    """The third argument of `delete_logs.lua`."""
    return _DELETE_LIMITS.pack(max_rows, goes_on)


def pack_run(run: PartitionRun) -> bytes:
    """One partition run for `commit.lua`. Timestamps beyond ±2^53 ms are cut to that.

    Raises ValueError where a number is out of the range that a checked batch can have.
    """
    key = partition_key(run.topic_id, run.partition)
    parts = [_pack(_RUN, key, run.position, len(run.batches))]
    for batch in run.batches:
        if batch.length < 1 or not 1 <= batch.record_count < 1 << 31:
            raise ValueError(f"a batch of {batch.length} bytes and {batch.record_count} offsets can't be committed")
        parts.append(
            _pack(
                _BATCH,
                batch.length,
                batch.record_count,
                _exact(batch.max_timestamp_ms),
                batch.producer_id,
                batch.producer_epoch,
                batch.base_sequence,
                (batch.base_sequence + batch.record_count) & LAST_SEQUENCE,
            )
        )
    return b"".join(parts)


def unpack_run_answers(reply: bytes, runs: Sequence[PartitionRun]) -> Iterator[RunAnswer]:
    """The reply of `commit.lua` to `runs`."""
    at = REPLY_HEADER_BYTES
    for run in runs:
        error_code, log_start_offset, high_watermark = _RUN_ANSWER.unpack_from(reply, at)
        at += _RUN_ANSWER.size
        batches: tuple[BatchAnswer, ...] = ()
        if not error_code:
            end = at + len(run.batches) * _BATCH_ANSWER.size
            batches = tuple(
                BatchAnswer(code, base_offset, append_time_ms, bool(duplicate))
                for code, base_offset, append_time_ms, duplicate in _BATCH_ANSWER.iter_unpack(reply[at:end])
            )
            at = end
        yield RunAnswer(run.topic_id, run.partition, error_code, batches, log_start_offset, high_watermark)


def pack_find(request: FindRequest) -> bytes:
    """One request for `find.lua`."""
    key = partition_key(request.topic_id, request.partition)
    return _pack(_FIND, key, _exact(request.offset), _exact(request.max_bytes))


def unpack_log_answers(reply: bytes) -> Iterator[LogAnswer]:
    """The reply of `find.lua`."""
    at = REPLY_HEADER_BYTES
    while at < len(reply):
        error_code, log_start_offset, high_watermark, row_count = _LOG_ANSWER.unpack_from(reply, at)
        at += _LOG_ANSWER.size
        rows, at = _unpack_rows(reply, at, row_count)
        yield LogAnswer(error_code, rows, log_start_offset, high_watermark)


def pack_list(request: ListRequest) -> bytes:
    """One request for `list_offsets.lua`."""
    return _pack(_LIST, partition_key(request.topic_id, request.partition), _exact(request.timestamp_ms))


def unpack_offset_answers(reply: bytes) -> Iterator[OffsetAnswer]:
    """The reply of `list_offsets.lua`."""
    return (OffsetAnswer(*answer) for answer in _OFFSET_ANSWER.iter_unpack(reply[REPLY_HEADER_BYTES:]))


def pack_delete(request: DeleteRequest) -> bytes:
    """One request for `trim.lua`. An offset below -1 is none that a log can have: -3 is."""
    key = partition_key(request.topic_id, request.partition)
    before = request.before_offset if request.before_offset >= -1 else _NO_OFFSET - 1
    return _pack(_TRIM, key, _exact(before), _NO_RETENTION, _NO_RETENTION, 0)


def pack_retain(request: RetainRequest) -> bytes:
    """One request for `trim.lua`."""
    key = partition_key(request.topic_id, request.partition)
    retention_ms, retention_bytes = _exact(request.retention_ms), _exact(request.retention_bytes)
    return _pack(_TRIM, key, _NO_OFFSET, retention_ms, retention_bytes, request.by_append_time)


def pack_trim_limits(max_rows: int) -> bytes:
    """The third argument of `trim.lua`."""
    return _TRIM_LIMITS.pack(max_rows)


def unpack_log_starts(reply: bytes) -> Iterator[tuple[LogStart, bool]]:
    """The reply of `trim.lua`: and whether there is more to free."""
    for error_code, log_start_offset, more in _LOG_START.iter_unpack(reply[REPLY_HEADER_BYTES:]):
        yield LogStart(error_code, log_start_offset), bool(more)


def pack_age(older_than_ms: int, limit: int) -> bytes:
    """The third argument of `garbage.lua`."""
    return _AGE.pack(older_than_ms, limit)


def unpack_segments(reply: bytes) -> list[bytes]:
    """The reply of `garbage.lua`."""
    body = reply[REPLY_HEADER_BYTES:]
    return [body[at : at + 16] for at in range(0, len(body), 16)]


def unpack_flags(reply: bytes) -> list[bool]:
    """The reply of `tombstone.lua`."""
    return [bool(flag) for flag in reply[REPLY_HEADER_BYTES:]]


def unpack_descriptions(reply: bytes) -> Iterator[LogDescription | None]:
    """The reply of `describe.lua`."""
    for lives, start, high_watermark, end, size, rows in _DESCRIPTION.iter_unpack(reply[REPLY_HEADER_BYTES:]):
        yield LogDescription(start, high_watermark, end, size, rows) if lives else None


def unpack_partition_keys(reply: bytes) -> list[bytes]:
    """The reply of `create_logs.lua` and `delete_logs.lua`."""
    body = reply[REPLY_HEADER_BYTES:]
    return [body[at : at + PARTITION_BYTES] for at in range(0, len(body), PARTITION_BYTES)]


def unpack_announcements(message: bytes) -> Iterator[Announcement]:
    """What `commit.lua` publishes: one entry per partition with new rows."""
    at = 0
    while at < len(message):
        key, log_start_offset, high_watermark, row_count = _ANNOUNCEMENT.unpack_from(message, at)
        rows, at = _unpack_rows(message, at + _ANNOUNCEMENT.size, row_count)
        yield Announcement(*split_partition_key(key), rows, log_start_offset, high_watermark)


def unpack_strings(packed: bytes, at: int = 0) -> Iterator[bytes]:
    """Strings that have their length in four bytes before them, to the end of `packed`."""
    while at < len(packed):
        end = at + 4 + int.from_bytes(packed[at : at + 4], "big")
        yield packed[at + 4 : end]
        at = end


def _unpack_rows(packed: bytes, at: int, count: int) -> tuple[tuple[Row, ...], int]:
    end = at + count * _ROW.size
    return tuple(Row._make(row) for row in _ROW.iter_unpack(packed[at:end])), end


def _exact(number: int) -> int:
    return max(-MAX_EXACT, min(number, MAX_EXACT))


def _pack(layout: Struct, *values: bytes | int) -> bytes:
    try:
        return layout.pack(*values)
    except StructError as error:
        raise ValueError(f"{values} can't be told to the coordinator: {error}") from error
