"""Google Cloud Storage (`gs://bucket/prefix`) and Azure Blob Storage (`az://account/container/prefix`), by obstore.

Credentials come from the environment, as each cloud's own tools find them: application default credentials or
`GOOGLE_APPLICATION_CREDENTIALS`; workload identity, managed identity or `AZURE_STORAGE_ACCOUNT_KEY`.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotFoundError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from obstore.store import AzureStore, GCSStore

from proxy.config import Storage
from proxy.storage import probe
from proxy.storage.interface import Buffer, ObjectMissing, ObjectRefused, ObjectsLeft, StorageError, StoredObject
from proxy.storage.keys import checked_folder, checked_key, checked_range

if TYPE_CHECKING:
    from obstore.store import AzureConfig, ClientConfig, GCSConfig, RetryConfig

UPLOAD_MARK = "upload"
"""Metadata of every object: a random name of the one call that made it."""
LONGEST_BACKOFF_S = 15.0
"""The client's own pause before an attempt."""
_MISSING = (NotFoundError, FileNotFoundError)
_FAILURES = (BaseError, OSError)
"""Errors of a request: the client's own, and Python's for a missing object or too long a wait."""
_Answer = TypeVar("_Answer")


class CloudStorage:
    """ObjectStorage in a bucket of Google Cloud Storage or a container of Azure Blob Storage.

    An operation makes at most `max_attempts` requests of `request_timeout_ms` each.
    """

    def __init__(self, settings: Storage) -> None:
        self._settings = settings
        self._bucket = _bucket_of(settings.url)
        self._store: GCSStore | AzureStore | None = None
        self._requests = asyncio.Semaphore(settings.max_connections)
        request_s = settings.request_timeout_ms / 1000
        self._longest_s = settings.max_attempts * (2 * request_s + LONGEST_BACKOFF_S)
        """Bound of an operation with all its attempts: each may take a timeout to connect and one to answer."""

    async def open(self, *, try_out: bool = True) -> None:
        """Connect, and try an object. Raises StorageError with the remedy."""
        try:
            self._store = _store(self._settings, self._longest_s)
        except BaseError as error:
            raise StorageError(f"storage.url {self._settings.url}: {self._explain(error)}") from error
        if not try_out:
            return
        try:
            await probe.try_out(self, self._bucket)
        except StorageError as error:
            await self.close()
            raise StorageError(f"storage.url {self._settings.url}: {error}") from error

    async def close(self) -> None:
        """See `ObjectStorage.close`. The client has no such call: its connections end when the client is released."""
        self._store = None

    async def upload(self, key: str, data: Buffer, length: int) -> None:
        """See `ObjectStorage.upload`.

        The client retries by itself, so the answer "exists already" may be about the object that the first attempt
        made. The upload's own mark decides whether it is. The mark also decides after any other failure.
        """
        if len(data) != length:
            raise StorageError(f"{len(data)} bytes came for {key}, which should have {length}")
        mark, store = uuid.uuid4().hex, self._opened()
        try:
            put = obstore.put_async(
                store, checked_key(key), data, attributes={UPLOAD_MARK: mark}, mode="create", use_multipart=False
            )
            await self._within(put)
        except _FAILURES as error:
            if await self._is_ours(key, mark, length, error):
                return
            raise StorageError(f"upload of {key}: {self._explain(error)}") from error

    async def fetch(self, key: str, start: int = 0, end: int | None = None) -> bytes | bytearray:
        """See `ObjectStorage.fetch`."""
        checked_range(key, start, end)
        store, path = self._opened(), checked_key(key)
        try:
            if start == end:
                await self._within(obstore.head_async(store, path))
                return b""
            if end is not None:
                return bytearray(await self._within(obstore.get_range_async(store, path, start=start, end=end)))
            answer = await self._within(obstore.get_async(store, path, options={"range": {"offset": start}}))
            return bytearray(await self._within(answer.bytes_async()))
        except _FAILURES as error:
            if isinstance(error, _MISSING):
                raise ObjectMissing(f"no object {key} in {self._bucket}") from error
            if await self._size(key) <= start:
                return b""
            refused = isinstance(error, PermissionDeniedError)
            raise (ObjectRefused if refused else StorageError)(f"fetch of {key}: {self._explain(error)}") from error

    async def objects(self, folder: str = "") -> AsyncIterator[StoredObject]:
        """See `ObjectStorage.objects`. Sends one request for each page of the service."""
        listed = obstore.list(self._opened(), prefix=checked_folder(folder) or None)
        try:
            while True:
                try:
                    page = await self._within(anext(listed))
                except StopAsyncIteration:
                    return
                for found in page:
                    yield StoredObject(found["path"], found["size"], int(found["last_modified"].timestamp() * 1000))
        except _FAILURES as error:
            raise StorageError(f"listing of {self._bucket}: {self._explain(error)}") from error

    async def delete(self, keys: Sequence[str]) -> None:
        """See `ObjectStorage.delete`. Sends one request for each object, at most `max_connections` at a time."""
        store = self._opened()
        left: dict[str, str] = {}

        async def delete(key: str) -> None:
            try:
                async with self._requests:
                    await self._within(obstore.delete_async(store, key))
            except _MISSING:
                pass
            except _FAILURES as error:
                left[key] = self._explain(error)

        await asyncio.gather(*(delete(checked_key(key)) for key in keys))
        if left:
            raise ObjectsLeft(left)

    async def _is_ours(self, key: str, mark: str, length: int, cause: Exception) -> bool:
        """True if this upload made the object. Raises StorageError if another one did, or if it is not whole."""
        try:
            found = await self._within(obstore.get_async(self._opened(), key, options={"head": True}))
        except _FAILURES:
            return False
        if found.attributes.get(UPLOAD_MARK) != mark:
            raise StorageError(f"{key} exists already in {self._bucket}: objects are never replaced") from cause
        if found.meta["size"] != length:
            raise StorageError(
                f"upload of {key} left {found.meta['size']} of {length} bytes: {self._explain(cause)}"
            ) from cause
        return True

    async def _size(self, key: str) -> float:
        """Return the bytes of an object; infinity if that is not known."""
        try:
            return (await self._within(obstore.head_async(self._opened(), key)))["size"]
        except _FAILURES:
            return float("inf")

    async def _within(self, call: Awaitable[_Answer]) -> _Answer:
        """Wait for a request no longer than all its attempts may take."""
        async with asyncio.timeout(self._longest_s):
            return await call

    def _opened(self) -> GCSStore | AzureStore:
        if self._store is None:
            raise StorageError(f"storage in {self._bucket} is not open")
        return self._store

    def _explain(self, error: BaseException) -> str:
        if isinstance(error, TimeoutError):
            return f"no answer within {self._longest_s:g} s; see whether the store can be reached from here"
        if isinstance(error, AlreadyExistsError):
            return "the key is taken"
        if isinstance(error, UnauthenticatedError | PermissionDeniedError):
            return (
                f"access is denied ({_first_line(error)}); give this process rights to read, write, list and delete "
                f"objects in {self._bucket}"
            )
        if isinstance(error, _MISSING):
            return f"{self._bucket} does not exist, or these credentials may not see it; create it first"
        return _first_line(error)


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _bucket_of(url: str) -> str:
    """Return the bucket or container as messages name it. Raises StorageError if the URL names none."""
    parts = urlsplit(url)
    container = parts.path.strip("/").partition("/")[0]
    if parts.scheme == "gs" and parts.netloc:
        return f"bucket {parts.netloc}"
    if parts.scheme == "az" and parts.netloc and container:
        return f"container {container} of account {parts.netloc}"
    raise StorageError(
        f"storage.url {url!r} does not name a bucket; use gs://bucket/prefix or az://account/container/prefix"
    )


