"""A real S3 server for the session, and storages in it and in a directory."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from threading import Event

import pytest

from proxy.config import Storage
from proxy.demo.ports import ReservedPorts
from proxy.demo.s3 import ACCESS_KEY_ID, BUCKET, SECRET_ACCESS_KEY, SeaweedFS
from proxy.storage import ObjectStorage, open_storage
from tests.support import azurite, fake_gcs


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedFS]:
    """Start SeaweedFS with one bucket; a missing bucket stays missing, and wrong keys are rejected."""
    directory = tmp_path_factory.mktemp("s3")
    for name in ("config", "logs"):
        (directory / name).mkdir()
    reserved = ReservedPorts(None, proxies=0)
    server = SeaweedFS(directory, reserved.ports.s3)
    server.process.command.append("-s3.autoCreateBucket=false")
    server.prepare()
    server.process.start()
    try:
        server.wait_ready(60, Event())
        yield server
    finally:
        server.process.kill()
        server.clean_up()
        reserved.release()


@pytest.fixture
def s3_settings(s3_server: SeaweedFS) -> Storage:
    """Return the test's own prefix in the real bucket."""
    return Storage(
        url=f"s3://{BUCKET}/test/{uuid.uuid4().hex}",
        endpoint_url=s3_server.endpoint_url,
        access_key_id=ACCESS_KEY_ID,
        secret_access_key=SECRET_ACCESS_KEY,
    )


@pytest.fixture(scope="session")
def azure_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of an account of Azure Blob Storage."""
    reserved = ReservedPorts(None, proxies=0)
    try:
        with azurite.running(tmp_path_factory.mktemp("azure"), reserved.ports.s3[0]) as url:
            yield url
    finally:
        reserved.release()


@pytest.fixture
def az_settings(azure_url: str) -> Storage:
    """A prefix of the test's own in a container of Azure Blob Storage."""
    return Storage(
        url=f"az://{azurite.ACCOUNT}/{azurite.BUCKET}/test/{uuid.uuid4().hex}",
        endpoint_url=azure_url,
        secret_access_key=azurite.ACCOUNT_KEY,
    )


@pytest.fixture(scope="session")
def google_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a service of Google Cloud Storage."""
    reserved = ReservedPorts(None, proxies=0)
    try:
        front, emulator = reserved.ports.s3[:2]
        with fake_gcs.running(tmp_path_factory.mktemp("google"), front, emulator) as url:
            yield url
    finally:
        reserved.release()


@pytest.fixture
def gs_settings(google_url: str, monkeypatch: pytest.MonkeyPatch) -> Storage:
    """A prefix of the test's own in a bucket of Google Cloud Storage."""
    for name, value in fake_gcs.CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    return Storage(url=f"gs://{fake_gcs.BUCKET}/test/{uuid.uuid4().hex}", endpoint_url=google_url)


@pytest.fixture(params=["file", "s3", "az", "gs"])
async def storage(request: pytest.FixtureRequest, tmp_path) -> AsyncIterator[ObjectStorage]:
    """Return an open, empty storage of each kind."""
    if request.param == "file":
        settings = Storage(url=f"file://{tmp_path}/objects")
    else:
        settings = request.getfixturevalue(f"{request.param}_settings")
    opened = open_storage(settings)
    await opened.open()
    yield opened
    await opened.close()
