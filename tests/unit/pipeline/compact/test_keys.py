"""The keys of a chunk are read while its objects are replaced."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.aborted import NONE_ABORTED
from pipeline.compact import keys
from pipeline.compact.chunk import Unread
from pipeline.compact.keys import keys_in, keys_of
from pipeline.compact.plan import Log, Span
from pipeline.compact.spans import Work
from proxy.inspection.stores import Stores
from proxy.records.batches import RecordsError, patch_offsets
from proxy.storage.interface import ObjectMissing, StorageError
from tests.support.keyed import Keyed, foreign_header_batch, keyed_batch
from tests.support.memory_log import TOPIC
from tests.unit.pipeline.compact.simulated import Simulated

EVERYWHERE = Span(0, 0, 1 << 40, 0, 0)
RECORDS = st.lists(
    st.builds(Keyed, st.binary(max_size=2) | st.none(), st.binary(max_size=9) | st.none()), min_size=1, max_size=9
)


@given(RECORDS, st.integers(0, 4), st.integers(0, 5), st.integers(5, 9))
def test_keys_and_the_offsets_of_their_last_records(records: list[Keyed], codec: int, start: int, end: int) -> None:
    batch = keyed_batch(records, codec=codec)
    patch_offsets(batch, 0, 0)

    found = keys_of(batch, Span(0, start, end, 0, 0), NONE_ABORTED)

    wanted: dict[bytes, int] = {}
    for offset, record in enumerate(records):
        if record.key is not None and start <= offset < end:
            wanted[record.key] = offset << 1 | (record.value is None)
    assert found == wanted


@pytest.mark.parametrize("codec", range(5))
def test_keys_of_records_whose_header_keys_are_not_utf_8(codec: int) -> None:
    batch = foreign_header_batch([Keyed(b"key", b"value"), Keyed(None, b"value"), Keyed(b"gone", None)], codec=codec)
    patch_offsets(batch, 7, 0)

    assert keys_of(batch, EVERYWHERE, NONE_ABORTED) == {b"key": 7 << 1, b"gone": 9 << 1 | 1}
    assert keys_of(batch, Span(0, 0, 9, 0, 0), NONE_ABORTED) == {b"key": 7 << 1}


@given(RECORDS, st.integers(0, 4), st.data())
def test_foreign_bytes_raise_the_one_error(records: list[Keyed], codec: int, data: st.DataObject) -> None:
    batch = keyed_batch(records, codec=codec)
    for _ in range(3):
        batch[data.draw(st.integers(61, len(batch) - 1))] ^= data.draw(st.integers(1, 255))

    try:
        found = keys_of(batch, EVERYWHERE, NONE_ABORTED)
    except RecordsError:
        return
    assert len(found) <= len(records)


async def found_keys(log: Simulated, stores: Stores) -> tuple[dict[bytes, int], list[Unread]]:
    span = EVERYWHERE._replace(end=log.log.coordinator.logs[TOPIC, 0].end)
    work = Work(None, (Log("t", TOPIC, 0, span.end, 0),), ((span,),), 0, dry_run=False)  # type: ignore[arg-type]
    found: dict[bytes, int] = {}
    unread: list[Unread] = []
    async for _, of_log in keys_in(stores, work, (span,), {}):
        if isinstance(of_log, Unread):
            unread.append(of_log)
        else:
            found |= of_log
    return found, unread


async def test_rows_that_a_merge_has_moved_are_read_at_their_new_place() -> None:
    log = await Simulated().start()
    for number in range(6):
        await log.produce([Keyed(b"key-%d" % number, b"value")])
    stores = log.stores()
    fetch = stores.storage.fetch
    merged = False

    async def merging(key: str, start: int = 0, end: int | None = None) -> bytes | bytearray:
        nonlocal merged
        if not merged:
            merged = True
            await log.log.swap(0, 1, 4)
            log.log.delete_unused()
        return await fetch(key, start, end)

    stores.storage.fetch = merging  # type: ignore[method-assign]
    assert await found_keys(log, stores) == ({b"key-%d" % number: number << 1 for number in range(6)}, [])


async def test_a_missing_object_is_reported_by_name() -> None:
    log = await Simulated().start()
    for number in range(3):
        await log.produce([Keyed(b"key-%d" % number, b"value")])
    stores = log.stores()
    lost = log.log.coordinator.logs[TOPIC, 0].rows[1]
    fetch = stores.storage.fetch

    async def without(key: str, start: int = 0, end: int | None = None) -> bytes | bytearray:
        if lost.segment.hex() in key:
            raise ObjectMissing(key)
        return await fetch(key, start, end)

    stores.storage.fetch = without  # type: ignore[method-assign]
    found, unread = await found_keys(log, stores)

    assert found == {b"key-0": 0, b"key-2": 4}
    (reason,) = unread
    assert reason.kind == "missing_object"
    assert lost.segment.hex() in reason.text


async def test_a_storage_error_is_reported_for_every_log_of_the_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    log = await Simulated(2).start()
    spans = []
    for partition in range(2):
        await log.produce([Keyed(b"key", b"value")], partition)
        spans.append(Span(partition, 0, 1, 1, 1))
    stores = log.stores()

    async def failing(key: str, start: int = 0, end: int | None = None) -> bytes:
        raise StorageError("no route to host")

    @asynccontextmanager
    async def opened(_: object, *, patient: bool) -> AsyncIterator[Stores]:
        yield stores

    stores.storage.fetch = failing  # type: ignore[method-assign]
    monkeypatch.setattr(keys, "opened", opened)
    logs = tuple(Log("t", TOPIC, partition, 1, 0) for partition in range(2))
    work = Work(None, logs, (tuple(spans),), 0, dry_run=False)  # type: ignore[arg-type]

    found = [one async for one in keys._keys_of_chunk(work, tuple(spans), {})]

    reason = Unread("storage_error", "its objects can't be read: no route to host")
    assert found == [(0, reason), (1, reason)]
