"""Counts of workers that can't report now: those that ended, and those that are silent for a moment.

Without them, sums over the workers would fall whenever a worker ends. Prometheus takes a fall for a restart from 0, and
would count the other workers' events a second time.
"""

from __future__ import annotations

from collections.abc import Collection

from prometheus_client.core import Metric

from proxy.admin.api.figures import Figures, added
from proxy.admin.sums import summed

_LASTING = ("counter", "histogram")
"""Types of metrics whose counts last; gauges end with their worker."""


class Carried:
    """Keeps the last report of each worker by its number, and the sum of the last reports of workers that have
    ended."""

    def __init__(self) -> None:
        self._metrics: dict[int, list[Metric]] = {}
        self._figures: dict[int, Figures] = {}
        self._ended_metrics: list[Metric] = []
        self._ended_figures: list[Figures] = []
        """Sum of the workers that have ended; at most one element."""

    def take_metrics(self, worker: int, metrics: list[Metric]) -> None:
        """Take the present metrics of a worker."""
        self._metrics[worker] = [metric for metric in metrics if metric.type in _LASTING]

    def take_figures(self, worker: int, figures: Figures) -> None:
        """Take the present figures of a worker."""
        self._figures[worker] = figures

    def end(self, worker: int) -> None:
        """Record that a worker has ended. The next worker of that number counts from 0."""
        if worker in self._metrics:
            self._ended_metrics = summed([self._ended_metrics, self._metrics.pop(worker)])
        if worker in self._figures:
            self._ended_figures = [_lasting([*self._ended_figures, self._figures.pop(worker)])]

    def metrics(self, answered: Collection[int]) -> list[Metric]:
        """Return the counters and histograms of all workers except those that have answered."""
        silent = [metrics for worker, metrics in self._metrics.items() if worker not in answered]
        return summed([*silent, self._ended_metrics])

    def figures(self, answered: Collection[int]) -> list[Figures]:
        """Return their figures as one sum without an identity; empty if no worker is missing."""
        silent = [figures for worker, figures in self._figures.items() if worker not in answered]
        missing = [*silent, *self._ended_figures]
        return [_lasting(missing)] if missing else []


def _lasting(figures: list[Figures]) -> Figures:
    total = added(figures)
    total.identity, total.buffers = "", []
    total.counters.pop("connections", None)
    return total
