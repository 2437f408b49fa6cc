"""The savings follow from racks, replicas and prices, and never fall."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.accounting.savings import DisklessBytes, crossings, saved_usd, saved_usd_so_far
from proxy.config.prices import Prices
from proxy.telemetry.stats import Ledger, Stats

GIGABYTE = 10**9


def savings_of(stats: Stats, racks: int, replication_factor: int, prices: Prices) -> dict[str, float]:
    return saved_usd_so_far(stats, "rack-a", racks, replication_factor, prices)


@pytest.mark.parametrize(
    ("racks", "replicas", "produce", "replication"),
    [
        (3, 3, 2 / 3, 2),
        (3, 2, 2 / 3, 1),
        (3, 1, 2 / 3, 0),
        (2, 4, 1 / 2, 2),
        (2, 3, 1 / 2, 4 / 3),
        (3, 4, 2 / 3, 2.5),
        (3, 6, 2 / 3, 4),
        (1, 3, 0, 0),
        (0, 3, 0, 0),
    ],
)
def test_how_often_a_byte_of_a_classic_topic_crosses(
    racks: int, replicas: int, produce: float, replication: float
) -> None:
    assert crossings(racks, replicas) == pytest.approx((produce, replication, produce))


def test_savings_per_gigabyte_in_each_direction() -> None:
    saved = saved_usd(DisklessBytes(GIGABYTE, GIGABYTE, 2 * GIGABYTE), 3, 3, Prices(cross_rack_usd_per_gb=0.03))
    assert saved == pytest.approx({"diskless_produce": 0.02, "diskless_replication": 0.06, "diskless_fetch": 0.04})


def test_bytes_that_cross_save_nothing_on_their_way() -> None:
    stats = Stats()
    stats.stored_bytes["rack-b"] += GIGABYTE
    stats.count_records("diskless", "fetch", "rack-b", "rack-a", "events", GIGABYTE)
    stats.count_records("classic", "fetch", "rack-a", "rack-a", "orders", GIGABYTE)
    saved = savings_of(stats, 3, 3, Prices(cross_rack_usd_per_gb=0.03))
    assert saved == pytest.approx(
        {"near_read": 0, "diskless_produce": 0, "diskless_replication": 0.06, "diskless_fetch": 0}
    )


def test_rejected_records_save_nothing() -> None:
    stats = Stats()
    for _ in range(1_000):
        stats.count_records("diskless", "produce", "rack-a", "rack-a", "events", 1_000_000)
    saved = savings_of(stats, 3, 3, Prices(cross_rack_usd_per_gb=0.02))
    assert saved["diskless_produce"] == saved["diskless_replication"] == 0


def test_three_replicas_are_assumed_if_the_brokers_do_not_report_them() -> None:
    stats = Stats()
    stats.stored_bytes["rack-a"] += GIGABYTE
    assert savings_of(stats, 3, 0, Prices(cross_rack_usd_per_gb=1))["diskless_replication"] == pytest.approx(2)


@given(st.lists(st.tuples(st.integers(0, 10**12), st.floats(0, 10), st.integers(0, 6)), max_size=20))
def test_no_change_of_prices_or_racks_makes_a_counter_fall(steps: list[tuple[int, float, int]]) -> None:
    stats, before = Stats(), dict[str, float]()
    for size, price, racks in steps:
        stats.stored_bytes["rack-a"] += size
        stats.near_read_bytes["rack-a", "rack-a"] += size
        now = savings_of(stats, racks, 3, Prices(cross_rack_usd_per_gb=price))
        assert all(now[saving] >= before.get(saving, 0) for saving in now)
        before = now


def test_a_ledger_counts_each_thing_at_the_price_of_its_day() -> None:
    ledger = Ledger()
    assert ledger.total("get", 10, 1.0) == 10
    assert ledger.total("get", 10, 5.0) == 10
    assert ledger.total("get", 12, 0.5) == 11
    assert ledger.total("put", 1, 0.5) == 0.5
