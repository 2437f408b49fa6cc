"""Errors of a real server when the bucket cannot be used, as an operator sees them."""

from __future__ import annotations

import socket

import pytest

from proxy.config import Storage
from proxy.storage import StorageError, open_storage
from proxy.storage.s3 import S3Storage


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"secret_access_key": "wrong"}, "SignatureDoesNotMatch.*storage.access_key_id"),
        ({"access_key_id": "nobody"}, "InvalidAccessKeyId.*storage.access_key_id"),
        ({"url": "s3://no-such-bucket/prefix"}, "no-such-bucket does not exist.*create it"),
        ({"endpoint_url": "http://127.0.0.1:9", "max_attempts": 1}, "can't be reached.*storage.endpoint_url"),
        ({"endpoint_url": "127.0.0.1"}, "storage.url"),
    ],
)
async def test_cause_and_remedy(s3_settings: Storage, change, match):
    storage = open_storage(s3_settings.model_copy(update=change))
    with pytest.raises(StorageError, match=match):
        await storage.open()
    await storage.close()


async def test_a_store_that_takes_connections_and_never_answers(s3_settings: Storage):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        change = {
            "endpoint_url": f"http://127.0.0.1:{silent.getsockname()[1]}",
            "max_attempts": 1,
            "request_timeout_ms": 300,
        }
        storage = open_storage(s3_settings.model_copy(update=change))
        with pytest.raises(StorageError, match=r"did not answer in 300 ms.*storage\.request_timeout_ms"):
            await storage.open()
        await storage.close()


async def test_no_credentials(s3_settings: Storage, monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    storage = open_storage(s3_settings.model_copy(update={"access_key_id": "", "secret_access_key": ""}))
    with pytest.raises(StorageError, match=r"no credentials were found; set storage\.access_key_id"):
        await storage.open()


async def test_keys_from_the_environment(s3_settings: Storage, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_settings.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_settings.secret_access_key)
    storage = open_storage(s3_settings.model_copy(update={"access_key_id": "", "secret_access_key": ""}))
    await storage.open()
    await storage.upload("key", b"x", 1)
    assert await storage.fetch("key") == b"x"
    await storage.close()


async def test_a_bucket_without_prefix(s3_settings: Storage):
    whole_bucket = open_storage(s3_settings.model_copy(update={"url": s3_settings.url.partition("/test/")[0]}))
    prefixed = open_storage(s3_settings)
    await whole_bucket.open()
    await prefixed.open()
    await prefixed.upload("key", b"x", 1)
    assert await whole_bucket.fetch(f"test/{s3_settings.url.rpartition('/')[2]}/key") == b"x"
    await whole_bucket.close()
    await prefixed.close()


async def test_segments_take_the_short_way(s3_settings: Storage, monkeypatch):
    storage = S3Storage(s3_settings)
    await storage.open()

    async def no_long_way(*_: object, **__: object) -> None:
        raise AssertionError("the S3 client is not needed here")

    monkeypatch.setattr(storage, "_send", no_long_way)
    data = bytes(range(256)) * 10_000
    await storage.upload("key", data, len(data))
    assert await storage.fetch("key", 10, 2_000_000) == data[10:2_000_000]
    assert await storage.fetch("key", 10, 10 * len(data)) == data[10:], "a block reaches beyond the end"
    await storage.close()
