"""Object storage in a directory: of one host, or of a file system that all proxies mount.

An object is written as a file under another name, made durable, and only then linked to its key. Unlike a rename, a
link fails if the name exists, so an object is never replaced. Large files bypass the system's page cache (`direct`).
"""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote, urlsplit

import structlog

from proxy.config import Storage
from proxy.storage.direct import read_range, write_all
from proxy.storage.interface import Buffer, ObjectMissing, ObjectRefused, ObjectsLeft, StorageError, StoredObject
from proxy.storage.keys import checked_folder, checked_key, checked_range

THREADS = 8
"""Files that are written or read at the same time; further operations wait."""
UPLOADING = ".uploading"
"""Folder of files that are being written; no key can name it."""
ABANDONED_SECONDS = 3600
"""A file that old in `UPLOADING` is of a process that died."""

Answer = TypeVar("Answer")
_REMEDY = "find out what removed folders under storage.url: the objects in them are lost"
log = structlog.get_logger()


class FileStorage:
    """ObjectStorage in the directory of `storage.url`, `file:///dir`. Reads and writes happen in threads of its own."""

    def __init__(self, settings: Storage) -> None:
        url = urlsplit(settings.url)
        if url.scheme != "file" or url.netloc not in ("", "localhost") or not url.path.startswith("/"):
            raise StorageError(f"storage.url {settings.url!r} does not name a directory; use file:///absolute/path")
        self._root = Path(unquote(url.path))
        self._threads = ThreadPoolExecutor(min(THREADS, settings.max_connections), "file-storage")
        self._durable_folders: set[Path] = set()
        self._opened: tuple[int, int] | None = None
        """Device and inode of the directory when it was opened."""

    async def open(self, *, try_out: bool = True) -> None:
        """Make the directory if it is missing, and try a write. Raises StorageError with cause and remedy.

        Without `try_out` the directory has to be there.
        """
        if try_out:
            await self._in_thread(self._try_out)
        elif not self._root.is_dir():
            raise StorageError(f"the directory {self._root} of storage.url is missing; check that it is mounted")
        else:
            self._opened = self._device_and_inode()

    async def close(self) -> None:
        """Let running operations finish, and end the threads."""
        await asyncio.get_running_loop().run_in_executor(None, self._threads.shutdown)

    async def upload(self, key: str, data: Buffer, length: int) -> None:
        """Upload an object as `ObjectStorage.upload`. A cancelled upload ends when its thread is done with `data`."""
        if len(data) != length:
            raise StorageError(f"{len(data)} bytes came for {key}, which should have {length}")
        await self._in_thread(lambda: self._write(self._root / checked_key(key), data))

    async def fetch(self, key: str, start: int = 0, end: int | None = None) -> bytearray:
        """Fetch bytes as `ObjectStorage.fetch`."""
        checked_range(key, start, end)
        return await self._in_thread(lambda: _read(self._root / checked_key(key), key, start, end))

    async def objects(self, folder: str = "") -> AsyncIterator[StoredObject]:
        """List objects as `ObjectStorage.objects`, folder by folder."""
        folders = [self._root / checked_folder(folder)]
        while folders:
            inner, found = await self._in_thread(partial(_list, folders.pop(), self._root))
            folders += inner
            for stored in found:
                yield stored

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete objects as `ObjectStorage.delete`."""
        paths = {key: self._root / checked_key(key) for key in keys}
        if left := await self._in_thread(lambda: _remove(paths)):
            raise ObjectsLeft(left)

    async def _in_thread(self, work: Callable[[], Answer]) -> Answer:
        try:
            future = asyncio.get_running_loop().run_in_executor(self._threads, work)
        except RuntimeError as error:
            raise StorageError(f"storage in {self._root} has been closed") from error
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait({future})  # nobody else may touch the data while a thread still reads it
            if not future.cancelled():
                future.exception()
            raise
        except OSError as error:
            refused = isinstance(error, PermissionError)
            raise (ObjectRefused if refused else StorageError)(
                f"{error.filename or self._root}: {error.strerror}"
            ) from error

    def _try_out(self) -> None:
        uploading = self._root / UPLOADING
        probe = uploading / uuid.uuid4().hex
        linked = probe.with_suffix(".linked")
        try:
            uploading.mkdir(parents=True, exist_ok=True)
            _write_durably(probe, b"probe")
            os.link(probe, linked)
            self._opened = self._device_and_inode()
        except OSError as error:
            raise StorageError(
                f"the directory {self._root} of storage.url can't be used: {error.strerror} ({error.filename}); it "
                "must be writable for the proxy's user, on a file system with hard links"
            ) from error
        finally:
            for path in (probe, linked):
                with suppress(OSError):
                    path.unlink()
        oldest = time.time() - ABANDONED_SECONDS
        for path in uploading.iterdir():
            with suppress(FileNotFoundError):  # another proxy has finished writing it
                if path.stat().st_mtime < oldest:
                    path.unlink()

    def _write(self, path: Path, data: Buffer) -> None:
        try:
            self._try_to_write(path, data)
        except FileNotFoundError as error:
            self._durable_folders.clear()
            self._recreate_folders()
            log.warning("storage_folder_recreated", reason=f"{error.filename}: {error.strerror}", remedy=_REMEDY)
            self._try_to_write(path, data)

    def _recreate_folders(self) -> None:
        """Recreate the folder of uploads if it was removed.

        Raise StorageError if the directory itself is gone, or if another one is in its place. Without the directory, no
        object is readable, and objects written to a new directory would be missing once the old one is back. A restart
        looks for the store's identity in the new directory.
        """
        if not self._root.exists():
            raise StorageError(f"the directory {self._root} of storage.url is missing; restore it, or mount it again")
        if self._opened is not None and self._device_and_inode() != self._opened:
            raise StorageError(
                f"the directory {self._root} of storage.url is not the one that was opened, and lacks the folder of "
                f"uploads; check that it is mounted. If all objects are in it, restart the proxy"
            )
        (self._root / UPLOADING).mkdir(exist_ok=True)
        _sync_folder(self._root)

    def _device_and_inode(self) -> tuple[int, int]:
        status = self._root.stat()
        return status.st_dev, status.st_ino

    def _try_to_write(self, path: Path, data: Buffer) -> None:
        temporary = self._root / UPLOADING / uuid.uuid4().hex
        try:
            _write_durably(temporary, data)
            self._make_folder(path.parent)
            try:
                os.link(temporary, path)
            except FileExistsError:
                raise StorageError(f"{path} exists already: objects are never replaced") from None
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(path)) from error  # not the temporary file's name
            _sync_folder(path.parent)
        finally:
            temporary.unlink(missing_ok=True)

    def _make_folder(self, folder: Path) -> None:
        """The folder and those above it, up to the root, each known to its parent durably."""
        if folder == self._root or folder in self._durable_folders:
            return
        self._make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync_folder(folder.parent)
        self._durable_folders.add(folder)


def _write_durably(path: Path, data: Buffer) -> None:
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644)
    try:
        write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read(path: Path, key: str, start: int, end: int | None) -> bytearray:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        raise ObjectMissing(f"no object {key} in {path.parent}") from None
    try:
        size = os.fstat(descriptor).st_size
        wanted = max(0, (size if end is None else min(end, size)) - start)
        data = read_range(descriptor, start, start + wanted)
        if len(data) < wanted:
            raise StorageError(f"{path} shrank below {size} bytes while it was read")
        return data
    finally:
        os.close(descriptor)


def _list(folder: Path, root: Path) -> tuple[list[Path], list[StoredObject]]:
    """Return the folders in a folder, and the objects in it."""
    folders: list[Path] = []
    found: list[StoredObject] = []
    try:
        listed = os.scandir(folder)
    except FileNotFoundError:
        if folder == root:
            raise
        return folders, found  # as in a bucket: a folder without objects is not there
    with listed as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                folders.append(Path(entry.path))
                continue
            with suppress(FileNotFoundError):
                status = entry.stat()
                key = Path(entry.path).relative_to(root).as_posix()
                found.append(StoredObject(key, status.st_size, status.st_mtime_ns // 1_000_000))
    return folders, found


def _remove(paths: Mapping[str, Path]) -> dict[str, str]:
    """Remove the files of keys; return the keys whose files are still there, and why."""
    left: dict[str, str] = {}
    for key, path in paths.items():
        try:
            path.unlink(missing_ok=True)
        except NotADirectoryError:
            pass
        except OSError as error:
            left[key] = f"{error.strerror} ({path})"
    return left
