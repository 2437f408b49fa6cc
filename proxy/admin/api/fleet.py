"""`/api/fleet`: all live proxies, and the brokers that live."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from proxy.admin.api.question import Question, Told, shown
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_fleet import ProxyRecord
from proxy.wire.metadata import Broker

if TYPE_CHECKING:
    from proxy.routing.fleet import Fleet


_LONGEST_LOOK_S = 1.0


class FleetTold(NamedTuple):
    """The fleet as one process sees it."""

    identity: str
    proxies: tuple[tuple[ProxyRecord, int | None], ...]
    """With the milliseconds since the last heartbeat; None where the coordinator can't be asked."""
    brokers: tuple[Broker, ...]


async def told(fleet: Fleet, lease_ms: int, brokers: Iterable[Broker]) -> FleetTold:
    """Ask the coordinator; while that is away, return what this process knows."""
    proxies: tuple[tuple[ProxyRecord, int | None], ...] = tuple((record, None) for record in fleet.records.values())
    with suppress(CoordinatorUnavailable, TimeoutError):
        async with asyncio.timeout(_LONGEST_LOOK_S):
            seen = await fleet.look()
        proxies = tuple((one.record, age_ms(lease_ms, one.lease_left_ms)) for one in seen)
    return FleetTold(fleet.identity, proxies, tuple(brokers))


def document(told: Iterable[Told], question: Question) -> dict[str, Any]:
    """The answer of `GET /api/fleet`: as the first process sees it that has heard of brokers."""
    views: list[FleetTold] = [one.value for one in told]
    own = {view.identity for view in views}
    view = next((view for view in views if view.brokers), views[0] if views else FleetTold("", (), ()))
    processes = Counter(name_of(record) for record, _ in view.proxies)
    rows = []
    for record, age_ms in view.proxies:
        row = proxy_row(record, age_ms, this=record.proxy_id in own)
        if processes[name_of(record)] > 1:
            row["proxy"] = shown(record.proxy_id)
        rows.append(row)
    rows.sort(key=lambda row: (row["rack"], row["proxy"]))
    return {
        "proxies": rows[: question.limit],
        "brokers": [
            {"node_id": broker.node_id, "rack": shown(broker.rack), "address": shown(f"{broker.host}:{broker.port}")}
            for broker in sorted(view.brokers)[: question.limit]
        ],
    }


def name_of(record: ProxyRecord) -> str:
    """The proxy's name, without what tells its processes from each other."""
    return record.proxy_id.rpartition("#")[0] or record.proxy_id


def proxy_row(record: ProxyRecord, age_ms: int | None, *, this: bool) -> dict[str, Any]:
    """One proxy; what its release does not say yet is null."""
    address = ", ".join(f"{one.host}:{one.bootstrap_port}" for one in record.listeners)
    return {
        "proxy": shown(name_of(record)),
        "rack": shown(record.rack),
        "address": shown(address, 1_000),
        "admin": shown(record.admin) or None,
        "serving": record.serving,
        "this": this,
        "version": shown(record.version) or None,
        "age_ms": age_ms,
    }


def age_ms(lease_ms: int, left_ms: int) -> int:
    """Since the last heartbeat of a proxy whose lease runs for so long still; all have the same `fleet.lease_ms`."""
    return max(0, lease_ms - left_ms)
