"""The rates that a process reports in its heartbeats."""

from __future__ import annotations

import json

from proxy.coordinator.interface_fleet import ProxySums
from proxy.routing.recent_sums import LARGEST, RecentSums, Totals


def totals(times: float) -> Totals:
    return Totals(*(times * value for value in (1_000, 2_000, 300, 0.001, 0.002, 0.0005)))


def test_rates_are_averages_over_the_last_looks() -> None:
    recent = RecentSums()
    assert recent.now() is None
    recent.take(100.0, totals(7), 3)
    assert recent.now() is None, "one look has no rate"
    recent.take(102.0, totals(9), 4)
    assert recent.now() == ProxySums(1_000, 2_000, 300, 3_600_000, 7_200_000, 1_800_000, 4)


def test_looks_that_come_quickly_count_as_one() -> None:
    recent = RecentSums()
    for tenth in range(31):
        recent.take(100 + tenth / 10, totals(tenth / 10), tenth)
    sums = recent.now()
    assert sums is not None
    assert (sums.produced, sums.connections) == (1_000, 30)


def test_an_old_burst_is_forgotten() -> None:
    recent = RecentSums()
    recent.take(0.0, totals(0), 1)
    for second in range(2, 30, 2):
        recent.take(second, totals(500), 1)
    sums = recent.now()
    assert sums is not None
    assert (sums.produced, sums.saved) == (0, 0)


def test_a_heartbeat_gets_at_most_a_hundred_bytes_longer() -> None:
    busy = Totals(10**9, 10**10, 10**9, 0.01, 0.1, 0.001)
    recent = RecentSums()
    recent.take(0.0, Totals(0, 0, 0, 0, 0, 0), 10_000)
    recent.take(1.0, busy, 10_000)
    assert len(json.dumps({"sums": recent.now()})) <= 100
    recent.take(2.0, Totals(*(value * 10**9 for value in busy)), 10_000)
    sums = recent.now()
    assert sums is not None
    assert sums.fetched == LARGEST
