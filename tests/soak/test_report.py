"""The page and the plots of a run, and its overall result."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from xml.etree import ElementTree

import pytest

from tests.soak.report import PICTURES, Result, in_words, write_report
from tests.soak.run import Report, RunOptions, verdicts
from tests.soak.samples import STORES, Sampler

SECONDS = 3_600
TOPIC = {"produced": 9, "lost": 0, "duplicated": 0, "failed": 0, "produce_p50_ms": 250.0, "produce_p99_ms": 400.0}


def rows(rss_per_hour: float) -> list[dict[str, Any]]:
    """Return rows of an hour with two proxies, the second one restarted halfway, and the stores."""
    made: list[dict[str, Any]] = []
    for at_s in range(0, SECONDS, 10):
        for of, process in (("rack-a", 1), ("rack-b", 2 + (at_s > SECONDS / 2))):
            rss_mib = 120 + rss_per_hour * at_s / SECONDS
            made.append({"at_s": at_s, "of": of, "process": process, "rss_mib": rss_mib, "tasks": 40.0})
        made.append(
            {"at_s": at_s, "of": STORES, "process": 0, "redis_mib": 3.0, "redis_keys": 9.0, "index_rows": 900.0}
        )
    return made


def report(rss_per_hour: float, **changes: Any) -> Report:
    samples = rows(rss_per_hour)
    reported = Report(
        seed=7,
        options=asdict(RunOptions(SECONDS, 7)),
        long_lived=["rack-a"],
        seconds=SECONDS + 20.0,
        load={"classic": TOPIC | {"e2e_p50_ms": 1.0, "e2e_p99_ms": 2.0}},
        happened=[(60.0, "a proxy is killed", 3.0)],
        samples=samples,
        verdicts=[asdict(one) for one in verdicts(samples, 1_200)],
        pipeline={"jobs": {"audit": 1}, "acknowledged": 5, "read": 4, "audit": {"objects": 3, "defects": {}}},
    )
    return replace(reported, **changes)


def test_a_run_is_not_right_if_no_proxy_lives_long_enough_to_be_judged() -> None:
    samples = rows(3_000.0)
    for row in samples:
        if row["of"] != STORES:
            row["process"] = row["at_s"] // 900
    one = report(0.0, verdicts=[asdict(verdict) for verdict in verdicts(samples, 1_200)])
    assert one.verdicts
    assert not one.right
    assert "Growth was not judged of rack-a" in in_words(one)


def test_a_sampler_that_ends_by_itself_says_why() -> None:
    class Broken:
        redis = SimpleNamespace(url="redis://127.0.0.1:1")

        @property
        def proxies(self) -> Any:
            raise RuntimeError("dictionary changed size")

    reported: list[str] = []
    sampler = Sampler(cast("Any", Broken()), 3_600.0, reported.append)
    sampler.start()
    sampler.finish()
    (problem,) = reported
    assert problem.startswith("sampler broke off")
    assert problem.endswith("RuntimeError('dictionary changed size')")


def test_each_life_of_each_process_is_judged() -> None:
    judged = {(one["figure"], one["of"]) for one in report(0.0).verdicts}
    assert {of for figure, of in judged if figure == "rss_mib"} == {
        "rack-a (process 1)",
        "rack-b (process 2)",
        "rack-b (process 3)",
    }
    assert ("index_rows", STORES) in judged


@pytest.mark.parametrize(
    ("rss_per_hour", "changes", "right"),
    [
        (0.0, {}, True),
        (30.0, {}, False),
        (0.0, {"problem_count": 1, "problems": ["lost"]}, False),
        (0.0, {"seconds": 100.0}, False),
        (0.0, {"verdicts": []}, False),
        (0.0, {"long_lived": ["rack-a", "rack-c"]}, False),
        (0.0, {"long_lived": []}, False),
    ],
    ids=["flat", "grown", "a problem", "ended early", "nothing judged", "not each proxy", "no proxy named"],
)
def test_the_overall_result(rss_per_hour: float, changes: dict[str, Any], right: bool, tmp_path: Path) -> None:
    assert_result(report(rss_per_hour, **changes), right, tmp_path)


@pytest.mark.parametrize("stores", [True, False], ids=["the stores alone", "no store"])
def test_the_overall_result_of_a_run_that_judged_only_a_part(stores: bool, tmp_path: Path) -> None:
    verdicts_of_part = [one for one in report(0.0).verdicts if (one["of"] == STORES) == stores]
    assert_result(report(0.0, verdicts=verdicts_of_part), False, tmp_path)


def assert_result(one: Report, right: bool, tmp_path: Path) -> None:
    assert one.right == right
    assert in_words(one).endswith("passed" if right else "failed")
    page = tmp_path / "soak.md"
    reported = json.loads(json.dumps(asdict(Result(asdict(one), {"processors": "2"}, "s3"))))
    write_report(page, Result(**reported))
    text = page.read_text()
    assert f"**{'Passed' if right else 'Failed'}**" in text
    for name, *_ in PICTURES:
        assert f"images/soak-{name}.svg" in text
        ElementTree.parse(tmp_path / "images" / f"soak-{name}.svg")
