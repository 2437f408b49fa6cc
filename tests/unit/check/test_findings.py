"""Findings: one line each, the cause before the remedy, and the exit code."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.check.findings import Finding, Kind, Level, error, exit_code, from_error, ok, skipped, warning


@given(st.text(), st.text(), st.text())
def test_always_one_line(where: str, text: str, remedy: str) -> None:
    line = Finding(Level.ERROR, Kind.STORE, where, text, remedy).line
    assert len(line.splitlines()) <= 1


def test_cause_and_remedy_of_an_error() -> None:
    found = from_error(Kind.STORE, "redis.url h:1", "redis.url h:1: appendonly is no; set it to yes; or not")
    assert (found.where, found.text, found.remedy) == ("redis.url h:1", "appendonly is no", "set it to yes; or not")
    assert found.line == "redis.url h:1: appendonly is no; set it to yes; or not"


def test_a_remedy_for_an_error_that_has_none() -> None:
    assert from_error(Kind.STORE, "", "it is gone", "bring it back").line == "it is gone; bring it back"


@pytest.mark.parametrize(
    ("finding", "code", "strict_code"),
    [
        (ok(Kind.STORE, "", ""), 0, 0),
        (skipped(Kind.STORE, ""), 0, 0),
        (warning(Kind.STORE, "", "", ""), 0, 1),
        (error(Kind.STORE, "", "", ""), 1, 1),
    ],
)
def test_exit_code(finding: Finding, code: int, strict_code: int) -> None:
    findings = [ok(Kind.SETTINGS, "", ""), finding]
    assert exit_code(findings) == code
    assert exit_code(findings, strict=True) == strict_code
