"""Properties of the directory storage only: names of files being written, links, abandoned files."""

from __future__ import annotations

import asyncio
import os
import shutil
import time

import pytest

from proxy.config import Storage
from proxy.storage import StorageError
from proxy.storage.file import ABANDONED_SECONDS, UPLOADING, FileStorage
from proxy.storage.interface import ObjectsLeft


@pytest.fixture
async def storage(tmp_path):
    opened = FileStorage(Storage(url=f"file://{tmp_path}/objects"))
    await opened.open()
    yield opened
    await opened.close()


def files(root) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


async def test_an_object_is_a_file_named_by_its_key(storage, tmp_path):
    await storage.upload("ab/cd/ef", b"data", 4)
    assert files(tmp_path / "objects") == ["ab/cd/ef"]
    assert (tmp_path / "objects/ab/cd/ef").read_bytes() == b"data"


async def test_everything_is_synced_in_order_before_the_answer(storage, tmp_path, monkeypatch):
    events: list[str] = []
    root = tmp_path / "objects"
    fsync, link = os.fsync, os.link

    def named_fsync(descriptor):
        events.append(f"sync {os.path.relpath(os.readlink(f'/proc/self/fd/{descriptor}'), root).split('/')[0]}")
        fsync(descriptor)

    def named_link(source, target):
        events.append("link")
        link(source, target)

    monkeypatch.setattr("os.fsync", named_fsync)
    monkeypatch.setattr("os.link", named_link)
    await storage.upload("ab/object", b"data", 4)
    assert events == [f"sync {UPLOADING}", "sync .", "link", "sync ab"]
    events.clear()
    await storage.upload("ab/other", b"data", 4)
    assert events == [f"sync {UPLOADING}", "link", "sync ab"]


