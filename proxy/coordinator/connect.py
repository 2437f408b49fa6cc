"""The client of the coordinator's store, and the check that the store can be trusted with commits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple
from urllib.parse import urlsplit

import structlog
from redis.asyncio import Redis, SSLConnection
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
from proxy.coordinator.cluster import NOT_RUN, Cluster, Store, pool_of, primaries
from proxy.coordinator.confirmation import wait_command
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.pool import one_server
from proxy.coordinator.sentinels import SentinelPool, watched_by_sentinels
from proxy.coordinator.shards import REGISTRY_PREFIX, script_keys, shard_prefix

log = structlog.get_logger()

OLDEST_VERSION = 7
_DURABILITY = ("maxmemory-policy", "appendonly", "appendfsync")
_LEAST_FSYNC = ("no", "everysec", "always")


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


class Unasked(NamedTuple):
    """A check that the store does not allow, so that an operator has to do it."""

    command: str
    reason: str
    effect: str
    """Consequence; empty if the remedy names it."""
    remedy: str


class Risk(NamedTuple):
    """A risk of losing acknowledged records that is not a reason to reject the store."""

    text: str
    remedy: str


class Fitness(NamedTuple):
    """The verdict about a server: whether it can be trusted with commits."""

    life: str
    """Replication ID and run ID, which identify this life of the server; empty if the server does not report them."""
    unfit: tuple[str, ...]
    """Reasons why it can't be trusted; each is one line that names the cause and the remedy."""
    unasked: tuple[Unasked, ...]
    is_replica: bool = False
    risks: tuple[Risk, ...] = ()


async def check_fitness(client: Store, settings: config.Redis, *, warn: bool = False, is_view: bool = False) -> str:
    """Reject a server that could lose commits, or that takes no commits; nothing is written.

    `is_view`: the store is a view of a journal, so commits that it loses are applied again.

    Returns the replication ID and run ID, which identify this life of the server. Raises StoreUnfit, and
    CoordinatorUnavailable if the store does not answer.
    """
    found = await fitness(client, settings, is_view=is_view)
    if warn:
        for one in found.unasked:
            effect = {"effect": one.effect} if one.effect else {}
            log.warning(
                "store_not_checked",
                store=_address(settings),
                command=one.command,
                reason=one.reason,
                **effect,
                remedy=one.remedy,
            )
        for risk in found.risks:
            log.warning("store_at_risk", store=_address(settings), reason=risk.text, remedy=risk.remedy)
    if found.unfit:
        raise (WrongServer if found.is_replica else StoreUnfit)(found.unfit[0])
    return found.life


async def fitness(client: Store, settings: config.Redis, *, is_view: bool = False) -> Fitness:
    """Return all reasons why `check_fitness` would reject a server. `is_view`: see there.

    Raises CoordinatorUnavailable if a server does not answer.
    """
    async with store_call(client, "reading the cluster's map"):
        servers = await primaries(client)
    looks = [_fitness_of(server, name, settings, is_view=is_view) for name, server in servers.items()]
    found = list(await asyncio.gather(*looks))
    if isinstance(client, Cluster):
        # The server that has the registry and the fleet comes first: it decides who keeps the known state.
        placed = servers_of_parts(client, settings)
        lives = dict(zip(servers, (one.life for one in found), strict=True))
        life = " ".join([lives.get(placed[0], ""), *sorted(lives.values()), *placed])
    else:
        life = found[0].life
    return Fitness(
        life,
        tuple(why for one in found for why in one.unfit),
        tuple(unasked for one in found for unasked in one.unasked),
        any(one.is_replica for one in found),
        tuple(risk for one in found for risk in one.risks),
    )


def servers_of_parts(cluster: Cluster, settings: config.Redis) -> list[str]:
    """Return the names of the servers of the registry, and of each shard."""
    prefixes = [REGISTRY_PREFIX, *map(shard_prefix, range(settings.shards))]
    return [cluster.name_of(script_keys(prefix)[0]) for prefix in prefixes]


