"""Unusual failures: requests that raise errors of any class, and objects that cannot be deleted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiobotocore.credentials import AioDeferredRefreshableCredentials
from aiobotocore.session import AioSession

from proxy.config import Storage
from proxy.storage import StorageError
from proxy.storage.interface import ObjectsLeft
from proxy.storage.s3 import S3Storage
from tests.support.s3_double import Faults, s3_double


@pytest.fixture
async def storage(faults: Faults) -> AsyncIterator[S3Storage]:
    with s3_double(faults) as endpoint:
        opened = S3Storage(
            Storage(
                url="s3://bucket/prefix",
                endpoint_url=endpoint,
                access_key_id="key",
                secret_access_key="secret",
                max_attempts=1,
            )
        )
        await opened.open()
        yield opened
        await opened.close()


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.mark.parametrize("error", [RuntimeError("still expired"), KeyError("AccessKeyId"), ValueError("no JSON")])
async def test_credentials_that_can_not_be_refreshed_are_an_error_of_the_storage(monkeypatch, error: Exception):
    async def refresh() -> dict[str, Any]:
        raise error

    async def credentials(session: AioSession) -> AioDeferredRefreshableCredentials:
        return AioDeferredRefreshableCredentials(refresh, "test")

    monkeypatch.setattr(AioSession, "get_credentials", credentials)
    storage = S3Storage(Storage(url="s3://bucket", endpoint_url="http://127.0.0.1:9", max_attempts=1))
    await storage.open(try_out=False)
    for operation in (
        storage.upload("key", b"x", 1),
        storage.fetch("key"),
        storage.fetch("key", 1, 1),
        storage.delete(["key"]),
        anext(storage.objects()),
    ):
        with pytest.raises(StorageError, match=f"{type(error).__name__} .*{error.args[0]}"):
            await operation
    await storage.close()


async def test_credentials_that_can_not_be_loaded_are_an_error_of_the_storage(monkeypatch):
    async def credentials(session: AioSession) -> None:
        raise KeyError("AccessKeyId")

    monkeypatch.setattr(AioSession, "get_credentials", credentials)
    with pytest.raises(StorageError, match=r"storage\.url s3://bucket: .*KeyError 'AccessKeyId'"):
        await S3Storage(Storage(url="s3://bucket")).open()


async def test_an_object_that_cannot_be_deleted_is_reported_and_blocks_no_other(
    storage: S3Storage, faults: Faults, monkeypatch
):
    """Whichever request it is in."""
    monkeypatch.setattr("proxy.storage.s3.DELETE_BATCH", 2)
    keys = [f"ab/{number}" for number in range(5)]
    for key in keys:
        await storage.upload(key, b"data", 4)
    faults.undeletable = {"prefix/ab/0", "prefix/ab/3"}
    with pytest.raises(ObjectsLeft, match="2 objects were not deleted, first ab/0: AccessDenied no") as caught:
        await storage.delete(keys)
    assert caught.value.reasons == dict.fromkeys(("ab/0", "ab/3"), "AccessDenied no")
    assert faults.objects.keys() == {"/bucket/prefix/ab/0", "/bucket/prefix/ab/3"}


async def test_a_listing_and_a_deletion_that_never_end_are_given_up(storage: S3Storage, monkeypatch):
    """A store may send its answer byte by byte, each within the read timeout."""

    async def hang(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    class Pages:
        def paginate(self, **_: object) -> Pages:
            return self

        def __aiter__(self) -> Pages:
            return self

        __anext__ = hang

    monkeypatch.setattr(storage, "_longest_s", 0.01)
    monkeypatch.setattr(storage._client, "delete_objects", hang)
    monkeypatch.setattr(storage._client, "get_paginator", lambda _: Pages())
    for operation in (storage.delete(["key"]), anext(storage.objects())):
        async with asyncio.timeout(20):
            with pytest.raises(StorageError):
                await operation


async def test_a_body_that_never_ends_is_given_up(storage: S3Storage, monkeypatch):
    class Body:
        async def __aenter__(self) -> Body:
            return self

        async def __aexit__(self, *_: object) -> None:
            pass

        async def read(self, amount: int) -> bytes:
            await asyncio.Event().wait()
            return b""

    async def answer(**_: object) -> dict[str, object]:
        return {"Body": Body(), "ResponseMetadata": {"HTTPStatusCode": 200}}

    monkeypatch.setattr(storage, "_longest_s", 0.01)
    monkeypatch.setattr(storage._client, "get_object", answer)
    async with asyncio.timeout(20):
        with pytest.raises(StorageError):
            await storage.fetch("key")
