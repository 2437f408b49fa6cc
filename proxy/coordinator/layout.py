"""How the store is laid out, and since which release: said in the store itself, and refused where it is not known.

One hash says what must stay as it was, or may only be raised on purpose: the number of shards, and the *format*, the
number of the layout of all keys and packed values that a release must know to work on the store. A release that only
adds to what others pass over (fields of JSON, keys of its own) leaves it, so that two releases can work on one store in
a rolling upgrade. `release` names the newest release that has: it is there for the words of a refusal.
"""

from __future__ import annotations

from contextlib import suppress

from redis.asyncio import Redis

from proxy import __version__, config
from proxy.coordinator.commands import check_commands
from proxy.coordinator.connect import StoreUnfit, check_fitness, store_call, store_name
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.shards import STORE_KEY

FORMAT_VERSION = 3
"""The layout that this release knows."""
_FIELDS = ("shards", "format", "release")


async def check_store(client: Redis, settings: config.Redis) -> None:
    """Reject a store that could lose commits, rejects a command, or holds data of another layout.

    The first proxy fixes the layout. The log warns of checks that the store does not allow. Raises StoreUnfit, and
    CoordinatorUnavailable if the store does not answer.
    """
    await check_fitness(client, settings, warn=True)
    await check_commands(client, settings)
    await settle_layout(client, settings)


async def settle_layout(client: Redis, settings: config.Redis) -> None:
    """Refuse data of another layout; the first proxy fixes the layout.

    Raises StoreUnfit, and CoordinatorUnavailable where the store does not answer.
    """
    async with store_call(client, "checking the store"):
        for field, value in (("shards", settings.shards), ("format", FORMAT_VERSION)):
            await client.hsetnx(STORE_KEY, field, value)
    await check_layout(client, settings)
    with suppress(CoordinatorUnavailable):  # a server short of memory takes no writes; nothing depends on this one
        async with store_call(client, "naming the newest release"):
            stored = await client.hget(STORE_KEY, "release")
            if _numbers(_text(stored)) < _numbers(__version__):
                await client.hset(STORE_KEY, "release", __version__)


async def check_layout(client: Redis, settings: config.Redis) -> None:
    """Refuse data of another layout; nothing is written. Raises as `settle_layout`."""
    if problems := await layout_problems(client, settings):
        raise StoreUnfit(problems[0])


async def layout_problems(client: Redis, settings: config.Redis) -> list[str]:
    """What `settle_layout` would refuse the data in the store for; nothing is written, and an empty store has none.

    Raises CoordinatorUnavailable.
    """
    async with store_call(client, "checking the store"):
        shards, layout, release = map(_text, await client.hmget(STORE_KEY, list(_FIELDS)))
    problems = []
    if shards and shards != str(settings.shards):
        problems.append(
            f"{store_name(settings)}: the store holds data of shards {shards}, not {settings.shards}; set redis.shards "
            "to that, it can't change while there is data"
        )
    if layout and layout != str(FORMAT_VERSION):
        newest = f"release {release}" if _numbers(release) > _numbers(__version__) else "the release that made it"
        problems.append(
            f"{store_name(settings)}: the store holds data of format {layout}, and this release ({__version__}) knows "
            f"{FORMAT_VERSION} only; run {newest}, or use an empty store"
        )
    return problems


def _text(stored: bytes | str | None) -> str:
    return stored.decode(errors="replace") if isinstance(stored, bytes) else stored or ""


def _numbers(release: str) -> tuple[int, ...]:
    """Of a release, for comparison; what is no number counts as 0."""
    return tuple(int(part) if part.isdigit() else 0 for part in release.split(".")) if release else ()
