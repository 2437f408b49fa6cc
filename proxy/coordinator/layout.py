"""The layout of the data in the store. The store itself records it, and a proxy rejects a layout that it does not know.

One hash has what must stay as it was, or may only be raised on purpose: the number of shards, and the *format*. The
format is the number of the layout of all keys and packed values, which a release must know to work on the store. A
release keeps the format if it only adds what other releases skip (fields of JSON, keys of its own). So two releases can
work on one store in a rolling upgrade. `release` is the newest release that has used the store, for the text of an
error.
"""

from __future__ import annotations

from contextlib import suppress

from proxy import __version__, config
from proxy.coordinator.cluster import Store
from proxy.coordinator.commands import check_commands
from proxy.coordinator.connect import StoreUnfit, store_call, store_name
from proxy.coordinator.fitness import check_fitness
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.shards import STORE_KEY

FORMAT_VERSION = 8
"""Number of the layout that this release knows."""
_FIELDS = ("shards", "format", "release")


async def check_store(client: Store, settings: config.Redis, *, is_view: bool = False) -> None:
    """Reject a store that could lose commits, rejects a command, or holds data of another layout.

    The first proxy fixes the layout. The log warns of checks that the store does not allow. Raises StoreUnfit, and
    CoordinatorUnavailable if the store does not answer. `is_view`: as in `check_fitness`.
    """
    await check_fitness(client, settings, warn=True, is_view=is_view)
    await check_commands(client, settings)
    await settle_layout(client, settings)


async def settle_layout(client: Store, settings: config.Redis) -> None:
    """Reject data of another layout; the first proxy fixes the layout.

    Raises StoreUnfit, and CoordinatorUnavailable if the store does not answer.
    """
    async with store_call(client, "checking the store"):
        for field, value in (("shards", settings.shards), ("format", FORMAT_VERSION)):
            await client.hsetnx(STORE_KEY, field, value)
    await check_layout(client, settings)
    # A server without free memory takes no writes; nothing depends on this write.
    with suppress(CoordinatorUnavailable):
        async with store_call(client, "naming the newest release"):
            stored = await client.hget(STORE_KEY, "release")
            if _numbers(_text(stored)) < _numbers(__version__):
                await client.hset(STORE_KEY, "release", __version__)


async def check_layout(client: Store, settings: config.Redis) -> None:
    """Reject data of another layout; nothing is written. Raises as `settle_layout`."""
    if problems := await layout_problems(client, settings):
        raise StoreUnfit(problems[0])


async def layout_problems(client: Store, settings: config.Redis) -> list[str]:
    """Return why `settle_layout` would reject the data in the store; nothing is written. An empty store has no problem.

    Raises CoordinatorUnavailable.
    """
    async with store_call(client, "checking the store"):
        shards, layout, release = map(_text, await client.hmget(STORE_KEY, list(_FIELDS)))
    problems = []
    if shards and shards != str(settings.shards):
        problems.append(
            f"{store_name(settings)}: the store has data with {shards} shards, not {settings.shards}; set "
            f"redis.shards to {shards}, it can't change while there are data"
        )
    if layout and layout != str(FORMAT_VERSION):
        newest = f"release {release}" if _numbers(release) > _numbers(__version__) else "the release that wrote it"
        problems.append(
            f"{store_name(settings)}: the store has data of format {layout}, but this release ({__version__}) "
            f"reads only format {FORMAT_VERSION}; run {newest}, or use an empty store"
        )
    return problems


def _text(stored: bytes | str | None) -> str:
    return stored.decode(errors="replace") if isinstance(stored, bytes) else stored or ""


def _numbers(release: str) -> tuple[int, ...]:
    """Return the numbers of a release, for comparison; a part that is not a number counts as 0."""
    return tuple(int(part) if part.isdigit() else 0 for part in release.split(".")) if release else ()
