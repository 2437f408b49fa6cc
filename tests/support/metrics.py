"""Read a proxy's metrics, as Prometheus would scrape them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from proxy.demo.admin import get
from proxy.demo.stack import Stack


class Metrics:
    """One scrape of a proxy's metrics."""

    def __init__(self, stack: Stack, rack: str) -> None:
        status, text = get(stack.admin_url(rack), "/metrics", 10)
        assert status == 200, text
        self._samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    def all_samples(self) -> list[Sample]:
        """Return every sample."""
        return list(self._samples)

    def value(self, name: str, **labels: str) -> float:
        """Return the sum of all samples with this name (without the prefix) and these labels."""
        return sum(
            sample.value
            for sample in self._samples
            if sample.name == f"diskless_proxy_{name}" and labels.items() <= sample.labels.items()
        )

    def samples(self, name: str, **labels: str) -> list[Sample]:
        """Return the samples with this full name and these labels."""
        return [one for one in self._samples if one.name == name and labels.items() <= one.labels.items()]

    def labels(self, name: str, label: str) -> set[str]:
        """Return the values of a label in the samples with this full name."""
        return {sample.labels[label] for sample in self._samples if sample.name == name}


@contextmanager
def bytes_stay_in(stack: Stack, rack: str, kinds: tuple[str, ...], direction: str) -> Iterator[None]:
    """Require that all records that clients read or write meanwhile are counted for the rack, and none crosses."""

    def counted() -> tuple[float, ...]:
        scrapes = [Metrics(stack, one) for one in stack.proxies]
        ways = [{"direction": direction, "kind": kind} for kind in kinds]
        mine = sum(one.value("record_bytes_total", client_rack=rack, **way) for one in scrapes for way in ways)
        moved = sum(one.value("record_bytes_total", **way) for one in scrapes for way in ways)
        return mine, moved, sum(one.value("cross_rack_bytes_total", **way) for one in scrapes for way in ways)

    before = counted()
    yield
    mine, moved, crossed = (after - then for after, then in zip(counted(), before, strict=True))
    assert moved > 0
    assert (mine, crossed) == (moved, 0)
