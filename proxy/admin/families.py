"""Metric families with the product's prefix: one function for each kind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from proxy.telemetry.stats import Histogram, PacedHistogram

PREFIX = "diskless_proxy_"
COMMIT_INTERVAL = "commit_interval_ms"
"""Label of histograms whose bounds follow the commit interval."""

Labelled = Iterable[tuple[tuple[str, ...], float]]
"""Values of a family's labels in their order, each with the sample's value."""


def counter(name: str, text: str, value: float) -> Metric:
    """Return a counter without labels. The prefix is put before `name`, and `_total` after it."""
    return CounterMetricFamily(PREFIX + name, text, value=value)


def gauge(name: str, text: str, value: float) -> Metric:
    """Return a gauge without labels. The prefix is put before `name`."""
    return GaugeMetricFamily(PREFIX + name, text, value=value)


def labelled_counter(name: str, text: str, labels: Sequence[str], values: Labelled) -> Metric:
    """Return one counter for each combination of labels, sorted by them."""
    family = CounterMetricFamily(PREFIX + name, text, labels=labels)
    for label_values, value in sorted(values):
        family.add_metric(list(label_values), value)
    return family


def labelled_gauge(name: str, text: str, labels: Sequence[str], values: Labelled) -> Metric:
    """Return one gauge for each combination of labels, in the order of `values`."""
    family = GaugeMetricFamily(PREFIX + name, text, labels=labels)
    for label_values, value in values:
        family.add_metric(list(label_values), value)
    return family


def histogram(name: str, text: str, counted: Histogram) -> Metric:
    """Return a histogram without labels. This function cumulates its buckets."""
    return HistogramMetricFamily(PREFIX + name, text, buckets=buckets_of(counted), sum_value=counted.total)


def labelled_histogram(
    name: str, text: str, labels: Sequence[str], counted: Iterable[tuple[tuple[str, ...], Histogram]]
) -> Metric:
    """Return one histogram for each combination of labels, in the order of `counted`."""
    family = HistogramMetricFamily(PREFIX + name, text, labels=labels)
    for label_values, one in counted:
        family.add_metric(list(label_values), buckets_of(one), one.total)
    return family


def by_interval(
    labels: tuple[str, ...], counted: Histogram | PacedHistogram
) -> list[tuple[tuple[str, ...], Histogram]]:
    """Return histograms for `labelled_histogram`, with the commit interval as the last label, which may be empty."""
    if isinstance(counted, Histogram):
        return [((*labels, ""), counted)]
    return [((*labels, str(interval_ms)), one) for interval_ms, one in counted.by_interval_ms.items()]


def buckets_of(counted: Histogram) -> list[tuple[str, float]]:
    """Return each bound as `le` names it, with the observations up to it."""
    cumulated, buckets = 0, []
    for bound, count in zip([*counted.bounds, float("inf")], counted.counts, strict=True):
        cumulated += count
        buckets.append(("+Inf" if bound == float("inf") else str(float(bound)), float(cumulated)))
    return buckets
