"""The command line around the jobs, in the session of all tests."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
import typer

from pipeline.commands import run_command
from pipeline.commands.common import Shared, run_job
from pipeline.job import Finding, JobContext, JobReport
from pipeline.tasks import TaskFailed, run_tasks
from proxy.config import Settings
from tests.support.segments import make_topic, write_segments
from tests.support.standard_error import own_lines


def divide(number: int) -> float:
    return 1 / number


def work(context: JobContext) -> JobReport:
    report = JobReport("example", figures={"topics": list(context.topics), "dry_run": context.dry_run})
    context.progress.total(tasks=2)
    for task, answer in run_tasks(context.spark, divide, range(2)):
        context.progress.advance(tasks=1)
        if isinstance(answer, TaskFailed):
            report.findings.append(Finding("failed", str(task), answer.text))
    return report


def fail(context: JobContext) -> JobReport:
    context.spark.sql("select raise_error('first line\nsecond line')").collect()
    raise AssertionError


@pytest.mark.usefixtures("spark")
def test_a_json_report_is_the_whole_output(
    light_config: Path, light_settings: Settings, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        asyncio.run(make_topic(light_settings, name))
    with pytest.raises(typer.Exit) as ended:
        run_job("example", Shared(light_config, ["b", "a", "b"], as_json=True, dry_run=True), work)
    assert ended.value.exit_code == 1
    report = json.loads(capfd.readouterr().out)
    assert report["findings"] == [{"kind": "failed", "where": "0", "text": "ZeroDivisionError: division by zero"}]
    assert report["figures"].pop("duration_seconds") > 0
    assert report["figures"] == {"topics": ["b", "a"], "dry_run": True}


@pytest.mark.usefixtures("spark")
def test_hundreds_of_lines_of_java_become_one(light_config: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        run_job("example", Shared(light_config), fail)
    assert ended.value.exit_code == 1
    output = capfd.readouterr()
    assert output.out == ""
    (line,) = own_lines(output.err)
    assert line.startswith("error: ")
    assert "first line second line" in line
    assert line.endswith("; -v shows more")
    with pytest.raises(typer.Exit):
        run_job("example", Shared(light_config, verbose=True), fail)
    assert "Traceback" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "text", "code"),
    [
        (["audit", "--config", "missing.yaml"], "can't read missing.yaml", 1),
        (["run", "--config", "missing.yaml", "audit"], "can't read missing.yaml", 1),
        (["audit", "--config", "missing.yaml", "--conf", "memory=4g"], "not a setting of Spark", 2),
        (
            ["audit", "--config", "missing.yaml", "--orphan-age", "old"],
            "Invalid value for '--orphan-age': 'old' is no",
            2,
        ),
        (
            ["traffic", "--config", "missing.yaml", "--from", "tomorrow"],
            "Invalid value for '--from': 'tomorrow' is no",
            2,
        ),
        (["run", "--config", "missing.yaml", "dance"], "not a job; the jobs are", 2),
        (["run", "--config", "missing.yaml", "--every", "often", "audit"], "not a span of time", 2),
        (["run", "--config", "missing.yaml", "audit 'one"], "No closing quotation", 2),
    ],
)
def test_wrong_arguments(
    arguments: list[str], text: str, code: int, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    assert run_command(arguments) == code
    assert text in capfd.readouterr().err


@pytest.mark.usefixtures("spark")
def test_several_jobs_in_turn(light_config: Path, light_settings: Settings, capfd: pytest.CaptureFixture[str]) -> None:
    topic = asyncio.run(make_topic(light_settings, "in-turn", 2))
    asyncio.run(write_segments(light_settings, topic, 8))
    jobs = ["merge --json --min-age 0s", "audit --json"]
    assert run_command(["run", "--config", str(light_config), "--topic", "in-turn", *jobs]) == 0
    merged, audited = (json.loads(line) for line in capfd.readouterr().out.splitlines())
    assert (merged["job"], audited["job"]) == ("merge", "audit")
    assert merged["figures"]["objects_written"] == 1
