"""The bytes of the scripts' arguments and replies. One string costs a fifth of separate arguments or replies.

The top of each script in `lua/` has the layouts. Numbers are big-endian.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from struct import Struct
from struct import error as StructError
from typing import Any

from proxy.coordinator.interface import (
    Announcement,
    BatchAnswer,
    DeleteRequest,
    FindRequest,
    IndexSize,
    ListRequest,
    LogAnswer,
    LogDescription,
    LogStart,
    OffsetAnswer,
    PartitionRun,
    ProducerDescription,
    RetainRequest,
    Row,
    RunAnswer,
    SegmentUse,
)
from proxy.coordinator.interface_transactions import AbortedTransaction
from proxy.coordinator.packing_state import REPLY_HEADER_BYTES
from proxy.coordinator.shards import PARTITION_BYTES, partition_key, split_partition_key

MAX_EXACT = 2**53 - 1
"""The largest number that the store's scripts can distinguish from its neighbours."""

LAST_SEQUENCE = 2**31 - 1
"""Last sequence of a producer; 0 comes after it."""

_COMMIT_SETTINGS = Struct(">IQ16sQ?")
_FIND_LIMITS = Struct(">II")
_DELETE_LIMITS = Struct(">IB")
_RUN = Struct(">20sI")
_BATCH = Struct(">qI?IIqhiI")
_RUN_ANSWER = Struct(">qqh")
_BATCH_ANSWER = Struct(">hBqq")
_FIND = Struct(">20sqq")
_LOG_ANSWER = Struct(">hqqqII")
_ROW = Struct(">qq8xB16sqIIq8x")
"""Last offset, base offset, format with flags, segment, append time, position, length, maximum timestamp."""
ROW_IS_LOG_APPEND_TIME, ROW_HAS_OFFSETS_IN_PLACE = 0x10, 0x20
"""Flags in a row's first byte, next to its format."""
_DUPLICATE, _EARLY = 1, 2
_LIST = Struct(">20sqq")
_OFFSET_ANSWER = Struct(">hqqq")
_TRIM = Struct(">20sqqqB")
_TRIM_LIMITS = Struct(">Iq")
_LOG_START = Struct(">hqB")
_AGE = Struct(">QI")
_PACKING_LIMITS = Struct(">IQII")
_INDEX_SIZE = Struct(">QQ")
_SEGMENT_USE = Struct(">qI")
_DESCRIPTION = Struct(">?qqqqq")
_PRODUCERS_LIMITS = Struct(">IQ")
_PRODUCER = Struct(">qhiqiq")
_FORGET = Struct(">20sQ")
_FORGOTTEN = Struct(">?QI")
_ANNOUNCED = Struct(">20sqqqB16sqIIq8x")
"""Topic ID and partition, last offset, base offset, log start, then as in a row; not all entries are rows, see the
formats."""
_ENDS_FORMAT, _ABORTED_FORMAT = 0, 4
"""Formats of entries that say where a log ends, and of aborted transactions."""
_KIND = Struct(">Bq")
_ABORTED = Struct(">qqqq")
_ABORTED_SEGMENT = Struct(">qq")

_NO_OFFSET = -2
_NO_RETENTION = -1


def pack_commit_settings(
    batches_remembered: int,
    producer_id_expiration_ms: int,
    segment: bytes,
    max_index_bytes: int,
    *,
    transactional: bool = False,
) -> bytes:
    """Return the third argument of `commit.lua`. `transactional`: some batches are, so all runs are packed so."""
    expiration_ms = min(producer_id_expiration_ms, MAX_EXACT)
    return _COMMIT_SETTINGS.pack(batches_remembered, expiration_ms, segment, max_index_bytes, transactional)


def pack_find_limits(max_rows: int, max_rows_in_all: int) -> bytes:
    """Return the third argument of `find.lua`."""
    return _FIND_LIMITS.pack(max_rows, max_rows_in_all)


def pack_delete_limits(max_rows: int, *, goes_on: bool) -> bytes:
    """Return the third argument of `delete_logs.lua`."""
    return _DELETE_LIMITS.pack(max_rows, goes_on)


