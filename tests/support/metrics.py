"""A proxy's own figures, as Prometheus would scrape them."""

from __future__ import annotations

import urllib.request

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from proxy.demo.stack import Stack


class Metrics:
    """One scrape."""

    def __init__(self, stack: Stack, rack: str) -> None:
        with urllib.request.urlopen(f"{stack.admin_url(rack)}/metrics", timeout=10) as response:
            text = response.read().decode()
        self._samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    def value(self, name: str, **labels: str) -> float:
        """The sum of all samples of that name (without the prefix) that carry these labels."""
        return sum(
            sample.value
            for sample in self._samples
            if sample.name == f"diskless_proxy_{name}" and labels.items() <= sample.labels.items()
        )

    def samples(self, name: str, **labels: str) -> list[Sample]:
        """Those of that whole name that carry these labels."""
        return [one for one in self._samples if one.name == name and labels.items() <= one.labels.items()]

    def labels(self, name: str, label: str) -> set[str]:
        """The values that a label has in the samples of that whole name."""
        return {sample.labels[label] for sample in self._samples if sample.name == name}