async def _fitness_of(client: Redis, name: str, settings: config.Redis, *, is_view: bool) -> Fitness:
    store = store_name(settings, name)
    async with store_call(client, "checking the store"):
        if isinstance(pool := pool_of(client), SentinelPool):
            await pool.get_master_address()  # the present connections may lead to a server that was primary once
        server = await _look_at_server(client, store, settings)
        durability = await _look_at_durability(client, store, settings, is_view=is_view)
        waiting = await _look_at_waiting(client, store, settings)
        coverage = await _coverage(client, settings)
    unfit, unasked = server.unfit + durability.unfit + waiting, server.unasked + durability.unasked
    return Fitness(server.life, unfit, unasked, server.is_replica, (() if is_view else server.risks) + coverage)


def store_name(settings: config.Redis, server: str = "") -> str:
    """Return the setting and the address, for the text of an error. `server`: one of a cluster."""
    return f"redis.url {_address(settings)}" + (f": server {server}" if server else "")


def _address(settings: config.Redis) -> str:
    return masked(urlsplit(settings.url).netloc.rpartition("@")[2] or settings.url)


async def _look_at_waiting(client: Redis, store: str, settings: config.Redis) -> tuple[str, ...]:
    """Return why the store can't wait as `redis.wait_replicas` and `redis.wait_aof` require."""
    name = "redis.wait_aof" if settings.wait_aof else "redis.wait_replicas"
    if not (command := wait_command(settings)):
        return ()
    try:
        # Wait for no replica, only for the disk: without an append-only file the store rejects that.
        await client.execute_command(*command[:-2], 0, 1)  # type: ignore[no-untyped-call]
    except ResponseError as error:
        return (f"{store}: {name} is set, and the store rejects {command[0]} ({error}); allow it, or reset {name}",)
    return ()


def _risks(replication: Mapping[str, object], settings: config.Redis) -> tuple[Risk, ...]:
    """Return the risks that INFO replication shows; it reports good replicas only if a minimum is set."""
    attached = int(str(replication.get("connected_slaves", 0)))
    if attached < settings.wait_replicas:
        text = f"{attached} replicas are attached, fewer than redis.wait_replicas ({settings.wait_replicas})"
        return (Risk(f"{text}: no produce is acknowledged", "attach more replicas, or lower redis.wait_replicas"),)
    if attached and "min_slaves_good_slaves" not in replication:
        text = (
            f"{attached} replicas are attached, and min-replicas-to-write is 0: a primary that is cut off from them "
            "goes on accepting commits, which are lost when a replica is promoted"
        )
        return (Risk(text, "set min-replicas-to-write to 1 and min-replicas-max-lag to a few seconds"),)
    return ()


async def _look_at_server(client: Redis, store: str, settings: config.Redis) -> Fitness:
    try:
        server = await client.info("server")
        replication = await client.info("replication")
    except ResponseError as error:
        unasked = Unasked(
            "INFO",
            str(error),
            "if the store loses writes and then takes as many new ones, the loss is not noticed",
            "allow the user of redis.url to run INFO",
        )
        return Fitness("", (), (unasked,))
    life = f"{replication.get('master_replid', '')} {server.get('run_id', '')}"
    mode = server.get("redis_mode", server.get("server_mode"))
    if mode == "sentinel":
        problem = (
            f"{store}: the server is a Sentinel, which keeps no data; set redis.url to "
            "redis+sentinel://host:port/name, with the name that the Sentinels have for the primary"
        )
        return Fitness(life, (problem,), ())
    unfit = []
    version = str(server.get("redis_version", "0"))
    if int(version.partition(".")[0]) < OLDEST_VERSION:
        unfit.append(f"{store}: Redis {version} is too old; use Redis {OLDEST_VERSION}, Valkey 8 or newer")
    if mode == "cluster" and kind_of(settings.url) != "cluster":
        unfit.append(
            f"{store}: the server is a node of a cluster; set redis.url to redis+cluster://host:port,host:port, with "
            "some or all servers of the cluster"
        )
    is_replica = replication.get("role", "master") != "master"
    if is_replica:
        primary = f"{replication.get('master_host', '?')}:{replication.get('master_port', '?')}"
        unfit.append(
            f"{store}: the server is a replica (of {primary}), which takes no commits; set redis.url to the "
            f"primary, or promote the replica"
        )
    return Fitness(life, tuple(unfit), (), is_replica, () if is_replica else _risks(replication, settings))