def are_transactional(runs: Sequence[PartitionRun]) -> bool:
    """True if some batches belong to a transaction."""
    return any(batch.transaction_version for run in runs for batch in run.batches)


def pack_run(run: PartitionRun, *, transactional: bool = False) -> bytes:
    """Return one partition run for `commit.lua`. Timestamps beyond ±2^53 ms are cut to that.

    Raises ValueError if a number is out of the range that a checked batch can have.
    """
    key = partition_key(run.topic_id, run.partition)
    parts = [_RUN.pack(key, len(run.batches))]
    position = run.position
    for batch in run.batches:
        if batch.length < 1 or not 1 <= batch.record_count < 1 << 31:
            raise ValueError(f"a batch of {batch.length} bytes and {batch.record_count} offsets can't be committed")
        parts.append(
            pack_checked(
                _BATCH,
                batch.producer_id,
                position,
                run.log_append_time,
                batch.length,
                batch.record_count,
                exact(batch.max_timestamp_ms),
                batch.producer_epoch,
                batch.base_sequence,
                (batch.base_sequence + batch.record_count) & LAST_SEQUENCE,
            )
        )
        position += batch.length
    if transactional:
        parts += [pack_checked(_KIND, batch.transaction_version, exact(batch.markers_from)) for batch in run.batches]
    return b"".join(parts)


def unpack_run_answers(reply: bytes, runs: Sequence[PartitionRun]) -> Iterator[RunAnswer]:
    """Yield the answers in the reply of `commit.lua` to `runs`."""
    at = REPLY_HEADER_BYTES
    for run in runs:
        log_start_offset, high_watermark, error_code = _RUN_ANSWER.unpack_from(reply, at)
        at += _RUN_ANSWER.size
        batches: tuple[BatchAnswer, ...] = ()
        if not error_code:
            end = at + len(run.batches) * _BATCH_ANSWER.size
            batches = tuple(
                BatchAnswer(code, base_offset, append_time_ms, flag == _DUPLICATE, flag == _EARLY)
                for code, flag, append_time_ms, base_offset in _BATCH_ANSWER.iter_unpack(reply[at:end])
            )
            at = end
        yield RunAnswer(run.topic_id, run.partition, error_code, batches, log_start_offset, high_watermark)


def pack_find(request: FindRequest) -> bytes:
    """Return one request for `find.lua`."""
    key = partition_key(request.topic_id, request.partition)
    return pack_checked(_FIND, key, exact(request.offset), exact(request.max_bytes))


def unpack_log_answers(reply: bytes) -> Iterator[LogAnswer]:
    """Yield the answers in the reply of `find.lua`."""
    at = REPLY_HEADER_BYTES
    while at < len(reply):
        error_code, log_start_offset, high_watermark, stable, row_count, aborted_count = _LOG_ANSWER.unpack_from(
            reply, at
        )
        at += _LOG_ANSWER.size
        rows, at = _unpack_rows(reply, at, row_count)
        aborted, at = _unpack_aborted(reply, at, aborted_count) if aborted_count else ((), at)
        yield LogAnswer(error_code, rows, log_start_offset, high_watermark, stable, aborted)


def pack_list(request: ListRequest) -> bytes:
    """Return one request for `list_offsets.lua`."""
    key = partition_key(request.topic_id, request.partition)
    return pack_checked(_LIST, key, exact(request.timestamp_ms), exact(request.from_offset))


def unpack_offset_answers(reply: bytes) -> Iterator[tuple[OffsetAnswer, int]]:
    """Yield the answers in the reply of `list_offsets.lua`, each with the offset to continue from; -1 at the end."""
    for error_code, offset, timestamp_ms, again_from in _OFFSET_ANSWER.iter_unpack(reply[REPLY_HEADER_BYTES:]):
        yield OffsetAnswer(error_code, offset, timestamp_ms), again_from


def pack_delete(request: DeleteRequest) -> bytes:
    """Return one request for `trim.lua`. An offset below -1, which no log can have, becomes -3."""
    key = partition_key(request.topic_id, request.partition)
    before = request.before_offset if request.before_offset >= -1 else _NO_OFFSET - 1
    return pack_checked(_TRIM, key, exact(before), _NO_RETENTION, _NO_RETENTION, 0)


