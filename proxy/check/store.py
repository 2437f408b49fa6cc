"""Checks of the coordinator's store: it is reachable, fit for commits, and lets the proxy run its commands."""

from __future__ import annotations

import statistics
import time
import uuid
from contextlib import suppress

from proxy import config
from proxy.check.findings import Finding, Kind, error, from_error, ok, warning
from proxy.config import Settings
from proxy.coordinator.cluster import Store, primaries, server_of
from proxy.coordinator.commands import command_problem
from proxy.coordinator.connect import connect, store_call, store_name
from proxy.coordinator.fitness import fitness
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.layout import layout_problems
from proxy.coordinator.registry import RedisTopicRegistry
from proxy.coordinator.shards import FLEET_PREFIX
from proxy.coordinator.subscription import until_it_breaks

_PINGS = 5
_SLOW_MS = 50.0
_NEARLY_FULL = 0.9
_SUBSCRIPTION_S = 60.0
"""Longer than any `redis.timeout_ms` makes the wait for the answer to a subscription."""


async def check_store(settings: Settings) -> tuple[list[Finding], Store | None, int]:
    """Return the findings, the client for the caller to close (if the store answers), and how far its clock is ahead in
    ms."""
    client, where = await connect(settings.redis), store_name(settings.redis)
    try:
        try:
            latency_ms, skew_ms = await _measured(client)
        except CoordinatorUnavailable:  # the first answer is the one that a busy machine is late for
            latency_ms, skew_ms = await _measured(client)
        fit = await fitness(client, settings.redis, is_view=settings.journal.mode == "required")
        found = [from_error(Kind.STORE, where, problem) for problem in fit.unfit]
        found += [
            warning(
                Kind.STORE, where, f"{one.command} does not show all that a start checks ({one.reason})", one.remedy
            )
            for one in fit.unasked
        ]
        found += [warning(Kind.STORE, where, risk.text, risk.remedy) for risk in fit.risks]
        found += [ok(Kind.STORE, where, fit.vouched)] if fit.vouched else []
        if fit.unfit and not await _is_readable(client, settings):
            await client.aclose()
            return found, None, 0
        if not fit.unfit:
            found += [from_error(Kind.STORE, where, one) for one in await layout_problems(client, settings.redis)]
            found.append(await _tried_out(client, settings.redis, where))
            with suppress(CoordinatorUnavailable):  # a missing right is reported already
                found += await _memory(client, settings.redis)
    except CoordinatorUnavailable as problem:
        await client.aclose()
        return [from_error(Kind.STORE, where, problem)], None, 0
    except BaseException:
        await client.aclose()
        raise
    return [of_latency(where, latency_ms), *found], client, skew_ms


def of_latency(where: str, latency_ms: float) -> Finding:
    """Return the finding about the store's latency: every commit waits for the store."""
    text = f"answers in {latency_ms:.1f} ms"
    if latency_ms < _SLOW_MS:
        return ok(Kind.STORE, where, text)
    return warning(
        Kind.STORE, where, text, "check that it is neither overloaded nor far away: each commit waits twice that long"
    )


def of_memory(where: str, used: int, maximum: int) -> Finding:
    """Return the finding about room for the index; `maximum` is 0 if there is no bound."""
    if not maximum:
        return ok(Kind.STORE, where, f"uses {used >> 20:,} MiB, without maxmemory")
    text = f"uses {used >> 20:,} of {maximum >> 20:,} MiB (maxmemory)"
    if used < _NEARLY_FULL * maximum:
        return ok(Kind.STORE, where, text)
    return warning(
        Kind.STORE, where, text, "raise maxmemory: a full store rejects produced records, see docs/sizing.md"
    )


async def _measured(client: Store) -> tuple[float, int]:
    """Return the median time of an answer, and how far the store's clock is ahead of ours; both in milliseconds."""
    times, skews = [], []
    for _ in range(_PINGS):
        wall_ms, began_s = time.time() * 1000, time.perf_counter()
        async with store_call(client, "asking for its time"):
            seconds, microseconds = await (await server_of(client, FLEET_PREFIX)).time()
        took_ms = (time.perf_counter() - began_s) * 1000
        times.append(took_ms)
        skews.append(seconds * 1000 + microseconds / 1000 - (wall_ms + took_ms / 2))
    return statistics.median(times), round(statistics.median(skews))


async def _is_readable(client: Store, settings: Settings) -> bool:
    """Return whether a store that takes no commits can still be read."""
    try:
        await RedisTopicRegistry(client, settings.redis).cluster_id()
    except CoordinatorUnavailable:
        return False
    return True


async def _tried_out(client: Store, settings: config.Redis, where: str) -> Finding:
    """Try every command of the scripts on keys of every kind, and a subscription."""
    name = uuid.uuid4().hex
    try:
        if problem := await command_problem(client, settings):
            return from_error(Kind.STORE, where, problem)
        channel = f"{FLEET_PREFIX}check-{name}"
        async with store_call(client, "subscribing to announcements"):
            messages = until_it_breaks(await server_of(client, channel), [[channel]], _SUBSCRIPTION_S)
            try:
                await anext(messages)
            finally:
                await messages.aclose()
    except CoordinatorUnavailable as problem:
        found = from_error(Kind.STORE, where, problem)
        return error(Kind.STORE, where, found.text, found.remedy or "see docs/operations/redis.md")
    return ok(Kind.STORE, where, "lets the proxy use scripts, keys under diskless: and announcements")


async def _memory(client: Store, settings: config.Redis) -> list[Finding]:
    found = []
    async with store_call(client, "asking for its memory"):
        for name, server in (await primaries(client)).items():
            memory = await server.info("memory")
            where = store_name(settings, name)
            found.append(of_memory(where, int(memory.get("used_memory", 0)), int(memory.get("maxmemory", 0))))
    return found
