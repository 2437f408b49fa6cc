"""The cost report: actual costs equal the metrics, and hypothetical costs follow the model that the docs describe."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.traffic.costs import Bill, Model, bill_of, crossings
from pipeline.traffic.table import Flow
from proxy.admin.record_metrics import record_metrics
from proxy.config import Prices
from proxy.telemetry.stats import Stats

GB = 1_000_000_000
PRICES = Prices(cross_rack_usd_per_gb=1.0, put_usd_per_thousand=0.0, get_usd_per_thousand=0.0)
"""A dollar for each gigabyte, so that bills are gigabytes."""
RACKS = st.sampled_from(["", "a", "b", "c", "unknown"])
FLOWS = st.lists(
    st.builds(
        Flow,
        st.sampled_from(["classic", "diskless"]),
        st.sampled_from(["produce", "fetch"]),
        RACKS,
        st.sampled_from(["a", "b", "c"]),
        RACKS,
        st.integers(0, 2**40),
    ),
    max_size=30,
)


def bill(*records: Flow, near: tuple[Flow, ...] = (), racks: int = 3, prices: Prices = PRICES, **model: int) -> Bill:
    return bill_of(records, near, (0, 0), (0, 0), 0, prices, Model(racks, **model))


def flow(kind: str, direction: str, client: str, proxy: str, server: str, gigabytes: int = 9) -> Flow:
    return Flow(kind, direction, client, proxy, server, gigabytes * GB)


def usd(of: Bill, case: str, what: str, kind: str) -> float:
    (item,) = [one for one in of.items if (one.case, one.kind) == (case, kind) and one.what.startswith(what)]
    return item.usd


@given(FLOWS, st.floats(0, 10))
def test_the_paid_crossings_equal_the_metrics(records: list[Flow], price: float) -> None:
    prices = Prices(cross_rack_usd_per_gb=price)
    metered = 0.0
    for proxy_rack in "abc":
        stats = Stats()
        for one in records:
            if one.proxy_rack == proxy_rack:
                stats.count_records(one.kind, one.direction, one.client_rack, one.serving_rack, "orders", one.bytes)
        (metric,) = [one for one in record_metrics(stats, proxy_rack, prices) if one.name.endswith("rack_cost_usd")]
        metered += sum(sample.value for sample in metric.samples)
    assert bill(*records, prices=prices).total_usd("with_proxies") == pytest.approx(metered)


def test_requests_and_coordination_are_paid_for() -> None:
    prices = Prices(cross_rack_usd_per_gb=1, put_usd_per_thousand=2, get_usd_per_thousand=3)
    of = bill_of([], [], (7, 500), (8, 250), 4 * GB, prices, Model(3))
    paid = {item.what: item.usd for item in of.items if item.case == "with_proxies" and item.usd}
    assert paid == {"PUTs of WAL segments": 1.0, "GETs of object storage": 0.75, "coordination, at most": 4.0}


@pytest.mark.parametrize(
    ("client", "proxy", "server", "paid", "without"),
    [
        ("a", "a", "a", 0, 0),
        ("a", "a", "b", 9, 9),
        ("a", "b", "b", 9, 9),
        ("a", "b", "a", 18, 0),
        ("a", "b", "c", 18, 9),
        ("", "a", "a", 0, 0),
        ("", "a", "b", 9, 9),
        ("a", "a", "", 0, 0),
        ("a", "b", "", 9, 9),
    ],
)
def test_a_classic_produce_would_have_gone_straight(client, proxy, server, paid, without) -> None:
    of = bill(flow("classic", "produce", client, proxy, server))
    assert of.total_usd("with_proxies") == paid
    assert of.total_usd("without_proxies") == without
    assert of.saved_usd() == of.saved_usd("classic") == without - paid


@pytest.mark.parametrize(("client", "saved"), [("a", 6), ("", 6), ("b", 0)])
def test_near_reads_saved_the_way_to_the_leader_where_that_is_sure(client: str, saved: int) -> None:
    records, near = flow("classic", "fetch", client, "a", "a"), flow("classic", "fetch", client, "a", "a", 6)
    of = bill(records, near=(near,))
    assert of.total_usd("without_proxies") - (9 if client == "b" else 0) == saved


def test_diskless_topics_would_have_had_leaders_and_replicas_in_all_racks() -> None:
    of = bill(flow("diskless", "produce", "a", "a", "a"), flow("diskless", "fetch", "b", "b", "b", 30))
    assert of.total_usd("with_proxies") == 0
    assert usd(of, "without_proxies", "produced", "diskless") == pytest.approx(6)
    assert usd(of, "without_proxies", "replicated", "diskless") == pytest.approx(18)
    assert usd(of, "without_proxies", "fetched", "diskless") == pytest.approx(20)
    assert of.saved_usd("diskless") == pytest.approx(44)
    assert of.saved_usd("classic") == 0


def test_the_model_has_options() -> None:
    records = flow("diskless", "produce", "a", "a", "a"), flow("diskless", "fetch", "a", "a", "a")
    assert usd(bill(*records, follower_fetching=True), "without_proxies", "fetched", "diskless") == 0
    assert usd(bill(*records, replication_factor=1), "without_proxies", "replicated", "diskless") == 0
    assert bill(*records, racks=1).total_usd("without_proxies") == 0


@pytest.mark.parametrize(
    ("replicas", "racks", "copies"),
    [(3, 3, 2.0), (3, 6, 2.0), (3, 2, 4 / 3), (2, 2, 1.0), (4, 2, 2.0), (1, 3, 0.0), (5, 1, 0.0)],
)
def test_copies_go_to_replicas_that_are_in_other_racks(replicas: int, racks: int, copies: float) -> None:
    assert Model(racks, replicas).copies_across == pytest.approx(copies)


def test_a_wrong_rack_can_cost_more_than_it_saves() -> None:
    of = bill(flow("classic", "produce", "a", "b", "a"))
    assert of.saved_usd() == -18


def test_records_cross_on_both_ways() -> None:
    assert crossings(flow("classic", "fetch", "made-up", "a", "b")) == 2
