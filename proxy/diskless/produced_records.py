"""The demands of brokers on each single record of a produced batch: readable, with a valid time, with a key. Sans-io.

This follows `LogValidator.validateRecord` of Kafka 4.x: compacted topics reject a record without a key, and every topic
with CreateTime rejects a record whose time is too far from now. It may take long: about half a microsecond per record.
"""

from __future__ import annotations

from typing import NamedTuple

from proxy.protocol.errors import INVALID_RECORD, INVALID_TIMESTAMP
from proxy.records.batches import BatchHeader, RecordsError
from proxy.records.compression import Buffer
from proxy.records.varint import read_varint

NO_TIMESTAMP = -1
MOST_RECORD_ERRORS = 100
"""Maximum number of offending records in an answer. A batch can hold millions of a few bytes; nobody reads that
many."""
_MOST_IN_TEXT = 3


class RecordRules(NamedTuple):
    """The demands on the records of one batch."""

    earliest_ms: int
    latest_ms: int
    """A record's time lies within both, in milliseconds since 1970, or is NO_TIMESTAMP."""
    check_times: bool = True
    check_keys: bool = False
    """Whether every record has to have a key."""
    partition: str = ""
    """`topic-partition`, for the texts."""


def newest_time(records: Buffer, header: BatchHeader, rules: RecordRules) -> int:
    """Return the newest time of the decompressed records of a batch, in milliseconds; NO_TIMESTAMP if none has one.

    Raises RecordsError: INVALID_RECORD if the records do not match the header, INVALID_TIMESTAMP or INVALID_RECORD as
    brokers do, with the first offending records (MOST_RECORD_ERRORS).
    """
    data = bytes(records)  # of which single bytes are read faster than of any view
    size, at, newest_ms = len(data), 0, NO_TIMESTAMP
    base_ms, earliest_ms, latest_ms = header.base_timestamp_ms, rules.earliest_ms, rules.latest_ms
    check_times, check_keys = rules.check_times, rules.check_keys
    wrong_times, wrong = False, []
    try:
        for place in range(header.record_count):
            # Most numbers take a byte, most lengths two: those are read here, where a call would take longer.
            value = data[at]
            if value < 0x80:
                length, start = (value >> 1) ^ -(value & 1), at + 1
            elif data[at + 1] < 0x80:
                value = value & 0x7F | data[at + 1] << 7
                length, start = (value >> 1) ^ -(value & 1), at + 2
            else:
                length, start = read_varint(data, at)
            value, at = data[start + 1], start + 2
            if value < 0x80:
                time_ms = base_ms + ((value >> 1) ^ -(value & 1))
            else:
                value, at = read_varint(data, start + 1)
                time_ms = base_ms + value
            if data[at] < 0x80:
                at += 1
            else:
                _, at = read_varint(data, at)
            end = start + length
            if not at <= end <= size:
                raise RecordsError(INVALID_RECORD, f"a record of {length} bytes at {start} of {size}")
            if check_keys and (at == end or data[at] & 1):  # a varint's sign is the lowest bit of its first byte
                text = f"Compacted topic cannot accept message without key in topic partition {rules.partition}"
                wrong.append((place, text))
                if len(wrong) == MOST_RECORD_ERRORS:
                    break
            elif check_times and not earliest_ms <= time_ms <= latest_ms and time_ms != NO_TIMESTAMP:
                # The offset that a producer gives a record is its place.
                text = (
                    f"Timestamp {time_ms} of message with offset {_offset(data, start)} is out of range. "
                    f"The timestamp should be within [{earliest_ms}, {latest_ms}]"
                )
                wrong.append((place, text))
                wrong_times = True
                if len(wrong) == MOST_RECORD_ERRORS:
                    break
            if time_ms > newest_ms:
                newest_ms = time_ms
            at = end
        else:
            if at != size:
                raise RecordsError(INVALID_RECORD, f"{size - at} bytes follow the last record of a batch")
    except IndexError as error:
        raise RecordsError(INVALID_RECORD, f"the records of a batch can't be read: {error}") from error
    except RecordsError as error:
        raise RecordsError(INVALID_RECORD, str(error)) from error
    if wrong:
        raise _refused(wrong, wrong_times=wrong_times)
    return newest_ms


def _offset(data: bytes, start: int) -> int:
    """Return the offset delta of the record whose attributes stand at `start`."""
    _, at = read_varint(data, start + 1)
    return read_varint(data, at)[0]


def _refused(wrong: list[tuple[int, str]], *, wrong_times: bool) -> RecordsError:
    """Return the error as brokers do: they report wrong times first, and show three of other errors."""
    if wrong_times:
        text = "One or more records have been rejected due to invalid timestamp"
        return RecordsError(INVALID_TIMESTAMP, text, tuple(wrong))
    shown = ", ".join(f"RecordError(batchIndex={place}, message='{text}')" for place, text in wrong[:_MOST_IN_TEXT])
    text = (
        f"One or more records have been rejected due to {len(wrong)} record errors in total, and only showing the "
        f"first three errors at most: [{shown}]"
    )
    return RecordsError(INVALID_RECORD, text, tuple(wrong))
