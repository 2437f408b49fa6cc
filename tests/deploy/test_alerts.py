"""The alerts: promtool accepts them, and rules, runbooks and metrics agree."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from proxy.admin.catalogue import families
from tests.support.prometheus import RULES, needs_prometheus, promtool

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "alerts.md").read_text()
FOREIGN = {
    "up",
    "process_start_time_seconds",
    "process_open_fds",
    "process_max_fds",
    "kube_cronjob_created",
    "kube_cronjob_status_last_successful_time",
    "kube_job_status_failed",
    "kube_job_status_start_time",
    "node_systemd_timer_last_trigger_seconds",
    "node_systemd_unit_state",
}
"""Metrics of Prometheus, its client library, kube-state-metrics and node_exporter."""


def rules(name: str) -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load((RULES / name).read_text())["groups"] for rule in group["rules"]]


ALERTS = {rule["alert"]: rule for rule in rules("alerts.yaml")}


def metrics_in(expression: str) -> set[str]:
    """Return the names of metrics in a query: names before a selector, a range, or alone; no functions, labels or
    values."""
    bare = re.sub(r'"[^"]*"', '""', expression)
    bare = re.sub(r"\b(by|on|without|ignoring|group_left|group_right) \([^)]*\)", "", bare)
    bare = re.sub(r"\{[^}]*\}", "", bare)
    words = set(re.findall(r"[a-z_]{2,}(?![a-z_]*\s*\()", re.sub(r"\[[^\]]*\]", "", bare)))
    return words - {"and", "or", "unless", "on", "offset"}


@needs_prometheus
def test_promtool_finds_no_error() -> None:
    assert "SUCCESS" in promtool("check", "rules", "alerts.yaml", "rules.yaml")
    assert "SUCCESS" in promtool("check", "config", "prometheus.yaml")


@needs_prometheus
def test_each_alert_fires_when_it_should_and_stays_quiet_otherwise() -> None:
    assert "SUCCESS" in promtool("test", "rules", "alerts_test.yaml")


def test_each_alert_is_tested_both_ways() -> None:
    tried: dict[str, set[bool]] = {}
    for test in yaml.safe_load((RULES / "alerts_test.yaml").read_text())["tests"]:
        for one in test["alert_rule_test"]:
            tried.setdefault(one["alertname"], set()).add(bool(one.get("exp_alerts")))
    assert tried == {name: {True, False} for name in ALERTS}


@pytest.mark.parametrize("name", ALERTS)
def test_each_alert_has_what_an_operator_needs(name: str) -> None:
    rule = ALERTS[name]
    assert re.fullmatch(r"DisklessProxy[A-Z]\w+", name)
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert rule["annotations"]["runbook_url"] == f"docs/alerts.md#{name.lower()}"
    section = PAGE.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    for part in ("**What it means.**", "**What users notice.**", "How to look:", "```sh", "**What to do.**"):
        assert part in section, part


def test_the_page_has_a_section_and_a_row_for_each_alert_and_no_other() -> None:
    assert re.findall(r"^## (\w+)$", PAGE, re.MULTILINE) == list(ALERTS)
    table = re.findall(r"^\| \[(\w+)\]\(#(\w+)\) \| (\w+) \| ([^|]+) \| ([^|]+) \|$", PAGE, re.MULTILINE)
    assert table == [
        (name, name.lower(), rule["labels"]["severity"], rule.get("for", "at once"), rule["annotations"]["summary"])
        for name, rule in ALERTS.items()
    ]


def test_every_metric_in_the_rules_is_served() -> None:
    known = {name for family in families() for name in family.sample_names}
    expressions = [rule["expr"] for name in ("alerts.yaml", "rules.yaml") for rule in rules(name)]
    named = set().union(*map(metrics_in, expressions))
    assert len(named) > 20
    assert named <= known | FOREIGN


@pytest.mark.parametrize(
    ("expression", "metrics"),
    [
        ('sum by (a) (rate(one_total{b="two"}[5m])) * 3600 > 1', {"one_total"}),
        ("max(one) / on () group_left () max(other > 0) > 0.8", {"one", "other"}),
        ("absent(one)", {"one"}),
        ("time() - (one or other) > 86400", {"one", "other"}),
        ("one / two > 0.8 and on (instance) three", {"one", "two", "three"}),
    ],
)
def test_metrics_of_a_query(expression: str, metrics: set[str]) -> None:
    assert metrics_in(expression) == metrics
