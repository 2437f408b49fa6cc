"""IAM authentication at ElastiCache and MemoryDB: a stand-in checks each token by itself, in front of a real server."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trustme
from botocore.credentials import ReadOnlyCredentials
from pydantic import ValidationError

from proxy import config
from proxy.coordinator import subscription
from proxy.coordinator.aws_iam import build_token
from proxy.coordinator.connect import connect, store_call
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.shards import STORE_KEY, announcement_channel
from tests.integration.coordinator.conftest import Store
from tests.support.msk_broker import Denied, Iam

REGION, KEY_ID, SECRET, USER = "eu-central-1", "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "proxy"
NAMES = {
    "elasticache/my-cache": ("elasticache", "my-cache"),
    "memorydb/my-cluster": ("memorydb", "my-cluster"),
}


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Give the process one role, and nothing of this machine's AWS."""
    for name in ("AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_REGION", REGION)


def iam(name: str = "elasticache/my-cache") -> Iam:
    service, host = NAMES[name]
    return Iam(REGION, host, {KEY_ID: SECRET}, service=service, action="connect")


@dataclass
class Service:
    """The service's end: TLS, its check of the first command, and the longest life of a connection."""

    iam: Iam
    store_port: int
    longest_s: float
    let_in: int = 0
    ended: int = 0
    """Connections that were ended for their age."""
    url: str = ""
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            words = [await _word(reader) for _ in range(await _number(reader, b"*"))]
            try:
                assert words[0].upper() == b"AUTH"
                self.iam.check_password(words[1].decode(), words[2].decode())
            except Denied as denied:
                writer.write(f"-WRONGPASS {denied}\r\n".encode())
                return
            self.let_in += 1
            writer.write(b"+OK\r\n")
            from_store, to_store = await asyncio.open_connection("127.0.0.1", self.store_port)
            both = [asyncio.ensure_future(_pass(reader, to_store)), asyncio.ensure_future(_pass(from_store, writer))]
            _, open_still = await asyncio.wait(both, timeout=self.longest_s, return_when=asyncio.FIRST_COMPLETED)
            self.ended += len(open_still) == len(both)
            for task in both:
                task.cancel()
            to_store.close()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def _number(reader: asyncio.StreamReader, kind: bytes) -> int:
    line = await reader.readuntil(b"\r\n")
    assert line[:1] == kind
    return int(line[1:])


async def _word(reader: asyncio.StreamReader) -> bytes:
    return (await reader.readexactly(await _number(reader, b"$") + 2))[:-2]


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()


@asynccontextmanager
async def service(store: Store, directory: Path, of: Iam, longest_s: float = 60.0) -> AsyncIterator[Service]:
    """Serve on a port of 127.0.0.1."""
    authority = trustme.CA()
    ca_file = directory / "ca.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    running = Service(of, store.port, longest_s)
    server = await asyncio.start_server(running.serve, "127.0.0.1", 0, ssl=context)
    running.url = f"rediss://{USER}@127.0.0.1:{server.sockets[0].getsockname()[1]}/0?ssl_ca_certs={ca_file}"
    try:
        yield running
    finally:
        server.close()


@pytest.mark.parametrize("name", NAMES)
async def test_a_token_opens_a_connection(store: Store, tmp_path: Path, name: str) -> None:
    async with service(store, tmp_path, iam(name)) as running:
        client = await connect(config.Redis(url=running.url, aws_iam=name))
        async with store_call(client, "reading"):
            await client.hget(STORE_KEY, "identity")
        assert running.let_in == 1
        await client.aclose()


async def test_connections_are_replaced_before_the_service_ends_them(store: Store, tmp_path: Path) -> None:
    async with service(store, tmp_path, iam(), longest_s=1.0) as running:
        settings = config.Redis(url=running.url, aws_iam="elasticache/my-cache", max_connection_age_ms=300)
        client = await connect(settings)
        subscribed = 0

        async def listen() -> None:
            nonlocal subscribed
            async for message in subscription.messages(client, [announcement_channel(0)], idle_s=0.1):
                subscribed += message is None

        listening = asyncio.create_task(listen())
        until_s = asyncio.get_running_loop().time() + 3.0
        while asyncio.get_running_loop().time() < until_s:
            async with store_call(client, "reading"):
                await client.hget(STORE_KEY, "identity")
            await asyncio.sleep(0.02)
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        assert running.ended == 0
        assert running.let_in >= 6, "both connections were replaced again and again"
        assert subscribed >= 3
        await client.aclose()


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("AWS_REGION", "", "redis.aws_iam: no AWS region is set; set AWS_REGION"),
        ("AWS_SECRET_ACCESS_KEY", "another", "it rejects the proxy's credentials .the signature is wrong"),
        ("AWS_ACCESS_KEY_ID", "", "redis.aws_iam: no AWS credentials were found"),
    ],
)
async def test_what_aws_lacks_is_named(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, reason: str
) -> None:
    if value:
        monkeypatch.setenv(variable, value)
    else:
        monkeypatch.delenv(variable)
    async with service(store, tmp_path, iam()) as running:
        client = await connect(config.Redis(url=running.url, aws_iam="elasticache/my-cache"))
        with pytest.raises(CoordinatorUnavailable, match=reason):
            async with store_call(client, "reading"):
                await client.hget(STORE_KEY, "identity")
        await client.aclose()


def test_a_token_is_for_one_user_cache_and_region() -> None:
    token = build_token(USER, "elasticache/my-cache", REGION, ReadOnlyCredentials(KEY_ID, SECRET, None))
    assert iam().check_password(USER, token) == KEY_ID
    assert token.startswith("my-cache/?Action=connect&User=proxy&")
    for user, of in (
        ("other", iam()),
        (USER, Iam(REGION, "other", {KEY_ID: SECRET}, service="elasticache", action="connect")),
        (USER, Iam("us-east-1", "my-cache", {KEY_ID: SECRET}, service="elasticache", action="connect")),
        (USER, Iam(REGION, "my-cache", {KEY_ID: SECRET}, service="memorydb", action="connect")),
        (USER, Iam(REGION, "my-cache", {KEY_ID: "another"}, service="elasticache", action="connect")),
    ):
        with pytest.raises(Denied):
            of.check_password(user, token)


@pytest.mark.parametrize(
    ("url", "name", "reason"),
    [
        ("rediss://proxy@a:6379/0", "my-cache", "is not elasticache/NAME"),
        ("rediss://proxy@a:6379/0", "elasticache/My_Cache", "with a name in lower case"),
        ("redis://proxy@a:6379/0", "elasticache/my-cache", "needs TLS and a user in url"),
        ("rediss://a:6379/0", "elasticache/my-cache", "needs TLS and a user in url"),
        ("rediss://proxy:word@a:6379/0", "elasticache/my-cache", "give the password in one of"),
    ],
)
def test_settings_that_cannot_work_are_rejected(url: str, name: str, reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        config.Redis(url=url, aws_iam=name)


def test_connections_live_for_less_than_twelve_hours_with_iam() -> None:
    url = "rediss+cluster://proxy@a:6379"
    assert config.Redis(url=url, aws_iam="memorydb/my-cluster").connection_age_s == 11 * 3_600
    assert config.Redis(url=url, aws_iam="memorydb/my-cluster", max_connection_age_ms=60_000).connection_age_s == 60
    assert config.Redis(url=url).connection_age_s == 0
