from __future__ import annotations

import io
import json

from rich.console import Console

from pipeline.job import MAX_FINDINGS, Finding, JobReport, counted


def printed(report: JobReport, *, terminal: bool = False) -> str:
    stream = io.StringIO()
    report.print(Console(file=stream, width=160, force_terminal=terminal, color_system=None))
    return stream.getvalue()


def test_without_findings_a_job_is_done() -> None:
    report = JobReport("merge", figures={"bytes_read": 3 << 30, "objects_written": 12, "duration_seconds": 125.2})
    assert report.exit_code == 0
    document = json.loads(report.as_json())
    assert document == {"job": "merge", "dry_run": False, "exit_code": 0, "findings": [], "figures": report.figures}
    lines = printed(report)
    assert "3,221,225,472 (3.0 GiB)" in lines
    assert "2 min 5 s" in lines


def test_findings_are_printed_unchanged() -> None:
    report = JobReport("audit", [Finding("missing_object", "orders[3] at 17", "[bold]no[/bold] object")])
    assert report.exit_code == 1
    assert json.loads(report.as_json())["findings"] == [
        {"kind": "missing_object", "where": "orders[3] at 17", "text": "[bold]no[/bold] object"}
    ]
    lines = printed(report, terminal=True)
    assert "audit: 1 finding\n" in lines.replace(" \n", "\n").replace("  ", "")
    assert "[bold]no[/bold] object" in lines
    assert "orders[3] at 17" in lines


def test_without_a_terminal_findings_are_lines_of_their_own() -> None:
    text = "[bold]no[/bold] object " * 20
    report = JobReport("audit", [Finding("missing_object", "orders[3] at 17", text), Finding("gave_up", "", "it ends")])
    lines = printed(report).splitlines()
    assert lines[:3] == ["audit: 2 findings", f"missing_object: orders[3] at 17 {text}", "gave_up: it ends"]


def test_a_dry_run_says_so() -> None:
    report = JobReport("merge", [Finding("shard_fenced", "", "it is")], {"tasks": 1}, dry_run=True)
    assert json.loads(report.as_json())["dry_run"] is True
    assert printed(report).count("merge (dry run)") == 2


def test_the_number_of_findings_of_a_kind_is_limited() -> None:
    report = JobReport("merge")
    for number in range(MAX_FINDINGS + 3):
        report.find("missing_object", str(number), "")
    report.find("shard_fenced", "", "it is")
    assert len(report.findings) == MAX_FINDINGS + 2
    assert report.findings[-2:] == [("missing_object", "", "and 3 more"), ("shard_fenced", "", "it is")]


def test_one_is_singular() -> None:
    assert [counted(number, "rack") for number in (0, 1, 2_000)] == ["0 racks", "1 rack", "2,000 racks"]


def test_nested_figures_are_for_scripts_only() -> None:
    report = JobReport("merge", figures={"by_topic": {"orders": 1}, "ratio": 0.5, "dry_run": True})
    assert json.loads(report.as_json())["figures"]["by_topic"] == {"orders": 1}
    lines = printed(report)
    assert "orders" not in lines
    assert "0.500" in lines
    assert "True" in lines
