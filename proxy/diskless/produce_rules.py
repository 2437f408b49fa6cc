"""The demands of a topic's configs on a produced batch beyond its header, and the changes that brokers make by them.

This follows `LogValidator` of Kafka 4.x: every record's time must lie within `message.timestamp.before.max.ms` and
`after.max.ms` of now, every record of a compacted topic must have a key, and a batch of another codec than the topic's
`compression.type` is compressed again. Producer ID, epoch, sequences, offsets and timestamps stay as they are. Sans-io;
`prepare_batch` may take long.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from typing import NamedTuple

from crc32c import crc32c

from proxy.diskless.produced_records import RecordRules, newest_time
from proxy.protocol.cleanup_policy import is_compacted
from proxy.protocol.errors import INVALID_RECORD, MESSAGE_TOO_LARGE, UNKNOWN_SERVER_ERROR
from proxy.records.batches import (
    CRC_COVERS_FROM,
    HEADER_BYTES,
    LENGTH_END,
    SMALLEST_RECORD_BYTES,
    BatchHeader,
    RecordsError,
)
from proxy.records.compression import (
    DEFAULT_LEVELS,
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    Buffer,
    CodecError,
    TooLarge,
    compress,
    decompress,
)

APPEND_LATENCY = "diskless.append.latency.ms"
"""Config of a topic whose batches may wait longer than the commit interval, so that they cost fewer PUTs."""
DEFAULT_MAX_MESSAGE_BYTES = 1_048_588
DEFAULT_TIMESTAMP_AFTER_MAX_MS = 3_600_000
NO_BOUND_MS = 2**63 - 1
CODECS = {"uncompressed": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
"""Values of `compression.type` except for `producer`, which leaves batches as they come."""
LEVEL_CONFIGS = {GZIP: "compression.gzip.level", LZ4: "compression.lz4.level", ZSTD: "compression.zstd.level"}

_CODEC_MASK = 0x07
_LENGTH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_TIMESTAMP = struct.Struct(">q")
_LENGTH_AT, _CRC_AT, _ATTRIBUTES_AT, _MAX_TIMESTAMP_AT = 8, 17, 21, 35


class ProduceRules(NamedTuple):
    """A topic's configs as numbers; a config that is not set has Kafka's default."""

    max_message_bytes: int
    log_append_time: bool
    before_max_ms: int
    after_max_ms: int
    codec: int | None
    """None if batches keep their own."""
    level: int | None
    compacted: bool = False
    """Whether every record has to have a key (`cleanup.policy`)."""
    partition: str = ""
    """`topic-partition` of the batch, for the error about records without a key."""
    patience_s: float = 0.0
    """How long a batch may wait for others that share its segment, if that is longer than the commit interval."""

    def needs_preparing(self, header: BatchHeader, now_ms: int) -> bool:
        """Return whether the header alone does not show that the batch can be taken as it is."""
        if self.compacted or (self.codec is not None and self.codec != header.compression):
            return True
        if self.log_append_time:
            return False
        return header.max_timestamp_ms - now_ms > self.after_max_ms or self.before_max_ms != NO_BOUND_MS


def rules_of(configs: Mapping[str, str]) -> ProduceRules:
    """From a topic's configs, which were checked when they were set.

    Brokers before 4.0 know `message.timestamp.difference.max.ms`: a bound in both directions, as far as the two that
    came later (KIP-937) are not set, or set to none.
    """
    difference = configs.get("message.timestamp.difference.max.ms", "")
    # Earlier releases did not look at it when it was set.
    difference_ms = int(difference) if re.fullmatch(r"[0-9]{1,19}", difference) else NO_BOUND_MS
    before_ms = int(configs.get("message.timestamp.before.max.ms", NO_BOUND_MS))
    after_ms = int(configs.get("message.timestamp.after.max.ms", DEFAULT_TIMESTAMP_AFTER_MAX_MS))
    codec = CODECS.get(configs.get("compression.type", "producer"))
    level = configs.get(LEVEL_CONFIGS[codec]) if codec in LEVEL_CONFIGS else None
    return ProduceRules(
        int(configs.get("max.message.bytes", DEFAULT_MAX_MESSAGE_BYTES)),
        configs.get("message.timestamp.type") == "LogAppendTime",
        difference_ms if before_ms == NO_BOUND_MS else before_ms,
        difference_ms if after_ms == NO_BOUND_MS else after_ms,
        codec,
        DEFAULT_LEVELS.get(codec) if codec is not None and level is None else int(level) if level is not None else None,
        is_compacted(configs),
        patience_s=int(configs.get(APPEND_LATENCY, 0)) / 1000,
    )


def prepare_batch(
    batch: Buffer,
    header: BatchHeader,
    rules: ProduceRules,
    now_ms: int,
    *,
    max_decompressed_bytes: int,
    max_records: int,
) -> tuple[memoryview, BatchHeader]:
    """Return the batch as a broker would store it, except for its offsets, and its header.

    `header` is the result of `check_batch`. Raises RecordsError: INVALID_TIMESTAMP and INVALID_RECORD as `newest_time`
    does; MESSAGE_TOO_LARGE if the batch has become larger than `max.message.bytes`, if its records are larger than
    `max_decompressed_bytes` (or than `max.message.bytes`, if that is more), or if there are more than `max_records`;
    UNKNOWN_SERVER_ERROR (as brokers answer) if they can't be decompressed or compressed.
    """
    if header.record_count > max_records:
        # Java's producer splits such a batch, and sends its halves.
        raise RecordsError(
            MESSAGE_TOO_LARGE,
            f"record batch of {header.record_count} records is above the {max_records} that are looked at "
            "(max_prepared_batch_records); send smaller batches",
        )
    max_bytes = max(max_decompressed_bytes, rules.max_message_bytes)
    try:
        records = decompress(header.compression, memoryview(batch)[HEADER_BYTES:], max_bytes)
    except TooLarge as error:
        raise RecordsError(MESSAGE_TOO_LARGE, str(error)) from error
    except CodecError as error:
        raise RecordsError(UNKNOWN_SERVER_ERROR, str(error)) from error
    if header.record_count * SMALLEST_RECORD_BYTES > len(records):
        raise RecordsError(
            INVALID_RECORD, f"{header.record_count} records cannot lie in {len(records)} decompressed bytes"
        )
    newest_ms = min(_newest_time(records, header, rules, now_ms), NO_BOUND_MS)
    if rules.log_append_time:
        newest_ms = header.max_timestamp_ms  # the commit sets it
    codec = header.compression if rules.codec is None else rules.codec
    if codec != header.compression:
        try:
            batch = _compressed_anew(batch, records, codec, rules.level)
        except CodecError as error:
            raise RecordsError(UNKNOWN_SERVER_ERROR, str(error)) from error
    elif newest_ms != header.max_timestamp_ms:
        batch = bytearray(batch)
    else:
        return memoryview(batch), header
    if len(batch) > rules.max_message_bytes:
        raise RecordsError(
            MESSAGE_TOO_LARGE,
            f"record batch of {len(batch)} bytes, compressed as the topic wants it, is above "
            f"max.message.bytes={rules.max_message_bytes}",
        )
    return memoryview(batch), _sealed(batch, header, codec, newest_ms)


def _newest_time(records: Buffer, header: BatchHeader, rules: ProduceRules, now_ms: int) -> int:
    """Return the newest time of records that may all be taken. Raises RecordsError."""
    asked = RecordRules(
        now_ms - rules.before_max_ms,
        now_ms + rules.after_max_ms,
        check_times=not rules.log_append_time,
        check_keys=rules.compacted,
        partition=rules.partition,
    )
    return newest_time(records, header, asked)


def _compressed_anew(batch: Buffer, records: Buffer, codec: int, level: int | None) -> bytearray:
    packed = compress(codec, records, level)
    made = bytearray(HEADER_BYTES + len(packed))
    made[:HEADER_BYTES] = batch[:HEADER_BYTES]
    made[HEADER_BYTES:] = packed
    return made


def _sealed(batch: Buffer, header: BatchHeader, codec: int, newest_ms: int) -> BatchHeader:
    """Write the changed fields into the bytes of a batch, and its CRC; return the new header."""
    assert isinstance(batch, bytearray)
    attributes = header.attributes & ~_CODEC_MASK | codec
    _LENGTH.pack_into(batch, _LENGTH_AT, len(batch) - LENGTH_END)
    _ATTRIBUTES.pack_into(batch, _ATTRIBUTES_AT, attributes)
    _TIMESTAMP.pack_into(batch, _MAX_TIMESTAMP_AT, newest_ms)
    crc = crc32c(memoryview(batch)[CRC_COVERS_FROM:])
    _CRC.pack_into(batch, _CRC_AT, crc)
    return header._replace(length=len(batch), attributes=attributes, max_timestamp_ms=newest_ms, crc=crc)
