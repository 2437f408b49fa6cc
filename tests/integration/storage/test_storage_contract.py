"""The contract of ObjectStorage, for every storage, on real servers."""

from __future__ import annotations

import asyncio
import os
import time
import uuid

import pytest

from proxy.diskless.wal.segment import segment_key
from proxy.storage import ObjectMissing, ObjectStorage, StorageError, s3


@pytest.fixture
def key() -> str:
    return segment_key(uuid.uuid4().bytes)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
async def test_uploaded_bytes_are_fetched(storage: ObjectStorage, key, kind):
    data = os.urandom(100_000)
    await storage.upload(key, kind(data), len(data))
    assert await storage.fetch(key) == data


async def test_segments_of_several_megabytes(storage: ObjectStorage, key):
    data = bytearray(os.urandom(9_000_001))
    await storage.upload(key, data, len(data))
    assert await storage.fetch(key) == data
    assert await storage.fetch(key, 8_388_608, 16_777_216) == data[8_388_608:]


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (0, None),
        (0, 1),
        (0, 10),
        (0, 11),
        (3, 7),
        (9, 10),
        (5, None),
        (9, 1000),
        (10, None),
        (10, 20),
        (500, 600),
        (4, 4),
    ],
)
async def test_ranges_are_clipped(storage: ObjectStorage, key, start, end):
    data = bytes(range(10))
    await storage.upload(key, data, 10)
    assert await storage.fetch(key, start, end) == data[start:end]


@pytest.mark.parametrize(("start", "end"), [(-1, None), (5, 4)])
async def test_an_invalid_range_is_rejected(storage: ObjectStorage, key, start, end):
    await storage.upload(key, b"0123456789", 10)
    with pytest.raises(StorageError, match="not a range"):
        await storage.fetch(key, start, end)


async def test_empty_objects(storage: ObjectStorage, key):
    await storage.upload(key, b"", 0)
    assert await storage.fetch(key) == b""
    assert await storage.fetch(key, 0, 100) == b""


@pytest.mark.parametrize("kept_range", [(0, None), (5, 10), (3, 3)])
async def test_a_missing_object_raises_its_own_error(storage: ObjectStorage, key, kept_range):
    with pytest.raises(ObjectMissing):
        await storage.fetch(key, *kept_range)


async def test_another_length_than_announced_is_rejected(storage: ObjectStorage, key):
    for length in (2, 4):
        with pytest.raises(StorageError, match="3 bytes came"):
            await storage.upload(key, b"abc", length)
    with pytest.raises(ObjectMissing):
        await storage.fetch(key)


async def test_objects_are_never_replaced(storage: ObjectStorage, key):
    await storage.upload(key, b"first", 5)
    for other in (b"other", b"first"):
        with pytest.raises(StorageError, match="exists already"):
            await storage.upload(key, other, 5)
    assert await storage.fetch(key) == b"first"


async def test_of_uploads_to_one_key_at_most_one_wins(storage: ObjectStorage, key):
    contents = [bytes([number]) * 1000 for number in range(8)]
    results = await asyncio.gather(
        *(storage.upload(key, content, 1000) for content in contents), return_exceptions=True
    )
    winners = [content for content, result in zip(contents, results, strict=True) if result is None]
    assert len(winners) == 1
    assert all(isinstance(result, StorageError) for result in results if result is not None)
    assert await storage.fetch(key) == winners[0]


async def test_many_at_a_time(storage: ObjectStorage):
    objects = {segment_key(uuid.uuid4().bytes): os.urandom(20_000) for _ in range(60)}
    await asyncio.gather(*(storage.upload(key, data, len(data)) for key, data in objects.items()))
    assert await asyncio.gather(*map(storage.fetch, objects)) == list(objects.values())


async def test_delete_is_idempotent(storage: ObjectStorage, key):
    other = segment_key(uuid.uuid4().bytes)
    await storage.upload(key, b"x", 1)
    await storage.upload(other, b"y", 1)
    for _ in range(2):
        await storage.delete([key, segment_key(uuid.uuid4().bytes)])
    with pytest.raises(ObjectMissing):
        await storage.fetch(key)
    assert await storage.fetch(other) == b"y"
    await storage.delete([])


