"""Sums for overview and history: the counters of one process, and its buffers compared with their limits.

Counters are read from the metrics (`admin.metrics`), by their public names, so that the page never differs from the
dashboards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from prometheus_client.core import Metric
from prometheus_client.samples import Sample

from proxy.admin.families import COMMIT_INTERVAL, PREFIX
from proxy.routing.recent_sums import Totals

if TYPE_CHECKING:
    from proxy.assembly.parts import Parts

_PER_STEP = 200
"""Samples to look at before other tasks of the event loop get a turn. Most families have one; a turn costs as much as
several of them."""
_HISTOGRAMS = ("api_seconds", "upload_seconds", "commit_seconds", "event_loop_lag_seconds")
ERRORS = (
    "partition_errors_total",
    "protocol_errors_total",
    "upstream_failures_total",
    "upload_failures_total",
    "commit_failures_total",
)
"""Errors that a client notices, or would notice without a retry."""
UPLOAD_BUDGET = "upload_budget_per_second"
_COUNTERS = frozenset(
    {"requests_total", "connections", "cache_hits_total", "cache_misses_total", "uploads_total", UPLOAD_BUDGET, *ERRORS}
)
FlowKey = tuple[str, str, str, str]
"""Kind, direction, client's rack, serving rack: the labels of `record_bytes_total`."""
_FLOWS = {
    "record_bytes_total": "record_bytes",
    "cross_rack_bytes_total": "crossed_bytes",
    "cross_rack_cost_usd_total": "crossed_usd",
}
_SAVED_NEAR, _SAVED, _STORAGE_COST = "near_read_saved_usd_total", "saved_usd_total", "storage_cost_usd_total"
_FAMILIES = frozenset(
    PREFIX + name.removesuffix("_total")
    for name in (*_COUNTERS, *_FLOWS, *_HISTOGRAMS, _SAVED_NEAR, _SAVED, _STORAGE_COST)
)
"""Names of the families that figures are read from."""
Key = TypeVar("Key")
HistogramKey = tuple[str, str, str]
"""Name, and the labels `api` and `commit_interval_ms`, empty if it has none."""


class Buffer(NamedTuple):
    """Something that is held in memory, or counted, against a limit."""

    name: str
    used: int
    limit: int
    unit: str
    setting: str
    """Setting that gives the limit."""


@dataclass(slots=True)
class Figures:
    """Figures of one process, at one moment. Counters are since its start."""

    identity: str = ""
    """Identity of the process; a restarted process has another one; empty for the sum of processes that ended or are
    silent."""
    started_ms: int = 0
    counters: dict[str, float] = field(default_factory=dict)
    record_bytes: dict[FlowKey, float] = field(default_factory=dict)
    crossed_bytes: dict[FlowKey, float] = field(default_factory=dict)
    crossed_usd: dict[FlowKey, float] = field(default_factory=dict)
    """Each byte at the price of its day."""
    saved_usd: dict[str, float] = field(default_factory=dict)
    storage_usd: dict[str, float] = field(default_factory=dict)
    histograms: dict[HistogramKey, dict[float, float]] = field(default_factory=dict)
    """Number of observations up to each bound, cumulated as in Prometheus."""
    buffers: list[Buffer] = field(default_factory=list)


class Look(NamedTuple):
    """The figures of all processes at one moment."""

    at_s: float
    """Time by the event loop's clock."""
    figures: Sequence[Figures]


async def collect(parts: Parts) -> Figures:
    """Return the figures of this process."""
    from proxy.admin.metrics import ProxyCollector

    figures, samples = Figures(), 0
    for metric in ProxyCollector(parts).collect():
        samples += _take(figures, metric)
        if samples >= _PER_STEP:
            samples = 0
            await asyncio.sleep(0)
    figures.identity = parts.routing.fleet.identity
    figures.started_ms = parts.process.started_ms
    figures.buffers = buffers_of(parts)
    parts.routing.recent_sums.take(
        asyncio.get_running_loop().time(), totals_of(figures), len(parts.clients.connections)
    )
    return figures


def totals_of(figures: Figures) -> Totals:
    """Return the few totals that heartbeats report the rates of."""

    def moved(direction: str) -> float:
        return sum(size for key, size in figures.record_bytes.items() if key[1] == direction)

    return Totals(
        produced=moved("produce"),
        fetched=moved("fetch"),
        crossed=sum(figures.crossed_bytes.values()),
        crossing_usd=sum(figures.crossed_usd.values()),
        saved_usd=sum(figures.saved_usd.values()),
        storage_usd=sum(figures.storage_usd.values()),
    )


