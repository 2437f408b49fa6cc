"""Objects' bytes are read and compared with their rows; the objects are in a dict."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from pipeline.audit.defects import Defect
from pipeline.audit.reads import ReadAnswer, read_rows
from pipeline.audit.spill import PlacedRow
from proxy.coordinator.interface import Row
from proxy.diskless.wal.segment import segment_key
from proxy.records.batches import patch_offsets
from tests.batches import GZIP, make_batch
from tests.support.memory_log import MemoryObjects

TIME_MS = 1_700_000_000_000
RECORDS = 5


class Object:
    """One object with a row of two batches for each of three logs."""

    def __init__(self, *, in_place: bool = False, stamped: bool = False) -> None:
        self.storage = MemoryObjects()
        self.segment = uuid.UUID(int=7).bytes
        self.key = segment_key(self.segment)
        data = bytearray([int(in_place)])
        self.rows: list[PlacedRow] = []
        for log in range(3):
            run = bytearray()
            for number in range(2):
                run += make_batch([b"v"] * RECORDS, codec=GZIP, timestamp_ms=TIME_MS + 1_000 * number)
            if in_place:
                patch_offsets(run, 100, 0)
            newest_ms = 5_000 if stamped else TIME_MS + 1_000 + RECORDS - 1
            row = Row(100, 109, self.segment, len(data), len(run), newest_ms, 5_000, stamped, in_place)
            self.rows.append(PlacedRow(log, True, row))
            data += run
        self.storage.objects[self.key] = data

    async def read(self) -> ReadAnswer:
        return await read_rows(self.storage, self.rows)  # type: ignore[arg-type]

    @property
    def data(self) -> bytearray:
        return self.storage.objects[self.key]

    def change(self, log: int, **changes: Any) -> None:
        placed = self.rows[log]
        self.rows[log] = placed._replace(row=placed.row._replace(**changes))


@pytest.mark.parametrize("kind", [{}, {"in_place": True}, {"stamped": True}])
async def test_a_right_object_takes_one_get(kind: dict[str, bool]) -> None:
    one = Object(**kind)
    answer = await one.read()
    assert answer.bad == []
    assert (answer.gets, answer.bytes_read) == (1, len(one.data))
    assert answer.batches == {0: 2, 1: 2, 2: 2}


def _change_format(one: Object) -> None:
    one.data[0] ^= 1


def _cut_off(one: Object) -> None:
    del one.data[-1:]


def _flip(one: Object) -> None:
    one.data[one.rows[2].row.position + 80] ^= 1


SPOILED: dict[str, tuple[Defect, Callable[[Object], None]]] = {
    "missing": (Defect.MISSING_OBJECT, lambda one: one.storage.objects.clear()),
    "format": (Defect.UNKNOWN_FORMAT, _change_format),
    "short": (Defect.SHORT_OBJECT, _cut_off),
    "corrupt": (Defect.CORRUPT_BATCH, _flip),
    "offsets": (Defect.WRONG_OFFSETS, lambda one: one.change(2, last_offset=110)),
    "time": (Defect.WRONG_MAX_TIMESTAMP, lambda one: one.change(2, max_timestamp_ms=TIME_MS)),
}


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("how", SPOILED)
async def test_each_defect_is_named(how: str, in_place: bool) -> None:
    one = Object(in_place=in_place)
    defect, spoil = SPOILED[how]
    spoil(one)
    answer = await one.read()
    concerned = {0, 1, 2} if how in ("missing", "format") else {2}
    assert {bad.defect for bad in answer.bad} == {defect}
    assert {bad.placed.log for bad in answer.bad} == concerned
    assert set(answer.batches) == {0, 1, 2} - concerned
    assert all(one.segment.hex() in bad.text or how == "time" for bad in answer.bad)
    if how == "missing":
        for bad in answer.bad:
            assert f"offsets {bad.placed.row.base_offset} to {bad.placed.row.last_offset}" in bad.text
            assert "restore it" in bad.text


async def test_times_of_rewritten_rows_may_be_those_of_records_that_are_gone() -> None:
    one = Object(in_place=True)
    one.change(2, max_timestamp_ms=TIME_MS + 100_000)
    assert (await one.read()).bad == []
    as_produced = Object()
    as_produced.change(2, max_timestamp_ms=TIME_MS + 100_000)
    assert [bad.defect for bad in (await as_produced.read()).bad] == [Defect.WRONG_MAX_TIMESTAMP]


async def test_a_format_is_looked_at_though_its_first_rows_are_gone() -> None:
    one = Object()
    del one.rows[0]
    _change_format(one)
    assert {bad.defect for bad in (await one.read()).bad} == {Defect.UNKNOWN_FORMAT}
