"""Pub/sub that reconnects forever, and reports when messages may have been missed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

log = structlog.get_logger()

_PAUSE_FIRST_S = 0.05
_PAUSE_LONGEST_S = 2.0


async def messages(client: Redis, channels: Sequence[str], *, idle_s: float) -> AsyncGenerator[bytes | None]:
    """Yield the messages of all channels, forever; yield None after each subscription, the first one included.

    After `idle_s` without a message, send a ping. If nothing comes for `idle_s` again, give up the connection.
    """
    pause_s = _PAUSE_FIRST_S
    while True:
        try:
            async with aclosing(_until_it_breaks(client, channels, idle_s)) as connection:
                async for message in connection:
                    pause_s = _PAUSE_FIRST_S
                    yield message
        except (RedisError, OSError) as error:
            log.warning("subscription_lost", reason=str(error) or type(error).__name__, retry_in_s=pause_s)
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _PAUSE_LONGEST_S)


async def _until_it_breaks(client: Redis, channels: Sequence[str], idle_s: float) -> AsyncGenerator[bytes | None]:
    async with client.pubsub() as pubsub:
        async with asyncio.timeout(idle_s):
            await pubsub.ssubscribe(*channels)
        missing, pinged = len(channels), False
        while True:
            message = await pubsub.get_message(timeout=idle_s)
            if pubsub.connection is not None and pubsub.connection.should_reconnect():
                raise ConnectionError("redis.url may lead to another server now")
            if message is None:
                if pinged or missing:
                    raise TimeoutError("the store is silent")
                await pubsub.ping()
                pinged = True
                continue
            pinged = False
            if message["type"] == "smessage":
                yield message["data"]
            elif message["type"] == "ssubscribe":
                if not missing:
                    raise ConnectionError("the client reconnected by itself")
                missing -= 1
                if not missing:
                    yield None
