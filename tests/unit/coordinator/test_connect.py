"""What is said where the coordinator's store fails: the cause, and what to do."""

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
    """The text where a call raises that, or, with None, hangs."""
    client = await connect(config.Redis(url=url, timeout_ms=1))
    with pytest.raises(CoordinatorUnavailable) as told:
        await call(client, error)
    await client.aclose()
    return str(told.value)


async def test_a_database_that_the_server_does_not_have() -> None:
    text = await failure("redis://127.0.0.1:1/99", ResponseError("DB index is out of range"))
    assert text.endswith("it answered 'DB index is out of range'; see the database number in redis.url")


@pytest.mark.parametrize(("scheme", "told"), [("redis", False), ("rediss", True)])
async def test_no_answer_may_be_for_want_of_tls(scheme: str, told: bool) -> None:
    text = await failure(f"{scheme}://127.0.0.1:1/0", None)
    assert ("see whether it speaks TLS, as rediss:// asks, is overloaded" in text) == told
    assert "raise redis.timeout_ms" in text
