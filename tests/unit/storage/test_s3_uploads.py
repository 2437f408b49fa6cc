"""Uploads whose outcome is unclear, to a store that can fail once in each way.

The rules of the store (If-None-Match, metadata, ranges) are the real ones; the contract is tested on a real server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from botocore.retries.standard import ExponentialBackoff

from proxy.config import Storage
from proxy.storage import ObjectMissing, StorageError
from proxy.storage.s3 import UPLOAD_MARK, S3Storage
from tests.support.s3_headers import ETAG, object_headers

MARK_HEADER = f"x-amz-meta-{UPLOAD_MARK}"
DATA = bytes(range(256)) * 4000
FOR_GOOD = " for good"


class FaultyStore:
    """One bucket in memory. Each PUT or GET takes the next of `faults`, then `for_good`; None means success."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, str]] = {}
        self.faults: list[str | None] = []
        self.for_good: str | None = None
        self.requests: list[str] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request.method)
        key = request.path.removeprefix("/bucket/")
        fault = None
        if request.method in ("PUT", "GET"):
            fault = self.faults.pop(0) if self.faults else self.for_good
        if request.method == "PUT":
            return await self.put(request, key, fault)
        if request.method == "POST":
            self.objects.clear()
            return web.Response(text="<DeleteResult/>", content_type="application/xml")
        if key not in self.objects:
            return web.Response(status=404, text="<Error><Code>NoSuchKey</Code></Error>")
        data, mark = self.objects[key]
        if request.method == "HEAD":
            return web.Response(headers={MARK_HEADER: mark, "content-length": str(len(data))})
        return await self.get(request, data, fault)

    async def put(self, request: web.Request, key: str, fault: str | None) -> web.Response:
        data = await request.read()
        if fault == "refuse":
            return web.Response(status=403, text="<Error><Code>AccessDenied</Code><Message>no</Message></Error>")
        if fault == "unavailable":
            return web.Response(status=503, text="<Error><Code>SlowDown</Code></Error>")
        if fault == "foreign":
            self.objects[key] = (data, "somebody else's")
        if fault == "store half and fail":
            self.objects[key] = (data[: len(data) // 2], request.headers[MARK_HEADER])
        if key in self.objects:
            if fault == "store half and fail":
                return web.Response(status=500)
            assert request.headers["if-none-match"] == "*"
            return web.Response(status=412, text="<Error><Code>PreconditionFailed</Code></Error>")
        if fault != "hang up":
            self.objects[key] = (data, request.headers[MARK_HEADER])
        if fault == "store and fail":
            return web.Response(status=500, text="<Error><Code>InternalError</Code></Error>")
        if fault in ("store and hang up", "hang up"):
            assert request.transport is not None
            request.transport.abort()
        if fault == "store and stall":
            await asyncio.sleep(5)
        return web.Response(headers={"ETag": ETAG})

    async def get(self, request: web.Request, data: bytes, fault: str | None) -> web.StreamResponse:
        part = data[request.http_range]
        status = 206 if "range" in request.headers else 200
        headers = object_headers(data, request.http_range if "range" in request.headers else None)
        if fault == "refuse":
            return web.Response(status=403, text="<Error><Code>AccessDenied</Code><Message>no</Message></Error>")
        if fault == "ignore range":
            return web.Response(body=data, headers=headers)
        if fault == "cut off":
            response = web.StreamResponse(status=status, headers={**headers, "content-length": str(len(part))})
            await response.prepare(request)
            await response.write(part[: len(part) // 2])
            assert request.transport is not None
            request.transport.abort()
            return response
        return web.Response(status=status, body=part, headers=headers)


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore()


@pytest.fixture(params=["short", "long"])
def way(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
async def storage(store: FaultyStore, way: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[S3Storage]:
    # The client library waits for seconds between two attempts.
    monkeypatch.setattr(ExponentialBackoff, "delay_amount", lambda *_: 0.0)
    application = web.Application(client_max_size=2**30)
    application.router.add_route("*", "/{path:.*}", store.handle)
    server = TestServer(application, host="127.0.0.1")
    await server.start_server()
    storage = S3Storage(
        Storage(
            url="s3://bucket",
            endpoint_url=f"http://127.0.0.1:{server.port}",
            access_key_id="key",
            secret_access_key="secret",
            request_timeout_ms=500,
            max_attempts=3,
        )
    )
    await storage.open()
    if way == "long":
        storage._short_way.close()
    store.requests.clear()
    yield storage
    await storage.close()
    await server.close()


@pytest.mark.parametrize(
    "faults",
    [
        ["store and fail"],
        ["store and hang up"],
        ["store and stall"],
        ["unavailable", "unavailable"],
        ["unavailable", "store and fail"],
        ["unavailable", "unavailable", "store and fail"],
    ],
)
async def test_an_upload_that_is_surely_ours_and_whole_succeeds(storage, store, faults):
    store.faults = list(faults)
    await storage.upload("key", DATA, len(DATA))
    assert not store.faults
    assert store.objects["key"][0] == DATA
    assert await storage.fetch("key") == DATA


@pytest.mark.parametrize(
    ("faults", "match"),
    [
        (["foreign"], "exists already"),
        (["unavailable", "foreign"], "exists already"),
        (["store half and fail"], "left 512000 of 1024000 bytes"),
        (["unavailable for good"], "503 SlowDown"),
        (["refuse for good"], "access to bucket bucket is denied"),
    ],
)
async def test_an_upload_that_is_not_fails(storage, store, faults, match):
    store.faults = [fault for fault in faults if not fault.endswith(FOR_GOOD)]
    store.for_good = faults[-1].removesuffix(FOR_GOOD) if faults[-1].endswith(FOR_GOOD) else None
    with pytest.raises(StorageError, match=match):
        await storage.upload("key", DATA, len(DATA))
    assert not store.faults


async def test_a_store_that_hangs_up_for_good(storage, store):
    store.faults = ["hang up"] * 20  # the HTTP client itself repeats a request if a kept connection was closed
    with pytest.raises(StorageError, match="upload of key"):
        await storage.upload("key", DATA, len(DATA))


async def test_a_definite_refusal_is_asked_for_once_by_each_client(storage, store, way):
    await storage.upload("key", DATA, len(DATA))
    store.requests.clear()
    store.for_good = "refuse"
    with pytest.raises(StorageError):
        await storage.upload("key", DATA, len(DATA))
    with pytest.raises(StorageError):
        await storage.fetch("key", 0, 10)
    assert store.requests == (["PUT", "GET"] if way == "long" else ["PUT", "PUT", "GET", "GET"])


async def test_a_first_failure_costs_one_more_request_and_no_more(storage, store, way):
    store.faults = ["unavailable"]
    await storage.upload("key", DATA, len(DATA))
    assert store.requests == ["PUT", "PUT"], "the second one by the other client"
    store.requests.clear()
    store.faults = ["cut off"]
    assert await storage.fetch("key", 10, 500_000) == DATA[10:500_000]
    assert store.requests == ["GET", "GET"]


async def test_a_fetch_that_is_cut_off_is_repeated(storage, store):
    await storage.upload("key", DATA, len(DATA))
    store.faults = ["cut off", "cut off"]
    assert await storage.fetch("key", 10, 500_000) == DATA[10:500_000]
    store.for_good = "cut off"
    with pytest.raises(StorageError, match="fetch of key"):
        await storage.fetch("key", 10, 500_000)


async def test_a_store_without_ranges_is_rejected(storage, store):
    await storage.upload("key", DATA, len(DATA))
    store.for_good = "ignore range"
    with pytest.raises(StorageError, match="ignores ranges"):
        await storage.fetch("key", 10, 20)


async def test_a_missing_object_is_not_asked_for_again(storage, store):
    with pytest.raises(ObjectMissing):
        await storage.fetch("key")
    assert store.requests == ["GET"]
