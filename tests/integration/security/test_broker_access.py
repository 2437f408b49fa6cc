"""The proxy's own connections to the brokers: working credentials, and one line for each failure."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiohttp import web

from proxy.brokers.service import BrokerAccess, ServiceConnection
from proxy.brokers.upstream import BrokerUnreachable
from proxy.config import Settings
from proxy.demo.ports import HOST
from proxy.demo.security import SERVICE, unsecured_token
from proxy.demo.stack import Stack

METADATA = 3
NO_TOPICS = b"\x01\x00\x00\x00\x00"
"""Body of Metadata v9 without topics."""


def settings(stack: Stack, **brokers: Any) -> Settings:
    given = {"security_protocol": "SASL_SSL", "tls": {"ca_file": str(stack.security.ca_file)}, **brokers}
    return Settings(
        rack="rack-a",
        brokers={"bootstrap": [stack.kafka.address(1)], **{k: v for k, v in given.items() if v is not None}},  # type: ignore[arg-type]
        redis={"url": stack.redis.url},  # type: ignore[arg-type]
        storage={"url": stack.storage_url},  # type: ignore[arg-type]
    )


async def ask(stack: Stack, **brokers: Any) -> None:
    """Request Metadata over a service connection. Raises BrokerUnreachable."""
    access = BrokerAccess(settings(stack, **brokers))
    address = (HOST, stack.ports.broker(1))
    service = ServiceConnection(lambda: [address], access, request_timeout_s=20, max_frame_bytes=1 << 20)
    try:
        assert await service.ask(METADATA, 9, NO_TOPICS)
    finally:
        service.close()


async def refusal(stack: Stack, **brokers: Any) -> str:
    with pytest.raises(BrokerUnreachable) as caught:
        await ask(stack, **brokers)
    message_text = str(caught.value)
    assert "\n" not in message_text
    assert stack.security.users[SERVICE] not in message_text
    return message_text


def scram(stack: Stack, **changes: str) -> dict[str, str]:
    return {
        "mechanism": "SCRAM-SHA-256",
        "username": SERVICE,
        "password": stack.security.users[SERVICE],
    } | changes


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_passwords(secure: Stack, tmp_path: Path, mechanism: str) -> None:
    await ask(secure, sasl=scram(secure, mechanism=mechanism))
    file = tmp_path / "password"
    file.write_text(secure.security.users[SERVICE] + "\n")
    await ask(secure, sasl={"mechanism": mechanism, "username": SERVICE, "password_file": str(file)})


async def test_tokens_from_a_file(secure: Stack, tmp_path: Path) -> None:
    file = tmp_path / "token"
    sasl = {"mechanism": "OAUTHBEARER", "token_file": str(file)}
    assert "token_file: can't read" in await refusal(secure, sasl=sasl)
    file.write_text(unsecured_token(SERVICE))
    await ask(secure, sasl=sasl)
    file.write_text(unsecured_token(SERVICE, lifetime_s=-3600))
    assert "rejects the token: invalid_token; renew it" in await refusal(secure, sasl=sasl)


@asynccontextmanager
async def token_endpoint(answer: web.Response) -> AsyncIterator[tuple[str, list[tuple[str, dict[str, str]]]]]:
    """Run an authorization server with one answer; yields its URL and the requests that it got."""
    asked: list[tuple[str, dict[str, str]]] = []

    async def token(request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        asked.append((request.headers["Authorization"], form))
        return answer

    application = web.Application()
    application.router.add_post("/token", token)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, HOST, 0)
    await site.start()
    try:
        yield f"http://{HOST}:{runner.addresses[0][1]}/token", asked
    finally:
        await runner.cleanup()


def credentials(directory: Path, url: str, text: str | None = None) -> dict[str, str]:
    file = directory / "credentials.json"
    good = {"token_endpoint_url": url, "client_id": "me", "client_secret": "hush", "scope": "kafka"}
    file.write_text(text or json.dumps(good))
    return {"mechanism": "OAUTHBEARER", "client_credentials_file": str(file)}


async def test_tokens_by_client_credentials(secure: Stack, tmp_path: Path) -> None:
    answer = web.json_response({"access_token": unsecured_token(SERVICE), "token_type": "Bearer"})
    async with token_endpoint(answer) as (url, asked):
        await ask(secure, sasl=credentials(tmp_path, url))
    ((authorization, form),) = asked
    assert base64.b64decode(authorization.removeprefix("Basic ")) == b"me:hush"
    assert form == {"grant_type": "client_credentials", "scope": "kafka"}


@pytest.mark.parametrize(
    ("answer", "message_text"),
    [
        ({"status": 401, "text": '{"error": "invalid_client"}'}, "answered 401 invalid_client; see client_id"),
        ({"text": "<html>"}, "answered without an access_token"),
        ({"status": 302, "headers": {"Location": "/elsewhere"}}, "answered 302"),
    ],
)
async def test_an_endpoint_that_returns_no_token(
    secure: Stack, tmp_path: Path, answer: dict[str, Any], message_text: str
) -> None:
    async with token_endpoint(web.Response(**answer)) as (url, _):
        message = await refusal(secure, sasl=credentials(tmp_path, url))
    assert message_text in message
    assert "hush" not in message


@pytest.mark.parametrize(
    ("url", "text", "message_text"),
    [
        ("http://tokens.example.com/token", None, "must be https"),
        ("", '{"client_secret": "hush", "colour": "red"}', "client_id, colour, token_endpoint_url"),
        ("", "client_secret: hush", "is not a JSON object"),
    ],
)
async def test_bad_credentials_files(
    secure: Stack, tmp_path: Path, url: str, text: str | None, message_text: str
) -> None:
    message = await refusal(secure, sasl=credentials(tmp_path, url, text))
    assert message_text in message
    assert "hush" not in message


async def test_errors_that_brokers_return(secure: Stack) -> None:
    message_text = await refusal(secure, sasl=scram(secure, password="mistaken"))
    assert "the broker rejects the proxy's credentials: " in message_text
    assert "check username, password or token of mechanism SCRAM-SHA-256" in message_text
    assert "mistaken" not in message_text
    assert secure.kafka.address(1) in message_text


async def test_a_port_of_another_security_protocol(secure: Stack) -> None:
    message_text = await refusal(secure, security_protocol="PLAINTEXT", tls=None)
    assert "the broker closed the connection" in message_text
    message_text = await refusal(secure, security_protocol="SASL_PLAINTEXT", tls=None, sasl=scram(secure))
    assert "the broker closed the connection" in message_text
    message_text = await refusal(secure, security_protocol="SSL")
    assert "the broker closed the connection" in message_text


async def test_a_certificate_that_is_not_trusted(secure: Stack, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    message_text = await refusal(secure, tls={"ca_file": str(other)}, sasl=scram(secure))
    assert "certificate is not accepted: " in message_text
    assert "check brokers.tls" in message_text
