"""`/api/history`: the last ten minutes, for plots. Kept by the process that serves the admin port."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

import structlog

from proxy.admin.api.figures import ERRORS, UPLOAD_BUDGET, Figures, FlowKey, Look, growth
from proxy.config import Prices
from proxy.telemetry.outage import Outage

log = structlog.get_logger()

INTERVAL_MS = 2_000
SAMPLES = 300
_RATE_SAMPLES = 5
"""Number of intervals that a rate is the average of, so that a burst of one segment is not a spike."""
_MS_PER_S = 1_000
_S_PER_HOUR = 3_600
Cumulated = Mapping[float, float]
"""A histogram: the number of observations up to each bound, as in Prometheus."""
_GIGABYTE = 1_000_000_000


class Rates(NamedTuple):
    """Average rates over the last seconds, by the labels of a flow."""

    bytes_per_second: Mapping[FlowKey, float]
    crossed_bytes_per_second: Mapping[FlowKey, float]
    """Rates in which a byte counts once for each border that it crosses."""
    usd_per_hour: Mapping[FlowKey, float]


class History:
    """Samples the figures every INTERVAL_MS, and keeps the last SAMPLES. `look` returns the figures of all
    processes."""

    def __init__(self, look: Callable[[], Awaitable[list[Figures]]], prices: Prices) -> None:
        self._look = look
        self._prices = prices
        self._looks: deque[Look] = deque(maxlen=_RATE_SAMPLES + 1)
        self._samples: deque[dict[str, Any]] = deque(maxlen=SAMPLES)
        self._outage = Outage()

    async def keep_sampling(self) -> None:
        """Take samples, forever."""
        while True:
            await self.sample()
            await asyncio.sleep(INTERVAL_MS / _MS_PER_S)

    async def sample(self) -> None:
        """Look once. Never raises: plots are not worth a proxy."""
        try:
            figures = await self._look()
        except Exception as error:
            if self._outage.begins():
                log.warning(
                    "history_interrupted",
                    exc_info=error,
                    remedy="report it; clients are not affected, only plots have a gap",
                )
            return
        self._outage.ends()
        now = Look(asyncio.get_running_loop().time(), figures)
        if self._looks and now.at_s > self._looks[-1].at_s:
            before = self._looks[-1]
            since = growth([*reversed(self._looks)], now)
            connections, budget = (
                sum(one.counters.get(name, 0.0) for one in figures) for name in ("connections", UPLOAD_BUDGET)
            )
            self._samples.append(sample_of(since, now.at_s - before.at_s, int(connections), budget))
        self._looks.append(now)

    def document(self) -> dict[str, Any]:
        """Return the answer of `GET /api/history`."""
        return {"interval_ms": INTERVAL_MS, "samples": list(self._samples)}

    def rates(self) -> Rates:
        """Return the present rates."""
        if len(self._looks) < 2:
            return Rates({}, {}, {})
        first, last = self._looks[0], self._looks[-1]
        since, seconds = growth([*self._looks][:-1], last), last.at_s - first.at_s
        usd_per_byte = self._prices.cross_rack_usd_per_gb / _GIGABYTE
        return Rates(
            {key: size / seconds for key, size in since.record_bytes.items()},
            {key: size / seconds for key, size in since.crossed_bytes.items()},
            {key: size * usd_per_byte * _S_PER_HOUR / seconds for key, size in since.crossed_bytes.items()},
        )


def sample_of(since: Figures, seconds: float, connections: int, upload_budget: float = 0.0) -> dict[str, Any]:
    """Return one point of each plot, from what was counted in the last `seconds`. A latency without a request is
    null."""
    counters, moved = since.counters, since.record_bytes
    hits, misses = counters.get("cache_hits_total", 0.0), counters.get("cache_misses_total", 0.0)

    def per_second(amount: float) -> float:
        return round(amount / seconds, 3)

    def quantile_ms(quantile: float, name: str, api: str = "") -> float | None:
        parts = [one for key, one in since.histograms.items() if key[:2] == (name, api)]
        return histogram_quantile_ms(mixed(parts), quantile)

    return {
        "time_ms": time.time_ns() // 1_000_000,
        "produce_bytes_per_second": per_second(sum(size for key, size in moved.items() if key[1] == "produce")),
        "fetch_bytes_per_second": per_second(sum(size for key, size in moved.items() if key[1] == "fetch")),
        "requests_per_second": per_second(counters.get("requests_total", 0.0)),
        "produce_p50_ms": quantile_ms(0.5, "api_seconds", "Produce"),
        "produce_p99_ms": quantile_ms(0.99, "api_seconds", "Produce"),
        "fetch_p50_ms": quantile_ms(0.5, "api_seconds", "Fetch"),
        "fetch_p99_ms": quantile_ms(0.99, "api_seconds", "Fetch"),
        "upload_p99_ms": quantile_ms(0.99, "upload_seconds"),
        "commit_p99_ms": quantile_ms(0.99, "commit_seconds"),
        "uploads_per_second": per_second(counters.get("uploads_total", 0.0)),
        "upload_budget_per_second": round(upload_budget, 3),
        "loop_lag_p99_ms": quantile_ms(0.99, "event_loop_lag_seconds"),
        "cross_rack_bytes_per_second": per_second(sum(since.crossed_bytes.values())),
        "cross_rack_usd_per_hour": sum(since.crossed_usd.values()) * _S_PER_HOUR / seconds,
        "saved_usd_per_hour": sum(since.saved_usd.values()) * _S_PER_HOUR / seconds,
        "storage_usd_per_hour": sum(since.storage_usd.values()) * _S_PER_HOUR / seconds,
        "connections": connections,
        "cache_hit_ratio": round(hits / (hits + misses), 4) if hits + misses else None,
        "errors_per_second": per_second(sum(counters.get(name, 0.0) for name in ERRORS)),
    }


def mixed(histograms: Sequence[Cumulated]) -> Cumulated:
    """Return one histogram that has the observations and the bounds of all.

    If a histogram lacks a bound of another one, its observations between its own two neighbouring bounds are taken as
    evenly spread.
    """
    bounds = {bound for one in histograms for bound in one}
    return {bound: sum(_count_up_to(bound, one) for one in histograms) for bound in bounds}


def _count_up_to(bound: float, cumulated: Cumulated) -> float:
    if bound in cumulated:
        return cumulated[bound]
    below = max((one for one in cumulated if one < bound), default=0.0)
    above = min((one for one in cumulated if one > bound), default=float("inf"))
    least, most = cumulated.get(below, 0.0), cumulated.get(above, 0.0)
    return least if above == float("inf") else least + (most - least) * (bound - below) / (above - below)


def histogram_quantile_ms(cumulated: Cumulated, quantile: float) -> float | None:
    """Return a percentile of seconds in milliseconds, as PromQL's `histogram_quantile`; None if nothing was
    observed."""
    total = cumulated.get(float("inf"), 0.0)
    if total <= 0:
        return None
    rank, lower, below = quantile * total, 0.0, 0.0
    for bound in sorted(cumulated):
        count = cumulated[bound]
        if count >= rank:
            if bound == float("inf"):
                break
            share = (rank - below) / (count - below) if count > below else 1.0
            return round((lower + (bound - lower) * share) * _MS_PER_S, 3)
        lower, below = bound, count
    return round(lower * _MS_PER_S, 3)
