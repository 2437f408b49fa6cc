"""Counts of workers that can't report now: those that ended, and those that are silent for a moment.

Without it, sums over the workers fall whenever one ends. Prometheus takes a fall for a start from 0, and counts what
the others have counted once more.
"""

from __future__ import annotations

from collections.abc import Collection

from prometheus_client.core import Metric

from proxy.admin.api.figures import Figures, added
from proxy.admin.sums import summed

_LASTING = ("counter", "histogram")
"""Types of metrics that go on from where they were; gauges end with their worker."""


class Carried:
    """Keeps what each worker said last, by its number, and the sum of what those said that have ended."""

    def __init__(self) -> None:
        self._metrics: dict[int, list[Metric]] = {}
        self._figures: dict[int, Figures] = {}
        self._ended_metrics: list[Metric] = []
        self._ended_figures: list[Figures] = []
        """One at most."""

    def take_metrics(self, worker: int, metrics: list[Metric]) -> None:
        """Take the present metrics of a worker."""
        self._metrics[worker] = [metric for metric in metrics if metric.type in _LASTING]

    def take_figures(self, worker: int, figures: Figures) -> None:
        """Take the present figures of a worker."""
        self._figures[worker] = figures

    def end(self, worker: int) -> None:
        """It has ended. The next one of that number counts from 0."""
        if worker in self._metrics:
            self._ended_metrics = summed([self._ended_metrics, self._metrics.pop(worker)])
        if worker in self._figures:
            self._ended_figures = [_lasting([*self._ended_figures, self._figures.pop(worker)])]

    def metrics(self, answered: Collection[int]) -> list[Metric]:
        """Counters and histograms of all but the workers that have answered."""
        silent = [metrics for worker, metrics in self._metrics.items() if worker not in answered]
        return summed([*silent, self._ended_metrics])

    def figures(self, answered: Collection[int]) -> list[Figures]:
        """The same as figures of no process: they have no identity. One, or none where nobody is missing."""
        silent = [figures for worker, figures in self._figures.items() if worker not in answered]
        missing = [*silent, *self._ended_figures]
        return [_lasting(missing)] if missing else []


def _lasting(figures: list[Figures]) -> Figures:
    total = added(figures)
    total.identity, total.buffers = "", []
    total.counters.pop("connections", None)
    return total
