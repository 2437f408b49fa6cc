"""Read the dashboard with Grafana's own SDK, and send every query to a real Prometheus that scrapes real proxies."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from proxy.admin.catalogue import LABELS, families
from proxy.demo.stack import Stack
from tests.support.confluent import produce, read
from tests.support.dashboard import DASHBOARD, PANELS, filled
from tests.support.metrics import Metrics
from tests.support.prometheus import Prometheus, needs_prometheus, prometheus_server
from tests.support.records import samples
from tests.support.topics import CLASSIC, DISKLESS, create_topic, delete_topic, new_topic

QUERIES = {
    f"{panel['title']}, {target['refId']}": target["expr"] for panel in PANELS for target in panel.get("targets", [])
}
MAY_BE_EMPTY = {
    "Errors, A": "no proxy has answered an error",
    "Near reads, B": "only where reads stay at their leaders",
    "Fullest shard, A": "only where redis.max_index_bytes is set",
    "Certificates, A": "only with TLS",
    "Redirects, A": "only with a cluster whose slots have moved",
}
"""Queries that give series only in cases that a healthy stack without TLS does not have."""
WRONG_RACK = {"client_id": "lost,diskless_rack_id=nowhere"}
"""Client settings with a rack without proxies. A client that names a rack with proxies is redirected to them, so its
bytes do not cross."""
FAR = f"dashboard-classic-{uuid.uuid4().hex[:6]}"
ROUNDS = 2
"""Rounds of traffic: a series that begins with its first event has no rate before the second."""


def test_grafanas_own_model_knows_every_field() -> None:
    """The model drops unknown fields when it writes the dashboard again."""
    again = json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(DASHBOARD)))
    assert lost(DASHBOARD, again) == []


def lost(ours: Any, theirs: Any, at: str = "") -> list[str]:
    """Yield the places where something of ours is missing or different."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return [place for key in ours for place in lost(ours[key], theirs.get(key, KeyError), f"{at}.{key}")]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = zip(ours, theirs, strict=True)
        return [place for number, (one, two) in enumerate(pairs) for place in lost(one, two, f"{at}[{number}]")]
    return [] if ours == theirs else [at]


