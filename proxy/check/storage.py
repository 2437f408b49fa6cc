"""Object storage: put, get, range, If-None-Match, list and delete under the prefix; nothing stays."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from proxy.check.findings import Finding, Kind, error, from_error, ok
from proxy.config import Settings
from proxy.storage import open_storage
from proxy.storage.file import UPLOADING
from proxy.storage.interface import ObjectStorage, StorageError

_WHERE = "storage.url"
_FOLDER = "check/"
_PROBE = b"diskless-proxy check"
_MAX_ATTEMPTS = 2
_REQUEST_TIMEOUT_MS = 4_000
"""A start is more patient; here someone waits."""
_WHOLE_SECOND_MS = 1_000
"""Precision of the time at which buckets say an object was written."""


async def check_storage(settings: Settings) -> tuple[list[Finding], ObjectStorage | None, int]:
    """Return the findings, the opened storage for the caller to close, and how far its clock is ahead, in ms."""
    hurried = settings.storage.model_copy(
        update={
            "max_attempts": min(_MAX_ATTEMPTS, settings.storage.max_attempts),
            "request_timeout_ms": min(_REQUEST_TIMEOUT_MS, settings.storage.request_timeout_ms),
        }
    )
    try:
        storage = open_storage(hurried, settings.storage_class)
    except StorageError as problem:
        return [_finding(settings, problem)], None, 0
    try:
        await storage.open()
        text, skew_ms = await _tried_out(storage)
    except BaseException as problem:
        await storage.close()
        if isinstance(problem, StorageError):
            return [_finding(settings, problem)], None, 0
        raise
    if skew_ms is None:
        return [error(Kind.STORAGE, _WHERE, text, "use a store whose listings are consistent")], storage, 0
    return [ok(Kind.STORAGE, _WHERE, text)], storage, skew_ms


@contextmanager
def leaving_no_folders(settings: Settings) -> Iterator[None]:
    """Remove the empty folders that a try has made in a directory that is an object storage."""
    url = urlsplit(settings.storage.url)
    made: list[Path] = []
    if url.scheme == "file":
        root = Path(unquote(url.path))
        folders = [root / UPLOADING, root / _FOLDER, root, *root.parents]
        made = [folder for folder in folders if not folder.exists()]
    try:
        yield
    finally:
        for folder in made:
            with suppress(OSError):
                folder.rmdir()


def _finding(settings: Settings, problem: StorageError) -> Finding:
    text = str(problem)
    if text.startswith("diskless.storage.class.name"):
        return from_error(Kind.STORAGE, "", text)
    where = f"{_WHERE} {settings.storage.url}"
    if text.startswith(_WHERE) and not text.startswith(where):
        where = ""
    return from_error(Kind.STORAGE, where, text, "see storage in docs/configuration.md")


async def _tried_out(storage: ObjectStorage) -> tuple[str, int | None]:
    """Try what `open` has not tried: listing, and its duration. The clock is None if the object is not listed."""
    key = f"{_FOLDER}{uuid.uuid4().hex}"
    began_ms = _now_ms()
    try:
        await storage.upload(key, _PROBE, len(_PROBE))
        put_ms = _now_ms() - began_ms
        await storage.fetch(key, 1, 3)
        get_ms = _now_ms() - began_ms - put_ms
        modified_ms = [found.modified_ms async for found in storage.objects(_FOLDER) if found.key == key]
    finally:
        await storage.delete([key])
    if not modified_ms:
        return "an object that was just written is missing from the listing", None
    skew_ms = of_clock(modified_ms[0], began_ms, began_ms + put_ms)
    text = f"put ({put_ms} ms), get ({get_ms} ms), range, If-None-Match, list and delete work"
    return text, skew_ms


def of_clock(modified_ms: int, began_ms: int, ended_ms: int) -> int:
    """Return how far the storage's clock is ahead at least, if it wrote the object between these two times of ours."""
    if modified_ms > ended_ms:
        return modified_ms - ended_ms
    return min(0, modified_ms + _WHOLE_SECOND_MS - began_ms)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
