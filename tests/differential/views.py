"""Answers in a form that is the same for both sides: without names, IDs, and append times."""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

from aiokafka.codec import gzip_decode, lz4_decode, snappy_decode, zstd_decode
from crc32c import crc32c

from tests.differential.side import NO_ID, Side

APPEND_TIME = "when it was appended"
REWRITTEN = "depends on the compressor"
CUT = "bytes of a batch that is cut off"
BATCHES = "batches"
_HEADER = struct.Struct(">qiibIhiqqqhii")
_LOG_APPEND_TIME = 8
_CODEC_MASK = 7
DECODE = {1: gzip_decode, 2: snappy_decode, 3: lz4_decode, 4: zstd_decode}
_TOLERANCE_MS = 2_000
_TIMES = {"timestamp", "log_append_time"}
_NAMES = {"name", "topic", "resource_name"}
_IDS = {"topic_id"}
_ORDERS = ("index", "partition_index", "partition")
_LEFT_OUT = {"throttle_time"}
"""Fields that are left out; quotas have their own tests."""


class Batch(NamedTuple):
    """A batch as it is read."""

    base_offset: int
    last_offset: int
    length: int | str
    leader_epoch: int
    attributes: int
    base_time_ms: int | str
    max_time_ms: int | str
    producer: tuple[int, int, int]
    """ID, epoch, first sequence."""
    records_count: int
    crc: int | str
    """CRC, or APPEND_TIME or REWRITTEN instead of a right CRC that covers such a time or such bytes."""
    records: bytes
    """Record bytes as they are, or decompressed if that is REWRITTEN."""


def _place(one: Any) -> int:
    """Sort key by partition number: brokers answer in the order of their hash tables, so clients go by the number."""
    return next((one[name] for name in _ORDERS if name in one), 0) if isinstance(one, dict) else 0


@dataclass(frozen=True, slots=True)
class View:
    """Brings answers of one side into the common form."""

    side: Side

    def of(self, answer: Any, name: str = "") -> Any:
        """Convert an answer, or the field of an answer with this name."""
        if isinstance(answer, dict):
            view = {key: self.of(value, key) for key, value in answer.items() if key not in _LEFT_OUT}
            if "aborted_transactions" in view:
                # Null and empty mean the same to clients, and brokers return sometimes one, sometimes the other.
                view["aborted_transactions"] = view["aborted_transactions"] or []
            if "records" in view:
                view[BATCHES], view[CUT] = self.batches(view.pop("records"))
            return view
        if isinstance(answer, list):
            return sorted((self.of(each, name) for each in answer), key=_place)
        if name in _TIMES:
            return self.time(answer)
        if name in _IDS:
            return self._name_of_id(answer)
        if name in _NAMES and answer == self.side.topic:
            return "the topic"
        return answer

    def _name_of_id(self, topic_id: bytes) -> str:
        if topic_id == NO_ID:
            return "no ID"
        names = {self.side.former_id: "the former topic", self.side.topic_id: "the topic"}
        return names.get(topic_id, topic_id.hex())

    def time(self, time_ms: int) -> int | str:
        """Return a time relative to the case's beginning; producers never use a time during the run."""
        if self.side.began_ms - _TOLERANCE_MS <= time_ms <= time.time() * 1000 + _TOLERANCE_MS:
            return APPEND_TIME
        return time_ms if time_ms < 0 else time_ms - self.side.began_ms

    def batches(self, records: bytes | None) -> tuple[list[Batch], int]:
        """Return the complete batches, and the number of bytes of a batch that is cut off."""
        found, at, data = [], 0, records or b""
        while len(data) - at >= _HEADER.size:
            length = 12 + struct.unpack_from(">i", data, at + 8)[0]
            if length > len(data) - at:
                break
            found.append(self._batch(data[at : at + length]))
            at += length
        return found, len(data) - at

    def _batch(self, data: bytes) -> Batch:
        base, _, epoch, magic, crc, attributes, delta, base_ms, max_ms, *producer, count = _HEADER.unpack_from(data)
        assert magic == 2, f"magic {magic} is read back"
        assert crc32c(data[21:]) == crc, f"a batch at {base} is read back whose CRC is wrong"
        max_time = self.time(max_ms)
        covered: int | str = APPEND_TIME if attributes & _LOG_APPEND_TIME and max_time == APPEND_TIME else crc
        if self._is_rewritten(attributes):
            covered = REWRITTEN
        return Batch(
            base,
            base + delta,
            REWRITTEN if self._is_rewritten(attributes) else len(data),
            epoch,
            attributes,
            self.time(base_ms),
            max_time,
            (producer[0], producer[1], producer[2]),
            count,
            covered,
            DECODE[attributes & _CODEC_MASK](data[_HEADER.size :]) if self._is_rewritten(attributes) else data[61:],
        )

    def _is_rewritten(self, attributes: int) -> bool:
        return self.side.rewritten and bool(attributes & _CODEC_MASK)