async def test_more_deletes_than_fit_one_request(storage: ObjectStorage, key):
    await storage.upload(key, b"x", 1)
    await storage.delete([segment_key(uuid.uuid4().bytes) for _ in range(1000)] + [key])
    with pytest.raises(ObjectMissing):
        await storage.fetch(key)


@pytest.mark.parametrize("key", ["", "/etc/passwd", "../x", "a/../../x", "a//b", "a/", ".hidden", "a\\b", "a\0b"])
async def test_keys_that_leave_the_prefix_are_rejected(storage: ObjectStorage, key):
    for operation in (storage.upload(key, b"x", 1), storage.fetch(key), storage.delete([key])):
        with pytest.raises(StorageError, match="is not a key"):
            await operation


async def test_keys_with_odd_characters(storage: ObjectStorage):
    key = "a b/ä+~%41(1)'=*&@:,$!"
    await storage.upload(key, b"odd", 3)
    assert await storage.fetch(key) == b"odd"
    await storage.delete([key])
    with pytest.raises(ObjectMissing):
        await storage.fetch(key)


async def test_a_cancelled_operation_leaves_the_storage_usable(storage: ObjectStorage, key):
    data = os.urandom(3_000_000)
    for delay_seconds in (0, 0.001, 0.01):
        upload = asyncio.create_task(storage.upload(segment_key(uuid.uuid4().bytes), data, len(data)))
        await asyncio.sleep(delay_seconds)
        upload.cancel()
        await asyncio.gather(upload, return_exceptions=True)
    await storage.upload(key, data, len(data))
    fetch = asyncio.create_task(storage.fetch(key))
    await asyncio.sleep(0.001)
    fetch.cancel()
    await asyncio.gather(fetch, return_exceptions=True)
    assert await storage.fetch(key) == data


async def test_a_closed_storage_raises_an_error(storage: ObjectStorage, key):
    await storage.close()
    for operation in (storage.upload(key, b"x", 1), storage.fetch(key), storage.delete([key])):
        with pytest.raises(StorageError, match=r"closed|not open"):
            await operation


async def test_objects_are_listed(storage: ObjectStorage, monkeypatch):
    """List more than a page of objects, and none that was deleted."""
    monkeypatch.setattr(s3, "LIST_PAGE", 20)
    before_ms = time.time() * 1000
    keys = [segment_key(uuid.uuid4().bytes) for _ in range(50)]
    uploads = (storage.upload(key, bytes(number % 10), number % 10) for number, key in enumerate(keys))
    await asyncio.gather(*uploads)
    await storage.delete(keys[:10])
    found = {stored.key: stored async for stored in storage.objects()}
    assert not found.keys() & set(keys[:10])
    assert [found[key].size_bytes for key in keys[10:]] == [number % 10 for number in range(10, 50)]
    # A store may return whole seconds.
    assert all(before_ms - 2_000 <= found[key].modified_ms <= time.time() * 1000 + 2_000 for key in keys[10:])


async def test_objects_of_one_folder_are_listed(storage: ObjectStorage, key: str):
    folder = f"listed-{uuid.uuid4().hex}/"
    inside = {f"{folder}day=1/a", f"{folder}day=1/b", f"{folder}day=2/a"}
    for one in (*inside, f"{folder[:-1]}-next/a", key):
        await storage.upload(one, b"x", 1)
    assert {stored.key async for stored in storage.objects(folder)} == inside
    assert {stored.key async for stored in storage.objects(f"{folder}day=1/")} == {f"{folder}day=1/{n}" for n in "ab"}
    assert [stored async for stored in storage.objects(f"{folder}day=3/")] == []
    for bad in ("../", "no-slash", "/", "a//"):
        with pytest.raises(StorageError, match=r"plain names|slash"):
            [stored async for stored in storage.objects(bad)]
