"""The check that the coordinator's store can be trusted with commits."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

import structlog
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from proxy import config
from proxy.coordinator.addresses import kind_of
from proxy.coordinator.cluster import Cluster, Store, pool_of, primaries
from proxy.coordinator.confirmation import wait_command
from proxy.coordinator.connect import StoreUnfit, WrongServer, address_of, store_call, store_name
from proxy.coordinator.durability import Risk, Unasked, look_at_durability
from proxy.coordinator.info import read_info
from proxy.coordinator.sentinels import SentinelPool
from proxy.coordinator.shards import REGISTRY_PREFIX, script_keys, shard_prefix

log = structlog.get_logger()

OLDEST_VERSION = 7


class Fitness(NamedTuple):
    """The verdict about a server: whether it can be trusted with commits."""

    life: str
    """Replication ID and run ID, which identify this life of the server; empty if the server does not report them."""
    unfit: tuple[str, ...]
    """Reasons why it can't be trusted; each is one line that names the cause and the remedy."""
    unasked: tuple[Unasked, ...]
    is_replica: bool = False
    risks: tuple[Risk, ...] = ()
    vouched: str = ""
    """The same as in Durability."""
    memory_is_full: bool = False
    """True if a server holds more than its `maxmemory`; False if it has no limit, or does not report it."""


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
                store=address_of(settings),
                command=one.command,
                reason=one.reason,
                **effect,
                remedy=one.remedy,
            )
        for risk in found.risks:
            log.warning("store_at_risk", store=address_of(settings), reason=risk.text, remedy=risk.remedy)
    return life_of_fit(found)


def life_of_fit(found: Fitness) -> str:
    """Return the life of a server that can be trusted with commits. Raises StoreUnfit if it can't."""
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
        # The servers of a cluster have the same rights and settings, as a rule: say it once.
        tuple(dict.fromkeys(unasked for one in found for unasked in one.unasked)),
        any(one.is_replica for one in found),
        tuple(dict.fromkeys(risk for one in found for risk in one.risks)),
        next((one.vouched for one in found if one.vouched), ""),
        any(one.memory_is_full for one in found),
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
        server = await _look_at_server(client, store, settings, is_view=is_view)
        durability = await look_at_durability(client, store, settings, is_view=is_view)
        waiting = await _look_at_waiting(client, store, settings)
    return Fitness(
        server.life,
        server.unfit + durability.unfit + waiting,
        server.unasked + durability.unasked,
        server.is_replica,
        server.risks + durability.risks,
        durability.vouched,
        server.memory_is_full,
    )


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


async def _look_at_server(client: Redis, store: str, settings: config.Redis, *, is_view: bool) -> Fitness:
    answers = await read_info(client, "server", "replication", "memory")
    server, replication, memory = ({} if isinstance(one, ResponseError) else one for one in answers)
    why_no_server, why_no_replication, _ = (
        str(one) if isinstance(one, ResponseError) else "its answer lacks it" for one in answers
    )
    unasked = _unseen(server, why_no_server, replication, why_no_replication, is_view=is_view)
    life = f"{replication.get('master_replid', '')} {server.get('run_id', '')}".rstrip()
    mode = server.get("redis_mode", server.get("server_mode"))
    if mode == "sentinel":
        problem = (
            f"{store}: the server is a Sentinel, which keeps no data; set redis.url to "
            "redis+sentinel://host:port/name, with the name that the Sentinels have for the primary"
        )
        return Fitness(life, (problem,), ())
    unfit = []
    version = str(server.get("redis_version", OLDEST_VERSION))
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
    if is_view and "master_replid" not in replication:
        unfit.append(
            f"{store}: the store does not show its replication ID by INFO replication ({why_no_replication}), so "
            "nobody can know whether it has lost writes that the journal has; allow the user of redis.url to run INFO"
        )
    risks = _risks(replication, settings) if replication and not is_view and not is_replica else ()
    return Fitness(life, tuple(unfit), unasked, is_replica, risks, memory_is_full=_is_full(memory))


def _is_full(memory: Mapping[str, object]) -> bool:
    limit = int(str(memory.get("maxmemory", 0)))
    used = int(str(memory.get("used_memory", 0))) - int(str(memory.get("mem_not_counted_for_evict", 0)))
    return 0 < limit < used


def _unseen(
    server: Mapping[str, object],
    why_no_server: str,
    replication: Mapping[str, object],
    why_no_replication: str,
    *,
    is_view: bool,
) -> tuple[Unasked, ...]:
    """Return the parts of INFO that the server does not report."""
    remedy = "allow the user of redis.url to run INFO"
    found = []
    if "master_replid" not in replication and not is_view:
        effect = "if the store loses writes and then takes as many new ones, the loss is not noticed"
        command = "INFO replication" if server or replication else "INFO"
        found.append(Unasked(command, why_no_replication, effect, remedy))
    if "redis_version" not in server and (server or replication):
        effect = f"nobody notices that the version is older than {OLDEST_VERSION}"
        found.append(Unasked("INFO server", why_no_server, effect, remedy))
    return tuple(found)


def _risks(replication: Mapping[str, object], settings: config.Redis) -> tuple[Risk, ...]:
    """Return the risks that INFO replication shows; it reports good replicas only if a minimum is set."""
    attached = int(str(replication.get("connected_slaves", 0)))
    if attached < settings.wait_replicas:
        text = f"{attached} replicas are attached, fewer than redis.wait_replicas ({settings.wait_replicas})"
        return (Risk(f"{text}: no produce is acknowledged", "attach more replicas, or lower redis.wait_replicas"),)
    if settings.durability == "appendonly" and attached and "min_slaves_good_slaves" not in replication:
        text = (
            f"{attached} replicas are attached, and min-replicas-to-write is 0: a primary that is cut off from them "
            "goes on accepting commits, which are lost when a replica is promoted"
        )
        return (Risk(text, "set min-replicas-to-write to 1 and min-replicas-max-lag to a few seconds"),)
    return ()