def _store(settings: Storage, longest_s: float) -> GCSStore | AzureStore:
    """Return the client for `storage.url`. Raises BaseError if credentials or addresses can't be understood."""
    parts = urlsplit(settings.url)
    request = timedelta(milliseconds=settings.request_timeout_ms)
    options: ClientConfig = {
        "allow_http": settings.endpoint_url.startswith("http://"),
        "connect_timeout": request,
        "timeout": request,
        "pool_max_idle_per_host": str(settings.max_connections),
    }
    retries: RetryConfig = {
        "max_retries": settings.max_attempts - 1,
        "retry_timeout": timedelta(seconds=longest_s),
    }
    if parts.scheme == "gs":
        google: GCSConfig = {"base_url": settings.endpoint_url} if settings.endpoint_url else {}
        prefix = parts.path.strip("/") or None
        return GCSStore(parts.netloc, prefix=prefix, config=google, client_options=options, retry_config=retries)
    container, _, prefix = parts.path.strip("/").partition("/")
    azure: AzureConfig = {"account_name": parts.netloc}
    if settings.endpoint_url:
        azure["endpoint"] = settings.endpoint_url
    if settings.secret_access_key:
        azure["account_key"] = settings.secret_access_key
    return AzureStore(container, prefix=prefix or None, config=azure, client_options=options, retry_config=retries)