def pack_retain(request: RetainRequest) -> bytes:
    """Return one request for `trim.lua`."""
    key = partition_key(request.topic_id, request.partition)
    retention_ms, retention_bytes = exact(request.retention_ms), exact(request.retention_bytes)
    return pack_checked(_TRIM, key, _NO_OFFSET, retention_ms, retention_bytes, request.by_append_time)


def pack_trim_limits(max_rows: int, now_ms: int) -> bytes:
    """Return the third argument of `trim.lua`."""
    return _TRIM_LIMITS.pack(max_rows, now_ms)


def unpack_log_starts(reply: bytes) -> Iterator[tuple[LogStart, bool]]:
    """Yield the log starts in the reply of `trim.lua`, each with whether there is more to free."""
    for error_code, log_start_offset, more in _LOG_START.iter_unpack(reply[REPLY_HEADER_BYTES:]):
        yield LogStart(error_code, log_start_offset), bool(more)


def pack_age(older_than_ms: int, limit: int) -> bytes:
    """Return the third argument of `garbage.lua`."""
    return _AGE.pack(older_than_ms, limit)


def unpack_segments(reply: bytes) -> list[bytes]:
    """Return the answer in the reply of `garbage.lua`."""
    body = reply[REPLY_HEADER_BYTES:]
    return [body[at : at + 16] for at in range(0, len(body), 16)]


def unpack_segment_use(reply: bytes) -> Iterator[SegmentUse]:
    """Yield the answers in the reply of `segment_use.lua`."""
    return map(SegmentUse._make, _SEGMENT_USE.iter_unpack(reply[REPLY_HEADER_BYTES:]))


def unpack_flags(reply: bytes) -> list[bool]:
    """Return the answer in the reply of `tombstone.lua`."""
    return [bool(flag) for flag in reply[REPLY_HEADER_BYTES:]]


_MORE, _REMOVED = 1, 2


def unpack_packed(reply: bytes) -> list[tuple[bool, bool]]:
    """Return the answer in the reply of `pack.lua`: is there more to pack, and were rows beyond a log's end removed."""
    return [(bool(flags & _MORE), bool(flags & _REMOVED)) for flags in reply[REPLY_HEADER_BYTES:]]


def pack_packing_limits(max_rows: int, older_than_ms: int, fewest_rows: int, most_rows: int) -> bytes:
    """Return the third argument of `pack.lua`. Raises ValueError if a call could not fill one pack."""
    if not 1 < fewest_rows <= most_rows <= max_rows:
        raise ValueError(f"packs of {fewest_rows} to {most_rows} rows can't be made of {max_rows} rows a call")
    return _PACKING_LIMITS.pack(max_rows, older_than_ms, fewest_rows, most_rows)


def unpack_index_size(reply: bytes) -> IndexSize:
    """Return the answer in the reply of `index_size.lua`."""
    return IndexSize._make(_INDEX_SIZE.unpack_from(reply, REPLY_HEADER_BYTES))


def unpack_descriptions(reply: bytes) -> Iterator[LogDescription | None]:
    """Yield the answers in the reply of `describe.lua`."""
    for lives, *figures in _DESCRIPTION.iter_unpack(reply[REPLY_HEADER_BYTES:]):
        yield LogDescription._make(figures) if lives else None


def pack_producers_limits(most: int, producer_id_expiration_ms: int, from_place: bytes) -> bytes:
    """Return the third argument of `producers.lua`."""
    return _PRODUCERS_LIMITS.pack(most, min(producer_id_expiration_ms, MAX_EXACT)) + from_place


def unpack_producers(reply: bytes) -> tuple[bool, bytes, list[ProducerDescription]]:
    """Return what the reply of `producers.lua` has: whether the log exists, the place to continue from, and
    producers."""
    lives, length = reply[REPLY_HEADER_BYTES : REPLY_HEADER_BYTES + 2]
    at = REPLY_HEADER_BYTES + 2 + length
    found = [ProducerDescription._make(fields) for fields in _PRODUCER.iter_unpack(reply[at:])]
    return bool(lives), reply[at - length : at], found


