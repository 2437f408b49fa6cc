"""Batches and records as people and scripts read them: the fields of `kafka-dump-log`, by its names."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from proxy.inspection.dump import DumpedBatch
from proxy.inspection.records import EndMarker, Record, end_marker
from proxy.inspection.segments import Extent
from proxy.records.batches import MAGIC
from proxy.records.compression import NAMES

_UNUSED = "unused"
"""Owner of a batch that no index row points to."""


def batch_line(batch: DumpedBatch, base_offset: int, owner: Extent | None, known: bool) -> str:
    """One line. `known`: whether the coordinator was asked for the batch's `owner`."""
    header = batch.header
    times = "LogAppendTime" if header.timestamp_type else "CreateTime"
    line = (
        f"baseOffset: {base_offset} lastOffset: {base_offset + header.last_offset_delta} count: {header.record_count} "
        f"baseSequence: {header.base_sequence} lastSequence: {batch.last_sequence} producerId: {header.producer_id} "
        f"producerEpoch: {header.producer_epoch} partitionLeaderEpoch: {header.partition_leader_epoch} "
        f"isTransactional: {_flag(header.is_transactional)} isControl: {_flag(header.is_control)} "
        f"position: {batch.position} {times}: {header.max_timestamp_ms} size: {header.length} magic: {MAGIC} "
        f"compresscodec: {_codec(header.compression)} crc: {header.crc} isvalid: {_flag(batch.is_valid)}"
    )
    if known:
        line += f" partition: {owner.topic}-{owner.partition}" if owner is not None else f" partition: {_UNUSED}"
    return line


def record_line(record: Record, batch: DumpedBatch, base_offset: int) -> str:
    """One line, indented as a batch's records are. Bytes that are no printable text are escaped."""
    header = batch.header
    times = "LogAppendTime" if header.timestamp_type else "CreateTime"
    sequence = -1 if header.base_sequence < 0 else (header.base_sequence + record.offset_delta) & 0x7FFF_FFFF
    headers = ",".join(_text(name.encode()) for name, _ in record.headers)
    line = (
        f"| offset: {base_offset + record.offset_delta} {times}: {record.timestamp_ms} keySize: {_size(record.key)} "
        f"valueSize: {_size(record.value)} sequence: {sequence} headerKeys: [{headers}]"
    )
    if record.headers:
        shown = ", ".join(f"{_text(name.encode())}: {_text(value)}" for name, value in record.headers)
        line += f" headers: {{{shown}}}"
    if header.is_control and (marker := end_marker(record)) is not None:
        return f"{line} endTxnMarker: {_outcome(marker)} coordinatorEpoch: {marker.coordinator_epoch}"
    if record.key is not None:
        line += f" key: {_text(record.key)}"
    if record.value is not None:
        line += f" payload: {_text(record.value)}"
    return line


def batch_as_json(
    batch: DumpedBatch,
    base_offset: int,
    owner: Extent | None,
    known: bool,
    records: Sequence[Record] | None,
    broken: str | None,
) -> dict[str, Any]:
    """The same for scripts. `records`: None if they were not asked for; `broken`: why they can't be read."""
    header = batch.header
    shown: dict[str, Any] = {
        "baseOffset": base_offset,
        "lastOffset": base_offset + header.last_offset_delta,
        "count": header.record_count,
        "baseSequence": header.base_sequence,
        "lastSequence": batch.last_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.partition_leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "position": batch.position,
        "timestampType": "LogAppendTime" if header.timestamp_type else "CreateTime",
        "timestamp": header.max_timestamp_ms,
        "size": header.length,
        "magic": MAGIC,
        "compresscodec": _codec(header.compression),
        "crc": header.crc,
        "isvalid": batch.is_valid,
    }
    if known:
        shown["topic"] = owner.topic if owner is not None else None
        shown["partition"] = owner.partition if owner is not None else None
    if records is not None:
        shown["records"] = [
            {
                "offset": base_offset + record.offset_delta,
                "timestamp": record.timestamp_ms,
                **_bytes("key", record.key),
                **_bytes("value", record.value),
                "headers": [{"key": name, **_bytes("value", value)} for name, value in record.headers],
                **(_marker_as_json(record) if header.is_control else {}),
            }
            for record in records
        ]
    if broken is not None:
        shown["error"] = broken
    return shown


def _marker_as_json(record: Record) -> dict[str, Any]:
    marker = end_marker(record)
    return {} if marker is None else {"endTxnMarker": _outcome(marker), "coordinatorEpoch": marker.coordinator_epoch}


def _outcome(marker: EndMarker) -> str:
    return "COMMIT" if marker.committed else "ABORT"


def _codec(codec: int) -> str:
    return NAMES[codec] if codec < len(NAMES) else f"unknown ({codec})"


def _flag(value: bool) -> str:
    return str(value).lower()


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _text(data: bytes | None) -> str:
    """Readable, on one line, and nothing that a terminal would obey."""
    if data is None:
        return "null"
    text = data.decode(errors="backslashreplace")
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def _bytes(name: str, data: bytes | None) -> dict[str, str | None]:
    """Return text if it is UTF-8, else Base64 under another name."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}
