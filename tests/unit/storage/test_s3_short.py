"""When segments take the short way to S3, and when it is closed."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import trustme
from aiohttp import web
from aiohttp.test_utils import TestServer
from structlog.testing import capture_logs

from proxy.config import Storage
from proxy.storage import StorageError, s3_short
from proxy.storage.s3 import S3Storage
from proxy.storage.s3_short import CLOSED_FOR_S, MOST_MISSES, ShortWay
from tests.support.aws_double import Aws

Serve = Callable[[web.Application, ssl.SSLContext | None], Awaitable[str]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Start a server; return its endpoint."""
    servers: list[TestServer] = []

    async def started(application: web.Application, tls: ssl.SSLContext | None = None) -> str:
        server = TestServer(application, host="localhost")
        servers.append(server)
        await server.start_server(ssl=tls)
        return f"{'https' if tls else 'http'}://localhost:{server.port}"

    yield started
    for server in servers:
        await server.close()


def storage_at(endpoint: str) -> S3Storage:
    return S3Storage(
        Storage(
            url="s3://bucket/wal",
            endpoint_url=endpoint,
            region="eu-central-1",
            access_key_id="AKID",
            secret_access_key="secret",
            max_attempts=1,
            request_timeout_ms=5_000,
        )
    )


async def no_long_way(*_: object, **__: object) -> None:
    raise AssertionError("this is for the short way")


async def test_the_bundle_of_the_s3_client_counts(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ca, tls = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("localhost").configure_cert(tls)
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "ca.pem"))
    storage = storage_at(await serve(Aws().application(), tls))
    await storage.open()
    monkeypatch.setattr(storage, "_send", no_long_way)
    await storage.upload("key", b"bytes", 5)
    assert await storage.fetch("key", 1, 3) == b"yt"
    await storage.close()


async def test_a_large_object_takes_the_long_way(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would have to be sent within the timeout."""
    monkeypatch.setattr(s3_short, "MOST_BYTES", 4)
    storage = storage_at(await serve(Aws().application(), None))
    await storage.open()
    monkeypatch.setattr(storage, "_send", no_long_way)
    await storage.upload("small", b"byte", 4)
    with pytest.raises(StorageError, match="this is for the short way"):
        await storage.upload("large", b"bytes", 5)
    await storage.close()


async def test_large_objects_do_not_close_it(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_short, "MOST_BYTES", 4)
    storage = storage_at(await serve(Aws().application(), None))
    await storage.open(try_out=False)
    for number in range(MOST_MISSES + 1):
        await storage.upload(f"large-{number}", b"bytes", 5)
    monkeypatch.setattr(storage, "_send", no_long_way)
    await storage.upload("small", b"byte", 4)
    await storage.close()


async def test_a_store_whose_answers_to_uploads_are_not_understood_is_not_sent_everything_twice(serve: Serve) -> None:
    """They have no ETag, which obstore demands of uploads only: fetches go the short way."""
    aws = Aws()
    requests: list[str] = []

    @web.middleware
    async def note(request: web.Request, handler: Callable[[web.Request], Awaitable[web.Response]]) -> web.Response:
        requests.append(request.method)
        answer = await handler(request)
        if request.method == "PUT":
            answer.headers.pop("ETag", None)
        return answer

    application = aws.application()
    application.middlewares.append(note)
    storage = storage_at(await serve(application, None))
    now_s = 1_000.0
    storage._short_way = ShortWay(storage._settings, storage._bucket, now=lambda: now_s)

    async def puts(key: str) -> int:
        requests.clear()
        await storage.upload(key, b"bytes", 5)
        assert await storage.fetch(key, 1, 3) == b"yt"
        assert requests.count("GET") == 1
        return requests.count("PUT")

    with capture_logs() as logs:
        await storage.open()
        assert [await puts(f"key-{number}") for number in range(MOST_MISSES + 2)] == [2] * (MOST_MISSES - 1) + [1] * 3
        assert [(line["event"], line["operation"]) for line in logs] == [("s3_short_way_closed", "upload")]
        now_s += CLOSED_FOR_S
        assert [await puts(f"later-{number}") for number in range(3)] == [2, 1, 1]
    await storage.close()


async def test_a_failure_now_and_then_closes_nothing(serve: Serve) -> None:
    aws = Aws()
    puts = 0

    @web.middleware
    async def fail(request: web.Request, handler: Callable[[web.Request], Awaitable[web.Response]]) -> web.Response:
        nonlocal puts
        puts += request.method == "PUT"
        return web.Response(status=503) if puts % 3 == 1 else await handler(request)

    application = aws.application()
    application.middlewares.append(fail)
    storage = storage_at(await serve(application, None))
    await storage.open(try_out=False)
    for number in range(2 * MOST_MISSES):
        await storage.upload(f"key-{number}", b"bytes", 5)  # the first request of each odd one fails
    assert storage._short_way.uploads.open
    await storage.close()


async def test_the_wait_for_a_connection_has_a_limit(serve: Serve) -> None:
    storage = storage_at(await serve(Aws().application(), None))
    storage._settings = storage._settings.model_copy(update={"request_timeout_ms": 10, "max_connections": 1})
    storage._short_way = ShortWay(storage._settings, storage._bucket)
    await storage.open(try_out=False)
    async with storage._short_way._requests, asyncio.timeout(20):
        await storage.upload("key", b"bytes", 5)
    assert storage._short_way.uploads._misses == 1
    await storage.close()


async def test_a_store_that_is_away_at_the_start_closes_nothing(serve: Serve) -> None:
    aws = Aws(keys={})
    storage = storage_at(await serve(aws.application(), None))
    await storage.open(try_out=False)
    for _ in range(MOST_MISSES + 1):
        with pytest.raises(StorageError):
            await storage.upload("key", b"bytes", 5)
    aws.keys = {"AKID": None}
    aws.headers.clear()
    await storage.upload("key", b"bytes", 5)
    assert len(aws.headers) == 1
    await storage.close()


async def test_a_reader_that_gives_up_ends_its_request(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asyncio.Event()

    async def stall(_: web.Request) -> web.Response:
        asked.set()
        await asyncio.sleep(60)
        return web.Response()

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", stall)
    storage = storage_at(await serve(application, None))
    await storage.open(try_out=False)
    monkeypatch.setattr(storage, "_send", no_long_way)
    fetch = asyncio.create_task(storage.fetch("key", 0, 3))
    await asked.wait()
    fetch.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetch
    assert storage._short_way._requests._value == storage._settings.max_connections
    await storage.close()
