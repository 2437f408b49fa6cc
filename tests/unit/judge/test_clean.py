"""Histories without anomalies have no findings, whatever the interleaving."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.judge.judge import judge
from tests.support.histories import clean_history


@given(st.integers(0, 1 << 32))
@settings(max_examples=50)
def test_a_clean_history_has_no_finding(seed: int) -> None:
    verdict = judge(clean_history(seed))
    assert verdict.ok, verdict.findings
    counts = verdict.counts
    assert counts.sent == counts.acknowledged + counts.failed > 0
