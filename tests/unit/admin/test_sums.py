"""The metrics page of several workers."""

from __future__ import annotations

import pickle

import pytest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families

from proxy.admin.catalogue import families
from proxy.admin.families import counter, gauge, labelled_counter, labelled_histogram
from proxy.admin.record_metrics import record_metrics
from proxy.admin.sums import ADDED_UP, REPORTED_BY_PARENT, SEEN_BY_ALL, WorkerMetrics, metrics_page
from proxy.config import Prices
from proxy.telemetry.stats import Histogram, Stats


def worker(name: str, connections: float, brokers: float, produced: float) -> WorkerMetrics:
    requests = CounterMetricFamily("diskless_proxy_requests", "Requests.", labels=["api"])
    requests.add_metric(["Produce"], produced)
    requests.add_metric([f"only-{name}"], 1)
    buckets = [("0.5", produced), ("+Inf", produced + 1)]
    own: list[Metric] = [
        requests,
        GaugeMetricFamily("diskless_proxy_connections", "Open.", value=connections),
        GaugeMetricFamily("diskless_proxy_brokers", "Live.", value=brokers),
        GaugeMetricFamily("diskless_proxy_ready", "Ready.", value=1),
        HistogramMetricFamily("diskless_proxy_produce_seconds", "Time.", buckets=buckets, sum_value=produced),
    ]
    return WorkerMetrics(name, own, [GaugeMetricFamily("process_resident_memory_bytes", "RSS.", value=7)])


def test_a_worker_sends_its_metrics_with_their_samples() -> None:
    counted = Histogram((0.5,))
    counted.observe(0.1)
    for metric in (
        counter("protocol_errors", "Text.", 5),
        gauge("tasks", "Text.", lambda: 6.0),
        labelled_counter("requests", "Text.", ["api"], [(("Fetch",), 7)]),
        labelled_histogram("api_seconds", "Text.", ["api"], [(("Fetch",), counted)]),
    ):
        received = pickle.loads(pickle.dumps(metric))
        assert received == metric
        assert received.samples


def samples(*workers: WorkerMetrics, ready: bool = True) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    text = metrics_page(workers, ready=ready, running=len(workers), restarts=3).decode()
    return {
        (sample.name.removeprefix("diskless_proxy_"), frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def of(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


def test_counters_and_histograms_are_added_up_by_their_labels() -> None:
    found = samples(worker("1", 4, 3, 10), worker("2", 5, 3, 20))
    assert found[of("requests_total", api="Produce")] == 30
    assert found[of("requests_total", api="only-1")] == 1
    assert found[of("produce_seconds_bucket", le="0.5")] == 30
    assert found[of("produce_seconds_count")] == 32
    assert found[of("produce_seconds_sum")] == 30


def test_records_that_workers_counted_are_added_up_by_racks_and_topics() -> None:
    workers = []
    for number, size in (("1", 10), ("2", 20)):
        stats = Stats()
        stats.count_records("classic", "fetch", "rack-a", "rack-b", "orders", size)
        stats.count_records("classic", "fetch", "rack-a", "rack-b", f"only-{number}", 1)
        stats.leader_reads["shunned"] += 1
        workers.append(WorkerMetrics(number, list(record_metrics(stats, "rack-a", Prices())), []))
    found = samples(*workers)
    labels = {"kind": "classic", "direction": "fetch"}
    assert found[of("record_bytes_total", client_rack="rack-a", serving_rack="rack-b", **labels)] == 32
    assert found[of("cross_rack_bytes_total", client_rack="rack-a", serving_rack="rack-b", **labels)] == 32
    assert found[of("topic_record_bytes_total", topic="orders", **labels)] == 30
    assert found[of("topic_cross_rack_bytes_total", topic="only-1", **labels)] == 1
    assert found[
        of("cross_rack_cost_usd_total", client_rack="rack-a", serving_rack="rack-b", **labels)
    ] == pytest.approx(32 * 0.02 / 1e9)
    assert found[of("leader_reads_total", reason="shunned")] == 2


def test_workers_own_figures_are_added_up_and_shared_ones_are_not() -> None:
    found = samples(worker("1", 4, 3, 10), worker("2", 5, 2, 20))
    assert found[of("connections")] == 9
    assert found[of("brokers")] == 2


@pytest.mark.parametrize("workers", [0, 2])
def test_the_parent_decides_whether_all_clients_are_served(workers: int) -> None:
    """A worker that answers is ready by its own report; the one that hangs reports nothing."""
    workers_metrics = [worker(str(number), 4, 3, 10) for number in range(workers)]
    assert samples(*workers_metrics, ready=False)[of("ready")] == 0
    assert samples(*workers_metrics, ready=True)[of("ready")] == 1


def test_a_label_distinguishes_processes() -> None:
    found = samples(worker("1", 4, 3, 10), worker("2", 5, 3, 20))
    assert found[of("process_resident_memory_bytes", worker="1")] == 7
    assert found[of("process_resident_memory_bytes", worker="2")] == 7
    assert found[of("workers")] == 2
    assert found[of("worker_restarts_total")] == 3


def test_the_page_is_there_without_any_worker() -> None:
    assert samples()[of("workers")] == 0


def test_every_gauge_has_a_rule_to_add_up_workers() -> None:
    gauges = {family.name for family in families() if family.kind == "gauge"} - {"diskless_proxy_workers"}
    assert gauges == ADDED_UP | set(SEEN_BY_ALL) | REPORTED_BY_PARENT
    assert not ADDED_UP & set(SEEN_BY_ALL)