def figures_of(metrics: Iterable[Metric]) -> Figures:
    """Return the figures in a page of metrics; missing ones are 0, or unknown."""
    figures = Figures()
    for metric in metrics:
        _take(figures, metric)
    return figures


def _take(figures: Figures, metric: Metric) -> int:
    """Take what figures need of a family, whose samples are not read otherwise; return the number of samples."""
    if metric.name not in _FAMILIES:
        return 0
    for sample in metric.samples:
        _take_sample(figures, sample)
    return len(metric.samples)


def _take_sample(figures: Figures, sample: Sample) -> None:
    name, labels, value = sample.name.removeprefix(PREFIX), sample.labels, float(sample.value)
    if name in _COUNTERS:
        figures.counters[name] = figures.counters.get(name, 0.0) + value
    elif name in _FLOWS:
        key = labels["kind"], labels["direction"], labels["client_rack"], labels["serving_rack"]
        getattr(figures, _FLOWS[name])[key] = value
    elif name == _SAVED_NEAR:
        figures.saved_usd["near_read"] = value
    elif name == _SAVED:
        figures.saved_usd[labels["saving"]] = value
    elif name == _STORAGE_COST:
        figures.storage_usd[labels["operation"]] = value
    elif name.endswith("_bucket") and name.removesuffix("_bucket") in _HISTOGRAMS:
        named = name.removesuffix("_bucket"), labels.get("api", ""), labels.get(COMMIT_INTERVAL, "")
        figures.histograms.setdefault(named, {})[float(labels["le"])] = value


def buffers_of(parts: Parts) -> list[Buffer]:
    """Return everything that has a limit and can be full."""
    from proxy.admin.state_metrics import buffers

    connections, wal = parts.clients.connections, parts.diskless.buffer
    found = [Buffer(one.name, one.used_bytes, one.limit_bytes, "bytes", one.setting) for one in buffers(parts)]
    if wal is not None:
        holds = wal.holds
        found.append(Buffer("held_batches", holds.held_batches, holds.max_batches, "batches", "max_held_batches"))
    if parts.diskless.server is None:  # the storage process has no clients
        most = connections.max_connections
        found.append(Buffer("connections", len(connections), most, "connections", "limits.max_connections"))
    return found


def added(figures: Iterable[Figures]) -> Figures:
    """Return the figures of several processes as those of one, which started when the first of them did."""
    total = Figures()
    for one in figures:
        total.identity = total.identity or one.identity
        total.started_ms = min(total.started_ms or one.started_ms, one.started_ms)
        _combine(total, one, float.__add__)
        total.buffers = _added_buffers(total.buffers, one.buffers)
    return total


def growth(earlier: Sequence[Look], last: Look) -> Figures:
    """Return the growth from the first of `earlier` to the last look, of the processes that were there at both.

    A process that was silent at the first look is compared with the next one that has it; its growth since then stands
    for the whole time, as far as its own time goes.
    """
    grown = Figures()
    known: dict[str, Look] = {}
    by_identity: dict[str, Figures] = {}
    for look in earlier:
        for one in look.figures:
            if one.identity not in known:
                known[one.identity], by_identity[one.identity] = look, one
    for one in last.figures:
        if not one.identity or one.identity not in known:
            continue
        since = Figures()
        _combine(since, one, float.__add__)
        _combine(since, by_identity[one.identity], float.__sub__)
        part = (last.at_s - earlier[0].at_s) / (last.at_s - known[one.identity].at_s)
        _combine(grown, since, partial(_add_part, part))
    return grown


def _add_part(part: float, mine: float, its: float) -> float:
    return mine + part * its


def _combine(into: Figures, other: Figures, together: Callable[[float, float], float]) -> None:
    _combine_values(into.counters, other.counters, together)
    _combine_values(into.record_bytes, other.record_bytes, together)
    _combine_values(into.crossed_bytes, other.crossed_bytes, together)
    _combine_values(into.crossed_usd, other.crossed_usd, together)
    _combine_values(into.saved_usd, other.saved_usd, together)
    _combine_values(into.storage_usd, other.storage_usd, together)
    for key, histogram in other.histograms.items():
        _combine_values(into.histograms.setdefault(key, {}), histogram, together)


def _combine_values(
    mine: dict[Key, float], theirs: dict[Key, float], together: Callable[[float, float], float]
) -> None:
    for key, value in theirs.items():
        mine[key] = together(mine.get(key, 0.0), value)


def _added_buffers(some: Iterable[Buffer], more: Iterable[Buffer]) -> list[Buffer]:
    added = {one.name: one for one in some}
    for one in more:
        known = added.get(one.name)
        added[one.name] = (
            one if known is None else one._replace(used=known.used + one.used, limit=known.limit + one.limit)
        )
    return list(added.values())