async def _coverage(client: Redis, settings: config.Redis) -> tuple[Risk, ...]:
    """Return the risk that a cluster stops all shards when one primary is down."""
    if kind_of(settings.url) != "cluster":
        return ()
    name = "cluster-require-full-coverage"
    try:
        found = await client.config_get(name)
    except ResponseError:
        return ()  # managed services decide it themselves
    if str(found.get(name, "no")) != "yes":
        return ()
    return (Risk(f"{name} is yes: all shards stop when one primary is down", f"set {name} to no on each server"),)


async def _durability(client: Redis) -> tuple[dict[str, str], str]:
    """Return the settings that decide what the store keeps, as far as it reports them, and why CONFIG GET fails.

    Managed stores reject or rename CONFIG, or leave settings out of its answer. INFO reports all but `appendfsync`.
    """
    found: dict[str, str] = {}
    reason = "its answer lacks them"
    try:
        found = {str(name): str(value) for name, value in (await client.config_get(*_DURABILITY)).items()}
    except ResponseError as error:
        reason = str(error)
    if len(found) < len(_DURABILITY):
        with suppress(ResponseError):
            info = {**await client.info("memory"), **await client.info("persistence")}
            if "maxmemory_policy" in info:
                found.setdefault("maxmemory-policy", str(info["maxmemory_policy"]))
            if "aof_enabled" in info:
                found.setdefault("appendonly", "yes" if info["aof_enabled"] else "no")
    return found, reason


async def _look_at_durability(client: Redis, store: str, settings: config.Redis, *, is_view: bool) -> Fitness:
    found, reason = await _durability(client)
    needed = {"maxmemory-policy": "noeviction"}
    must_be_durable = settings.require_append_only and not is_view
    if must_be_durable:
        needed["appendonly"] = "yes"
        if found.get("appendonly") != "no":
            needed["appendfsync"] = f"at least {settings.require_append_fsync} (redis.require_append_fsync)"
    unknown = [f"{name} is {value}" for name, value in needed.items() if name not in found]
    unasked = (Unasked("CONFIG GET", reason, "", f"check by hand that {', '.join(unknown)}"),) if unknown else ()
    unfit = []
    policy = found.get("maxmemory-policy", "noeviction")
    if policy != "noeviction":
        unfit.append(
            f"{store}: maxmemory-policy is {policy}, so the store may drop the index of acknowledged records; "
            "set it to noeviction"
        )
    if not must_be_durable:
        return Fitness("", tuple(unfit), unasked)
    fsync = found.get("appendfsync", "always")
    if found.get("appendonly", "yes") != "yes":
        unfit.append(
            f"{store}: appendonly is {found['appendonly']}, so a restart of the store loses acknowledged records; "
            "set it to yes (with appendfsync always), or set redis.require_append_only to false if that loss is "
            "acceptable"
        )
    elif _LEAST_FSYNC.index(fsync) < _LEAST_FSYNC.index(settings.require_append_fsync):
        unfit.append(
            f"{store}: appendfsync is {fsync}, so a crash of its machine loses more acknowledged records than "
            f"redis.require_append_fsync allows; set it to {settings.require_append_fsync}, or set "
            f"redis.require_append_fsync to {fsync} if that loss is acceptable"
        )
    return Fitness("", tuple(unfit), unasked)
