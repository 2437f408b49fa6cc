"""The monthly cost of a topic, classic and diskless: the formulas of docs/cost.md.

The calculator of that page has the same in JavaScript (`docs/assets/cost.js`); a test keeps the two in step. The
proxies' own counts of real traffic are in `proxy/admin` and `pipeline/traffic`.
"""

from __future__ import annotations

from dataclasses import dataclass

from proxy.accounting.savings import GIGABYTE, crossings

MEGABYTE = 1_000_000
MONTH_SECONDS = 730 * 3600
HOUR_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class Usage:
    """A topic, or all of them together."""

    produced_mb_per_second: float
    """Megabytes (1,000,000 bytes) of record batches a second, compressed as they are."""
    readers: float = 2.0
    """How often each record is read, by how many groups."""
    racks: int = 3
    replication_factor: int = 3
    """Replication factor of the classic topic."""
    retention_hours: float = 72.0
    follower_fetching: bool = False
    """Whether consumers of the classic topic read in their own rack (KIP-392)."""
    disk_used_share: float = 0.5
    """How much of the brokers' disks is full; the rest is paid for as well."""
    proxies: int = 6
    """Proxies that take produces, in all racks: two for each, so that a restart is not noticed."""
    puts_per_second: float = 4.0
    """The budget of each proxy for uploads (`diskless.append.puts.per.second`). The default is 1000 ÷ the commit
    interval."""
    buffer_bytes: float = 4 * 1024 * 1024
    """`diskless.append.buffer.max.bytes`."""
    coordination_share: float = 0.01
    """Bytes to and from Redis, as a part of what is produced; all of it taken as crossing racks."""
    proxy_usd_per_month: float = 60.0
    """Machine of one proxy: two cores and 8 GiB, on demand."""
    redis_usd_per_month: float = 160.0
    """Machines of the coordinator's store: a primary and a replica, with two cores and 16 GiB each, on demand."""


@dataclass(frozen=True, slots=True)
class MonthlyPrices:
    """List prices of AWS in many regions, in US dollars, in 2026."""

    cross_rack_usd_per_gb: float = 0.02
    """Price of both ends together, as `prices.cross_rack_usd_per_gb`."""
    put_usd_per_thousand: float = 0.005
    get_usd_per_thousand: float = 0.0004
    object_usd_per_gb_month: float = 0.023
    disk_usd_per_gb_month: float = 0.08


def monthly_cost(usage: Usage, prices: MonthlyPrices) -> dict[str, float]:
    """US dollars a month, line by line: `classic_…`, `diskless_…`, their totals, and `saved`, which may be negative."""
    produced_gb = usage.produced_mb_per_second * MEGABYTE * MONTH_SECONDS / GIGABYTE
    kept_gb = usage.produced_mb_per_second * MEGABYTE * usage.retention_hours * HOUR_SECONDS / GIGABYTE
    crossing = prices.cross_rack_usd_per_gb
    each = crossings(usage.racks, usage.replication_factor)
    fetched = 0.0 if usage.follower_fetching else each.fetch * usage.readers
    disk_gb = kept_gb * usage.replication_factor / usage.disk_used_share
    segments = segments_per_second(usage) * MONTH_SECONDS
    lines = {
        "classic_produce": produced_gb * each.produce * crossing,
        "classic_replication": produced_gb * each.replication * crossing,
        "classic_fetch": produced_gb * fetched * crossing,
        "classic_disks": disk_gb * prices.disk_usd_per_gb_month,
        "diskless_put": segments * prices.put_usd_per_thousand / 1000,
        "diskless_get": segments * (usage.racks - 1) * prices.get_usd_per_thousand / 1000,
        "diskless_storage": kept_gb * prices.object_usd_per_gb_month,
        "diskless_coordination": produced_gb * usage.coordination_share * crossing,
        "diskless_proxies": usage.proxies * usage.proxy_usd_per_month,
        "diskless_redis": usage.redis_usd_per_month,
    }
    totals = {
        f"{kind}_total": sum(usd for name, usd in lines.items() if name.startswith(f"{kind}_"))
        for kind in ("classic", "diskless")
    }
    return {**lines, **totals, "saved": totals["classic_total"] - totals["diskless_total"]}


def segments_per_second(usage: Usage) -> float:
    """Return the WAL segments of all proxies: one for each full buffer, and at most the budget if that is more."""
    by_size = usage.produced_mb_per_second * MEGABYTE / usage.buffer_bytes
    by_time = usage.proxies * usage.puts_per_second
    return max(by_size, by_time) if usage.produced_mb_per_second > 0 else 0.0
