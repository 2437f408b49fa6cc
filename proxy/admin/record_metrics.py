"""Record bytes under Prometheus names: between which racks, of which topics, what they cost, and what near reads save.

Records go from the client's rack through the proxy's to the one that serves them, or back: each border between two
known racks on this way is crossed, and paid for, once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, Metric

from proxy.replicas.choice import LeaderReason
from proxy.stats import Stats

if TYPE_CHECKING:
    from proxy.config import Prices

_PREFIX = "diskless_proxy_"
_GIGABYTE = 1_000_000_000
_KINDS = ("classic", "diskless")
_DIRECTIONS = ("produce", "fetch")


def record_metrics(stats: Stats, own_rack: str, prices: Prices) -> Iterator[Metric]:
    """All of them; `own_rack` is the proxy's."""
    moved: defaultdict[tuple[str, ...], int] = defaultdict(int)
    topic_moved: defaultdict[tuple[str, ...], int] = defaultdict(int)
    crossed = {(kind, direction, own_rack, own_rack): 0 for kind in _KINDS for direction in _DIRECTIONS}
    topic_crossed: defaultdict[tuple[str, ...], int] = defaultdict(int)
    for (kind, direction, client_rack, serving_rack, topic), size in stats.record_bytes.items():
        racks = kind, direction, client_rack, serving_rack
        moved[racks] += size
        crossing = size * borders(client_rack, own_rack, serving_rack)
        if crossing:
            crossed[racks] = crossed.get(racks, 0) + crossing
        # A topic that is known by its ID alone so far is told of as soon as it has a name: counters never fall.
        name = topic if isinstance(topic, str) else stats.topic_names.get(topic)
        if name is not None:
            topic_moved[kind, direction, name] += size
            topic_crossed[kind, direction, name] += crossing
    racks_labels, topic_labels = ["kind", "direction", "client_rack", "serving_rack"], ["kind", "direction", "topic"]
    yield _counter("record_bytes", "Bytes of records produced and fetched.", racks_labels, moved.items())
    yield _counter(
        "cross_rack_bytes", "Bytes of records, for each time that they cross racks.", racks_labels, crossed.items()
    )
    yield _counter("topic_record_bytes", "Bytes of records by topic.", topic_labels, topic_moved.items())
    yield _counter(
        "topic_cross_rack_bytes",
        "Bytes of records by topic, for each time that they cross racks.",
        topic_labels,
        topic_crossed.items(),
    )
    cost: defaultdict[tuple[str, ...], float] = defaultdict(float)
    for (kind, direction, *_), size in crossed.items():
        cost[kind, direction] += size * prices.cross_rack_usd_per_gb / _GIGABYTE
    yield _counter(
        "cross_rack_cost_usd",
        "What records that cross racks cost, by the setting prices.",
        ["kind", "direction"],
        cost.items(),
    )
    yield from _near_reads(stats, prices)


def borders(client_rack: str, own_rack: str, serving_rack: str) -> int:
    """How often records cross racks between a client and who serves it, through the proxy: 0, 1 or 2.

    An empty rack is not known, and taken for the one beside it.
    """
    way = [rack for rack in (client_rack, own_rack, serving_rack) if rack]
    return sum(here != there for here, there in pairwise(way))


def storage_cost(puts: int, gets: int, prices: Prices) -> Metric:
    """What requests to object storage cost."""
    usd = {
        ("put",): puts * prices.put_usd_per_thousand / 1000,
        ("get",): gets * prices.get_usd_per_thousand / 1000,
    }
    return _counter("storage_cost_usd", "What PUTs and GETs cost by the setting prices.", ["operation"], usd.items())


def _near_reads(stats: Stats, prices: Prices) -> Iterator[Metric]:
    near = stats.near_read_bytes
    labels = ["client_rack", "serving_rack"]
    yield _counter(
        "near_read_bytes",
        "Bytes of records fetched from replicas in the proxy's rack instead of another rack's broker.",
        labels,
        near.items(),
    )
    # Between proxy and broker each would have crossed; between client and proxy all is as it would have been.
    saved = sum(near.values()) * prices.cross_rack_usd_per_gb / _GIGABYTE
    yield _counter(
        "near_read_saved_usd",
        "What reads from replicas in the proxy's rack saved, by the setting prices.",
        [],
        [((), saved)],
    )
    partitions = "partitions that were to be read from a near replica and were read from their leader"
    for name, text, counts in (
        ("leader_reads", f"Reads of {partitions}.", stats.leader_reads),
        ("leader_read_bytes", f"Bytes of records of {partitions}.", stats.leader_read_bytes),
    ):
        # Each reason from the beginning: a series that begins with its first event has no rate then.
        by_reason = [((reason.value,), counts.get(reason, 0)) for reason in LeaderReason]
        yield _counter(name, text, ["reason"], by_reason)


def _counter(name: str, text: str, labels: list[str], values: Iterable[tuple[tuple[str, ...], float]]) -> Metric:
    family = CounterMetricFamily(_PREFIX + name, text, labels=labels)
    for label_values, value in sorted(values):
        family.add_metric(list(label_values), value)
    return family
