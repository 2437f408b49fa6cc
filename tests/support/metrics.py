"""A proxy's own figures, as Prometheus would scrape them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from proxy.demo.admin import get
from proxy.demo.stack import Stack


class Metrics:
    """One scrape."""

    def __init__(self, stack: Stack, rack: str) -> None:
        status, text = get(stack.admin_url(rack), "/metrics", 10)
        assert status == 200, text
        self._samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    def all_samples(self) -> list[Sample]:
        """Every one."""
        return list(self._samples)

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


@contextmanager
def bytes_stay_in(stack: Stack, rack: str, kinds: tuple[str, ...], direction: str) -> Iterator[None]:
    """Of the records that clients move meanwhile, all are counted for the rack, and none crosses to another one."""

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
