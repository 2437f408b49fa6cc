"""Counters of several processes added up, growth between two samples, and the points of the plots."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric

from proxy.admin.api.figures import Buffer, Figures, Look, added, figures_of, growth
from proxy.admin.api.history import INTERVAL_MS, SAMPLES, History, histogram_quantile_ms, sample_of
from proxy.admin.api.overview import State, document
from proxy.admin.families import gauge
from proxy.admin.record_metrics import record_metrics
from proxy.config import Prices
from proxy.telemetry.stats import Stats
from tests.unit.process.test_ports import settings_of

GIGABYTE = 1_000_000_000
FLOW = ("classic", "produce", "rack-b", "rack-c")


def metrics_of(stats: Stats, requests: int = 0) -> list[Metric]:
    family = CounterMetricFamily("diskless_proxy_requests", "", labels=["api"])
    family.add_metric(["Produce"], requests)
    family.add_metric(["Fetch"], 2 * requests)
    latency = HistogramMetricFamily("diskless_proxy_api_seconds", "", labels=["api", "commit_interval_ms"])
    latency.add_metric(["Produce", "250"], [("0.01", requests), ("0.1", requests), ("+Inf", requests)], sum_value=0)
    return [*record_metrics(stats, "rack-a", Prices()), family, latency]


def figures(identity: str, size: int, requests: int = 0, started_ms: int = 5) -> Figures:
    stats = Stats()
    stats.count_records(*FLOW, "orders", size)
    stats.count_records("diskless", "fetch", "rack-a", "rack-a", "events", 7)
    found = figures_of(metrics_of(stats, requests))
    found.identity, found.started_ms = identity, started_ms
    found.buffers = [Buffer("wal", 1, 10, "bytes", "a.setting")]
    return found


def test_figures_are_read_from_the_metrics() -> None:
    one = figures("a", GIGABYTE, 3)
    assert one.counters["requests_total"] == 9
    assert one.record_bytes == {FLOW: GIGABYTE, ("diskless", "fetch", "rack-a", "rack-a"): 7}
    # From the client's rack to the proxy's, and on to the leader's.
    assert one.crossed_bytes[FLOW] == 2 * GIGABYTE
    assert one.crossed_usd[FLOW] == pytest.approx(0.04)
    assert one.histograms["api_seconds", "Produce", "250"] == {0.01: 3, 0.1: 3, float("inf"): 3}


def test_metrics_that_are_not_figures_are_not_read() -> None:
    """To count the requests of thousands of connections takes long; scrapes do it, the history does not."""
    reads: list[str] = []

    def read() -> float:
        reads.append("requests_underway")
        return 5.0

    metric = gauge("requests_underway", "", read)
    assert figures_of([metric, gauge("connections", "", 3)]).counters == {"connections": 3}
    assert not reads
    assert [sample.value for sample in metric.samples] == [sample.value for sample in metric.samples] == [5.0]
    assert len(reads) == 1


def test_several_processes_are_added_up() -> None:
    total = added([figures("a", 10, 1, started_ms=9), figures("b", 20, 2, started_ms=7)])
    assert total.record_bytes[FLOW] == 30
    assert total.counters["requests_total"] == 9
    assert total.started_ms == 7
    assert total.buffers == [Buffer("wal", 2, 20, "bytes", "a.setting")]
    assert added([]).started_ms == 0


def test_growth_counts_processes_with_both_samples() -> None:
    before = [figures("a", 10, 1), figures("gone", 1_000, 50)]
    after = [figures("a", 25, 4), figures("new", 5_000, 99)]
    grown = growth([Look(1.0, before)], Look(3.0, after))
    assert grown.record_bytes[FLOW] == 15
    assert grown.counters["requests_total"] == 9
    assert grown.histograms["api_seconds", "Produce", "250"][float("inf")] == 3
    assert before[0].record_bytes[FLOW] == 10


def test_growth_of_a_process_that_missed_a_sample_uses_its_own_times() -> None:
    looks = [
        Look(1.0, [figures("a", 0), figures("b", 100)]),
        Look(3.0, [figures("a", 10)]),
    ]
    last = Look(5.0, [figures("a", 20), figures("b", 500), figures("", 7_777)])
    # Half of the bytes that "b" moved in four seconds fall into the last two; a missing answer is not growth.
    assert growth(looks[::-1], last).record_bytes[FLOW] == 10 + 200
    assert growth(looks, last).record_bytes[FLOW] == 20 + 400
    late = Look(7.0, [figures("c", 300)])
    assert growth([looks[0], Look(5.0, [figures("c", 100)])], late).record_bytes[FLOW] == 600


def test_a_point_has_rates_and_no_latency_without_requests() -> None:
    point = sample_of(
        growth([Look(1.0, [figures("a", 10, 1)])], Look(3.0, [figures("a", 1_010, 5)])), 2.0, connections=3
    )
    assert point["produce_bytes_per_second"] == 500
    assert point["fetch_bytes_per_second"] == 0
    assert point["requests_per_second"] == 6
    assert point["cross_rack_bytes_per_second"] == 1_000
    assert point["cross_rack_usd_per_hour"] == pytest.approx(2_000 * 0.02 / GIGABYTE * 1_800)
    assert 0 < point["produce_p50_ms"] < point["produce_p99_ms"] <= 10
    assert point["fetch_p99_ms"] is None
    assert point["cache_hit_ratio"] is None
    assert point["connections"] == 3


def test_a_point_has_what_the_requests_to_object_storage_cost_in_an_hour() -> None:
    before, now = figures("a", 0), figures("a", 0)
    before.storage_usd |= {"put": 1.0, "get": 0.5}
    now.storage_usd |= {"put": 1.25, "get": 0.75}
    point = sample_of(growth([Look(1.0, [before])], Look(3.0, [now])), 2.0, connections=0)
    assert point["storage_usd_per_hour"] == pytest.approx(0.5 / 2 * 3_600)


@given(st.lists(st.integers(min_value=0, max_value=100), min_size=3, max_size=8), st.floats(0.01, 0.999))
def test_quantiles_are_in_the_bucket_of_their_rank(counts: list[int], quantile: float) -> None:
    bounds = [0.001 * 2**place for place in range(len(counts) - 1)] + [float("inf")]
    cumulated = {bound: float(sum(counts[: place + 1])) for place, bound in enumerate(bounds)}
    answer = histogram_quantile_ms(cumulated, quantile)
    if not sum(counts):
        assert answer is None
        return
    assert answer is not None
    rank = quantile * sum(counts)
    place = next(place for place, bound in enumerate(bounds) if cumulated[bound] >= rank)
    lower = bounds[place - 1] if place else 0.0
    upper = bounds[place] if bounds[place] != float("inf") else lower
    assert lower * 1000 - 0.001 <= answer <= upper * 1000 + 0.001
    later = [histogram_quantile_ms(cumulated, one) or 0.0 for one in (0.1, 0.5, 0.9, 0.99)]
    assert all(first <= second for first, second in pairwise(later))


async def test_history_is_bounded_and_survives_a_failed_sample() -> None:
    sizes = iter(range(0, 10_000 * SAMPLES, 100))
    fail = False

    async def look() -> list[Figures]:
        if fail:
            raise ConnectionError("no worker")
        return [figures("a", next(sizes))]

    history = History(look, Prices())
    assert history.rates().bytes_per_second == {}
    await history.sample()
    assert history.document() == {"interval_ms": INTERVAL_MS, "samples": []}
    await history.sample()
    fail = True
    await history.sample()
    assert len(history.document()["samples"]) == 1
    fail = False
    for _ in range(SAMPLES + 5):
        await history.sample()
    assert len(history.document()["samples"]) == SAMPLES
    assert history.rates().bytes_per_second[FLOW] > 0
    assert history.rates().usd_per_hour[FLOW] > 0
    assert history.rates().crossed_bytes_per_second[FLOW] == 2 * history.rates().bytes_per_second[FLOW]


def test_the_overview_has_costs_by_flow() -> None:
    settings = settings_of()
    state = State("coordinator: gone\x1b[31m", None, "info", actions=False)
    answer = document(settings, state, [figures("a", GIGABYTE)], History(None, Prices()).rates())  # type: ignore[arg-type]
    assert (answer["state"], answer["reason"]) == ("not_ready", "coordinator: gone\\x1b[31m")
    assert answer["proxy"] == settings.identity
    far, near = answer["flows"]
    assert (far["crosses"], far["bytes"], far["serving_rack"]) == (True, GIGABYTE, "rack-c")
    assert far["cost_usd"] == pytest.approx(0.04)
    assert (far["crossed_bytes"], far["crossed_bytes_per_second"]) == (2 * GIGABYTE, 0.0)
    assert (near["crosses"], near["crossed_bytes"], near["cost_usd"]) == (False, 0, 0.0)
    assert answer["buffers"] == [{"name": "wal", "used": 1, "limit": 10, "unit": "bytes", "setting": "a.setting"}]


def test_a_drain_is_a_state_of_its_own() -> None:
    assert State(None, None, "info", actions=True).name == "ready"
    assert State("draining", None, "info", actions=True).name == "draining"


def test_another_price_changes_no_cost_of_the_past() -> None:
    stats = Stats()
    costs = []
    for price in (0.02, 0.01):
        stats.count_records(*FLOW, "orders", GIGABYTE)
        one = figures_of(record_metrics(stats, "rack-a", Prices(cross_rack_usd_per_gb=price)))
        state = State(None, None, "info", actions=False)
        answer = document(settings_of(), state, [one], History(None, Prices()).rates())  # type: ignore[arg-type]
        costs.append(sum(flow["cost_usd"] for flow in answer["flows"]))
        assert costs[-1] == pytest.approx(sum(one.crossed_usd.values()))
    assert costs == pytest.approx([0.04, 0.06])
