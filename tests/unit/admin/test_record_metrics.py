"""The cost of records is counted by how often they cross racks, and by topic as soon as its name is known."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from proxy.admin.record_metrics import record_metrics, storage_cost
from proxy.config.prices import Prices
from proxy.replicas.choice import LeaderReason
from proxy.routing.racks import borders
from proxy.telemetry.stats import OTHER_TOPICS, Ledger, Stats

GIGABYTE = 10**9
TOPIC_ID = bytes(range(16))


def metric_values(stats: Stats, prices: Prices | None = None) -> dict[str, dict[tuple[str, ...], float]]:
    """Return values by label values, by name without prefix and suffix."""
    metrics = list(record_metrics(stats, "rack-a", prices or Prices()))
    return {
        metric.name.removeprefix("diskless_proxy_"): {
            tuple(sample.labels.values()): sample.value for sample in metric.samples
        }
        for metric in metrics
    }


@pytest.mark.parametrize(
    ("client", "serving", "times"),
    [
        ("rack-a", "rack-a", 0),
        ("rack-a", "rack-b", 1),
        ("rack-b", "rack-a", 1),
        ("rack-b", "rack-c", 2),
        ("rack-b", "rack-b", 2),
        ("unknown", "rack-a", 1),
        ("rack-a", "", 0),
        ("rack-b", "", 1),
    ],
)
def test_each_border_on_the_way_through_the_proxy_is_crossed(client: str, serving: str, times: int) -> None:
    assert borders(client, "rack-a", serving) == times


def test_bytes_by_racks_and_by_topic() -> None:
    stats = Stats()
    stats.count_records("classic", "fetch", "rack-a", "rack-b", "orders", 10)
    stats.count_records("classic", "fetch", "rack-a", "rack-a", "orders", 4)
    stats.count_records("classic", "produce", "rack-c", "rack-b", "orders", 100)
    stats.count_records("diskless", "fetch", "rack-a", "rack-a", "events", 7)
    values = metric_values(stats)
    assert values["record_bytes"] == {
        ("classic", "fetch", "rack-a", "rack-a"): 4,
        ("classic", "fetch", "rack-a", "rack-b"): 10,
        ("classic", "produce", "rack-c", "rack-b"): 100,
        ("diskless", "fetch", "rack-a", "rack-a"): 7,
    }
    assert {racks: size for racks, size in values["cross_rack_bytes"].items() if size} == {
        ("classic", "fetch", "rack-a", "rack-b"): 10,
        ("classic", "produce", "rack-c", "rack-b"): 200,
    }
    assert values["topic_record_bytes"] == {
        ("classic", "fetch", "orders"): 14,
        ("classic", "produce", "orders"): 100,
        ("diskless", "fetch", "events"): 7,
    }
    assert values["topic_cross_rack_bytes"] == {
        ("classic", "fetch", "orders"): 10,
        ("classic", "produce", "orders"): 200,
        ("diskless", "fetch", "events"): 0,
    }


def test_a_topic_without_a_name_is_in_the_sums_and_gets_a_series_with_its_name() -> None:
    stats = Stats()
    stats.count_records("classic", "fetch", "rack-a", "rack-b", TOPIC_ID, 10)
    stats.count_records("classic", "fetch", "rack-a", "rack-b", "orders", 1)
    stats.count_records("classic", "fetch", "rack-a", "rack-b", OTHER_TOPICS, 2)
    before = metric_values(stats)
    stats.settle(TOPIC_ID, "orders")
    after = metric_values(stats)
    assert before["record_bytes"] == after["record_bytes"] == {("classic", "fetch", "rack-a", "rack-b"): 13}
    assert before["topic_record_bytes"]["classic", "fetch", "orders"] == 1
    assert after["topic_record_bytes"] == {
        ("classic", "fetch", OTHER_TOPICS): 2,
        ("classic", "fetch", "orders"): 11,
    }


def test_cost_follows_the_prices() -> None:
    stats = Stats()
    stats.count_records("classic", "produce", "rack-a", "rack-b", "orders", 3 * GIGABYTE)
    stats.near_read_bytes["rack-a", "rack-a"] += 2 * GIGABYTE
    values = metric_values(stats, Prices(cross_rack_usd_per_gb=0.5))
    assert values["cross_rack_cost_usd"] == {
        ("classic", "fetch", "rack-a", "rack-a"): 0,
        ("classic", "produce", "rack-a", "rack-a"): 0,
        ("classic", "produce", "rack-a", "rack-b"): 1.5,
        ("diskless", "fetch", "rack-a", "rack-a"): 0,
        ("diskless", "produce", "rack-a", "rack-a"): 0,
    }
    assert values["near_read_bytes"] == {("rack-a", "rack-a"): 2 * GIGABYTE}
    assert values["near_read_saved_usd"] == {(): 1.0}


def test_reads_from_leaders_by_reason() -> None:
    stats = Stats()
    stats.leader_reads["out_of_range"] += 2
    stats.leader_read_bytes["out_of_range"] += 30
    values = metric_values(stats)
    # All series exist from the beginning: a series that starts at one has no rate.
    zeros = {(reason.value,): 0 for reason in LeaderReason}
    assert values["leader_reads"] == zeros | {("out_of_range",): 2}
    assert values["leader_read_bytes"] == zeros | {("out_of_range",): 30}


def test_requests_to_object_storage_cost_by_the_thousand() -> None:
    cost = storage_cost(Ledger(), 2000, 5000, Prices(put_usd_per_thousand=0.005, get_usd_per_thousand=0.0004))
    assert {sample.labels["operation"]: sample.value for sample in cost.samples} == pytest.approx(
        {"put": 0.01, "get": 0.002}
    )


def test_a_name_that_is_no_topics_does_not_break_the_page() -> None:
    class Collected(Collector):
        def collect(self) -> list[Metric]:
            return list(record_metrics(stats, "rack-a", Prices()))

    stats = Stats()
    stats.count_records("classic", "fetch", "rack-a", "rack-b", 'a"\n\\b', 1)
    registry = CollectorRegistry()
    registry.register(Collected())
    assert b'topic="a\\"\\n\\\\b"' in generate_latest(registry)
