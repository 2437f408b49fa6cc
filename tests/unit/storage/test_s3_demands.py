"""Demands of AWS on the S3 client: sessions of directory buckets, KMS keys, roles, regional and private endpoints."""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestServer
from pydantic import ValidationError

from proxy.config import Storage
from proxy.storage import StorageError
from proxy.storage.s3 import UPLOAD_MARK, S3Storage
from proxy.storage.s3_client import USER_AGENT, is_directory_bucket
from proxy.storage.s3_short import place_of
from tests.support.aws_double import Aws

REGION = "eu-central-1"
COMPARED = ("content-length", "if-none-match", "range", "x-amz-content-sha256", "x-amz-security-token")
KEY = "arn:aws:kms:eu-central-1:111122223333:key/1234abcd"
ROLE = "arn:aws:iam::444455556666:role/diskless-proxy-bucket"
DIRECTORY_BUCKET = "diskless--euc1-az1--x-s3"
Serve = Callable[[Aws], Awaitable[str]]


@pytest.fixture(autouse=True)
def no_aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
async def serve(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serve]:
    """Start the double; return its endpoint, which is that of STS too."""
    servers: list[TestServer] = []

    async def started(aws: Aws) -> str:
        server = TestServer(aws.application())
        servers.append(server)
        await server.start_server()
        endpoint = f"http://127.0.0.1:{server.port}"
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", endpoint)
        return endpoint

    yield started
    for server in servers:
        await server.close()


def storage(endpoint: str, bucket: str = "bucket", **more: Any) -> S3Storage:
    settings = {
        "url": f"s3://{bucket}/wal",
        "endpoint_url": endpoint,
        "region": REGION,
        "access_key_id": "AKID",
        "secret_access_key": "secret",
        "max_attempts": 1,
        **more,
    }
    return S3Storage(Storage.model_validate(settings))


async def used(storage: S3Storage, *, falls_back: bool = False) -> None:
    """Do all that the proxy does with a bucket; `falls_back`: the short way to it may fail."""
    await storage.open()
    await storage.upload("ab/one", b"bytes", 5)
    assert await storage.fetch("ab/one", 1, 3) == b"yt"
    assert [found.key async for found in storage.objects("ab/")] == ["ab/one"]
    assert [found.key async for found in storage.objects()] == ["ab/one"]
    with pytest.raises(StorageError, match="exists already"):
        await storage.upload("ab/one", b"other", 5)
    await storage.delete(["ab/one"])
    short = storage._short_way
    assert (short._store is None) == is_directory_bucket(storage._bucket)
    assert falls_back or (short.uploads._misses, short.fetches._misses) == (0, 0)
    await storage.close()


async def test_a_directory_bucket_is_used_by_a_session(serve: Serve) -> None:
    aws = Aws(express=True)
    await used(storage(await serve(aws), DIRECTORY_BUCKET))
    assert aws.calls == ["CreateSession"]
    assert aws.objects == {}


async def test_a_session_is_renewed(serve: Serve) -> None:
    # The client renews a session that has less than 45 seconds left, and it rejects a new session that has expired.
    aws = Aws(express=True, session_lifetime=timedelta(seconds=30))
    await used(storage(await serve(aws), DIRECTORY_BUCKET))
    assert len(aws.calls) > 1


async def test_a_session_that_is_denied_names_its_right(serve: Serve) -> None:
    with pytest.raises(StorageError, match=f"access to directory bucket {DIRECTORY_BUCKET} is denied.*CreateSession"):
        await storage(await serve(Aws(express=True, keys={})), DIRECTORY_BUCKET).open()


async def test_uploads_name_the_kms_key(serve: Serve) -> None:
    await used(storage(await serve(Aws(kms_key=KEY)), kms_key_id=KEY))
    with pytest.raises(StorageError, match="access to bucket bucket is denied"):
        await storage(await serve(Aws(kms_key=KEY))).open()


async def test_the_rights_at_kms_are_named(serve: Serve) -> None:
    with pytest.raises(StorageError) as caught:
        await storage(await serve(Aws(kms_denied=True))).open()
    assert "not authorized to perform: kms:GenerateDataKey" in str(caught.value)
    assert "needs kms:GenerateDataKey and kms:Decrypt on it" in str(caught.value)
    assert "s3:PutObject" not in str(caught.value)


@pytest.mark.parametrize("external_id", ["", "of-the-proxy"])
async def test_a_role_of_another_account_is_assumed(serve: Serve, external_id: str) -> None:
    aws = Aws(role=ROLE, external_id=external_id, keys={})
    made = storage(await serve(aws), access_key_id="BASE", role_arn=ROLE, role_external_id=external_id)
    await used(made)
    assert aws.calls == ["AssumeRole"]


async def test_a_role_is_renewed_before_it_expires(serve: Serve) -> None:
    aws = Aws(role=ROLE, keys={}, role_lifetime=timedelta(minutes=1))
    # The server takes no keys of earlier calls, but obstore has kept such.
    await used(storage(await serve(aws), access_key_id="BASE", role_arn=ROLE), falls_back=True)
    assert aws.calls.count("AssumeRole") > 1


async def test_a_role_opens_a_directory_bucket(serve: Serve) -> None:
    aws = Aws(role=ROLE, keys={}, express=True)
    await used(storage(await serve(aws), DIRECTORY_BUCKET, access_key_id="BASE", role_arn=ROLE))
    assert aws.calls == ["AssumeRole", "CreateSession"]


