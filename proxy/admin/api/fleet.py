"""`/api/fleet`: all live proxies and brokers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from proxy.admin.api.question import ProcessAnswer, Question, shown
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_fleet import ProxyRecord, ProxySums
from proxy.wire.metadata import Broker

if TYPE_CHECKING:
    from proxy.routing.fleet import Fleet


_LONGEST_LOOK_S = 1.0
_MILLION = 1_000_000


class FleetView(NamedTuple):
    """The fleet as one process sees it."""

    identity: str
    proxies: tuple[tuple[ProxyRecord, int | None], ...]
    """Each proxy, with the milliseconds since its last heartbeat; None while the coordinator does not answer."""
    brokers: tuple[Broker, ...]


async def collect(fleet: Fleet, lease_ms: int, brokers: Iterable[Broker]) -> FleetView:
    """Return the fleet from the coordinator; while the coordinator does not answer, return the fleet that this process
    knows."""
    proxies: tuple[tuple[ProxyRecord, int | None], ...] = tuple((record, None) for record in fleet.records.values())
    with suppress(CoordinatorUnavailable, TimeoutError):
        async with asyncio.timeout(_LONGEST_LOOK_S):
            seen = await fleet.look()
        proxies = tuple((one.record, age_ms(lease_ms, one.lease_left_ms)) for one in seen)
    return FleetView(fleet.identity, proxies, tuple(brokers))


def document(answers: Iterable[ProcessAnswer], question: Question) -> dict[str, Any]:
    """Return the answer of `GET /api/fleet`: the view of the first process that knows any brokers."""
    views: list[FleetView] = [one.value for one in answers]
    own = {view.identity for view in views}
    view = next((view for view in views if view.brokers), views[0] if views else FleetView("", (), ()))
    with_clients = [(record, age_ms) for record, age_ms in view.proxies if record.listeners]
    processes = Counter(name_of(record) for record, _ in with_clients)
    rows = []
    for record, age_ms in with_clients:
        row = proxy_row(record, age_ms, this=record.proxy_id in own)
        if processes[name_of(record)] > 1:
            row["proxy"] = shown(record.proxy_id)
        rows.append(row)
    rows.sort(key=lambda row: (row["rack"], row["proxy"]))
    return {
        "sums": sums_of([record for record, _ in view.proxies]),
        "proxies": rows[: question.limit],
        "brokers": [
            {"node_id": broker.node_id, "rack": shown(broker.rack), "address": shown(f"{broker.host}:{broker.port}")}
            for broker in sorted(view.brokers)[: question.limit]
        ],
    }


def sums_of(records: Sequence[ProxyRecord]) -> dict[str, Any]:
    """Return what all live proxies move and cost together; null if no proxy reports it."""
    reported = [record.sums for record in records if record.sums is not None]
    return {
        "proxies": len({name_of(record) for record in records}),
        "serving": len({name_of(record) for record in records if record.serving}),
        "racks": len({record.rack for record in records}),
        "processes": len(records),
        "reporting": len(reported),
        **_sums_document(ProxySums(*map(sum, zip(*reported, strict=True))) if reported else None),
    }


def _sums_document(sums: ProxySums | None) -> dict[str, Any]:
    return {
        "produce_bytes_per_second": sums and sums.produced,
        "fetch_bytes_per_second": sums and sums.fetched,
        "cross_rack_bytes_per_second": sums and sums.crossed,
        "cross_rack_usd_per_hour": sums and sums.crossing_cost / _MILLION,
        "saved_usd_per_hour": sums and sums.saved / _MILLION,
        "storage_usd_per_hour": sums and sums.storage_cost / _MILLION,
        "connections": sums and sums.connections,
    }


def name_of(record: ProxyRecord) -> str:
    """Return the proxy's name, without the suffix that distinguishes its processes."""
    return record.proxy_id.rpartition("#")[0] or record.proxy_id


def proxy_row(record: ProxyRecord, age_ms: int | None, *, this: bool) -> dict[str, Any]:
    """Return the row of one proxy; a field that its release does not report yet is null."""
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
        "sums": _sums_document(record.sums),
    }


def age_ms(lease_ms: int, left_ms: int) -> int:
    """Return the time since a proxy's last heartbeat, from the time that its lease has left.

    All proxies have the same `fleet.lease_ms`.
    """
    return max(0, lease_ms - left_ms)