def test_panels_do_not_overlap_and_have_descriptions() -> None:
    places: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        grid = panel["gridPos"]
        assert grid["x"] + grid["w"] <= 24
        taken = {
            (x, y) for x in range(grid["x"], grid["x"] + grid["w"]) for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert not taken & places, panel["title"]
        places |= taken
    for panel in PANELS:
        assert panel["description"].endswith("."), panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    titles = [panel["title"] for panel in DASHBOARD["panels"]]
    assert len(titles) == len(set(titles))
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(titles)
    assert set(MAY_BE_EMPTY) <= set(QUERIES)


def test_every_metric_on_the_dashboard_is_served() -> None:
    known = {name for family in families() for name in family.sample_names}
    variables = [variable["query"] for variable in DASHBOARD["templating"]["list"]]
    named = set(re.findall(r"diskless_proxy_[a-z_]+", json.dumps([QUERIES, variables])))
    assert named <= known
    # Metrics that no panel shows: old names, whose figures are shown under the new ones, and those that only workers
    # have.
    unseen = {family.name for family in families() if not set(family.sample_names) & named}
    assert len(unseen) <= 20, unseen


def test_every_query_selects_the_chosen_proxies() -> None:
    for name, expression in QUERIES.items():
        selectors = re.findall(r"diskless_proxy_[a-z_]+(\{[^}]*\})?", expression)
        chosen = [selector for selector in selectors if 'instance=~"$instance"' in selector]
        assert chosen or 'instance=~"$instance"' in expression, name


@pytest.fixture
def scraped(stack: Stack, tmp_path: Path) -> Iterator[Prometheus]:
    """Run a Prometheus that has seen some traffic of a client in its rack, and of one whose rack is wrong."""
    topics = new_topic(stack, "dashboard", DISKLESS), FAR
    create_topic(stack, topics[1], CLASSIC, assignment=[[3, 1, 2]])
    try:
        yield from scraped_topics(stack, tmp_path, topics)
    finally:
        delete_topic(stack, FAR)


def scraped_topics(stack: Stack, tmp_path: Path, topics: tuple[str, str]) -> Iterator[Prometheus]:
    """Do so for a diskless and a classic topic, and wait until each of their series was scraped before it rose."""
    targets = [stack.admin_url(rack).removeprefix("http://") for rack in stack.proxies]
    with prometheus_server(tmp_path, targets) as prometheus:
        prometheus.wait_for(f"sum(up) == {len(targets)}")
        for number in range(ROUNDS):
            for topic in topics:
                for client in ({}, WRONG_RACK):
                    produce(stack.bootstrap("rack-a"), topic, samples(20, f"dashboard-{number}"), **client)
                    read(stack.bootstrap("rack-a"), topic, **client)
            for metric in ("record_bytes_total", "cross_rack_bytes_total", "topic_cross_rack_bytes_total"):
                for topic, kind in zip(topics, (DISKLESS, CLASSIC), strict=True):
                    labels = f'kind="{kind}"' + (f',topic="{topic}"' if metric.startswith("topic_") else "")
                    if number == 0:
                        prometheus.wait_for(f"diskless_proxy_{metric}{{{labels}}} > 0")
                    else:
                        prometheus.wait_for(f"increase(diskless_proxy_{metric}{{{labels}}}[5m]) > 0")
        yield prometheus


@needs_prometheus
@pytest.mark.timeout(400)
def test_every_panel_has_something_to_show(scraped: Prometheus) -> None:
    empty = {name for name, expression in QUERIES.items() if not scraped.query(filled(expression))}
    assert empty <= set(MAY_BE_EMPTY)

    # A client whose rack is wrong is shown, with the racks between which its bytes cross, the topic, and the reason.
    crossed, costs = (filled(QUERIES[f"Where bytes cross, by racks, {part}"]) for part in "AB")
    flows = {
        (series["metric"]["kind"], series["metric"]["client_rack"], series["metric"]["serving_rack"])
        for series in scraped.query(crossed)
    }
    assert ("diskless", "unknown", "rack-a") in flows
    assert all(float(series["value"][1]) > 0 for series in scraped.query(costs))
    topics = {series["metric"]["topic"] for series in scraped.query(filled(QUERIES["Where bytes cross, by topic, A"]))}
    assert FAR in topics

    # The same Prometheus reads the rules and can evaluate all of them.
    groups = scraped.ask("rules")["groups"]
    assert all(rule["health"] in ("ok", "unknown") for group in groups for rule in group["rules"])
    assert sum(len(group["rules"]) for group in groups) > 25


def counters(scrape: Metrics) -> set[tuple[object, ...]]:
    """Return series that exist as long as a process runs."""
    samples_of = scrape.all_samples()
    return {(one.name, *one.labels.items()) for one in samples_of if one.name.endswith("_total")}


@pytest.mark.timeout(300)
def test_labels_of_a_real_scrape_are_bounded(stack: Stack) -> None:
    """Scrape twice, with traffic in between: labels have only values that they may have."""
    known = {name: family for family in families() for name in family.sample_names}
    topic = new_topic(stack, "bounded", DISKLESS)
    before = counters(Metrics(stack, "rack-a"))
    produce(stack.bootstrap("rack-a"), topic, samples(5, "bounded"), client_id="x,diskless_rack_id=made-up")
    read(stack.bootstrap("rack-a"), topic, client_id="x,diskless_rack_id=made-up")
    scrape = Metrics(stack, "rack-a")
    after = scrape.all_samples()
    for sample in after:
        if sample.name.startswith(("process_", "python_")) or sample.name.endswith("_created"):
            continue
        assert set(sample.labels) - {"le"} <= set(known[sample.name].labels), sample
        for label, value in sample.labels.items():
            assert label == "le" or LABELS[label].allows(value), sample
        assert "made-up" not in sample.labels.values()
    assert before <= counters(scrape)
    missing = {name for name, family in known.items() if not family.labels} - {sample.name for sample in after}
    assert missing == {"diskless_proxy_workers", "diskless_proxy_worker_restarts_total"}
