"""Errors of a TLS connection to the store that fails, from the real client towards real ports."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import trustme

from proxy.config import Storage
from proxy.storage import StorageError
from proxy.storage.s3 import S3Storage

Store = Callable[[ssl.SSLContext | None], Awaitable[int]]


@pytest.fixture
async def start() -> AsyncIterator[Store]:
    """Start a server that accepts connections and never answers with HTTP; return its port."""
    servers = []

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"no HTTP\n")
        writer.close()

    async def started(tls: ssl.SSLContext | None) -> int:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls)
        servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    yield started
    for server in servers:
        server.close()


def tls_of(ca: trustme.CA, host: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert(host).configure_cert(context)
    return context


async def error_of(port: int) -> str:
    endpoint = f"https://localhost:{port}"
    storage = S3Storage(
        Storage(
            url="s3://bucket", endpoint_url=endpoint, access_key_id="key", secret_access_key="secret", max_attempts=1
        )
    )
    with pytest.raises(StorageError) as failed:
        await storage.open()
    return str(failed.value)


@pytest.fixture(autouse=True)
def no_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)


async def test_a_ca_of_ones_own_is_to_be_named(start: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ca = trustme.CA()
    port = await start(tls_of(ca, "localhost"))
    text = await error_of(port)
    assert f"no TLS connection to https://localhost:{port}: " in text
    assert "certificate verify failed" in text
    assert "AWS_CA_BUNDLE" in text

    bundle = tmp_path / "ca.pem"
    ca.cert_pem.write_to_path(str(bundle))
    monkeypatch.setenv("AWS_CA_BUNDLE", str(bundle))
    assert "no TLS connection" not in await error_of(port), "what is named there is used"


async def test_a_certificate_of_another_host(start: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ca = trustme.CA()
    bundle = tmp_path / "ca.pem"
    ca.cert_pem.write_to_path(str(bundle))
    monkeypatch.setenv("AWS_CA_BUNDLE", str(bundle))
    text = await error_of(await start(tls_of(ca, "s3.example.com")))
    assert "not valid for 'localhost'" in text
    assert "see whether storage.endpoint_url has the host that is in its certificate" in text


async def test_a_port_without_tls(start: Store) -> None:
    text = await error_of(await start(None))
    assert "no TLS connection to " in text
    assert "and a port with TLS" in text


@pytest.mark.parametrize("content", [None, "no certificate\n"])
async def test_a_bundle_that_can_not_be_read(
    start: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    bundle = tmp_path / "ca.pem"
    if content is not None:
        bundle.write_text(content)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(bundle))
    text = await error_of(await start(tls_of(trustme.CA(), "localhost")))
    assert text.endswith("see whether AWS_CA_BUNDLE names a file with certificates, in PEM")
