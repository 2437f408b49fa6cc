"""Latencies that the page, `top` and Grafana show, from requests that were timed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from proxy.admin.api.figures import Figures, Look, added, figures_of, growth
from proxy.admin.api.history import histogram_quantile_ms, sample_of
from proxy.admin.carried import Carried
from proxy.admin.families import buckets_of
from proxy.admin.metrics import latency_metrics
from proxy.protocol.api_keys import FETCH, METADATA, PRODUCE
from proxy.telemetry.stats import (
    LATENCY_BOUNDS_S,
    LOOP_LAG_BOUNDS_S,
    MAX_COMMIT_INTERVALS,
    Histogram,
    Stats,
    bounds_around,
)


def spread(first_s: float, last_s: float, count: int = 1_000) -> list[float]:
    """Return `count` latencies that are spread evenly between two."""
    return [first_s + (last_s - first_s) * (number + 0.5) / count for number in range(count)]


def timed(stats: Stats, seconds: Iterable[float], api_key: int = PRODUCE) -> Stats:
    for one in seconds:
        stats.count_answer(api_key, one)
    return stats


def figures(identity: str, stats: Stats) -> Figures:
    found = figures_of(latency_metrics(stats))
    found.identity = identity
    return found


def point(*processes: Stats) -> dict[str, Any]:
    """Return the point of the plots after processes that had answered nothing before."""
    now = [figures(str(number), stats) for number, stats in enumerate(processes)]
    before = [figures(str(number), Stats()) for number in range(len(processes))]
    return sample_of(growth([Look(1.0, before)], Look(3.0, now)), 2.0, connections=0)


@pytest.mark.parametrize("interval_ms", [5, 50, 100, 250, 333, 1_000, 4_000])
def test_latencies_of_produces_that_wait_for_the_interval_are_exact(interval_ms: int) -> None:
    """A segment is uploaded and committed within a few percent of its commit interval."""
    interval_s = interval_ms / 1000
    stats = timed(Stats(commit_interval_ms=interval_ms), spread(1.008 * interval_s, 1.08 * interval_s))
    shown = point(stats)
    assert shown["produce_p50_ms"] == pytest.approx(1.044 * interval_ms, rel=0.01)
    assert shown["produce_p99_ms"] == pytest.approx(1.08 * interval_ms, rel=0.01)


def test_latencies_of_fetches_that_wait_for_such_records_are_exact() -> None:
    shown = point(timed(Stats(commit_interval_ms=250), spread(0.260, 0.275), FETCH))
    assert shown["fetch_p50_ms"] == pytest.approx(267.5, rel=0.02)
    assert shown["fetch_p99_ms"] == pytest.approx(275, rel=0.02)


@pytest.mark.parametrize("share", [0.3, 0.55, 0.8, 1.2, 1.5, 1.9, 2.6])
def test_latencies_around_the_interval_are_off_by_a_fifth_at_most(share: float) -> None:
    """Many producers share a segment, so most of them wait less; and an upload may take as long as the interval."""
    shown = point(timed(Stats(commit_interval_ms=250), spread(0.25 * share, 0.25 * share * 1.001)))
    assert shown["produce_p50_ms"] == pytest.approx(250 * share, rel=0.2)


@pytest.mark.parametrize("milliseconds", [2.6, 4.5, 6.5, 10.5, 16.5, 26.0, 41.0, 61.0, 105.0])
def test_latencies_far_below_the_interval_are_off_by_a_fifth_at_most(milliseconds: float) -> None:
    """A segment that does not wait for the interval takes an upload and a commit."""
    shown = point(timed(Stats(commit_interval_ms=250), spread(milliseconds / 1000, milliseconds * 1.001 / 1000)))
    assert shown["produce_p50_ms"] == pytest.approx(milliseconds, rel=0.2)
    assert shown["produce_p99_ms"] == pytest.approx(milliseconds, rel=0.35)


@pytest.mark.parametrize("bounds", [LATENCY_BOUNDS_S, bounds_around(250), bounds_around(20), LOOP_LAG_BOUNDS_S[1:]])
def test_no_latency_is_shown_twice_as_large(bounds: tuple[float, ...]) -> None:
    """Upload, commit, GETs and the event loop's lag are shown by the same estimate."""
    for lower in bounds[:-1]:
        counted = Histogram(bounds)
        counted.observe(lower * 1.001)
        shown_ms = histogram_quantile_ms({float(le): count for le, count in buckets_of(counted)}, 0.99)
        assert shown_ms is not None
        assert shown_ms <= 1.7 * 1000 * lower


def test_workers_with_different_intervals_are_one_proxy() -> None:
    """A reload reaches one worker after the other."""
    slow = timed(Stats(commit_interval_ms=1_000), spread(1.008, 1.08, 500))
    fast = timed(Stats(commit_interval_ms=100), spread(0.1008, 0.108, 500))
    shown = point(slow, fast)
    assert shown["produce_p50_ms"] == pytest.approx(108, rel=0.02)
    assert shown["produce_p99_ms"] == pytest.approx(1_080, rel=0.02)
    carried = Carried()
    carried.take_figures(1, figures("1", slow))
    carried.end(1)
    everyone = added([figures("2", fast), *carried.figures(())])
    assert sum(one[float("inf")] for key, one in everyone.histograms.items() if key[1] == "Produce") == 1_000


def test_a_new_interval_begins_new_histograms_and_the_old_ones_stay_as_they_were() -> None:
    stats = timed(Stats(commit_interval_ms=250), spread(0.252, 0.27, 100))
    before = buckets(stats, "250")
    stats.pace(50)
    timed(stats, spread(0.0504, 0.054, 100))
    assert buckets(stats, "250") == before
    assert buckets(stats, "50")["+Inf"] == 100
    assert point(stats)["produce_p50_ms"] == pytest.approx(54, rel=0.02)
    stats.pace(250)
    timed(stats, [0.26])
    assert buckets(stats, "250")["+Inf"] == 101


def test_the_number_of_distinct_intervals_is_limited() -> None:
    """The label of a metric must not grow with each reload."""
    stats = Stats(commit_interval_ms=1)
    for interval_ms in range(1, 3 * MAX_COMMIT_INTERVALS):
        stats.pace(interval_ms)
        timed(stats, [0.1])
    labels = {sample.labels["commit_interval_ms"] for sample in produce_samples(stats)}
    assert labels == {str(3 * MAX_COMMIT_INTERVALS - 1 - back) for back in range(MAX_COMMIT_INTERVALS)}


def test_apis_that_wait_for_no_segment_have_no_interval() -> None:
    stats = timed(Stats(), [0.003], METADATA)
    labels = {
        sample.labels["commit_interval_ms"]
        for metric in latency_metrics(stats)
        for sample in metric.samples
        if sample.labels.get("api") == "Metadata"
    }
    assert labels == {""}


def produce_samples(stats: Stats) -> list[Any]:
    return [
        sample
        for metric in latency_metrics(stats)
        for sample in metric.samples
        if sample.name == "diskless_proxy_api_seconds_bucket" and sample.labels["api"] == "Produce"
    ]


def buckets(stats: Stats, interval_ms: str) -> dict[str, float]:
    return {
        sample.labels["le"]: sample.value
        for sample in produce_samples(stats)
        if sample.labels["commit_interval_ms"] == interval_ms
    }
