"""The model of a fleet reproduces the figures of the plan, and its formulas agree with a simulation."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from benchmarks.fleet_model import VERY_LARGE, Limits, Load, Units, Wall, flow, simulated, walls
from benchmarks.fleet_units import RESULTS

PLAN = Units(
    call_us=63.0,
    run_us=5.3,
    announcement_bytes=0.0,
    announced_run_bytes=106.0,
    taken_run_us=1.9,
    beat_us=1.0,
    beat_bytes=400.0,
    heard_beat_us=10.0,
    collected_us=2.6,
)
"""Costs that the plan counted with."""


def used(load: Load, *, grouped: bool = False) -> dict[str, float]:
    return {wall.name: wall.used for wall in walls(load, PLAN, Limits(), grouped=grouped)}


def test_the_figures_of_the_plan() -> None:
    """100 GB/s, a million partitions, 1,000 proxies in three racks, batches of 16 KiB, segments of 4 MiB."""
    segments, runs, _ = flow(VERY_LARGE)
    assert segments == pytest.approx(25_000, rel=0.05)
    assert runs == pytest.approx(6.1e6, rel=0.01)
    as_it_is, grouped = used(VERY_LARGE), used(VERY_LARGE, grouped=True)
    assert grouped["order of batches"] == pytest.approx(35, rel=0.05)
    assert as_it_is["announcements, network"] == pytest.approx(650_000, rel=0.01)
    assert grouped["announcements, network"] == pytest.approx(2_000, rel=0.05)
    assert as_it_is["heartbeats, network"] == pytest.approx(400)
    assert as_it_is["deletion of segments"] == pytest.approx(67, rel=0.06)
    few_shards = used(replace(VERY_LARGE, shards=16))
    assert few_shards["deletion of segments"] == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize("megabytes", [0.2, 3.0, 20.0, 60.0])
@pytest.mark.parametrize("partitions", [1, 50, 3_000])
def test_the_formulas_agree_with_the_simulation(megabytes: float, partitions: int) -> None:
    load = Load(produced_mb_per_second=megabytes, partitions=partitions, proxies=4, shards=32)
    assert simulated(load, seconds=20, seed=3) == pytest.approx(flow(load), rel=0.15)


def test_the_first_limit_comes_first() -> None:
    found = walls(Load(), Units(), Limits())
    assert [wall.share for wall in found] == sorted((wall.share for wall in found), reverse=True)
    assert Wall("any", 3.0, 2.0, "s").share == 1.5


def test_nothing_produced_asks_for_heartbeats_only() -> None:
    found = {wall.name: wall.used for wall in walls(Load(produced_mb_per_second=0.0), Units(), Limits())}
    assert {name for name, value in found.items() if value} == {name for name in found if "heartbeats" in name}


def test_the_model_counts_with_what_was_measured() -> None:
    assert asdict(Units()) == json.loads(RESULTS.read_text())
