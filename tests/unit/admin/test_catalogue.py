"""The page of metrics is complete, and every label is known and bounded."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from proxy.admin.catalogue import LABELS, Family, families
from proxy.telemetry.stats import Stats

PAGE = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text()


@pytest.fixture(scope="module")
def all_families() -> list[Family]:
    return families()


def rows(heading: str) -> dict[str, list[str]]:
    """Return the cells of a table's rows by the first cell."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    cells = [[cell.strip() for cell in row.strip("| ").split(" | ")] for row in section.splitlines() if "|" in row]
    return {row[0].strip("`"): row[1:] for row in cells[2:]}


def test_the_page_has_every_metric_and_no_other(all_families: list[Family]) -> None:
    documented = rows("All of them")
    assert set(documented) == {family.name.removeprefix("diskless_proxy_") for family in all_families}
    for family in all_families:
        kind, unit, labels, text = documented[family.name.removeprefix("diskless_proxy_")]
        assert (kind, unit, labels) == (family.kind, family.unit, ", ".join(family.labels) or "–")
        assert text.endswith(".")


def test_no_name_comes_twice(all_families: list[Family]) -> None:
    names = [name for family in all_families for name in family.sample_names]
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"diskless_proxy_[a-z_]+", name) for name in names)


def test_every_label_is_known_and_every_known_one_is_used(all_families: list[Family]) -> None:
    assert {label for family in all_families for label in family.labels} == set(LABELS) == set(rows("Labels"))


def test_kip_1163s_list_leads_to_metrics_that_exist(all_families: list[Family]) -> None:
    known = {name.removeprefix("diskless_proxy_") for family in all_families for name in family.sample_names}
    known |= {family.name.removeprefix("diskless_proxy_") for family in all_families}
    named = {name for cells in rows("What KIP-1163 lists").values() for name in re.findall(r"`([a-z_]+)", cells[0])}
    assert len(named) > 10
    assert named - {"cold_"} <= known


def test_old_names_stay(all_families: list[Family]) -> None:
    """Users' dashboards depend on these names."""
    old = (
        "requests_total record_bytes_total cross_rack_bytes_total cross_rack_cost_usd_total near_read_saved_usd_total "
        "topic_cross_rack_bytes_total produce_seconds fetch_seconds upload_seconds segment_bytes commit_seconds "
        "cache_hits_total held_request_bytes wal_buffer_bytes cache_bytes fenced_shards store_unfit index_bytes "
        "stray_records under_replicated_oldest_seconds worker_restarts_total"
    )
    names = {family.name.removeprefix("diskless_proxy_") for family in all_families}
    assert set(old.split()) <= names


@pytest.mark.parametrize(
    ("label", "good", "bad"),
    [
        ("topic", "(others)", "x" * 250),
        ("topic", "orders-1", ""),
        ("api", "Produce", "Make"),
        ("shard", "15", "all"),
        ("settings", "listeners.tls", "anything"),
        ("operation", "put", "putter"),
    ],
)
def test_allowed_values_of_labels(label: str, good: str, bad: str) -> None:
    assert LABELS[label].allows(good)
    assert not LABELS[label].allows(bad)


def test_storage_errors_have_a_series_before_the_first_error() -> None:
    assert set(Stats().storage_errors.values()) == {0}
