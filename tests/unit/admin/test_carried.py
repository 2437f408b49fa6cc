"""Sums over workers do not fall when a worker ends or does not answer for a moment."""

from __future__ import annotations

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from proxy.admin.api.figures import Buffer, Figures, Look, added, growth
from proxy.admin.carried import Carried

FLOW = ("classic", "produce", "rack-b", "rack-c")


def page(requests: float) -> list[Metric]:
    return [
        CounterMetricFamily("requests", "", value=requests),
        GaugeMetricFamily("connections", "", value=7),
        HistogramMetricFamily("seconds", "", buckets=[("1.0", requests), ("+Inf", requests)], sum_value=requests / 2),
    ]


def values(metrics: list[Metric]) -> dict[str, float]:
    return {sample.name + sample.labels.get("le", ""): sample.value for metric in metrics for sample in metric.samples}


def figures(identity: str, requests: float) -> Figures:
    counters = {"requests_total": requests, "connections": 7.0}
    return Figures(identity, 5, counters, crossed_usd={FLOW: requests}, buffers=[Buffer("wal", 1, 2, "bytes", "a")])


def test_counters_of_ended_workers_are_kept_and_their_gauges_are_not() -> None:
    carried = Carried()
    assert values(carried.metrics([])) == {}
    for requests in (10, 30):  # the last value counts
        carried.take_metrics(1, page(requests))
    carried.end(1)
    carried.take_metrics(1, page(4))  # the next worker with that number
    expected = {"requests_total": 30, "seconds_bucket1.0": 30, "seconds_bucket+Inf": 30, "seconds_count": 30}
    assert values(carried.metrics([1])) == expected | {"seconds_sum": 15}
    carried.end(1)
    carried.end(2)  # it never answered
    assert values(carried.metrics([]))["requests_total"] == 34


def test_counters_of_a_silent_worker_count_until_it_answers() -> None:
    carried = Carried()
    carried.take_metrics(1, page(10))
    carried.take_metrics(2, page(5))
    assert values(carried.metrics([2]))["requests_total"] == 10
    assert values(carried.metrics([1, 2])) == {}


def test_figures_of_missing_workers_count_in_totals_and_not_as_growth() -> None:
    carried = Carried()
    assert carried.figures([]) == []
    carried.take_figures(1, figures("a", 1_000))
    carried.end(1)
    carried.take_figures(2, figures("b", 200))
    (missing,) = carried.figures([])
    assert (missing.identity, missing.started_ms, missing.counters, missing.buffers) == (
        *("", 5),
        {"requests_total": 1_200.0},
        [],
    )
    for workers in ([missing, figures("c", 1)], [figures("c", 1), missing]):
        total = added(workers)
        assert (total.crossed_usd[FLOW], total.identity, len(total.buffers)) == (1_201, "c", 1)
    grown = growth([Look(1.0, carried.figures([2]))], Look(2.0, [missing]))
    assert grown == Figures()
