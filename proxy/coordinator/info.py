"""Sections of a server's INFO."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ResponseError


async def read_info(server: Redis, *sections: str) -> list[Mapping[str, Any] | ResponseError]:
    """Return sections of INFO, or why the server rejects them, in one round trip.

    They are requested one by one, because managed services allow a part of them.
    """
    async with server.pipeline(transaction=False) as pipeline:
        for section in sections:
            pipeline.info(section)
        answers: list[Mapping[str, Any] | ResponseError] = await pipeline.execute(raise_on_error=False)
    return answers


async def read_allowed_info(server: Redis, *sections: str) -> list[Mapping[str, Any]]:
    """Return sections of INFO in one round trip; one that the server rejects is empty."""
    return [{} if isinstance(one, ResponseError) else one for one in await read_info(server, *sections)]