async def test_a_write_that_fails_leaves_nothing(storage, tmp_path, monkeypatch):
    def full(descriptor, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.write", full)
    with pytest.raises(StorageError, match="No space left on device"):
        await storage.upload("ab/object", b"data", 4)
    assert files(tmp_path / "objects") == []


async def test_an_object_that_cannot_be_deleted_is_reported_and_blocks_no_other(storage, tmp_path):
    for key in ("a/1", "a/2/below", "a/3"):
        await storage.upload(key, b"data", 4)
    with pytest.raises(ObjectsLeft, match="1 objects were not deleted, first a/2: Is a directory") as caught:
        await storage.delete(["a/1", "a/2", "a/3"])
    assert caught.value.reasons.keys() == {"a/2"}
    assert files(tmp_path / "objects") == ["a/2/below"]


async def test_a_cancelled_upload_waits_for_its_thread(storage, tmp_path):
    data = bytearray(os.urandom(5_000_000))
    upload = asyncio.create_task(storage.upload("key", data, len(data)))
    await asyncio.sleep(0)
    upload.cancel()
    with pytest.raises(asyncio.CancelledError):
        await upload
    before = bytes(data)
    data[:] = bytes(len(data))
    assert files(tmp_path / "objects") == ["key"]
    assert (tmp_path / "objects/key").read_bytes() == before


async def test_a_file_that_another_proxy_has_just_finished_is_no_problem_of_the_start(tmp_path):
    uploading = tmp_path / "objects" / UPLOADING
    uploading.mkdir(parents=True)
    (uploading / "finished").symlink_to(tmp_path / "nowhere")  # listed, and gone when its age is looked up
    storage = FileStorage(Storage(url=f"file://{tmp_path}/objects"))
    await storage.open()
    await storage.close()


async def test_abandoned_files_are_removed_and_fresh_ones_left(tmp_path):
    uploading = tmp_path / "objects" / UPLOADING
    uploading.mkdir(parents=True)
    for name in ("old", "fresh"):
        (uploading / name).write_bytes(b"x")
    then = time.time() - ABANDONED_SECONDS - 60
    os.utime(uploading / "old", (then, then))
    storage = FileStorage(Storage(url=f"file://{tmp_path}/objects"))
    await storage.open()
    await storage.close()
    assert files(tmp_path / "objects") == [f"{UPLOADING}/fresh"]


async def test_a_directory_that_cannot_be_used(tmp_path):
    (tmp_path / "taken").write_bytes(b"")
    storage = FileStorage(Storage(url=f"file://{tmp_path}/taken"))
    with pytest.raises(StorageError, match=r"storage\.url can't be used: .* must be writable"):
        await storage.open()
    await storage.close()


@pytest.mark.parametrize("url", ["file://host/dir", "file:relative", "s3://bucket"])
def test_a_url_that_names_no_directory(url):
    with pytest.raises(StorageError, match="file:///absolute/path"):
        FileStorage(Storage(url=url))


async def test_a_path_with_escapes(tmp_path):
    storage = FileStorage(Storage(url=f"file://{tmp_path}/with%20space"))
    await storage.open()
    await storage.upload("key", b"x", 1)
    await storage.close()
    assert (tmp_path / "with space/key").read_bytes() == b"x"


@pytest.mark.parametrize("removed", ["ab", "ab/cd", UPLOADING])
async def test_a_folder_that_was_removed_is_recreated(storage, tmp_path, removed: str):
    root = tmp_path / "objects"
    await storage.upload("ab/cd/one", b"1", 1)
    shutil.rmtree(root / removed)
    await storage.upload("ab/cd/two", b"2", 1)
    assert bytes(await storage.fetch("ab/cd/two")) == b"2"
    await storage.upload("ab/cd/three", b"3", 1)
    assert {stored.key async for stored in storage.objects()} >= {"ab/cd/two", "ab/cd/three"}


async def test_a_directory_that_is_gone_is_not_recreated(storage, tmp_path):
    """All objects are in it: it was moved or unmounted, and comes back."""
    root, elsewhere = tmp_path / "objects", tmp_path / "elsewhere"
    await storage.upload("ab/one", b"1", 1)
    root.rename(elsewhere)
    with pytest.raises(StorageError, match=r"objects of storage\.url is missing; restore it"):
        await storage.upload("ab/two", b"2", 1)
    assert not root.exists()
    elsewhere.rename(root)
    await storage.upload("ab/three", b"3", 1)
    assert bytes(await storage.fetch("ab/one")) == b"1"
    assert bytes(await storage.fetch("ab/three")) == b"3"


async def test_no_folder_is_recreated_on_another_file_system(storage, tmp_path, monkeypatch):
    """The directory was unmounted: files written beneath the mount point would be missing once it is mounted again."""
    await storage.upload("ab/one", b"1", 1)
    shutil.rmtree(tmp_path / "objects" / "ab")
    shutil.rmtree(tmp_path / "objects" / UPLOADING)
    monkeypatch.setattr(storage, "_opened", (-1, (tmp_path / "objects").stat().st_ino))
    with pytest.raises(StorageError, match=r"objects of storage\.url is not the one that was opened.* mounted"):
        await storage.upload("ab/two", b"2", 1)
    assert files(tmp_path) == []


async def test_no_record_goes_to_an_empty_directory_in_the_place_of_the_one_that_was_opened(storage, tmp_path):
    """It lacks the store's identity and all objects: no proxy could start with it."""
    root, elsewhere = tmp_path / "objects", tmp_path / "elsewhere"
    await storage.upload("ab/one", b"1", 1)
    root.rename(elsewhere)
    root.mkdir()
    for _ in range(2):
        with pytest.raises(StorageError, match=r"not the one that was opened"):
            await storage.upload("ab/two", b"2", 1)
    assert files(root) == []
    root.rmdir()
    elsewhere.rename(root)
    await storage.upload("ab/two", b"2", 1)
    assert bytes(await storage.fetch("ab/one")) == b"1"


async def test_an_error_names_the_path_that_it_is_about(storage, tmp_path, monkeypatch):
    def refuse(source, target):
        raise PermissionError(1, "Operation not permitted", str(source), None, str(target))

    monkeypatch.setattr("os.link", refuse)
    with pytest.raises(StorageError, match="objects/ab/one: Operation not permitted"):
        await storage.upload("ab/one", b"1", 1)
