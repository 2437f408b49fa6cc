"""The short way of segments to and from S3: one request each by obstore, a client in native code.

It takes a third of the CPU that the S3 client takes, and most of that outside of the event loop. It makes one attempt
and explains nothing: what it can't do goes the long way, by the S3 client with its retries and errors. So an upload of
which nobody knows whether it succeeded is settled by its mark, as it always was.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import obstore
import structlog
from botocore.httpsession import get_cert_path
from obstore.store import S3Store

from proxy.config import Storage
from proxy.storage.interface import Buffer
from proxy.storage.s3_client import USER_AGENT, is_unsigned

if TYPE_CHECKING:
    from aiobotocore.session import AioSession
    from obstore.store import ClientConfig, S3Config, S3Credential

log = structlog.get_logger()

MOST_BYTES = 67_108_864
"""Maximum size of an object that is uploaded here: the upload must end within `storage.request_timeout_ms`."""
MOST_MISSES = 3
"""Number of failures in a row that may be chance."""
NOT_TRIED = "not tried"
"""Why the long way is to be taken, if nothing has failed."""
CLOSED_FOR_S = 300.0
"""How long everything goes the long way after that. Then one request tries again."""
_KNOWN_FOR = timedelta(minutes=10)
"""Time for which obstore keeps credentials. It asks for them again five minutes before its end."""
_EXAMPLE = "object"
_BUILT = "request-created.s3.GetObjectAcl"
"""Event of the S3 client: a request of an operation that nobody calls has been built, and not been signed."""
_Answer = TypeVar("_Answer")


class Trial:
    """Uploads, or fetches, that have gone the short way: whether they are worth another attempt."""

    def __init__(self, of: str, now: Callable[[], float]) -> None:
        self._of = of
        self._now = now
        self._misses = 0
        self._closed_until_s = 0.0

    @property
    def open(self) -> bool:
        """Return whether requests may be tried."""
        return not self._closed_until_s

    def lets_through(self) -> bool:
        """Return whether a request may be tried: only the first one, when it was closed for long enough."""
        if self._closed_until_s and self._now() >= self._closed_until_s:
            self._closed_until_s = self._now() + CLOSED_FOR_S
            return True
        return self.open

    def worked(self) -> None:
        """Take note of a success."""
        self._misses, self._closed_until_s = 0, 0.0

    def long_way_worked(self, why: str) -> None:
        """Take note that the S3 client could do what this one could not, for this reason.

        That may be a store of which obstore does not understand the answers, or one to which the bytes can't be sent
        within the timeout: then everything would be sent twice.
        """
        if why == NOT_TRIED:
            return
        self._misses += 1
        if self._misses >= MOST_MISSES and self.open:
            self._closed_until_s = self._now() + CLOSED_FOR_S
            effect = f"segments take more CPU than necessary for {CLOSED_FOR_S:.0f} s"
            log.warning("s3_short_way_closed", operation=self._of, reason=why, effect=effect)


class ShortWay:
    """PUT and GET of objects of one bucket. Its methods raise nothing but cancellations."""

    def __init__(self, settings: Storage, bucket: str, now: Callable[[], float] = time.monotonic) -> None:
        """`now`: monotonic seconds."""
        self.uploads = Trial("upload", now)
        self.fetches = Trial("fetch", now)
        self._settings = settings
        self._bucket = bucket
        self._client: Any = None
        self._session: AioSession | None = None
        self._store: S3Store | None = None
        self._requests = asyncio.Semaphore(settings.max_connections)

    def open(self, client: Any, session: AioSession) -> None:
        """Take the place and the credentials of the S3 client from now on. Until then everything goes the long way."""
        self._client, self._session = client, session

    def close(self) -> None:
        """Let everything go the long way. The connections end when the requests under way have ended."""
        self._client = self._session = self._store = None

    async def put(self, key: str, data: Buffer, metadata: dict[str, str]) -> str:
        """Create an object under its full key; return why nobody knows whether it was created, or an empty string."""

        async def put(store: S3Store) -> str:
            await obstore.put_async(store, key, data, attributes=metadata, mode="create", use_multipart=False)
            return ""

        return await self._try(self.uploads, put) if len(data) <= MOST_BYTES else NOT_TRIED

    async def get(self, key: str, start: int, end: int) -> bytearray | str:
        """Return the bytes of an object from `start` on and before `end`, or why the long way is to be taken."""

        async def get(store: S3Store) -> bytearray:
            return bytearray(await obstore.get_range_async(store, key, start=start, end=end))

        return await self._try(self.fetches, get)

    async def _try(self, trial: Trial, request: Callable[[S3Store], Awaitable[_Answer]]) -> _Answer | str:
        if self._client is None or not trial.lets_through():
            return NOT_TRIED
        is_alone = not trial.open
        try:
            # The wait for a connection is within the limit too.
            async with asyncio.timeout(2 * self._settings.request_timeout_ms / 1000), self._requests:
                if not (trial.open or is_alone):
                    return NOT_TRIED  # closed meanwhile
                answer = await request(self._store or await self._connect())
        except Exception as error:
            return f"{type(error).__name__} {error}".partition("\n")[0]
        trial.worked()
        return answer

    async def _connect(self) -> S3Store:
        client, session = self._client, self._session
        assert session is not None
        place = await place_of(client, self._bucket)
        roots = session.get_config_variable("ca_bundle") or get_cert_path(True)

        async def credentials() -> S3Credential:
            found = await session.get_credentials()
            assert found is not None
            frozen = await found.get_frozen_credentials()
            return {
                "access_key_id": frozen.access_key,
                "secret_access_key": frozen.secret_key,
                "token": frozen.token,
                "expires_at": datetime.now(UTC) + _KNOWN_FOR,
            }

        self._store = S3Store(
            self._bucket,
            config=_config(self._settings, place, client.meta.region_name),
            client_options=_client_options(self._settings, place, Path(roots)),
            retry_config={"max_retries": 0},
            credential_provider=credentials,
        )
        return self._store


async def place_of(client: Any, bucket: str) -> str:
    """Return the URL under which the S3 client looks for a bucket's objects, whatever rules that follows."""

    def stop(request: Any, **_: Any) -> None:
        raise _Built(request.url)

    client.meta.events.register_first(_BUILT, stop)
    try:
        await client.get_object_acl(Bucket=bucket, Key=_EXAMPLE)
    except _Built as built:
        return str(built).partition("?")[0].removesuffix(f"/{_EXAMPLE}")
    finally:
        client.meta.events.unregister(_BUILT, stop)
    raise AssertionError("a request was sent")


class _Built(Exception):
    """A request that is not to be sent."""


def _config(settings: Storage, place: str, region: str) -> S3Config:
    config: S3Config = {
        "aws_endpoint_url_s3": place,
        "endpoint": place,
        "virtual_hosted_style_request": True,  # the place names the bucket, in its host or in its path
        "region": region,
        "unsigned_payload": is_unsigned(settings),
        "conditional_put": "etag",
    }
    if settings.kms_key_id:
        config["server_side_encryption"] = "aws:kms"
        config["sse_kms_key_id"] = settings.kms_key_id
        config["sse_bucket_key_enabled"] = True
    return config


def _client_options(settings: Storage, place: str, roots: Path) -> ClientConfig:
    request = timedelta(milliseconds=settings.request_timeout_ms)
    return {
        "allow_http": place.lower().startswith("http://"),
        "connect_timeout": request,
        "read_timeout": request,
        "timeout": 2 * request,
        "pool_max_idle_per_host": str(settings.max_connections),
        "root_certificate": roots.read_bytes(),
        "user_agent": USER_AGENT,
    }
