"""Object storage in a bucket: Amazon S3, or a store with the same API.

Checksums are `when_required`, because several stores reject more. TLS protects the bytes in transit, and the CRC of
each record batch protects them permanently.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import urlsplit

from botocore.exceptions import ClientError
from botocore.handlers import add_expect_header

from proxy.config import Storage
from proxy.storage import probe
from proxy.storage.body import Body, read_whole
from proxy.storage.interface import Buffer, ObjectMissing, ObjectRefused, ObjectsLeft, StorageError, StoredObject
from proxy.storage.keys import checked_folder, checked_key, checked_range
from proxy.storage.s3_client import client_config, is_directory_bucket, open_session, upload_parameters
from proxy.storage.s3_errors import MISSING_KEY, OUT_OF_RANGE, TAKEN, S3Error, explain, is_refusal
from proxy.storage.s3_short import NOT_TRIED, ShortWay

DELETE_BATCH = 1000
"""Keys per DeleteObjects, the API's limit."""
LIST_PAGE = 1000
"""Keys per ListObjectsV2, at most 1000."""
UPLOAD_MARK = "upload"
"""Metadata of every object: a random name of the one call that made it."""
LONGEST_BACKOFF_S = 20.0
"""Before an attempt: the client's own, in its mode `standard`."""


