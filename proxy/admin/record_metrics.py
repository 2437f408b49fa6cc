"""Record bytes under Prometheus names: between which racks, of which topics, what they cost, and what near reads save.

Records go from the client's rack through the proxy's rack to the rack that serves them, or back. Each border between
two known racks on this way is crossed once, and paid for once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from proxy.accounting.savings import GIGABYTE, near_read_saved_usd
from proxy.admin.families import labelled_counter
from proxy.replicas.choice import LeaderReason
from proxy.routing.racks import borders
from proxy.telemetry.stats import Ledger, Stats

if TYPE_CHECKING:
    from proxy.config import Prices

_KINDS = ("classic", "diskless")
_DIRECTIONS = ("produce", "fetch")


def record_metrics(stats: Stats, own_rack: str, prices: Prices) -> Iterator[Metric]:
    """Yield all metrics of records; `own_rack` is the proxy's rack."""
    moved: defaultdict[tuple[str, ...], int] = defaultdict(int)
    topic_moved: defaultdict[tuple[str, ...], int] = defaultdict(int)
    crossed = {(kind, direction, own_rack, own_rack): 0 for kind in _KINDS for direction in _DIRECTIONS}
    topic_crossed: defaultdict[tuple[str, ...], int] = defaultdict(int)
    for racks, name, size in stats.all_record_bytes():
        kind, direction, client_rack, serving_rack = racks
        moved[racks] += size
        crossing = size * borders(client_rack, own_rack, serving_rack)
        if crossing:
            crossed[racks] = crossed.get(racks, 0) + crossing
        # A topic gets its counter as soon as brokers have confirmed it: counters never fall.
        if name is not None:
            topic_moved[kind, direction, name] += size
            topic_crossed[kind, direction, name] += crossing
    racks_labels, topic_labels = ["kind", "direction", "client_rack", "serving_rack"], ["kind", "direction", "topic"]
    yield labelled_counter("record_bytes", "Bytes of records produced and fetched.", racks_labels, moved.items())
    yield labelled_counter(
        "cross_rack_bytes",
        "Bytes of records that crossed racks; a byte counts once for each border.",
        racks_labels,
        crossed.items(),
    )
    yield labelled_counter("topic_record_bytes", "Bytes of records by topic.", topic_labels, topic_moved.items())
    yield labelled_counter(
        "topic_cross_rack_bytes",
        "Bytes of records that crossed racks, by topic; a byte counts once for each border.",
        topic_labels,
        topic_crossed.items(),
    )
    per_byte = prices.cross_rack_usd_per_gb / GIGABYTE
    yield labelled_counter(
        "cross_rack_cost_usd",
        "US dollars that records crossing racks cost, by the setting prices.",
        racks_labels,
        [(racks, stats.ledger.total(f"crossed {racks}", size, per_byte)) for racks, size in crossed.items()],
    )
    yield from _near_reads(stats, prices)


def storage_cost(ledger: Ledger, puts: int, gets: int, prices: Prices) -> Metric:
    """Return the cost of requests to object storage."""
    usd = {
        ("put",): ledger.total("put", puts, prices.put_usd_per_thousand / 1000),
        ("get",): ledger.total("get", gets, prices.get_usd_per_thousand / 1000),
    }
    return labelled_counter(
        "storage_cost_usd", "US dollars that PUTs and GETs cost, by the setting prices.", ["operation"], usd.items()
    )


def _near_reads(stats: Stats, prices: Prices) -> Iterator[Metric]:
    near = stats.near_read_bytes
    labels = ["client_rack", "serving_rack"]
    yield labelled_counter(
        "near_read_bytes",
        "Bytes of records fetched from replicas in the proxy's rack instead of another rack's broker.",
        labels,
        near.items(),
    )
    yield labelled_counter(
        "near_read_saved_usd",
        "US dollars that reads from replicas in the proxy's rack saved, by the setting prices.",
        [],
        [((), near_read_saved_usd(stats, prices))],
    )
    partitions = "partitions that had to be read from their leader instead of a near replica"
    for name, text, counts in (
        ("leader_reads", f"Reads of {partitions}.", stats.leader_reads),
        ("leader_read_bytes", f"Bytes of records of {partitions}.", stats.leader_read_bytes),
    ):
        # Each reason has a series from the beginning: a series that begins with its first event has no rate for it.
        by_reason = [((reason.value,), counts.get(reason, 0)) for reason in LeaderReason]
        yield labelled_counter(name, text, ["reason"], by_reason)
