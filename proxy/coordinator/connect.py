"""The client of the coordinator's store, and its errors as the coordinator raises them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from redis.asyncio import SSLConnection
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    MasterDownError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)

from proxy import config
from proxy.config.values import masked
from proxy.coordinator.addresses import kind_of
from proxy.coordinator.cluster import NOT_RUN, Cluster, Store, pool_of
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.pool import one_server
from proxy.coordinator.sentinels import watched_by_sentinels


class StoreUnfit(Exception):
    """The store can't be trusted with commits; one line that names the cause and the remedy."""


class CommandRejected(CoordinatorUnavailable):
    """The store rejects a command of our user, or does not know it; a script may have stopped halfway."""


class WrongServer(StoreUnfit):
    """The server is not, or not any more, the one that `redis.url` should lead to."""


async def renew(store: Store) -> None:
    """Open new connections from now on: `redis.url` may lead to another server by now."""
    if isinstance(store, Cluster):
        await store.renew()
    else:
        pool_of(store).renew()


async def connect(settings: config.Redis) -> Store:
    """Return the client for the whole coordinator; nothing is sent yet. The caller closes it with `aclose()`.

    Raises StoreUnfit if `redis.credentials` can't be used.
    """
    try:
        match kind_of(settings.url):
            case "cluster":
                return Cluster(settings)
            case "sentinel":
                return watched_by_sentinels(settings)
            case _:
                return one_server(settings)
    except ValueError as error:
        raise StoreUnfit(str(error)) from error


@asynccontextmanager
async def store_call(store: Store, doing: str) -> AsyncIterator[None]:
    """Wrap a call of the client: it ends within `timeout_ms`, and raises only CoordinatorUnavailable.

    `doing` completes "while …" in the text of the error.
    """
    limit_s, speaks_tls = _limits(store)
    try:
        async with asyncio.timeout(limit_s):
            yield
    except TimeoutError as error:
        # A server without TLS reads the first message of a handshake as half a command, and waits for the rest.
        speaks = "speaks TLS (because of rediss://), " if speaks_tls else ""
        raise CoordinatorUnavailable(
            f"the coordinator's store did not answer within {limit_s} s while {doing}; check whether the store "
            f"{speaks}is overloaded, and whether the network works, or raise redis.timeout_ms"
        ) from error
    except (RedisError, OSError) as error:
        raise await failure_of(store, error, doing) from error


def _limits(store: Store) -> tuple[float, bool]:
    """Return the timeout of a call in seconds, and whether the client speaks TLS."""
    if isinstance(store, Cluster):
        return store.timeout_s, store.speaks_tls
    pool = pool_of(store)
    assert pool.timeout is not None
    return pool.timeout, issubclass(pool.connection_class, SSLConnection)


async def failure_of(store: Store, error: RedisError | OSError, doing: str) -> CoordinatorUnavailable:
    """Return the error to raise in place of the client's, as `store_call` does; connect again if the server changed."""
    if isinstance(error, (ReadOnlyError, MasterDownError)):
        await renew(store)
    failure = CommandRejected if _is_rejection(error) else CoordinatorUnavailable
    return failure(f"the coordinator's store failed while {doing}: {_explain(error)}")


def _is_rejection(error: RedisError | OSError) -> bool:
    text = str(error).lower()
    return isinstance(error, NoPermissionError) or "acl failure in script" in text or "unknown command" in text


def _explain(error: RedisError | OSError) -> str:
    text = str(error) or type(error).__name__
    if isinstance(error, OutOfMemoryError):
        return f"it is out of memory ({text}); give it more `maxmemory`"
    if _is_rejection(error):
        return f"it rejects a command ({text}); see docs/operations/redis.md, for the rights of redis.url's user"
    if isinstance(error, AuthenticationError):
        if text.startswith("redis."):  # what a setting asks for could not be got, so nothing was sent
            return text
        return f"it rejects the proxy's credentials ({text}); check user and password in redis.url"
    if isinstance(error, BusyLoadingError):
        return "it is still reading its data from disk; wait"
    if isinstance(error, NOT_RUN):
        return f"the slot of its keys moves to another server of the cluster ({text}); wait until the move has ended"
    if isinstance(error, ResponseError):
        if text.startswith("SHARDS "):
            return f"it was set up with {text.split()[1]} shards; set redis.shards to that number"
        remedy = "; check the database number in redis.url" if "DB index is out of range" in text else ""
        return f"it answered {text!r}{remedy}"
    return f"{text.rstrip('.')}; check that the store runs and that redis.url is right"


def store_name(settings: config.Redis, server: str = "") -> str:
    """Return the setting and the address, for the text of an error. `server`: one of a cluster."""
    return f"redis.url {address_of(settings)}" + (f": server {server}" if server else "")


def address_of(settings: config.Redis) -> str:
    """Return host and port of `redis.url`, without user and password."""
    return masked(urlsplit(settings.url).netloc.rpartition("@")[2] or settings.url)
