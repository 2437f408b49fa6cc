"""The calculator of docs/cost.md, its formulas in Python and the examples of the page agree."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from random import Random

import pytest

from pipeline.traffic.costs import Model
from proxy.accounting.cost import MonthlyPrices, Usage, monthly_cost
from proxy.accounting.savings import crossings
from proxy.config import Prices
from tests.docs.blocks import ROOT
from tests.docs.node import answers

SCRIPT = ROOT / "docs" / "assets" / "cost.js"
CASES = 200
ASK = """
const {monthlyCost, USAGE, PRICES} = require(process.argv[1]);
const cases = JSON.parse(require("fs").readFileSync(0));
console.log(JSON.stringify({USAGE, PRICES, costs: cases.map(([usage, prices]) => monthlyCost(usage, prices))}));
"""


def any_usage(random: Random) -> Usage:
    return Usage(
        produced_mb_per_second=random.uniform(0, 10_000),
        readers=random.uniform(0, 50),
        racks=random.randint(1, 9),
        replication_factor=random.randint(1, 9),
        retention_hours=random.uniform(0, 10_000),
        follower_fetching=random.random() < 0.5,
        disk_used_share=random.uniform(0.01, 1),
        proxies=random.randint(1, 100),
        puts_per_second=random.uniform(0.01, 1_000),
        buffer_bytes=random.uniform(1_000, 1e9),
        coordination_share=random.random(),
        proxy_usd_per_month=random.uniform(0, 1_000),
        redis_usd_per_month=random.uniform(0, 10_000),
    )


def any_prices(random: Random) -> MonthlyPrices:
    return MonthlyPrices(*(random.uniform(0, 10) for _ in asdict(MonthlyPrices())))


def test_the_script_and_the_module_agree() -> None:
    random = Random(7)
    cases = [(any_usage(random), any_prices(random)) for _ in range(CASES)]
    cases += [(Usage(mb), MonthlyPrices()) for mb in (0.0, 0.1, 1.0, 20.0, 5_000.0)]
    cases += [
        (Usage(7.0, racks=racks, replication_factor=replicas), MonthlyPrices())
        for racks in range(1, 8)
        for replicas in range(1, 8)
    ]
    results = answers(SCRIPT, ASK, [(asdict(usage), asdict(price)) for usage, price in cases])
    assert results["USAGE"] == asdict(Usage(results["USAGE"]["produced_mb_per_second"]))
    assert results["PRICES"] == asdict(MonthlyPrices())
    for (usage, price), cost in zip(cases, results["costs"], strict=True):
        assert cost == pytest.approx(monthly_cost(usage, price), rel=1e-9, abs=1e-9), usage


def test_the_examples_of_the_page_follow_the_formulas() -> None:
    page = (ROOT / "docs" / "cost.md").read_text()
    table = page.partition("## Examples")[2].partition("## ")[0]
    rows = re.findall(r"^\| ([\d.]+) \|(.*)\|$", table, re.MULTILINE)
    assert len(rows) == 4
    for megabytes, cells in rows:
        cost = monthly_cost(Usage(float(megabytes)), MonthlyPrices())
        wanted = (
            cost["classic_produce"] + cost["classic_replication"] + cost["classic_fetch"],
            cost["classic_disks"],
            cost["diskless_put"] + cost["diskless_get"],
            cost["diskless_storage"],
            cost["diskless_coordination"],
            cost["diskless_proxies"] + cost["diskless_redis"],
            cost["saved"],
        )
        assert [int(cell.replace(",", "")) for cell in cells.split("|")] == [round(usd) for usd in wanted]


def usd(amount: float) -> str:
    """Round to the nearest hundred, as sentences do."""
    return f"{round(amount, -2):,.0f}"


def test_the_figures_in_sentences_follow_the_formulas() -> None:
    """The first lines of README and of the page: 20 MB/s, with the defaults, and from where it pays off."""
    prices = MonthlyPrices()
    cost = monthly_cost(Usage(20.0), prices)
    near = monthly_cost(Usage(20.0, follower_fetching=True), prices)
    for page in (ROOT / "README.md", ROOT / "docs" / "cost.md"):
        text = page.read_text()
        for figure in (cost["classic_total"], cost["diskless_total"], cost["saved"], near["saved"]):
            assert re.search(rf"(?<![\d,]){usd(figure)}(?![\d,])", text), f"{page.name} lacks {usd(figure)}"
        assert "below about 3 mb/s" in text.lower().replace("\n", " ")
    assert monthly_cost(Usage(2.5), prices)["saved"] < 0 < monthly_cost(Usage(3.0), prices)["saved"]


def test_prices_are_those_of_the_setting() -> None:
    for name, value in Prices().model_dump().items():
        assert getattr(MonthlyPrices(), name) == value


def test_a_smaller_budget_costs_less_and_full_buffers_more() -> None:
    little, much = Usage(0.1), Usage(100.0)
    by_time = monthly_cost(replace(little, puts_per_second=1.0), MonthlyPrices())["diskless_put"]
    assert by_time == pytest.approx(monthly_cost(little, MonthlyPrices())["diskless_put"] / 4)
    by_size = monthly_cost(much, MonthlyPrices())["diskless_put"]
    assert monthly_cost(replace(much, buffer_bytes=much.buffer_bytes / 2), MonthlyPrices())["diskless_put"] > by_size


def test_the_cost_report_of_traffic_has_the_same_model() -> None:
    """`pipeline traffic` uses measured traffic."""
    for racks in range(2, 6):
        for replicas in range(1, 8):
            model, each = Model(racks, replicas), crossings(racks, replicas)
            assert (model.elsewhere, model.copies_across) == pytest.approx((each.produce, each.replication))
