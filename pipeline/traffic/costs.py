"""Prices on traffic: what it cost, what the same traffic would have cost without the proxies, and the difference.

The actual cost is measured. The cost without proxies is a model, stated in docs/pipeline/traffic.md and decision 0040:

- classic topics: the same clients, brokers and leaders, without the way through the proxies. Records that clients of
  the proxy's own rack read near would have come from the leader, in another rack.
- diskless topics: they would have been classic ones, with leaders and replicas spread evenly over all racks. So of the
  bytes that clients produce, and fetch from leaders, all but one part in the number of racks would have crossed, and
  each byte produced would have been copied to the replicas in other racks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pipeline.traffic.table import Flow
from proxy.accounting import savings
from proxy.accounting.savings import GIGABYTE
from proxy.config import Prices
from proxy.routing.racks import borders

_KINDS = ("classic", "diskless")


@dataclass(frozen=True, slots=True)
class Model:
    """The assumptions about a cluster without the proxies."""

    racks: int
    """Over which leaders and replicas of the topics that are diskless now would be spread."""
    replication_factor: int = 3
    """Replication factor of diskless topics; 1 leaves replication out."""
    follower_fetching: bool = False
    """Whether their consumers would read in their own rack (KIP-392)."""

    @property
    def elsewhere(self) -> float:
        """Return the share of leaders that are in another rack than a client."""
        return savings.crossings(self.racks, self.replication_factor).fetch

    @property
    def copies_across(self) -> float:
        """How often a byte that is produced goes to another rack's replica, on the average over leaders."""
        return savings.crossings(self.racks, self.replication_factor).replication


class Item(NamedTuple):
    """One line of the bill."""

    case: str
    """`with_proxies` or `without_proxies`."""
    kind: str
    what: str
    bytes: int
    """Bytes that cross racks or, for requests, that they moved."""
    requests: int
    usd: float


@dataclass(frozen=True, slots=True)
class Bill:
    """All lines."""

    items: tuple[Item, ...]

    def total_usd(self, case: str, kind: str = "") -> float:
        """Return the sum of one case; of all kinds of topics if none is named."""
        return sum(item.usd for item in self.items if item.case == case and kind in ("", item.kind))

    def saved_usd(self, kind: str = "") -> float:
        """Return what the proxies saved by the model; negative if they cost more."""
        return self.total_usd("without_proxies", kind) - self.total_usd("with_proxies", kind)

    def as_json(self) -> list[dict[str, Any]]:
        """Return the lines, as JSON values."""
        return [item._asdict() for item in self.items]


def crossings(flow: Flow) -> int:
    """How often its records crossed racks; 0, 1 or 2."""
    return borders(flow.client_rack, flow.proxy_rack, flow.serving_rack)


def bill_of(
    records: Sequence[Flow],
    near_reads: Sequence[Flow],
    puts: tuple[int, int],
    gets: tuple[int, int],
    coordination_bytes: int,
    prices: Prices,
    model: Model,
) -> Bill:
    """Both cases. `puts` and `gets` are bytes and requests; `near_reads` is part of `records`."""
    items = [
        *_paid(records, puts, gets, coordination_bytes, prices),
        *_classic_else(records, near_reads, prices),
        *_diskless_else(records, prices, model),
    ]
    return Bill(tuple(items))


def _paid(
    records: Sequence[Flow], puts: tuple[int, int], gets: tuple[int, int], coordination_bytes: int, prices: Prices
) -> list[Item]:
    case = "with_proxies"
    items = [
        _crossing(
            case, kind, "records across racks", sum(f.bytes * crossings(f) for f in records if f.kind == kind), prices
        )
        for kind in _KINDS
    ]
    put_usd = puts[1] * prices.put_usd_per_thousand / 1000
    get_usd = gets[1] * prices.get_usd_per_thousand / 1000
    return [
        *items,
        Item(case, "diskless", "PUTs of WAL segments", *puts, put_usd),
        Item(case, "diskless", "GETs of object storage", *gets, get_usd),
        # The store's rack is unknown: assume that none of its clients is in that rack.
        _crossing(case, "diskless", "coordination, at most", coordination_bytes, prices),
    ]


def _classic_else(records: Sequence[Flow], near_reads: Sequence[Flow], prices: Prices) -> list[Item]:
    straight = dict.fromkeys(("produce", "fetch"), 0)
    for flow in records:
        if flow.kind == "classic":
            client, server = flow.client_rack or flow.proxy_rack, flow.serving_rack or flow.proxy_rack
            straight[flow.direction] += flow.bytes * (client != server)
    # A client elsewhere may have been next to the leader: nothing is claimed for it.
    near = sum(flow.bytes for flow in near_reads if flow.client_rack in ("", flow.proxy_rack))
    return [
        _crossing("without_proxies", "classic", "produced to leaders", straight["produce"], prices),
        _crossing("without_proxies", "classic", "fetched from leaders", straight["fetch"] + near, prices),
    ]


def _diskless_else(records: Sequence[Flow], prices: Prices, model: Model) -> list[Item]:
    moved = dict.fromkeys(("produce", "fetch"), 0)
    for flow in records:
        if flow.kind == "diskless":
            moved[flow.direction] += flow.bytes
    fetched = 0.0 if model.follower_fetching else model.elsewhere
    return [
        _crossing("without_proxies", "diskless", what, round(size), prices)
        for what, size in (
            ("produced to leaders", moved["produce"] * model.elsewhere),
            ("replicated", moved["produce"] * model.copies_across),
            ("fetched from leaders", moved["fetch"] * fetched),
        )
    ]


def _crossing(case: str, kind: str, what: str, size: int, prices: Prices) -> Item:
    return Item(case, kind, what, size, 0, size * prices.cross_rack_usd_per_gb / GIGABYTE)
