"""The check of what a store keeps: that it drops no key, and that a restart loses no acknowledged commit.

Without a journal, somebody must vouch for the commits (`redis.durability`): an append-only file that the server shows,
a service that is known for it, or the operator. With a journal nobody has to, because the commits are on the brokers.
An eviction is rejected in any case, because nobody can vouch for a key that the store drops on purpose.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from proxy import config
from proxy.coordinator.addresses import kind_of
from proxy.coordinator.info import read_allowed_info

_SETTINGS = ("maxmemory-policy", "appendonly", "appendfsync")
_COVERAGE = "cluster-require-full-coverage"
_LEAST_FSYNC = ("no", "everysec", "always")
_VOUCHED = {
    "memorydb": "MemoryDB keeps acknowledged commits (redis.durability: memorydb)",
    "trusted": "you vouch for acknowledged commits (redis.durability: trusted)",
}


class Unasked(NamedTuple):
    """A check that the store does not allow, so that an operator has to do it."""

    command: str
    reason: str
    effect: str
    """Consequence; empty if the remedy names it."""
    remedy: str


class Risk(NamedTuple):
    """A risk that is not a reason to reject the store."""

    text: str
    remedy: str


class Durability(NamedTuple):
    """The verdict about what a server keeps."""

    unfit: tuple[str, ...] = ()
    unasked: tuple[Unasked, ...] = ()
    risks: tuple[Risk, ...] = ()
    vouched: str = ""
    """Text that names the one who keeps acknowledged commits if that is not checked; empty if it
    is, or if a journal keeps them."""


async def look_at_durability(client: Redis, store: str, settings: config.Redis, *, is_view: bool) -> Durability:
    """Return the verdict. `store`: name of the server, for texts. `is_view`: a journal keeps the commits.

    Raises redis-py's errors, except for commands that the server rejects.
    """
    is_cluster = kind_of(settings.url) == "cluster"
    found, reason = await _settings_of(client, (*_SETTINGS, _COVERAGE) if is_cluster else _SETTINGS)
    unfit = [_evicts(store, found)]
    needed = {"maxmemory-policy": "noeviction"}
    if is_cluster:
        needed[_COVERAGE] = "no"
    vouched = ""
    if is_view:
        pass
    elif settings.durability == "appendonly":
        unfit.append(_forgets(store, found, settings, reason))
        if found.get("appendonly") == "yes":
            needed["appendfsync"] = f"at least {settings.require_append_fsync} (redis.require_append_fsync)"
    else:
        shown = f"the append-only file is not checked: appendonly is {found.get('appendonly', 'not shown')}"
        vouched = f"{_VOUCHED[settings.durability]}; {shown}"
    unknown = [f"{name} is {value}" for name, value in needed.items() if name not in found]
    unasked = (Unasked("CONFIG GET", reason, "", f"check by hand that {', '.join(unknown)}"),) if unknown else ()
    return Durability(tuple(filter(None, unfit)), unasked, _risks(found), vouched)


async def _settings_of(client: Redis, names: tuple[str, ...]) -> tuple[dict[str, str], str]:
    """Return the values of the server's settings, as far as it reports them, and why CONFIG GET lacks the others.

    Managed stores reject or rename CONFIG, or leave settings out of its answer. INFO reports some of them.
    """
    found: dict[str, str] = {}
    reason = "its answer lacks them"
    try:
        found = {str(name): str(value) for name, value in (await client.config_get(*names)).items()}
    except ResponseError as error:
        reason = str(error)
    if len(found) < len(names):
        memory, persistence = await read_allowed_info(client, "memory", "persistence")
        if "maxmemory_policy" in memory:
            found.setdefault("maxmemory-policy", str(memory["maxmemory_policy"]))
        if "aof_enabled" in persistence:
            found.setdefault("appendonly", "yes" if persistence["aof_enabled"] else "no")
    return found, reason


def _evicts(store: str, found: Mapping[str, str]) -> str:
    policy = found.get("maxmemory-policy", "noeviction")
    if policy == "noeviction":
        return ""
    return (
        f"{store}: maxmemory-policy is {policy}, so the store may drop the index of acknowledged records; "
        "set it to noeviction"
    )


def _forgets(store: str, found: Mapping[str, str], settings: config.Redis, reason: str) -> str:
    """Return why a restart of a server would lose acknowledged commits, or may do so; empty if it loses none."""
    if (appendonly := found.get("appendonly")) is None:
        return (
            f"{store}: the store shows neither by CONFIG GET ({reason}) nor by INFO whether it has an append-only "
            "file, so a restart may lose acknowledged records; allow the user of redis.url to run one of them, or set "
            "redis.durability to memorydb or trusted, which says who vouches for the records"
        )
    if appendonly != "yes":
        return (
            f"{store}: appendonly is {appendonly}, so a restart of the store loses acknowledged records; "
            "set it to yes (with appendfsync always), or set redis.durability to trusted if somebody else vouches for "
            "the records, or if that loss is acceptable"
        )
    fsync = found.get("appendfsync", "always")
    if _LEAST_FSYNC.index(fsync) < _LEAST_FSYNC.index(settings.require_append_fsync):
        return (
            f"{store}: appendfsync is {fsync}, so a crash of its machine loses more acknowledged records than "
            f"redis.require_append_fsync allows; set it to {settings.require_append_fsync}, or set "
            f"redis.require_append_fsync to {fsync} if that loss is acceptable"
        )
    return ""


def _risks(found: Mapping[str, str]) -> tuple[Risk, ...]:
    """Return the risk that a cluster stops all shards when one primary is down."""
    if found.get(_COVERAGE, "no") != "yes":
        return ()
    text = f"{_COVERAGE} is yes: all shards stop when one primary is down"
    return (Risk(text, f"set {_COVERAGE} to no on each server"),)
