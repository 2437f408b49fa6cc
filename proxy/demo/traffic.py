"""The bytes between racks as the proxies count them: the growth of their counters, summed over all proxies."""

from __future__ import annotations

import http.client
from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

from proxy.demo.admin import get

PREFIX = "diskless_proxy_"
CROSS_RACK, COORDINATION, RECORDS, NEAR_READS = (
    f"{PREFIX}{name}_bytes_total" for name in ("cross_rack", "coordination", "record", "near_read")
)
Counters = dict[tuple[str, str], float]
"""Counters by name and kind of topic (empty if a counter has none)."""


def read_counters(exposition: str) -> Counters:
    """Return the counters that matter here, from the text of `/metrics`."""
    counters: Counters = {}
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            if sample.name in (CROSS_RACK, COORDINATION, RECORDS, NEAR_READS):
                key = sample.name, sample.labels.get("kind", "")
                counters[key] = counters.get(key, 0.0) + sample.value
    return counters


class Growth:
    """The growth of one process's counters; a process that starts again counts from 0, and that is noticed."""

    def __init__(self) -> None:
        self.total: Counters = {}
        self._last: Counters | None = None

    def see(self, counters: Counters) -> None:
        """Take the present counters of the process. Growth is counted from the first call on."""
        if self._last is not None:
            restarted = any(counters.get(key, 0.0) < value for key, value in self._last.items())
            for key, value in counters.items():
                grown = value if restarted else value - self._last.get(key, 0.0)
                self.total[key] = self.total.get(key, 0.0) + grown
        self._last = counters


class Traffic:
    """The growth since it was made, over all proxies. What a killed proxy counted since the last look is not known."""

    def __init__(self, admin_urls: Mapping[str, str]) -> None:
        """`admin_urls`: `http://host:port` by rack."""
        self._admin_urls = dict(admin_urls)
        self._growth = {rack: Growth() for rack in admin_urls}
        self.look()

    def look(self) -> None:
        """Ask all proxies; one that does not answer is left as it was."""
        for rack, url in self._admin_urls.items():
            status, text = get(url, "/metrics")
            if status == http.client.OK:
                self._growth[rack].see(read_counters(text))

    def cross_rack_bytes(self, kind: str) -> int:
        """Record bytes between a client and a broker or proxy of another rack."""
        return self._sum(CROSS_RACK, kind)

    def record_bytes(self, kind: str) -> int:
        """Record bytes from and to clients, wherever they are."""
        return self._sum(RECORDS, kind)

    def near_read_bytes(self) -> int:
        """Bytes of classic topics, read from a replica in the reader's rack instead of the leader in another."""
        return self._sum(NEAR_READS, "")

    def coordination_bytes(self) -> int:
        """Bytes between proxies and the coordinator's store."""
        return self._sum(COORDINATION, "")

    def _sum(self, name: str, kind: str) -> int:
        return int(sum(growth.total.get((name, kind), 0.0) for growth in self._growth.values()))
