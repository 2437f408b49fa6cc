"""Access tokens from an authorization server, with every kind of answer."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from pydantic import SecretStr

from proxy.security.oauth import ClientCredentials, fetch_token
from proxy.security.sasl import SaslError


@asynccontextmanager
async def token_endpoint(*parts: bytes):
    """Answer with a body that is sent in these parts, with pauses between them; yields the URL."""

    answered = asyncio.Event()

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(b"".join(parts)))
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.02)
        writer.close()
        answered.set()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/token"
        finally:
            await answered.wait()


async def fetched(*parts: bytes) -> str:
    async with token_endpoint(*parts) as url:
        credentials = ClientCredentials(token_endpoint_url=url, client_id="me", client_secret=SecretStr("secret"))
        return await fetch_token(credentials, 30)


async def test_an_answer_that_comes_in_parts_is_read_to_its_end():
    body = json.dumps({"access_token": "a" * 3000}).encode()
    assert await fetched(body[:1000], body[1000:]) == "a" * 3000


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"access_token": 1}', b"[" * 60_000], ids=["empty", "broken", "list", "number", "deep"]
)
async def test_an_answer_without_a_token_is_reported_as_such(body):
    with pytest.raises(SaslError, match="without an access_token"):
        await fetched(body)