async def test_a_role_that_is_not_given_is_named_and_not_the_bucket(serve: Serve) -> None:
    aws = Aws(role=ROLE, external_id="of-the-proxy", keys={})
    with pytest.raises(StorageError) as caught:
        await storage(await serve(aws), access_key_id="BASE", role_arn=ROLE).open()
    assert f"AWS does not give the role {ROLE} (AccessDenied" in str(caught.value)
    assert "correct storage.role_arn and storage.role_external_id" in str(caught.value)


@pytest.mark.parametrize("unsigned_payload", ["always", "never"])
@pytest.mark.parametrize("more", [{}, {"kms_key_id": KEY}, {"access_key_id": "BASE", "role_arn": ROLE}])
async def test_both_ways_ask_alike(serve: Serve, more: dict[str, str], unsigned_payload: str) -> None:
    aws = Aws(kms_key=more.get("kms_key_id", ""), role=ROLE, keys={} if "role_arn" in more else {"AKID": None})
    made = storage(await serve(aws), unsigned_payload=unsigned_payload, **more)
    await made.open()
    aws.headers.clear()
    for key in ("ab/short", "ab/long"):
        await made.upload(key, b"bytes", 5)
        assert await made.fetch(key, 1, 3) == b"yt"
        made._short_way.close()
    await made.close()
    put, get, long_put, long_get = [
        {name: value for name, value in headers.items() if name in COMPARED or name.startswith("x-amz-server-")}
        for headers in aws.headers
    ]
    assert put == long_put
    assert get == long_get
    assert [headers["user-agent"].split()[0] for headers in aws.headers] == [USER_AGENT] * 4
    assert aws.headers[0].keys() >= {"if-none-match", f"x-amz-meta-{UPLOAD_MARK}"}


async def sent_by(made: S3Storage) -> tuple[str, dict[str, str]]:
    """Return URL and headers of an upload by the S3 client; nothing is sent."""
    await made.open(try_out=False)
    made._short_way.close()
    seen: list[Any] = []

    class Seen(Exception):
        pass

    def note(request: Any, **_: Any) -> None:
        seen.append(request)
        raise Seen

    made._client.meta.events.register("before-send.s3.PutObject", note)
    with pytest.raises(StorageError):
        await made.upload("ab/one", b"bytes", 5)
    await made.close()
    headers = {name: one.decode() if isinstance(one, bytes) else one for name, one in seen[0].headers.items()}
    return seen[0].url, headers


@pytest.mark.parametrize(
    ("bucket", "settings", "url"),
    [
        ("bucket", {"region": "us-east-1"}, "https://bucket.s3.us-east-1.amazonaws.com/wal/ab/one"),
        ("bucket", {"region": "eu-central-1"}, "https://bucket.s3.eu-central-1.amazonaws.com/wal/ab/one"),
        ("a.bucket", {"region": "eu-central-1"}, "https://s3.eu-central-1.amazonaws.com/a.bucket/wal/ab/one"),
        (
            "bucket",
            {
                "endpoint_url": "https://bucket.vpce-1a2b3c4d-5e6f.s3.us-east-1.vpce.amazonaws.com",
                "region": "us-east-1",
            },
            "https://bucket.vpce-1a2b3c4d-5e6f.s3.us-east-1.vpce.amazonaws.com/bucket/wal/ab/one",
        ),
    ],
    ids=["us-east-1", "another region", "a name with a dot", "interface endpoint"],
)
async def test_the_endpoint_is_that_of_the_region(bucket: str, settings: dict[str, str], url: str) -> None:
    made = storage("", bucket, **settings)
    sent, headers = await sent_by(made)
    assert sent == url
    await made.open(try_out=False)
    assert f"{await place_of(made._client, bucket)}/wal/ab/one" == url
    await made.close()
    assert f"/{settings['region']}/s3/aws4_request" in headers["Authorization"]


@pytest.mark.parametrize(
    ("endpoint", "unsigned_payload", "is_signed"),
    [
        ("", "tls", False),
        ("https://127.0.0.1:1", "tls", False),
        ("http://127.0.0.1:1", "tls", True),
        ("HTTP://127.0.0.1:1", "tls", True),
        ("http://127.0.0.1:1", "always", False),
        ("", "never", True),
    ],
)
async def test_the_content_is_signed_without_tls_and_where_it_is_wanted(
    endpoint: str, unsigned_payload: str, is_signed: bool
) -> None:
    _, headers = await sent_by(storage(endpoint, unsigned_payload=unsigned_payload))
    of_content = hashlib.sha256(b"bytes").hexdigest()
    assert headers["X-Amz-Content-SHA256"] == (of_content if is_signed else "UNSIGNED-PAYLOAD")
    assert headers["Authorization"].startswith("AWS4-HMAC-SHA256 ")


async def test_requests_name_this_program_and_nothing_of_the_machine() -> None:
    _, headers = await sent_by(storage(""))
    assert re.fullmatch(r"diskless-proxy/[\w.]+ botocore/[\w.]+", headers["User-Agent"])


@pytest.mark.parametrize(
    ("settings", "finding"),
    [
        ({"url": "gs://bucket", "role_arn": ROLE}, "role_arn is for s3://"),
        ({"url": "file:///w", "kms_key_id": KEY}, "kms_key_id is for s3://"),
        ({"url": "s3://bucket", "role_external_id": "x"}, "has no effect without role_arn"),
        ({"url": f"s3://{DIRECTORY_BUCKET}/wal", "kms_key_id": KEY}, "remove kms_key_id"),
    ],
)
def test_settings_without_effect_are_rejected(settings: dict[str, str], finding: str) -> None:
    with pytest.raises(ValidationError, match=finding):
        Storage.model_validate(settings)