class S3Storage:
    """ObjectStorage under the prefix of `storage.url`, `s3://bucket/prefix`. One pool of connections for its life.

    An operation makes at most `max_attempts` requests. Each ends when nothing has come for `request_timeout_ms`.

    A request may raise anything: not only the client's errors and the network's, but also what credentials raise that
    can't be refreshed, and parsers that can't make sense of an answer. All of it becomes a StorageError.
    """

    def __init__(self, settings: Storage) -> None:
        url = urlsplit(settings.url)
        if url.scheme != "s3" or not url.netloc:
            raise StorageError(f"storage.url {settings.url!r} does not name a bucket; use s3://bucket/prefix")
        self._settings = settings
        self._bucket = url.netloc
        self._prefix = f"{url.path.strip('/')}/".lstrip("/")
        self._longest_s = settings.max_attempts * (2 * settings.request_timeout_ms / 1000 + LONGEST_BACKOFF_S)
        """Longest duration of an operation with all its attempts; connecting and answering take a timeout each."""
        self._of_uploads = upload_parameters(settings)
        self._closing = AsyncExitStack()
        self._client: Any = None
        self._short_way = ShortWay(settings, self._bucket)

    async def open(self, *, try_out: bool = True) -> None:
        """Connect, and try an object: write, rejected overwrite, read, delete. Raises StorageError with the remedy.

        Without `try_out` no request is sent to the store yet.
        """
        try:
            await self._connect()
            if try_out:
                await probe.try_out(self, f"bucket {self._bucket}")
        except BaseException as error:
            await self.close()
            if isinstance(error, StorageError) or not isinstance(error, Exception):
                raise
            raise StorageError(f"storage.url {self._settings.url}: {self._explain(error)}") from error

    async def close(self) -> None:
        """Close the client, as `ObjectStorage.close`."""
        self._client = None
        self._short_way.close()
        await self._closing.aclose()

    async def upload(self, key: str, data: Buffer, length: int) -> None:
        """Upload an object as `ObjectStorage.upload`.

        After any error on the way the object may exist. Success is returned only if the object exists, has the mark of
        this very call, and is whole.
        """
        if len(data) != length:
            raise StorageError(f"{len(data)} bytes came for {key}, which should have {length}")
        metadata = {UPLOAD_MARK: uuid.uuid4().hex}
        why_long = await self._short_way.put(self._prefix + checked_key(key), data, metadata)
        if not why_long:
            return
        try:
            marked = {"IfNoneMatch": "*", "Metadata": metadata, **self._of_uploads}
            await self._send("put_object", key, Body=Body(data), **marked)
        except StorageError:
            raise
        except Exception as error:
            may_be_there = not isinstance(error, S3Error) or error.status >= 500 or error.status in (408, 409, 412, 429)
            if not may_be_there or not await self._is_ours(key, metadata, length, error):
                raise StorageError(f"upload of {key}: {self._explain(error)}") from error
        self._short_way.uploads.long_way_worked(why_long)

    async def fetch(self, key: str, start: int = 0, end: int | None = None) -> bytes | bytearray:
        """Fetch bytes as `ObjectStorage.fetch`."""
        checked_range(key, start, end)
        why_long = NOT_TRIED
        if end is not None and end > start:
            short = await self._short_way.get(self._prefix + checked_key(key), start, end)
            if not isinstance(short, str):
                return short
            why_long = short
        wanted = {}
        if start or end is not None:
            wanted["Range"] = f"bytes={start}-" if end is None else f"bytes={start}-{end - 1}"
        try:
            if start == end:
                await self._send("head_object", key)
                return b""
            status, data = await self._get(key, wanted)
        except StorageError:
            raise
        except Exception as error:
            if isinstance(error, S3Error) and error.code in OUT_OF_RANGE:
                return b""
            if isinstance(error, S3Error) and error.code in MISSING_KEY:
                raise ObjectMissing(f"no object {key} in bucket {self._bucket}") from error
            refused = isinstance(error, S3Error) and is_refusal(error)
            raise (ObjectRefused if refused else StorageError)(f"fetch of {key}: {self._explain(error)}") from error
        if wanted and status != 206:
            raise StorageError(
                f"fetch of {key}: the store ignores ranges ({wanted['Range']}); use a store that "
                f"supports range requests"
            )
        self._short_way.fetches.long_way_worked(why_long)
        return data

    async def objects(self, folder: str = "") -> AsyncIterator[StoredObject]:
        """List objects as `ObjectStorage.objects`, with one request for each LIST_PAGE."""
        if self._client is None:
            raise self._not_open()
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket,
            Prefix=self._prefix + checked_folder(folder),
            PaginationConfig={"PageSize": LIST_PAGE},
        )
        listed = aiter(pages)
        try:
            while (page := await self._within(anext(listed, None))) is not None:
                for found in page.get("Contents", ()):
                    modified_ms = int(found["LastModified"].timestamp() * 1000)
                    yield StoredObject(found["Key"].removeprefix(self._prefix), found["Size"], modified_ms)
        except Exception as error:
            raise StorageError(f"listing of bucket {self._bucket}: {self._explain(error)}") from error

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete objects as `ObjectStorage.delete`."""
        objects = [{"Key": self._prefix + checked_key(key)} for key in keys]
        if self._client is None:
            raise self._not_open()
        left: dict[str, str] = {}
        for first in range(0, len(objects), DELETE_BATCH):
            batch = objects[first : first + DELETE_BATCH]
            try:
                response = await self._within(
                    self._client.delete_objects(Bucket=self._bucket, Delete={"Objects": batch, "Quiet": True})
                )
                for refused in response.get("Errors", ()):
                    if refused["Code"] != "NoSuchKey":
                        reason = f"{refused['Code']} {refused.get('Message', '')}".rstrip()
                        left[refused["Key"].removeprefix(self._prefix)] = reason
            except Exception as error:
                raise StorageError(f"deletion of {len(batch)} objects: {self._explain(error)}") from error
        if left:
            raise ObjectsLeft(left)

    async def _within(self, call: Awaitable[Any]) -> Any:
        """Wait for one request no longer than all its attempts may take: a store that answers byte by byte would be
        waited for without end."""
        async with asyncio.timeout(self._longest_s):
            return await call

    async def _send(self, operation: str, key: str, **parameters: Any) -> Any:
        """Call an operation of the client on one object; the store's own error answers as S3Error."""
        if self._client is None:
            raise self._not_open()
        try:
            # The client's own timeouts are those of reading: a store that takes no more of a body would be waited for.
            async with asyncio.timeout(self._longest_s):
                return await getattr(self._client, operation)(
                    Bucket=self._bucket, Key=self._prefix + checked_key(key), **parameters
                )
        except ClientError as error:
            raise _answered(error) from error

    async def _get(self, key: str, wanted: dict[str, str]) -> tuple[int, bytearray]:
        """Status and bytes. The client repeats a request that failed, but not one whose body was cut off."""
        for attempt in range(1, self._settings.max_attempts + 1):
            answer = await self._send("get_object", key, **wanted)
            try:
                async with asyncio.timeout(self._longest_s), answer["Body"] as body:
                    data = await read_whole(body, answer.get("ContentLength", 0))
                return answer["ResponseMetadata"]["HTTPStatusCode"], data
            except Exception:
                if attempt == self._settings.max_attempts:
                    raise
        raise AssertionError("max_attempts is at least 1")

    async def _connect(self) -> None:
        settings = self._settings
        session = await open_session(settings)
        config = client_config(settings, self._bucket)
        self._client = await self._closing.enter_async_context(
            session.create_client(
                "s3", region_name=settings.region, endpoint_url=settings.endpoint_url or None, config=config
            )
        )
        # The client waits for "100 Continue" before each body, without a timeout; and it is a round trip for nothing.
        self._client.meta.events.unregister("before-call.s3", add_expect_header)
        if not is_directory_bucket(self._bucket):
            self._short_way.open(self._client, session)

    async def _is_ours(self, key: str, metadata: dict[str, str], length: int, cause: Exception) -> bool:
        """After an upload that may have failed. Raises StorageError if something is there that can't be used."""
        try:
            found = await self._send("head_object", key)
        except Exception:
            return False
        if found["Metadata"].get(UPLOAD_MARK) != metadata[UPLOAD_MARK]:
            raise StorageError(f"{key} exists already in bucket {self._bucket}: objects are never replaced") from cause
        if found["ContentLength"] != length:
            raise StorageError(
                f"upload of {key} left {found['ContentLength']} of {length} bytes: {self._explain(cause)}"
            ) from cause
        return True

    def _explain(self, error: Exception) -> str:
        if isinstance(error, ClientError):
            error = _answered(error)
        if isinstance(error, S3Error) and error.code in TAKEN:
            return "the key is taken"
        return explain(error, self._settings, self._bucket)

    def _not_open(self) -> StorageError:
        return StorageError(f"storage in bucket {self._bucket} is not open")


def _answered(error: ClientError) -> S3Error:
    answer = error.response.get("Error", {})
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return S3Error(status, answer.get("Code", ""), answer.get("Message", ""), error.operation_name)