def pack_forget(key: bytes, from_id: int) -> bytes:
    """Return one request for `forget_producers.lua`, for producer IDs from that one on."""
    return pack_checked(_FORGET, key, from_id)


def pack_forget_limits(most: int, producer_id_expiration_ms: int) -> bytes:
    """Return the third argument of `forget_producers.lua`."""
    return _PRODUCERS_LIMITS.pack(most, min(producer_id_expiration_ms, MAX_EXACT))


def unpack_forgotten(reply: bytes) -> Iterator[tuple[bool, int, int]]:
    """Yield whether there is more, the ID to continue with, and the number of forgotten producers, for each log."""
    return _FORGOTTEN.iter_unpack(reply[REPLY_HEADER_BYTES:])


def unpack_partition_keys(reply: bytes) -> list[bytes]:
    """Return the answer in the reply of `create_logs.lua` and `delete_logs.lua`."""
    body = reply[REPLY_HEADER_BYTES:]
    return [body[at : at + PARTITION_BYTES] for at in range(0, len(body), PARTITION_BYTES)]


def unpack_announcements(message: bytes) -> Iterator[Announcement]:
    """Return what scripts publish, after the shard's state: the new rows of each partition, or none; then aborted
    transactions; then where the log ends, unless the last row says it."""
    entries = _ANNOUNCED.iter_unpack(message[REPLY_HEADER_BYTES:])
    for key, of_partition in groupby(entries, key=itemgetter(0)):
        entries_of_log = list(of_partition)
        _, last_offset, last_base, log_start_offset, last_flags, *_ = entries_of_log[-1]
        rows, aborted = [], []
        for _, last, base, _, flags, *fields in entries_of_log:
            if flags == _ABORTED_FORMAT:
                aborted.append(AbortedTransaction(last, base, *_ABORTED_SEGMENT.unpack(fields[0])))
            elif flags != _ENDS_FORMAT:
                rows.append(row_of(flags, base, last, fields))
        stable = last_base if last_flags == _ENDS_FORMAT else last_offset + 1
        ends = (log_start_offset, last_offset + 1, stable)
        yield Announcement(*split_partition_key(key), tuple(rows), *ends, tuple(aborted))


def unpack_strings(packed: bytes, at: int = 0) -> Iterator[bytes]:
    """Yield the strings in `packed`, each with its length in the four bytes before it."""
    while at < len(packed):
        end = at + 4 + int.from_bytes(packed[at : at + 4], "big")
        yield packed[at + 4 : end]
        at = end


def row_of(flags: int, base_offset: int, last_offset: int, fields: Iterable[Any]) -> Row:
    """Return a row from its fields as the store packs them; `fields` are those after the flags, from the segment on."""
    segment, append_time_ms, position, length, max_timestamp_ms = fields
    stamped, in_place = flags & ROW_IS_LOG_APPEND_TIME != 0, flags & ROW_HAS_OFFSETS_IN_PLACE != 0
    values = (base_offset, last_offset, segment, position, length, max_timestamp_ms, append_time_ms, stamped, in_place)
    return tuple.__new__(Row, values)


def _unpack_rows(packed: bytes, at: int, count: int) -> tuple[tuple[Row, ...], int]:
    end = at + count * _ROW.size
    return tuple(
        [row_of(flags, base, last, fields) for last, base, flags, *fields in _ROW.iter_unpack(packed[at:end])]
    ), end


def _unpack_aborted(packed: bytes, at: int, count: int) -> tuple[tuple[AbortedTransaction, ...], int]:
    end = at + count * _ABORTED.size
    return tuple(map(AbortedTransaction._make, _ABORTED.iter_unpack(packed[at:end]))), end


def exact(number: int) -> int:
    """Return the nearest number that scripts can distinguish from its neighbours."""
    return max(-MAX_EXACT, min(number, MAX_EXACT))


def pack_checked(layout: Struct, *values: bytes | int) -> bytes:
    """Return the packed values. Raises ValueError if a number is out of the layout's range."""
    try:
        return layout.pack(*values)
    except StructError as error:
        raise ValueError(f"{values} can't be packed for the coordinator: {error}") from error
