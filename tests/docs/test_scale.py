"""The calculator of docs/scale.md, the model in Python and the tables of the page agree."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from random import Random

import pytest

from benchmarks.fleet_check import RESULTS
from benchmarks.fleet_model import VERY_LARGE, Limits, Load, Units, flow, walls
from tests.docs.blocks import ROOT
from tests.docs.node import answers

SCRIPT = ROOT / "docs" / "assets" / "scale.js"
PAGE = (ROOT / "docs" / "scale.md").read_text()
CASES = 200
ASK = """
const {flow, walls, LOAD, UNITS, LIMITS} = require(process.argv[1]);
const cases = JSON.parse(require("fs").readFileSync(0));
const answer = ([load, grouped]) => [flow(load), walls(load, UNITS, LIMITS, grouped)];
console.log(JSON.stringify({LOAD, UNITS, LIMITS, answers: cases.map(answer)}));
"""


def any_load(random: Random) -> Load:
    return Load(
        produced_mb_per_second=random.choice([0.0, random.uniform(0, 100_000)]),
        batch_bytes=random.uniform(100, 1e6),
        partitions=random.randint(1, 1_000_000),
        proxies=random.randint(1, 1_000),
        racks=random.randint(1, 9),
        puts_per_second=random.uniform(0.01, 100),
        buffer_bytes=random.uniform(1_000, 1e8),
        shards=random.randint(1, 2_000),
        servers=random.randint(1, 100),
        retention_hours=random.uniform(0, 10_000),
    )


def test_the_script_and_the_model_agree() -> None:
    random = Random(7)
    cases = [(any_load(random), random.random() < 0.5) for _ in range(CASES)]
    cases += [(Load(), False), (Load(), True)]
    found = answers(SCRIPT, ASK, [(asdict(load), grouped) for load, grouped in cases])
    assert found["LOAD"] == asdict(Load())
    assert found["UNITS"] == asdict(Units())
    assert found["LIMITS"] == asdict(Limits())
    for (load, grouped), (segments, of_walls) in zip(cases, found["answers"], strict=True):
        assert segments == pytest.approx(flow(load)._asdict(), rel=1e-6)
        wanted = {wall.name: wall for wall in walls(load, Units(), Limits(), grouped=grouped)}
        assert len(of_walls) == len(wanted)
        for name, used, allowed, unit in of_walls:
            wall = wanted[name]
            assert (used, allowed, unit) == (pytest.approx(wall.used), pytest.approx(wall.allowed), wall.unit)


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the table below a heading, without its head."""
    table = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in re.findall(r"^\|.*\|$", table, re.MULTILINE)
        if not line.startswith("|---")
    ][1:]


def figure(value: float) -> str:
    """Round to two digits, as the page does."""
    return f"{float(f'{value:.2g}'):,g}" if value >= 0.001 else "below 0.001"


def test_the_table_of_the_very_large_fleet_follows_the_model() -> None:
    of_each = [
        {wall.name: wall for wall in walls(VERY_LARGE, Units(), Limits(), grouped=grouped)} for grouped in (False, True)
    ]
    found = rows("A very large fleet, on paper")
    assert {name for name, *_ in found} == set(of_each[0])
    for name, as_it_is, grouped, allowed in found:
        wall = of_each[0][name]
        assert [as_it_is, grouped, allowed] == [
            figure(wall.used),
            figure(of_each[1][name].used),
            f"{figure(wall.allowed)} {wall.unit}",
        ]


def test_the_table_of_real_fleets_is_what_was_measured() -> None:
    runs = json.loads(RESULTS.read_text())
    wanted = [
        [str(run["proxies"]), name, *(figure(run[of][name]) for of in ("measured", "formulas", "simulation"))]
        for run in runs
        for name in run["formulas"]
    ]
    assert rows("How the model is checked") == wanted
    assert {run["proxies"] for run in runs} == {3, 6, 12}
    for run in runs:
        for name, value in run["formulas"].items():
            for expected in (value, run["simulation"][name]):
                assert run["measured"][name] == pytest.approx(expected, rel=0.15), (run["proxies"], name)
