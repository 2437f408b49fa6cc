"""The savings of a diskless topic: the cost between racks of the same bytes in a classic topic.

The model, which `docs/cost.md` explains: leaders and clients are spread evenly over N racks, clients read from leaders,
and R replicas are spread over the racks as evenly as possible. Of each byte produced or fetched, (N - 1) / N crosses.
Each produced byte crosses once more for every replica that is in another rack than its leader. The cost of requests to
object storage is shown separately (`storage_cost_usd_total`), not subtracted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from proxy.routing.racks import borders
from proxy.telemetry.stats import Stats

if TYPE_CHECKING:
    from proxy.config import Prices

GIGABYTE = 1_000_000_000
"""Bytes: what clouds mean by it where they name prices."""
DEFAULT_REPLICATION_FACTOR = 3
"""Replication factor if the brokers' own `default.replication.factor` is not known."""


class Crossings(NamedTuple):
    """How often a byte of a classic topic crosses racks, on average."""

    produce: float
    """Each byte produced, from the client to the leader."""
    replication: float
    """Each byte produced, from the leader to its followers."""
    fetch: float
    """Each byte fetched, from the leader to the client."""


class DisklessBytes(NamedTuple):
    """Record bytes of diskless topics."""

    produced: int
    """All that were stored, wherever they came from: a classic topic would have replicated each. What was refused, or
    came once more, saves nothing."""
    produced_near: int
    """Produced bytes that crossed no rack on their way to the proxy."""
    fetched_near: int
    """Fetched bytes that crossed no rack on their way to the client."""


def crossings(racks: int, replication_factor: int) -> Crossings:
    """Return the crossings of a classic topic in a cluster of this many racks; none with one rack, or if none is
    known."""
    if racks < 2:
        return Crossings(0.0, 0.0, 0.0)
    away = (racks - 1) / racks
    replicas = max(replication_factor, 1)
    each, more = divmod(replicas, racks)
    same_rack = (racks - more) * each**2 + more * (each + 1) ** 2  # pairs of leader and replica in the same rack
    return Crossings(away, replicas - same_rack / replicas, away)


def saved_usd(record_bytes: DisklessBytes, racks: int, replication_factor: int, prices: Prices) -> dict[str, float]:
    """US dollars by what they were saved on: `diskless_produce`, `diskless_replication` and `diskless_fetch`.

    Bytes that crossed racks all the same save nothing on their way, even where they crossed less often.
    """
    per_byte = prices.cross_rack_usd_per_gb / GIGABYTE
    each = crossings(racks, replication_factor)
    return {
        "diskless_produce": record_bytes.produced_near * each.produce * per_byte,
        "diskless_replication": record_bytes.produced * each.replication * per_byte,
        "diskless_fetch": record_bytes.fetched_near * each.fetch * per_byte,
    }


def near_read_saved_usd(stats: Stats, prices: Prices) -> float:
    """Between proxy and broker each byte would have crossed; between client and proxy all is as it would have been."""
    size = sum(stats.near_read_bytes.values())
    return stats.ledger.total("near_read", size, prices.cross_rack_usd_per_gb / GIGABYTE)


def diskless_bytes(stats: Stats, own_rack: str) -> DisklessBytes:
    """Return the bytes that a proxy of `own_rack` has counted so far."""
    fetched_near = sum(
        size
        for (kind, direction, client_rack, serving_rack), _, size in stats.all_record_bytes()
        if (kind, direction) == ("diskless", "fetch") and not borders(client_rack, own_rack, serving_rack)
    )
    produced_near = sum(
        size for client_rack, size in stats.stored_bytes.items() if not borders(client_rack, own_rack, own_rack)
    )
    return DisklessBytes(sum(stats.stored_bytes.values()), produced_near, fetched_near)


def saved_usd_so_far(
    stats: Stats, own_rack: str, racks: int, replication_factor: int, prices: Prices
) -> dict[str, float]:
    """Return US dollars by `saving`: those of `saved_usd`, and `near_read`. Each byte counts at the price of its day.

    `racks`: in how many racks the brokers are; `replication_factor`: the brokers' default, 0 if unknown.
    """
    counted = diskless_bytes(stats, own_rack)
    of_a_byte = saved_usd(DisklessBytes(1, 1, 1), racks, replication_factor or DEFAULT_REPLICATION_FACTOR, prices)
    quantities = {
        "diskless_produce": counted.produced_near,
        "diskless_replication": counted.produced,
        "diskless_fetch": counted.fetched_near,
    }
    saved = {saving: stats.ledger.total(saving, size, of_a_byte[saving]) for saving, size in quantities.items()}
    saved["near_read"] = near_read_saved_usd(stats, prices)
    return saved
