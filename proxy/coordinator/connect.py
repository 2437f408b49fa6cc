"""The one client of the coordinator's store, and whether that store is fit to be trusted with commits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast
from urllib.parse import urlsplit

import structlog
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    NoPermissionError,
    OutOfMemoryError,
    RedisError,
    ResponseError,
)

from proxy import config
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.shards import STORE_KEY

log = structlog.get_logger()

SUBSCRIPTIONS = 2
"""Connections that are kept for announcements and registry changes, beside `redis.max_connections`."""

OLDEST_VERSION = 7
FORMAT_VERSION = 1
"""Of the keys and packed values; a store of another format is refused."""


_LEAST_FSYNC = ("no", "everysec", "always")


class StoreUnfit(Exception):
    """The store can't be trusted with commits; one line that names the cause and the remedy."""


async def connect(settings: config.Redis) -> Redis:
    """A client for all of the coordinator; nothing is sent yet. The caller closes it with `aclose()`.

    No command is sent twice on its own: who calls knows whether that is safe. More than `max_connections` calls at a
    time wait for each other, `timeout_ms` at most.
    """
    timeout_s = settings.timeout_ms / 1000
    pool = BlockingConnectionPool.from_url(
        settings.url,
        max_connections=settings.max_connections + SUBSCRIPTIONS,
        timeout=timeout_s,
        # Not the client's own limit on a command: on Python 3.11 it goes by `asyncio.wait_for`, which may swallow a
        # cancellation, so that a task that is to end goes on. `store_call` sets the limit.
        socket_timeout=None,
        socket_connect_timeout=timeout_s,
        retry=Retry(NoBackoff(), 0),
        protocol=2,
        driver_info=None,
    )
    return Redis.from_pool(pool)


@asynccontextmanager
async def store_call(client: Redis, doing: str) -> AsyncIterator[None]:
    """For whatever is asked of the client: it ends within `timeout_ms`, and fails with CoordinatorUnavailable only.

    `doing` completes "while …" in the text.
    """
    limit_s = cast(BlockingConnectionPool, client.connection_pool).timeout
    try:
        async with asyncio.timeout(limit_s):
            yield
    except TimeoutError as error:
        raise CoordinatorUnavailable(
            f"the coordinator's store did not answer within {limit_s} s while {doing}; see whether it is overloaded or "
            "the network is broken, or raise redis.timeout_ms"
        ) from error
    except (RedisError, OSError) as error:
        raise CoordinatorUnavailable(f"the coordinator's store failed while {doing}: {_explain(error)}") from error


def _explain(error: RedisError | OSError) -> str:
    text = str(error) or type(error).__name__
    if isinstance(error, OutOfMemoryError):
        return f"it is out of memory ({text}); give it more `maxmemory`"
    if isinstance(error, (AuthenticationError, NoPermissionError)):
        return f"it refuses our credentials ({text}); see user and password in redis.url"
    if isinstance(error, BusyLoadingError):
        return "it is still reading its data from disk; wait"
    if isinstance(error, ResponseError):
        if text.startswith("SHARDS "):
            return f"it was set up with {text.split()[1]} shards; set redis.shards to that"
        return f"it answered {text!r}"
    return f"{text}; see whether it runs and redis.url is right"


async def check_store(client: Redis, settings: config.Redis) -> None:
    """Refuse a store that could lose commits, or that holds data of another layout; the first proxy fixes the layout.

    Raises StoreUnfit, and CoordinatorUnavailable where the store does not answer. What the store does not let us ask is
    warned of in the log.
    """
    address = _address(settings)
    await check_fitness(client, settings, warn=True)
    async with store_call(client, "checking the store"):
        for field, value, remedy in (
            ("shards", settings.shards, "set redis.shards to that, it can't change while there is data"),
            ("format", FORMAT_VERSION, "run the release that made it, or use an empty store"),
        ):
            await client.hsetnx(STORE_KEY, field, value)
            stored = int(await client.hget(STORE_KEY, field) or 0)
            if stored != value:
                raise StoreUnfit(f"{address}: the store holds data of {field} {stored}, not {value}; {remedy}")


async def check_fitness(client: Redis, settings: config.Redis, *, warn: bool = False) -> str:
    """Refuse a server that could lose commits, or takes none; nothing is written.

    Returns what tells this life of the server from others: its replication ID and run ID. Raises StoreUnfit, and
    CoordinatorUnavailable where the store does not answer.
    """
    address = _address(settings)
    async with store_call(client, "checking the store"):
        life = await _check_server(client, address, warn)
        await _check_durability(client, address, settings, warn)
    return life


def _address(settings: config.Redis) -> str:
    return urlsplit(settings.url).netloc.rpartition("@")[2] or settings.url


async def _check_server(client: Redis, address: str, warn: bool) -> str:
    try:
        server = await client.info("server")
        replication = await client.info("replication")
    except ResponseError as error:
        if warn:
            log.warning(
                "store_not_checked",
                store=address,
                command="INFO",
                reason=str(error),
                effect="a store that has lost writes and taken as many since is not noticed",
                remedy="let the user of redis.url run INFO",
            )
        return ""
    mode = server.get("redis_mode", server.get("server_mode"))
    if mode == "sentinel":
        raise StoreUnfit(f"{address}: the server is a Sentinel, which keeps no data; name the primary in redis.url")
    version = str(server.get("redis_version", "0"))
    if int(version.partition(".")[0]) < OLDEST_VERSION:
        raise StoreUnfit(f"{address}: Redis {version} is too old; use Redis {OLDEST_VERSION}, Valkey 8 or newer")
    if mode == "cluster":
        raise StoreUnfit(
            f"{address}: the server is a node of a cluster, which is not supported yet; use a single server"
        )
    if replication.get("role", "master") != "master":
        primary = f"{replication.get('master_host', '?')}:{replication.get('master_port', '?')}"
        raise StoreUnfit(
            f"{address}: the server is a replica (of {primary}), which takes no commits; let redis.url lead to the "
            "primary, or promote it"
        )
    return f"{replication.get('master_replid', '')} {server.get('run_id', '')}"


async def _check_durability(client: Redis, address: str, settings: config.Redis, warn: bool) -> None:
    try:
        found = await client.config_get("maxmemory-policy", "appendonly", "appendfsync")
    except ResponseError as error:
        if warn:
            log.warning(
                "store_not_checked",
                store=address,
                command="CONFIG GET",
                reason=str(error),
                remedy="see to it yourself that maxmemory-policy is noeviction, appendonly yes and appendfsync as "
                f"redis.require_append_fsync ({settings.require_append_fsync})",
            )
        return
    policy = found.get("maxmemory-policy", "noeviction")
    if policy != "noeviction":
        raise StoreUnfit(
            f"{address}: maxmemory-policy is {policy}, so the store may drop the index of acknowledged records; "
            "set it to noeviction"
        )
    if not settings.require_append_only:
        return
    if found.get("appendonly", "yes") != "yes":
        raise StoreUnfit(
            f"{address}: appendonly is {found['appendonly']}, so a restart of the store loses acknowledged records; "
            "set it to yes (with appendfsync always), or redis.require_append_only to false where that is acceptable"
        )
    fsync = found.get("appendfsync", "always")
    if _LEAST_FSYNC.index(fsync) < _LEAST_FSYNC.index(settings.require_append_fsync):
        raise StoreUnfit(
            f"{address}: appendfsync is {fsync}, so a crash of its machine loses more acknowledged records than "
            f"redis.require_append_fsync allows; set it to {settings.require_append_fsync}, or the setting to {fsync} "
            "where that is acceptable"
        )
