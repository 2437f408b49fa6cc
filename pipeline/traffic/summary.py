"""Everything that a report shows, taken from the sums."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from pipeline.traffic.costs import Bill, Model, bill_of, crossings
from pipeline.traffic.span import Span
from pipeline.traffic.table import Flow, flows, grouped, numbers, of_measure, racks_of
from proxy.accounting.rollups.table import Measure
from proxy.config import Prices
from proxy.routing.racks import borders

if TYPE_CHECKING:
    import pyarrow as pa


class Moved(NamedTuple):
    """Bytes of records, and of those the ones that went in some way."""

    bytes: int = 0
    crossed_bytes: int = 0
    """Bytes that crossed racks, once for each crossing."""
    outside_bytes: int = 0
    """Bytes that crossed racks at least once."""
    near_bytes: int = 0
    """Read from a replica in the proxy's rack instead of another rack's broker."""
    spared_bytes: int = 0
    """Bytes of the latter that so never left the client's rack."""

    def plus(self, other: Moved) -> Moved:
        """Both."""
        return Moved(*(one + two for one, two in zip(self, other, strict=True)))


@dataclass(frozen=True, slots=True)
class Summary:
    """All of it."""

    span: Span
    prices: Prices
    model: Model
    bill: Bill
    flows: tuple[Flow, ...]
    """Largest first."""
    topics: dict[tuple[str, str, str], Moved]
    """Sums by kind, direction and topic; largest first."""
    hours: dict[int, Moved]
    """Sums by the hour's beginning, milliseconds since 1970; only hours with traffic, in their order."""

    @property
    def moved(self) -> Moved:
        """All records."""
        return _sum(self.hours.values())

    def figures(self) -> dict[str, Any]:
        """Names with units, JSON values."""
        moved = self.moved
        return {
            "from_ms": self.span.from_ms,
            "to_ms": self.span.to_ms,
            "record_bytes": moved.bytes,
            "cross_rack_bytes": moved.crossed_bytes,
            "near_read_bytes": moved.near_bytes,
            "cost_with_proxies_usd": self.bill.total_usd("with_proxies"),
            "cost_without_proxies_usd": self.bill.total_usd("without_proxies"),
            "saved_usd": self.bill.saved_usd(),
            "saved_of_classic_usd": self.bill.saved_usd("classic"),
            "saved_of_diskless_usd": self.bill.saved_usd("diskless"),
            "model": {
                "racks": self.model.racks,
                "replication_factor": self.model.replication_factor,
                "follower_fetching": self.model.follower_fetching,
            },
            "prices": self.prices.model_dump(),
            "costs": self.bill.as_json(),
            "flows": [flow._asdict() | {"crossings": crossings(flow)} for flow in self.flows],
            "topics": [
                dict(zip(("kind", "direction", "topic"), key, strict=True)) | one._asdict()
                for key, one in self.topics.items()
            ],
            "hours": [{"hour_ms": hour_ms, **one._asdict()} for hour_ms, one in self.hours.items()],
        }


def summary_of(table: pa.Table, span: Span, prices: Prices, model: Model | None = None) -> Summary:
    """Return the summary of the sums in a table; if no model is given, its racks are those seen."""
    records, near = flows(table), flows(table, Measure.NEAR_READS)
    model = model or Model(max(1, len(racks_of(table))))
    coordination, _ = numbers(table, Measure.COORDINATION)
    bill = bill_of(
        records, near, numbers(table, Measure.PUTS), numbers(table, Measure.GETS), coordination, prices, model
    )
    topics, hours = _by_topic_and_hour(table)
    return Summary(span, prices, model, bill, tuple(records), topics, hours)


def _by_topic_and_hour(table: pa.Table) -> tuple[dict[tuple[str, str, str], Moved], dict[int, Moved]]:
    topics: defaultdict[tuple[str, str, str], Moved] = defaultdict(Moved)
    hours: defaultdict[int, Moved] = defaultdict(Moved)
    records = of_measure(table, Measure.RECORDS)
    for *topic, moved in _ways(records, ("kind", "direction", "topic")):
        key: tuple[str, str, str] = tuple(topic)
        topics[key] = topics[key].plus(moved)
    for hour, moved in _ways(records, ("hour",)):
        hours[_hour_ms(hour)] = hours[_hour_ms(hour)].plus(moved)
    for hour, moved in _ways(of_measure(table, Measure.NEAR_READS), ("hour",)):
        near = Moved(near_bytes=moved.bytes, spared_bytes=moved.bytes - moved.outside_bytes)
        hours[_hour_ms(hour)] = hours[_hour_ms(hour)].plus(near)
    largest = sorted(topics.items(), key=lambda item: (-item[1].bytes, item[0]))
    return dict(largest), dict(sorted(hours.items()))


def _ways(table: pa.Table, keys: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    """The keys' values and what moved, once for each way between racks."""
    sums = grouped(table, (*keys, "client_rack", "rack", "serving_rack"))
    columns = [sums[name].to_pylist() for name in (*keys, "client_rack", "rack", "serving_rack", "bytes")]
    for *values, client_rack, proxy_rack, serving_rack, size in zip(*columns, strict=True):
        times = borders(client_rack, proxy_rack, serving_rack)
        yield *values, Moved(size, size * times, size if times else 0)


def _hour_ms(hour: datetime) -> int:
    return round(hour.timestamp() * 1000)


def _sum(several: Iterable[Moved]) -> Moved:
    total = Moved()
    for one in several:
        total = total.plus(one)
    return total
