"""Errors of the coordinator's store: the cause, and the remedy."""

from __future__ import annotations

import asyncio

import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from proxy import config
from proxy.coordinator.connect import connect, store_call
from proxy.coordinator.interface import CoordinatorUnavailable


async def call(client: Redis, error: Exception | None) -> None:
    async with store_call(client, "looking"):
        if error is not None:
            raise error
        await asyncio.Event().wait()


async def failure(url: str, error: Exception | None) -> str:
    """Return the text of the error if a call raises `error`, or, with None, hangs."""
    client = await connect(config.Redis(url=url, timeout_ms=1))
    with pytest.raises(CoordinatorUnavailable) as caught:
        await call(client, error)
    await client.aclose()
    return str(caught.value)


async def test_a_database_that_the_server_does_not_have() -> None:
    text = await failure("redis://127.0.0.1:1/99", ResponseError("DB index is out of range"))
    assert text.endswith("it answered 'DB index is out of range'; check the database number in redis.url")


@pytest.mark.parametrize(("scheme", "expected"), [("redis", False), ("rediss", True)])
async def test_no_answer_may_be_for_want_of_tls(scheme: str, expected: bool) -> None:
    text = await failure(f"{scheme}://127.0.0.1:1/0", None)
    assert ("check whether the store speaks TLS (because of rediss://), is overloaded" in text) == expected
    assert "raise redis.timeout_ms" in text
