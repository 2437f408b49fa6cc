"""The job on rollups in storage: good rollups are summed up, bad ones are named."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from pipeline.commands import app
from pipeline.job import JobContext
from pipeline.progress import Progress
from pipeline.traffic import reading
from pipeline.traffic.job import TrafficOptions, run
from pipeline.traffic.span import Span
from proxy.accounting.rollups.files import rollup_key
from proxy.accounting.rollups.table import HOUR_MS, Measure
from proxy.config import Settings, Storage
from tests.unit.pipeline.traffic.rollups import HOUR, rollup, row

SPAN = Span(HOUR, HOUR + 2 * HOUR_MS)
WORDS = ("--from", "2026-06-16T20:00", "--to", "2026-06-16T22:00")
PUTS = {"direction": "produce", "topic": "", "client_rack": "", "serving_rack": ""}


def put(config: Path, objects: Mapping[str, bytes]) -> None:
    """Put objects into the storage next to the settings file."""
    for key, data in objects.items():
        path = config.parent / "wal" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def key(number: int, hour: int = 0) -> str:
    return rollup_key(HOUR + hour * HOUR_MS, "rack-a/p", "00ff", number)


def traffic(config: Path, *words: str) -> tuple[int, Any]:
    """Return exit code and report of the command."""
    answer = CliRunner().invoke(app, ["traffic", "--config", str(config), "--json", *words])
    assert answer.stdout, answer.output
    return answer.exit_code, json.loads(answer.stdout)


def test_rollups_are_summed_up_priced_and_written(spark: SparkSession, light_config: Path, tmp_path: Path) -> None:
    many = {key(number, number % 4): rollup(row(10**9, hour=number % 4, rack="ab"[number % 2])) for number in range(40)}
    late = {rollup_key(HOUR + 24 * HOUR_MS, "p", "0", 1): rollup(row(1), row(7, Measure.PUTS, requests=1_000, **PUTS))}
    put(light_config, many | late)
    output = tmp_path / "report"
    words = "--output", str(output), "--cross-rack-usd-per-gb", "1", "--put-usd-per-thousand", "5"
    code, report = traffic(light_config, *WORDS, *words)
    figures = report["figures"]
    assert (code, report["findings"]) == (0, [])
    assert figures["rollups_read"] == 41
    assert figures["record_bytes"] == 20 * 10**9 + 1, "of the hours that were asked for"
    assert figures["cross_rack_bytes"] == 2 * 10 * 10**9, "through a proxy of another rack and back"
    assert figures["cost_with_proxies_usd"] == pytest.approx(20 + 5)
    assert figures["prices"]["get_usd_per_thousand"] == 0.0004, "as set"
    assert figures["model"]["racks"] == 2
    assert {path.name for path in output.iterdir()} == {"traffic.csv", "traffic.parquet", "traffic.svg", "costs.csv"}


def test_damaged_and_foreign_files_are_named_and_left_out(spark: SparkSession, light_config: Path, monkeypatch) -> None:
    monkeypatch.setattr(reading, "ROLLUPS_PER_TASK", 3)
    good = {key(number): rollup(row(1)) for number in range(10)}
    bad = {
        key(20): rollup(row(1))[:-9],
        key(21): b"",
        key(22): rollup(row(1, "steps")),
        "traffic/date=2026-06-16/notes.txt": b"hello",
        "traffic/date=2026-06-16/mine.parquet": b"hello",
    }
    put(light_config, good | bad)
    code, report = traffic(light_config, *WORDS)
    assert code == 1
    assert {finding["where"] for finding in report["findings"]} == set(bad)
    assert {finding["kind"] for finding in report["findings"]} == {"bad_rollup"}
    assert report["figures"]["record_bytes"] == 10


def test_one_topic_alone(spark: SparkSession, light_config: Path) -> None:
    of_all = rollup(row(1), row(10, topic="payments"), row(5, Measure.PUTS, requests=5, **PUTS))
    put(light_config, {key(1): of_all, key(2): rollup(row(1, rack="b")), key(3): rollup(row(1, hour=9, rack="c"))})
    _, report = traffic(light_config, *WORDS, "--topic", "payments")
    assert report["figures"]["record_bytes"] == 10
    assert all(item["requests"] == 0 for item in report["figures"]["costs"])
    assert report["figures"]["model"]["racks"] == 2, "of the fleet in that time, whatever rack the topic is used in"


def test_missing_rollups_are_reported(spark: SparkSession, light_config: Path) -> None:
    code, report = traffic(light_config, *WORDS)
    assert code == 1
    assert [finding["kind"] for finding in report["findings"]] == ["no_traffic"]
    assert "rollups.enable" in report["findings"][0]["text"]


def test_storage_that_fails_during_a_job_is_reported_by_task(
    spark: SparkSession, light_config: Path, light_settings: Settings, monkeypatch
) -> None:
    """The driver lists the rollups, but the executors find no store."""
    put(light_config, {key(number): rollup(row(1)) for number in range(3)})
    missing = light_settings.model_copy(update={"storage": Storage(url=(light_config.parent / "gone").as_uri())})
    tasks_of = reading.tasks_of
    monkeypatch.setattr("pipeline.traffic.job.tasks_of", lambda _, *others: tasks_of(missing, *others))
    context = JobContext(light_settings, spark, (), False, Progress("traffic"))
    report = run(context, TrafficOptions(SPAN))
    (finding,) = report.findings
    assert finding.kind == "task_failed"
    assert finding.where == f"{key(0)} to {key(2)}"
    assert "is missing" in finding.text
    assert report.exit_code == 1


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--from", "soon"), "is not a time"),
        (("--cross-rack-usd-per-gb", "inf"), "is not a price"),
        (("--cross-rack-usd-per-gb", "-1"), "for '--cross-rack-usd-per-gb'"),
        (("--replication-factor", "0"), "for '--replication-factor'"),
    ],
)
def test_wrong_arguments_are_reported_before_spark_starts(tmp_path: Path, words: tuple[str, ...], text: str) -> None:
    answer = CliRunner().invoke(app, ["traffic", "--config", str(tmp_path / "none.yaml"), *words])
    assert answer.exit_code == 2
    assert text in " ".join(answer.output.replace("│", " ").split())
