"""Whether the servers of the coordinator's store have memory left."""

from __future__ import annotations

import asyncio

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from proxy.coordinator.cluster import Store, primaries
from proxy.coordinator.connect import store_call


async def memory_is_full(client: Store) -> bool:
    """Return whether a server holds more than its `maxmemory`; False if it has no limit, or does not report it.

    Raises CoordinatorUnavailable if the store does not answer.
    """
    async with store_call(client, "reading how much memory is used"):
        servers = (await primaries(client)).values()
        return any(await asyncio.gather(*map(_memory_is_full, servers)))


async def _memory_is_full(server: Redis) -> bool:
    try:
        memory = await server.info("memory")
    except ResponseError:
        return False
    limit = int(str(memory.get("maxmemory", 0)))
    used = int(str(memory.get("used_memory", 0))) - int(str(memory.get("mem_not_counted_for_evict", 0)))
    return 0 < limit < used
