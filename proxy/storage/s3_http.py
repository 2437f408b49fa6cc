"""PUT, GET and HEAD of one bucket's objects over HTTP, signed, retried, and with little CPU.

aiobotocore finds the credentials and the bucket's address; each of its requests costs more than a millisecond of CPU
beside the bytes, so those of the hot path are made here.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload
from botocore.exceptions import BotoCoreError
from yarl import URL

from proxy.config import Storage
from proxy.storage.interface import Buffer
from proxy.storage.s3_errors import S3Error
from proxy.storage.s3_signature import Signer, quoted_key

WRITE_BYTES = 262_144
"""Handed to the socket at a time, so that a slow store holds an upload up and not the process's memory."""
FIRST_BACKOFF_SECONDS = 0.05
"""Before the second attempt, doubled for each further one, of which a random part is waited."""
MAX_BACKOFF_SECONDS = 2.0
MAX_ERROR_BYTES = 65_536
_NO_HEADERS = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
_RETRIED_STATUS = {408, 409, 429, 500, 502, 503, 504}
_ERROR_FIELD = re.compile(r"<(Code|Message)>([^<]*)<")


FAILURES = (S3Error, aiohttp.ClientError, BotoCoreError, OSError)
"""What a request may raise; TimeoutError is an OSError, and BotoCoreError comes from renewing credentials."""


class Answer(NamedTuple):
    """What the store answered with success."""

    status: int
    headers: Mapping[str, str]
    data: bytearray


class BucketRequests:
    """Requests to one bucket at `base`, its URL with a slash at the end, over at most `max_connections`.

    `credentials`: botocore's, which renew themselves. Each attempt ends within `request_timeout_ms`.
    """

    def __init__(self, settings: Storage, base: URL, credentials: Any) -> None:
        self._settings = settings
        self._base = base
        self._credentials = credentials
        self._signed_with: Any = None
        self._signer: Signer
        self._session: aiohttp.ClientSession
        self._proxy: str | None = None

    async def open(self) -> None:
        """Make the connection pool. Proxies and authorities come from the environment, as with other AWS tools."""
        base = self._base
        if base.host and not proxy_bypass(base.host):
            self._proxy = getproxies().get(base.scheme)
        verification: ssl.SSLContext | bool = True
        if base.scheme == "https":
            authorities = os.environ.get("AWS_CA_BUNDLE")
            verification = await asyncio.to_thread(ssl.create_default_context, cafile=authorities)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._settings.max_connections, ssl=verification),
            timeout=aiohttp.ClientTimeout(),  # none: one timer per attempt, in `send`
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=_NO_HEADERS,
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def send(self, method: str, key: str, headers: dict[str, str], data: Buffer | None = None) -> Answer:
        """One request, repeated where that may help.

        `headers`: names in lower case. Raises one of `FAILURES`: S3Error for what the store answers, the others for the
        last failure on the way to it.
        """
        path = self._base.raw_path + quoted_key(key)
        url = self._base.with_path(path, encoded=True)
        backoff_seconds = FIRST_BACKOFF_SECONDS
        for attempts_left in reversed(range(self._settings.max_attempts)):
            signed = (await self._current_signer()).sign(method, path, headers, _now())
            try:
                async with asyncio.timeout(self._settings.request_timeout_ms / 1000):
                    return await self._attempt(method, url, signed, data)
            except S3Error as error:
                if not attempts_left or error.status not in _RETRIED_STATUS:
                    raise
            except (aiohttp.ClientError, OSError):
                if not attempts_left:
                    raise
            await asyncio.sleep(random.uniform(0, backoff_seconds))
            backoff_seconds = min(2 * backoff_seconds, MAX_BACKOFF_SECONDS)
        raise AssertionError  # the last attempt returns or raises

    async def _attempt(self, method: str, url: URL, headers: dict[str, str], data: Buffer | None) -> Answer:
        body = None if data is None else _Body(data)
        async with self._session.request(
            method, url, headers=headers, data=body, allow_redirects=False, proxy=self._proxy
        ) as response:
            if response.status < 300:
                return Answer(response.status, response.headers, await _read(response, method))
            text = (await response.content.read(MAX_ERROR_BYTES)).decode(errors="replace")
            fields = dict(_ERROR_FIELD.findall(text))
            raise S3Error(response.status, fields.get("Code", ""), fields.get("Message", response.reason or ""))

    async def _current_signer(self) -> Signer:
        """Credentials of a role change every few hours; botocore renews them when asked in time."""
        frozen = await self._credentials.get_frozen_credentials()
        if frozen != self._signed_with:
            self._signer = Signer(
                frozen.access_key,
                frozen.secret_key,
                frozen.token or "",
                self._settings.region,
                self._base.raw_authority if self._base.explicit_port else str(self._base.raw_host),
            )
            self._signed_with = frozen
        return self._signer


class _Body(Payload):
    """Sends a buffer piece by piece as it is: no copy, no thread, and as often as a retry needs it."""

    _autoclose = True

    def __init__(self, value: Buffer) -> None:
        super().__init__(value)
        self._size = len(value)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return bytes(self._value).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        await self.write_with_length(writer, None)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        view = memoryview(self._value)
        for start in range(0, len(view), WRITE_BYTES):
            await writer.write(view[start : start + WRITE_BYTES])


async def _read(response: aiohttp.ClientResponse, method: str) -> bytearray:
    """The whole body in one buffer."""
    expected = 0 if method == "HEAD" else response.content_length
    if expected is None:
        return bytearray(await response.read())
    data = bytearray(expected)
    view = memoryview(data)  # a slice of the bytearray itself would copy each chunk twice
    done = 0
    async for chunk in response.content.iter_any():
        view[done : done + len(chunk)] = chunk
        done += len(chunk)
    if done != expected:
        raise aiohttp.ClientPayloadError(f"{done} of {expected} bytes came")
    return data


def _now() -> str:
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
