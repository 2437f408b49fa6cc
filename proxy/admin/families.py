"""Metric families with the product's prefix: one function for each kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.samples import Sample

from proxy.telemetry.stats import Histogram, PacedHistogram

PREFIX = "diskless_proxy_"
COMMIT_INTERVAL = "commit_interval_ms"
"""Label of histograms whose bounds follow the commit interval."""

Labelled = Iterable[tuple[tuple[str, ...], float]]
"""Values of a family's labels in their order, each with the sample's value."""


class LazyFamily(Metric):
    """A family whose samples are made when they are read: the history reads few families of all, every two seconds.

    `make` returns a family of the library, whose samples these are.
    """

    def __init__(self, name: str, text: str, kind: str, labels: Sequence[str], make: Callable[[], Metric]) -> None:
        super().__init__(PREFIX + name, text, kind)
        self.labels = tuple(labels)
        self._make = make
        del self.samples

    # mypy: the library has an attribute here that may be set, which nobody does with these.
    @cached_property
    def samples(self) -> list[Sample]:  # type: ignore[override]
        """The samples, as of the first time that somebody reads them."""
        return self._make().samples

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what a worker sends to its parent: the samples, and not the objects that they are made from."""
        return plain_family, (self.name, self.documentation, self.type, self.samples)


def plain_family(name: str, text: str, kind: str, samples: list[Sample]) -> Metric:
    """Return a family that has its samples already. `name` is whole."""
    family = Metric(name, text, kind)
    family.samples = samples
    return family


def counter(name: str, text: str, value: float) -> Metric:
    """Return a counter without labels. The prefix is put before `name`, and `_total` after it."""
    return LazyFamily(name, text, "counter", (), lambda: CounterMetricFamily(PREFIX + name, text, value=value))


def gauge(name: str, text: str, value: float | Callable[[], float]) -> Metric:
    """Return a gauge without labels. The prefix is put before `name`.

    A value that takes long to find is a function, which is called when somebody reads it.
    """

    def make() -> Metric:
        return GaugeMetricFamily(PREFIX + name, text, value=value() if callable(value) else value)

    return LazyFamily(name, text, "gauge", (), make)


def labelled_counter(name: str, text: str, labels: Sequence[str], values: Labelled) -> Metric:
    """Return one counter for each combination of labels, sorted by them."""

    def make() -> Metric:
        family = CounterMetricFamily(PREFIX + name, text, labels=labels)
        for label_values, value in sorted(values):
            family.add_metric(list(label_values), value)
        return family

    return LazyFamily(name, text, "counter", labels, make)


def labelled_gauge(name: str, text: str, labels: Sequence[str], values: Labelled) -> Metric:
    """Return one gauge for each combination of labels, in the order of `values`."""

    def make() -> Metric:
        family = GaugeMetricFamily(PREFIX + name, text, labels=labels)
        for label_values, value in values:
            family.add_metric(list(label_values), value)
        return family

    return LazyFamily(name, text, "gauge", labels, make)


def histogram(name: str, text: str, counted: Histogram) -> Metric:
    """Return a histogram without labels. This function cumulates its buckets."""

    def make() -> Metric:
        buckets = buckets_of(counted)
        return HistogramMetricFamily(PREFIX + name, text, buckets=buckets, sum_value=counted.total)

    return LazyFamily(name, text, "histogram", (), make)


def labelled_histogram(
    name: str, text: str, labels: Sequence[str], counted: Iterable[tuple[tuple[str, ...], Histogram]]
) -> Metric:
    """Return one histogram for each combination of labels, in the order of `counted`."""

    def make() -> Metric:
        family = HistogramMetricFamily(PREFIX + name, text, labels=labels)
        for label_values, one in counted:
            family.add_metric(list(label_values), buckets_of(one), one.total)
        return family

    return LazyFamily(name, text, "histogram", labels, make)


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
